package search_test

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/internal/adversary"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/dot"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/mol"
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/rerank/tensor"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

// dotWorld is a collection under the cosine.
func dotWorld(t testing.TB) *world {
	sim, err := dot.New(dot.Config{Dim: 16, Normalise: true}, nil)
	must(t, err)
	return newWorld(t, sim, random(3, 900, 16))
}

// tables of the world's features in a format; with full, in full precision too.
func (w *world) rounded(t testing.TB, f rerank.Format, l table.Layout, full bool) *table.Table {
	t.Helper()
	features := rerank.NewMatrix(w.vectors.Rows, w.sim.Spec().Features)
	must(t, w.sim.EncodeItems(features, w.vectors))
	meta := table.Meta{Model: "toy", ModelVersion: version, Collection: collection, Format: f, Layout: l, Full: full, Block: w.sim.Spec().Block}
	tab, err := table.FromMemory(meta, w.items(), features, nil)
	must(t, err)
	return tab
}

// TestRoundedTable: over rounded rows, scores have full precision if the table keeps full-precision
// rows or the search asks for a proof. Otherwise the certificate states their error.
func TestRoundedTable(t *testing.T) {
	w, gap := dotWorld(t), float32(0.5)
	for _, f := range rerank.Formats()[1:] {
		for _, l := range []table.Layout{table.LayoutRows, table.LayoutTiles} {
			for name, c := range map[string]struct {
				full   bool
				maxGap *float32
				exact  bool // the scores have full precision
			}{
				"rounded": {}, "full precision": {full: true, exact: true}, "stored vectors": {maxGap: &gap, exact: true},
			} {
				for _, strategy := range []rerank.Strategy{rerank.Scan, rerank.Average} {
					r := w.route(route.PlacementTable, func(r *route.Route) {
						r.Table, r.Strategy, r.ExactSearch = w.rounded(t, f, l, c.full), strategy, true
					})
					for q := range 20 {
						query := random(uint64(100+q), 1, 16).Data
						a := searchRoute(t, r, search.Request{Query: rerank.Query{Vector: query}, K: 10, MaxGap: c.maxGap})
						want := w.exact(t, query, nil)[:10]
						if a.Certificate.Status != rerank.StatusExact {
							t.Fatalf("%s %s %s: %+v", f, name, strategy, a.Certificate)
						}
						if c.exact != (a.Certificate.Epsilon < 1e-4) {
							t.Fatalf("%s %s %s: ε is %v", f, name, strategy, a.Certificate.Epsilon)
						}
						if c.exact {
							sameHits(t, a.Hits, want)
							continue
						}
						for i, h := range a.Hits {
							if d := h.Score - want[i].Score; d > a.Certificate.Epsilon || -d > a.Certificate.Epsilon {
								t.Fatalf("%s: score %d is off by %v, ε is %v", f, i, d, a.Certificate.Epsilon)
							}
						}
					}
				}
			}
		}
	}
}

// astray returns rows whose packed scores are ordered as wrongly as packing permits: the first 20
// look best and are worst, the last 20 look like those before them and are best, and between them
// lie so many that not all are kept for a second look. All scores are nearly equal.
func astray(rng *rand.Rand, f rerank.Format, u []float32) rerank.Matrix {
	const worst, between, best, size = 20, 70, 20, 0x1p-3
	p := rerank.Packing{Format: f, Cols: len(u)}
	down, words, grid := adversary.RoundedDown(rng, p, u, size), make([]uint32, p.RowWords()), make([]float32, p.Cols)
	p.Pack(words, down)
	p.Unpack(grid, words, 1)
	m := rerank.NewMatrix(worst+between+best, p.Cols)
	lost := adversary.Dot(u, down) - adversary.Dot(u, grid)
	step := size * 0x1p-7 // between two numbers of the format
	if f == rerank.FormatFloat16 {
		step = size * 0x1p-10
	}
	higher := raised(grid, u, step, 1.4*lost)
	for r := range m.Rows {
		for i, x := range grid {
			switch off := down[i] - x; {
			case r < worst:
				m.Row(r)[i] = higher[i] - off
			case r < worst+between:
				m.Row(r)[i] = x + 0.8*off
			default:
				m.Row(r)[i] = x + off
			}
		}
	}
	return m
}

// raised moves as many numbers of a row by a step as make its score so much more.
func raised(grid, u []float32, step, by float64) []float32 {
	row := slices.Clone(grid)
	for i := range row {
		row[i] += float32(math.Copysign(step, float64(u[i])))
		if adversary.Dot(u, row)-adversary.Dot(u, grid) >= by {
			break
		}
	}
	return row
}

// TestRoundedTableGoesAstray: rows whose packed scores are in the wrong order are
// found in the right one where there is full precision, and otherwise the
// certificate says so: an item that is missing never exceeds the K-th score by more
// than the certificate claims.
func TestRoundedTableGoesAstray(t *testing.T) {
	const dim, k = 16, 10
	rng := rand.New(rand.NewPCG(5, 6))
	sim, err := dot.New(dot.Config{Dim: dim}, nil)
	must(t, err)
	for _, f := range []rerank.Format{rerank.FormatBFloat16, rerank.FormatFloat16} {
		query := make([]float32, dim)
		for i := range query {
			query[i] = float32(math.Copysign(1+rng.Float64()/16, rng.Float64()-0.5))
		}
		w := newWorld(t, sim, astray(rng, f, query))
		truth := map[rerank.ID]float64{}
		for r, id := range w.owners {
			truth[id] = adversary.Dot(query, w.vectors.Row(r))
		}
		for _, full := range []bool{false, true} {
			for _, strategy := range []rerank.Strategy{rerank.Scan, rerank.Average} {
				for _, gap := range []*float32{nil, ptr(0)} {
					r := w.route(route.PlacementTable, func(r *route.Route) {
						r.Table, r.Strategy, r.ExactSearch, r.Depth = w.rounded(t, f, table.LayoutRows, full), strategy, true, 1000
					})
					a := searchRoute(t, r, search.Request{Query: rerank.Query{Vector: query}, K: k, MaxGap: gap})
					if exact := a.Certificate.Epsilon < 1e-4; exact && truth[a.Hits[k-1].ID] < truth[w.owners[len(w.owners)-1]] {
						t.Errorf("%s: the best rows are missing", f)
					}
					if problem := contradiction(a, truth, k, 0); problem != "" {
						t.Errorf("%s, full precision %t, %s, gap asked %t: %s\n%+v", f, full, strategy, gap != nil, problem, a.Certificate)
					}
				}
			}
		}
	}
}

// TestRoundedGates: of a full-gate MoL no bound of use is known, so an answer from
// rounded rows proves nothing, and one with full precision behind them is exact.
func TestRoundedGates(t *testing.T) {
	m, err := model.Open("../../examples/models/banking77-mol")
	must(t, err)
	w := newWorld(t, m.Similarity, random(4, 300, m.Spec().ItemDim))
	for _, full := range []bool{false, true} {
		for _, l := range []table.Layout{table.LayoutRows, table.LayoutTiles} {
			for _, f := range rerank.Formats()[1:] {
				r := w.route(route.PlacementTable, func(r *route.Route) {
					r.Table, r.Strategy = w.rounded(t, f, l, full), rerank.Scan
				})
				query := random(77, 1, m.Spec().QueryDim).Data
				a := searchRoute(t, r, search.Request{Query: rerank.Query{Vector: query, HasUserID: true}, K: 10})
				if exact := a.Certificate.Status == rerank.StatusExact; exact != full {
					t.Errorf("%s %s, full precision %t: %+v", f, l, full, a.Certificate)
				}
				if full {
					sameHits(t, a.Hits, w.exact(t, query, nil)[:10])
				}
			}
		}
	}
}

// TestOrderedOverRoundedRows: an answer over int8 rows is not called ordered if its order differs
// from the order in full precision.
func TestOrderedOverRoundedRows(t *testing.T) {
	w := dotWorld(t)
	for _, full := range []bool{false, true} {
		r := w.route(route.PlacementTable, func(r *route.Route) {
			r.Table, r.Strategy = w.rounded(t, rerank.FormatInt8, table.LayoutRows, full), rerank.Scan
		})
		differ, ordered := 0, 0
		for q := range 200 {
			query := random(uint64(1000+q), 1, 16).Data
			a := searchRoute(t, r, search.Request{Query: rerank.Query{Vector: query}, K: 10})
			same := slices.EqualFunc(a.Hits, w.exact(t, query, nil)[:10], func(h search.Hit, s rerank.Scored) bool { return h.ID == s.ID })
			if a.Certificate.Ordered && !same {
				t.Fatalf("full precision %t, query %d: ordered, and the order is another: %+v", full, q, a.Certificate)
			}
			if !same {
				differ++
			}
			if a.Certificate.Ordered {
				ordered++
			}
		}
		if full && ordered < 190 || !full && differ == 0 {
			t.Errorf("full precision %t: of 200 answers %d are ordered, %d differ from full precision", full, ordered, differ)
		}
	}
}

// TestSteepGates: a scan by gates that amplify rounding, over items that are nearly
// equal, has the rows, the order and the scores of float64, and says so.
func TestSteepGates(t *testing.T) {
	m, err := model.Open("../../examples/models/banking77-mol")
	must(t, err)
	p := m.Parameters()
	for _, gain := range []float32{1, 4} {
		tensors := tensor.Set{}
		for name, v := range p.Tensors {
			if v.Data = slices.Clone(v.Data); strings.HasPrefix(name, "_gating_fn") {
				for i := range v.Data {
					v.Data[i] *= gain
				}
			}
			tensors[name] = v
		}
		var c mol.Config
		must(t, json.Unmarshal(p.Config, &c))
		sim, err := mol.New(c, tensors)
		must(t, err)
		base := random(4, 300, m.Spec().ItemDim)
		for r := 1; r < base.Rows; r += 2 {
			copy(base.Row(r), base.Row(r-1))
			base.Row(r)[r%base.Cols] *= 1 + 1e-4
		}
		w := newWorld(t, sim, base)
		features := rerank.NewMatrix(base.Rows, sim.Spec().Features)
		must(t, sim.EncodeItems(features, base))
		exact, ordered := 0, 0
		for q := range 30 {
			query := random(uint64(200+q), 1, m.Spec().QueryDim).Data
			r := w.route(route.PlacementTable, func(r *route.Route) {
				r.Table, r.Strategy = w.rounded(t, rerank.FormatFloat32, table.LayoutTiles, false), rerank.Scan
			})
			a := searchRoute(t, r, search.Request{Query: rerank.Query{Vector: query}, K: 10})
			enc, err := sim.Encode(rerank.Query{Vector: query})
			must(t, err)
			scores, truth := make([]float64, base.Rows), map[rerank.ID]float64{}
			_, err = enc.ScoreWide(scores, rerank.Items{Features: features})
			must(t, err)
			for i, id := range w.owners {
				truth[id] = scores[i]
			}
			if problem := contradiction(a, truth, 10, 0); problem != "" {
				t.Fatalf("gain %v, query %d: %s\n%+v", gain, q, problem, a.Certificate)
			}
			if a.Certificate.Status == rerank.StatusExact {
				exact++
			}
			if a.Certificate.Ordered {
				ordered++
			}
			if a.Certificate.Epsilon > 1e-5 {
				t.Errorf("gain %v: ε is %v", gain, a.Certificate.Epsilon)
			}
		}
		if t.Logf("gain %v: %d of 30 answers are exact, %d ordered", gain, exact, ordered); exact < 30 || ordered < 20 {
			t.Errorf("gain %v: %d of 30 answers are exact, %d ordered", gain, exact, ordered)
		}
	}
}

// TestScoreRoundedTable: scores of given ids have full precision, and so have the explanations of a
// search.
func TestScoreRoundedTable(t *testing.T) {
	w := dotWorld(t)
	for _, full := range []bool{false, true} {
		r := w.route(route.PlacementTable, func(r *route.Route) {
			r.Table, r.Strategy = w.rounded(t, rerank.FormatInt8, table.LayoutRows, full), rerank.Average
		})
		query := rerank.Query{Vector: random(5, 1, 16).Data}
		best := w.exact(t, query.Vector, nil)[0]
		a, err := pipe(t, r).Score(t.Context(), search.ScoreRequest{Route: r.Name, Query: query, IDs: []rerank.ID{best.ID}})
		must(t, err)
		if d := a.Scores[0] - best.Score; d > 1e-5 || d < -1e-5 {
			t.Errorf("full precision %t: the score is %v, want %v", full, a.Scores[0], best.Score)
		}
		if !full {
			continue
		}
		for _, h := range searchRoute(t, r, search.Request{Query: query, K: 5, Explain: true}).Hits {
			if h.Explanation.Score != h.Score {
				t.Errorf("the explanation of %v adds up to %v", h.Score, h.Explanation.Score)
			}
		}
	}
}

// TestScoresThatRoundingChanged: without a store, scores of a table that rounds prove nothing, unless it keeps full
// precision beside.
func TestScoresThatRoundingChanged(t *testing.T) {
	w := dotWorld(t)
	for _, full := range []bool{false, true} {
		r := w.route(route.PlacementTable, func(r *route.Route) {
			r.Table, r.Store, r.Strategy = w.rounded(t, rerank.FormatInt8, table.LayoutRows, full), nil, rerank.Scan
		})
		a, err := pipe(t, r).Score(t.Context(), search.ScoreRequest{Route: r.Name, Query: rerank.Query{Vector: random(5, 1, 16).Data}, IDs: w.items()[:2]})
		must(t, err)
		if proved := a.Certificate.Proof != rerank.ProofNone; proved != full || len(a.Scores) != 2 {
			t.Errorf("full precision %t: %+v", full, a)
		}
	}
}

// live opens a live table of the world's first items.
func (w *world) live(t testing.TB, items int) *table.Live {
	t.Helper()
	path := filepath.Join(t.TempDir(), "t.table")
	writer, err := table.NewWriter(path, table.Meta{Model: "toy", ModelVersion: version, Collection: collection, Features: w.sim.Spec().Features, Kind: "dot"})
	must(t, err)
	must(t, writer.Append(w.items()[:items], w.table.Features().Slice(0, items)))
	must(t, writer.Close())
	l, err := table.OpenLive(path, table.Expect{}, table.LiveOptions{Unsynced: true})
	must(t, err)
	t.Cleanup(func() { must(t, l.Close()) })
	return l
}

// TestLiveTable: a search sees the writes before it, and proves nothing while one
// that was seen is not applied.
func TestLiveTable(t *testing.T) {
	w := dotWorld(t)
	for _, strategy := range []rerank.Strategy{rerank.Scan, rerank.Average} {
		l := w.live(t, 600)
		r := w.route(route.PlacementTable, func(r *route.Route) {
			r.Table, r.Live, r.Strategy, r.ExactSearch = nil, l, strategy, true
		})
		p, query := pipe(t, r), random(200, 1, 16).Data
		ask := func() search.Answer {
			a, err := p.Search(t.Context(), search.Request{Route: r.Name, Query: rerank.Query{Vector: query}, K: 10})
			must(t, err)
			return a
		}
		l.Announce()
		if a := ask(); a.Certificate.Status == rerank.StatusExact {
			t.Errorf("%s: exact while a write is pending", strategy)
		}
		all := w.exact(t, query, nil)
		must(t, l.Upsert(w.items()[600:], w.table.Features().Slice(600, 900), nil))
		l.Settle()
		a := ask()
		if sameHits(t, a.Hits, all[:10]); a.Certificate.Status != rerank.StatusExact {
			t.Errorf("%s: %+v", strategy, a.Certificate)
		}
		if strategy == rerank.Scan {
			must(t, l.Delete([]rerank.ID{all[0].ID, all[3].ID}))
			want := append([]rerank.Scored{all[1], all[2]}, all[4:12]...)
			sameHits(t, ask().Hits, want)
		}
		now := p.Routes()[0].CurrentTable()
		if now.Count() < 898 {
			t.Errorf("%d items", now.Count())
		}
		now.Release()
	}
}

// TestLongRows: three rows so long that their rounding exceeds all differences of scores
// cost two rounds, and the answer says that nothing is proved.
func TestLongRows(t *testing.T) {
	const dim = 16
	sim, err := dot.New(dot.Config{Dim: dim}, nil)
	must(t, err)
	rows := random(9, 3000, dim)
	for r := range rows.Rows {
		rerank.Normalise(rows.Row(r))
	}
	for _, r := range []int{100, 200, 300} {
		for i := range rows.Row(r) {
			rows.Row(r)[i] *= 6e6
		}
	}
	w := newWorld(t, sim, rows)
	r := w.route(route.PlacementStored, func(r *route.Route) { r.Strategy, r.ExactSearch = rerank.Average, true })
	for q := range 50 {
		query := random(uint64(500+q), 1, dim).Data
		for _, long := range []int{100, 200, 300} { // no long row is near the query
			x := rows.Row(long)
			by := float32(adversary.Dot(query, x)/(rerank.Norm(x)*rerank.Norm(x))) + 1e-6
			for i := range query {
				query[i] -= by * x[i]
			}
		}
		for _, gap := range []*float32{nil, ptr(0)} {
			a := searchRoute(t, r, search.Request{Query: rerank.Query{Vector: query}, K: 10, Depth: 10, MaxGap: gap})
			if c := a.Certificate; c.Status != rerank.StatusUnknown || c.Rounds > 2 || c.Candidates > 100 {
				t.Fatalf("query %d: %+v", q, c)
			}
		}
	}
}

// TestTruncatedTable: a table whose file gets shorter under the process fails the searches
// that read it, which the database answers, and not the process.
func TestTruncatedTable(t *testing.T) {
	w := dotWorld(t)
	features := rerank.NewMatrix(w.vectors.Rows, w.sim.Spec().Features)
	must(t, w.sim.EncodeItems(features, w.vectors))
	for _, strategy := range []rerank.Strategy{rerank.Scan, rerank.Average} {
		path := filepath.Join(t.TempDir(), "items.table")
		meta := table.Meta{Model: "toy", ModelVersion: version, Collection: collection, Features: features.Cols}
		file, err := table.NewWriter(path, meta)
		must(t, err)
		must(t, file.Append(w.items(), features))
		must(t, file.Close())
		mapped, err := table.Open(path, table.Expect{})
		must(t, err)
		t.Cleanup(func() { must(t, mapped.Close()) })
		r := w.route(route.PlacementTable, func(r *route.Route) { r.Table, r.Strategy = mapped, strategy })
		request := search.Request{Query: rerank.Query{Vector: random(5, 1, 16).Data}, K: 10}
		if a := searchRoute(t, r, request); a.Degraded != nil {
			t.Fatalf("%s: %+v", strategy, a.Degraded)
		}
		must(t, os.Truncate(path, 100))
		if a := searchRoute(t, r, request); a.Degraded == nil || len(a.Hits) != 10 {
			t.Errorf("%s: degraded %+v, %d hits", strategy, a.Degraded, len(a.Hits))
		}
	}
}
