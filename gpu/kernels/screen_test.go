package kernels_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/gpu/bound"
	"github.com/likenessdb/likeness/gpu/kernels"
	"github.com/likenessdb/likeness/internal/adversary"
	"github.com/likenessdb/likeness/rerank"
)

// screening is a table whose φ is one inner product, and queries.
type screening struct {
	rows, vectors rerank.Matrix
	scales        []float32
}

// screened returns random queries and a table of which every row is an adversary of one of
// them: float16 lowers its score, or raises it, as far as it can.
func screened(r *rand.Rand, rows, width, queries int) *screening {
	s := &screening{rows: rerank.NewMatrix(rows, width), vectors: rerank.NewMatrix(queries, width)}
	for i := range s.vectors.Data {
		s.vectors.Data[i] = float32(r.NormFloat64())
	}
	for range queries {
		s.scales = append(s.scales, float32(r.NormFloat64()))
	}
	packing := bound.Packing(nil, width)
	for i := range rows {
		u := make([]float32, width)
		for c, x := range s.vectors.Row(i % queries) {
			u[c] = x * float32(1-2*(i/queries%2)) * s.scales[i%queries]
		}
		copy(s.rows.Row(i), adversary.RoundedDown(r, packing, u, 0x1p-5))
	}
	return s
}

// arguments packs the table and the queries by the packing kernels.
func (s *screening) arguments(t *testing.T, m *memory) kernels.ScreenArgs {
	t.Helper()
	features, width := s.rows.Cols, kernels.ScreenWidth(s.rows.Cols)
	halves := make(words[uint16], s.rows.Rows*width)
	table := kernels.RowsPackArgs{
		Source: m.put(words[float32](s.rows.Data)), Halves: m.put(halves), Largest: m.put(words[uint32]{0}),
		Count: uint64(s.rows.Rows), Features: uint64(features), Width: uint64(features), Stride: uint64(width),
	}
	m.launch(t, kernels.RowsPack(s.rows.Rows), table)
	components := make(words[float32], len(s.vectors.Data))
	for i, x := range s.vectors.Data {
		components[i] = x * s.scales[i/features]
	}
	launch, q := kernels.ScreenQueries(features, s.vectors.Rows)
	narrow := make(words[uint16], kernels.ScreenBytes(features, s.vectors.Rows)/2)
	for i := range narrow {
		narrow[i] = 0x7e00
	}
	q.Components, q.Out = m.put(components), m.put(narrow)
	m.launch(t, launch, q)
	return kernels.ScreenArgs{Halves: table.Halves, Vectors: q.Out, Width: uint64(width)}
}

// phi returns φ of a query and a row, in float64.
func (s *screening) phi(query, row int) float64 {
	return float64(s.scales[query]) * adversary.Dot(s.vectors.Row(query), s.rows.Row(row))
}

// above returns what the bounds of the queries add to scores.
func (s *screening) above(t *testing.T) words[float32] {
	t.Helper()
	packing := bound.Packing(nil, s.rows.Cols)
	loss, packed, back := rerank.NewLoss(packing), make([]uint32, packing.RowWords()), make([]float32, s.rows.Cols)
	for i := range s.rows.Rows {
		if row := s.rows.Row(i); !slices.ContainsFunc(row, func(x float32) bool { return !finite(x) }) {
			packing.Pack(packed, row)
			packing.Unpack(back, packed, 1)
			loss.Add(packing, row, back)
		}
	}
	var all words[float32]
	for q := range s.vectors.Rows {
		o := rerank.Operands{Vectors: s.vectors.Slice(q, q+1), Scale: s.scales[q]}
		l, ok := bound.New(nil).Limits(&o, &loss)
		if !ok {
			t.Fatal("no limits")
		}
		all = append(all, l.Base)
	}
	return all
}

// TestScreen: no φ exceeds its upper bound, not even of rows whose scores float16 lowers as far
// as it can while the emulator truncates every sum; those take a good part of the bound. A score that
// is not finite stays so.
func TestScreen(t *testing.T) {
	for _, c := range []struct{ rows, queries, width int }{
		{1, 1, 1}, {127, 1, 33}, {129, 3, 64}, {300, 8, 31}, {140, 9, 70}, {513, 17, 200}, {130, 32, 768},
	} {
		t.Run(fmt.Sprintf("%d rows of %d, %d queries", c.rows, c.width, c.queries), func(t *testing.T) {
			needsEmulator(t)
			const first = 5
			r := rand.New(rand.NewPCG(3, uint64(c.rows)))
			s, m := screened(r, c.rows+first, c.width, c.queries), &memory{}
			odd := c.rows / 2
			if odd > 0 {
				s.rows.Row(first + odd)[c.width/2] = float32(math.Inf(-1))
			}
			a, above := s.arguments(t, m), s.above(t)
			scores, upper := make(words[float32], c.rows*c.queries), make(words[float32], c.rows*c.queries)
			a.Pairs = kernels.Pairs{Scores: m.put(scores), First: first, Count: uint64(c.rows), Queries: uint64(c.queries)}
			m.launch(t, kernels.ScreenScan(c.rows, c.queries, 1), a)
			a.Above, a.Scores = m.put(above), m.put(upper)
			m.launch(t, kernels.ScreenScan(c.rows, c.queries, 1), a)
			used := 0.0
			for q := range c.queries {
				for i := range c.rows {
					at, want := q*c.rows+i, s.phi(q, first+i)
					if odd > 0 && i == odd {
						if finite(scores[at]) || finite(upper[at]) {
							t.Fatalf("query %d, row %d, which is not finite: score %v, bound %v", q, i, scores[at], upper[at])
						}
						continue
					}
					off := math.Abs(want - float64(scores[at]))
					if !(float64(upper[at]) >= want) || !(off <= float64(above[q])) {
						t.Fatalf("query %d, row %d: φ %v, score %v, bound %v", q, i, want, scores[at], upper[at])
					}
					used = math.Max(used, off/float64(above[q]))
				}
			}
			t.Logf("of the bound at most %.3f is used", used)
			if c.width > 1 && used < 0.2 {
				t.Errorf("of the bound at most %.3f is used, want 0.2", used)
			}
		})
	}
}

// TestScreenOfNamedRows: every query scores the rows that it names.
func TestScreenOfNamedRows(t *testing.T) {
	needsEmulator(t)
	r := rand.New(rand.NewPCG(3, 9))
	s, m := screened(r, 200, 70, 11), &memory{}
	a, above := s.arguments(t, m), s.above(t)
	p, longest := gathered(r, m, 200, 11)
	a.Pairs, a.Above = p.Pairs, m.put(above)
	m.launch(t, kernels.ScreenRescore(longest, 11, 4), a)
	for q := range 11 {
		for at := p.starts[q]; at < p.starts[q+1]; at++ {
			want := s.phi(q, int(p.rows[at]))
			if over := float64(p.scores[at]) - want; !(over >= 0 && over <= 2*float64(above[q])) {
				t.Fatalf("query %d, entry %d: bound %v, φ %v", q, at, p.scores[at], want)
			}
		}
	}
}
