package filter_test

import (
	"testing"

	"github.com/likenessdb/likeness/adapters/internal/filter"
	"github.com/likenessdb/likeness/internal/cost"
)

// filterCost bounds the memory for parsing a filter: a condition of two bytes, as {}, becomes a
// Filter and a node, both kept.
var filterCost = cost.Bound{Fixed: 1 << 20, PerByte: 128}

// Filters are parsed in memory in proportion to their length.
func TestCostOfFilters(t *testing.T) {
	families := cost.JSON()
	families["deep filters"] = cost.Nested(`{"must":[`, "", "]}")
	families["nested fields"] = cost.Nested(`{"must":[{"nested":{"key":"k","filter":`, "{}", "}}]}")
	families["conditions"] = cost.Repeated(`{"must":[`, cost.Constant(`{"key":"k","match":{"value":1}}`), "]}")
	families["equal conditions"] = cost.Repeated(`{"must":[`, cost.Constant(`{"is_null":{"key":"k"}}`), "]}")
	families["ids"] = cost.Repeated(`{"must":[{"has_id":[`, cost.Constant("1"), "]}]}")
	families["texts to match"] = cost.Repeated(`{"must":[{"key":"k","match":{"any":[`, cost.Constant(`"v"`), "]}}]}")
	for family, input := range families {
		for place, text := range map[string][2]string{"filter": {"", ""}, "must": {`{"must":`, "}"}, "key": {`{"must":[{"key":`, "}]}"}} {
			cost.Linear(t, place+", "+family, filterCost, func(length int) []byte {
				return append(append([]byte(text[0]), input(length)...), text[1]...)
			}, func(b []byte) { _, _ = filter.Parse(string(b)) })
		}
	}
}
