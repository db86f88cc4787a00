package filter

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
)

// TakeExcluded returns the ids that a filter excludes whatever its other conditions are: the
// has_id conditions of its must_not. rest is a filter of the other conditions, or "" if there
// are none. TakeExcluded returns adapters.ErrFilter if the filter cannot be read.
func TakeExcluded(text string) (ids []rerank.ID, rest string, err error) {
	if !strings.Contains(text, "has_id") {
		return nil, text, nil
	}
	f, err := Parse(text)
	if err != nil {
		return nil, text, err
	}
	var others []int // places in must_not
	for i, c := range f.MustNot {
		if has, ok := c.(HasID); ok {
			ids = append(ids, has...)
		} else {
			others = append(others, i)
		}
	}
	if len(others) == len(f.MustNot) {
		return nil, text, nil
	}
	rest, err = withoutConditions(text, others)
	return ids, rest, err
}

// withoutConditions returns a filter whose must_not keeps only the conditions at the given places.
func withoutConditions(text string, keep []int) (string, error) {
	var f map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &f); err != nil {
		return "", fmt.Errorf("%w: %w", adapters.ErrFilter, err)
	}
	if len(keep) == 0 {
		delete(f, "must_not")
	} else {
		var all, kept []json.RawMessage
		if err := json.Unmarshal(f["must_not"], &all); err != nil {
			return "", fmt.Errorf("%w: must_not: %w", adapters.ErrFilter, err)
		}
		for _, i := range keep {
			kept = append(kept, all[i])
		}
		f["must_not"], _ = json.Marshal(kept)
	}
	if len(f) == 0 {
		return "", nil
	}
	rest, err := json.Marshal(f)
	if err != nil {
		return "", fmt.Errorf("%w: %w", adapters.ErrFilter, err)
	}
	return string(rest), nil
}
