package search_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/bilinear"
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
	"github.com/likenessdb/likeness/sidecar/search/plan"
)

// spellings returns the id of a UUID in every form that Qdrant takes, the canonical one first.
func spellings(canonical string) (all []rerank.ID) {
	plain := strings.ReplaceAll(canonical, "-", "")
	for _, text := range []string{canonical, strings.ToUpper(canonical), plain, strings.ToUpper(plain), "{" + canonical + "}", "urn:uuid:" + canonical} {
		all = append(all, rerank.TextID(text))
	}
	return all
}

// TestSpellingsOfUUIDs: on Qdrant all spellings of a UUID name one item: each gets its score, each leaves the item out,
// and together they count as one item of a history. A missing id comes back as it was sent.
func TestSpellingsOfUUIDs(t *testing.T) {
	store, _ := openQdrant(t)
	can := adapters.AbilitiesOf(store)
	schema := adapters.Schema{Collection: collection, Fields: []adapters.VectorField{{Name: vectorField, Dim: rewriteDim, Metric: adapters.InnerProduct}}, TextIDs: true}
	must(t, can.Write.Create(t.Context(), schema))
	w := newWorld(t, newBilinear(t, bilinear.Full, false), random(3, 4, rewriteDim))
	ids := make([]rerank.ID, w.vectors.Rows)
	for i := range ids {
		ids[i] = rerank.TextID(fmt.Sprintf("f47ac10b-58cc-4372-a567-0e02b2c3d47%d", i))
	}
	must(t, can.Write.Write(t.Context(), collection, schema, adapters.Rows{IDs: ids, Vectors: []rerank.Matrix{w.vectors}}))
	tab, err := table.FromMemory(table.Meta{Model: "toy", ModelVersion: version, Collection: collection}, ids, w.vectors, nil)
	must(t, err)
	text, _ := ids[2].Text()
	forms := spellings(text)
	absent := rerank.TextID("F47AC10B-58CC-4372-A567-0E02B2C3D479")
	for _, place := range []route.Placement{route.PlacementStored, route.PlacementTable} {
		t.Run(string(place), func(t *testing.T) {
			p := pipe(t, w.route(place, func(r *route.Route) {
				r.Store, r.Vector = store, vectorField
				if place == route.PlacementTable {
					r.Table = tab
				}
			}))
			query := random(2, 1, rewriteDim).Row(0)
			q := rerank.Query{Vector: query}
			asked := append(slices.Clone(forms), absent)
			a, err := p.Score(t.Context(), search.ScoreRequest{Route: "r", Query: q, IDs: asked, Explain: true})
			must(t, err)
			want := w.exact(t, query, func(row int) bool { return row == 2 })[0].Score
			for i := range forms {
				if off := math.Abs(float64(a.Scores[i] - want)); off > 1e-5 || a.Explanations[i].Score != a.Scores[i] {
					t.Errorf("%s scores %v, explained %v, want %v", forms[i], a.Scores[i], a.Explanations[i].Score, want)
				}
			}
			if !slices.Equal(a.Missing, []rerank.ID{absent}) {
				t.Errorf("missing %v, want %v", a.Missing, absent)
			}
			for _, form := range forms {
				one, err := p.Search(t.Context(), search.Request{Route: "r", Query: q, K: 10, Exclude: []rerank.ID{form}})
				must(t, err)
				if len(one.Hits) != 3 || slices.ContainsFunc(one.Hits, func(h search.Hit) bool { return h.ID == ids[2] }) {
					t.Errorf("without %s: %v", form, one.Hits)
				}
			}
			similar := func(items ...plan.WeightedID) []search.Hit {
				one, err := p.Search(t.Context(), search.Request{Route: "r", K: 10, History: items})
				must(t, err)
				return one.Hits
			}
			two := similar(plan.WeightedID{ID: forms[0], Weight: 2}, plan.WeightedID{ID: ids[1], Weight: 1})
			if one := similar(plan.WeightedID{ID: forms[1], Weight: 1}, plan.WeightedID{ID: ids[1], Weight: 1}, plan.WeightedID{ID: forms[3], Weight: 1}); len(one) != 2 || !slices.EqualFunc(one, two, func(a, b search.Hit) bool { return a.ID == b.ID && a.Score == b.Score }) {
				t.Errorf("like two spellings of an item: %v, and like the item twice: %v", one, two)
			}
		})
	}
}
