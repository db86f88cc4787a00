package guard

import (
	"context"
	"testing"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
)

// quick answers every search at once.
type quick struct{ Server }

func (quick) Search(context.Context, adapters.SearchRequest) ([]rerank.List, error) { return nil, nil }

// TestSearchesEarnHedges: one search in twenty may be sent twice, and one at least, so that every search counts.
func TestSearchesEarnHedges(t *testing.T) {
	s := New(quick{}, Options{Name: "s", HedgeAfter: time.Hour}).(*Store) //nolint:forcetypeassert // New returns one
	for range 100 {
		if _, err := s.Search(t.Context(), adapters.SearchRequest{Collection: "c"}); err != nil {
			t.Fatal(err)
		}
	}
	hedges := 0
	for hedges < 100 && s.hedges.Spend() {
		hedges++
	}
	if hedges != 5 {
		t.Errorf("100 searches earn %d hedges", hedges)
	}
}
