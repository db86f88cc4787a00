package index_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/embedded"
	"github.com/likenessdb/likeness/learn/index"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/maxsim"
)

// TestCompareItemsOfSeveralRows finds no difference in what was just built, and
// every one that was made since.
func TestCompareItemsOfSeveralRows(t *testing.T) {
	s, items, v, m := world(t)
	source := index.Source{Store: s, Collection: "questions", Vector: "v"}
	of := func(store *embedded.Store) index.TableJob {
		from := source
		from.Store = store
		return index.TableJob{Source: from, Model: m, Vectors: v, Path: filepath.Join(t.TempDir(), "questions.table")}
	}
	built := of(s)
	if _, err := index.BuildTable(t.Context(), built); err != nil {
		t.Fatal(err)
	}
	companion := index.CompanionJob{
		Source: source, Model: m, Vectors: v, Owner: maxsim.Owner, Writer: s, Name: "learned", Strategies: []rerank.Strategy{rerank.Average}, Features: true,
	}
	if _, err := index.BuildCompanion(t.Context(), companion); err != nil {
		t.Fatal(err)
	}
	same := func(what string, want index.Difference, compare func() (index.Difference, error)) {
		t.Helper()
		if got, err := compare(); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", what, got, err, want)
		}
	}
	table := func(job index.TableJob) func() (index.Difference, error) {
		return func() (index.Difference, error) { return index.CompareTable(t.Context(), job) }
	}
	rows := func() (index.Difference, error) { return index.CompareCompanion(t.Context(), companion) }
	same("table", index.Difference{Rows: 200}, table(built))
	same("companion", index.Difference{Rows: 600}, rows)

	// The collection has lost ten items since, got one and changed one.
	other := rerank.NewMatrix(191, items.Cols)
	copy(other.Data, items.Data[:190*items.Cols])
	copy(other.Row(190), items.Row(0))
	copy(other.Row(100), items.Row(1))
	ids := make([]rerank.ID, other.Rows)
	for i := range ids {
		ids[i] = rerank.UintID(uint64(i))
	}
	ids[190] = rerank.UintID(1000)
	changed := embedded.New()
	t.Cleanup(func() { _ = changed.Close() })
	if err := changed.Load("questions", embedded.Collection{IDs: ids,
		Fields: []embedded.Field{{VectorField: adapters.VectorField{Name: "v"}, Vectors: other}}}); err != nil {
		t.Fatal(err)
	}
	now := of(changed)
	now.Path = built.Path
	same("table of another collection", index.Difference{Rows: 191, Missing: 1, Changed: 1, Surplus: 10}, table(now))
	companion.Source.Store = changed
	same("companion of another collection", index.Difference{Rows: 591, Missing: 1, Changed: 1, Surplus: 10}, rows)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := index.CompareTable(ended, built); !errors.Is(err, context.Canceled) {
		t.Errorf("after its end: %v", err)
	}
	if left, err := filepath.Glob(built.Path + ".*"); err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}
