package server

import (
	"path/filepath"
	"testing"

	"github.com/likenessdb/likeness/internal/balance"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/sidecar/route"
)

// TestAListedRouteReleasesItsTable: a description of a route counts the items of its table and keeps no snapshot,
// which would keep the file mapped after the table is closed.
func TestAListedRouteReleasesItsTable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.table")
	w, err := table.NewWriter(path, table.Meta{Features: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Append([]rerank.ID{rerank.UintID(1), rerank.UintID(2)}, rerank.NewMatrix(2, 1)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	live, err := table.OpenLive(path, table.Expect{}, table.LiveOptions{Unsynced: true})
	if err != nil {
		t.Fatal(err)
	}
	if got := fromRoute(&route.Route{Parts: route.Parts{Live: live}}); got.GetTableItems() != 2 {
		t.Errorf("the route has %d items, want 2", got.GetTableItems())
	}
	if err := live.Close(); err != nil {
		t.Fatal(err)
	}
	balance.Now(t, balance.Unmapped(path))
}
