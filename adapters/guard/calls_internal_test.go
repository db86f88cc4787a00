package guard

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
)

// quick answers every search at once.
type quick struct{ Server }

func (quick) Search(context.Context, adapters.SearchRequest) ([]rerank.List, error) { return nil, nil }

// failing fails every scan after one batch, whose cursor it has, and notes where scans begin.
type failing struct {
	Server

	cursor string
	began  *[]string
}

func (f failing) Scan(_ context.Context, r adapters.ScanRequest, yield func(adapters.Rows, string) error) error {
	*f.began = append(*f.began, r.Cursor)
	if err := yield(adapters.Rows{}, f.cursor); err != nil {
		return err
	}
	return adapters.ErrUnavailable
}

// TestWhereAScanGoesOn: a scan goes on once behind the rows that came. It is not repeated where the store has no place
// to go on from, nor if its caller ended it.
func TestWhereAScanGoesOn(t *testing.T) {
	ended := errors.New("it is enough")
	for name, c := range map[string]struct {
		cursor string
		caller error
		began  []string
		want   error
	}{
		"behind the rows":     {"here", nil, []string{"", "here"}, adapters.ErrUnavailable},
		"no place":            {"", nil, []string{""}, adapters.ErrUnavailable},
		"ended by its caller": {"here", ended, []string{""}, ended},
	} {
		var began []string
		s := New(failing{cursor: c.cursor, began: &began}, Options{Name: "s", RetryBudget: 0.1})
		err := adapters.AbilitiesOf(s).Scan.Scan(t.Context(), adapters.ScanRequest{Collection: "c"}, func(adapters.Rows, string) error { return c.caller })
		if !errors.Is(err, c.want) || !slices.Equal(began, c.began) {
			t.Errorf("%s: scans began at %q, want %q; %v", name, began, c.began, err)
		}
	}
}

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
