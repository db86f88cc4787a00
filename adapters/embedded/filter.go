package embedded

import (
	"fmt"

	"github.com/likenessdb/likeness/adapters"
)

// match returns whether a filter lets a row through; nil for no filter.
func (c *collection) match(text string) (func(row int) bool, error) {
	if text == "" {
		return nil, nil
	}
	return nil, fmt.Errorf("%w: the embedded store takes none", adapters.ErrFilter)
}

func (c *collection) forget() {}
