package milvus_test

import (
	"errors"
	"testing"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/milvus"
)

// TestFiltersStayWithinTheirParentheses: conditions of the adapter stand beside a caller's filter, which must not reach
// out of its parentheses.
func TestFiltersStayWithinTheirParentheses(t *testing.T) {
	for filter, ok := range map[string]bool{
		"": true, "a == 1": true, "(a == 1) or (b == 2)": true, `name == "a) or (b"`: true, `name == 'it\'s (' and n in [1, 2]`: true, `meta["k"] == {x}`: true, "a / 2 == 1": true,
		"a == 1) or (b == 2": false, "a == 1)": false, "(a == 1": false, "n in [1, 2)": false, "n in [1": false, `name == "a`: false, `name == "a\"`: false, "name == \"a\n\") or (\"b\"": false,
		"a == 1 // x": false, "a == 1 /* x": false, "a == 1 # x": false, "a == {x": false, "a == 1}": false, "\xff": false,
	} {
		if err := milvus.CheckFilter(filter); (err == nil) != ok || err != nil && !errors.Is(err, adapters.ErrFilter) {
			t.Errorf("%q: %v", filter, err)
		}
	}
}
