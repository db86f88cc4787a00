package kernels_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/gpu/kernels"
)

func random(r *rand.Rand, n int) words[float32] {
	v := make(words[float32], n)
	for i := range v {
		v[i] = float32(r.NormFloat64())
	}
	return v
}

// same compares bits, and treats all NaN as equal.
func same(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i, x := range got {
		if math.Float32bits(x) != math.Float32bits(want[i]) && (x == x || want[i] == want[i]) {
			t.Fatalf("%s: number %d is %v, want %v", what, i, x, want[i])
		}
	}
}

func TestRowsPack(t *testing.T) {
	const pq, px, dim, rows = 4, 3, 5, 19
	const width, stride, pairs, features = px * dim, px*dim + 40, pq * px, px*dim + pq*px
	r := rand.New(rand.NewPCG(1, 1))
	for _, scattered := range []bool{false, true} {
		t.Run(fmt.Sprintf("scattered %t", scattered), func(t *testing.T) {
			source := random(r, 7*features)
			source[3], source[4], source[5] = float32(math.NaN()), float32(math.Inf(-1)), -90000
			source[features-2] = float32(math.Inf(-1))
			table, halves, gates := random(r, rows*features), make(words[uint16], rows*stride), random(r, rows*pairs)
			wantTable, wantGates := slices.Clone(table), slices.Clone(gates)
			for i := range halves {
				halves[i] = 0x7e00
			}
			numbers := words[uint32]{18, 0, 7, 3, 9, 1, 11}
			largest := words[uint32]{math.Float32bits(3)}
			m := &memory{}
			a := kernels.RowsPackArgs{
				Source: m.put(source), Rows: m.put(table), Halves: m.put(halves), Gates: m.put(gates), Largest: m.put(largest),
				Count: 7, First: 11, Features: features, Width: width, Stride: stride, PairsQuery: pq, PairsItem: px,
			}
			if scattered {
				a.Numbers = m.put(numbers)
			}
			m.launch(t, kernels.RowsPack(7), a)
			for i := range 7 {
				to := 11 + i
				if scattered {
					to = int(numbers[i])
				}
				row := source[i*features:][:features]
				copy(wantTable[to*features:], row)
				for l, x := range row[width:] {
					if !finite(x) {
						x = float32(math.NaN())
					}
					wantGates[to*pairs+l%px*pq+l/px] = x
				}
				for c, x := range row[:width] {
					if h := halves[to*stride+c]; !isHalf(h, x) {
						t.Errorf("row %d: %v became the half %04x", to, x, h)
					}
				}
				if h := halves[to*stride:][width:stride]; slices.ContainsFunc(h, func(h uint16) bool { return h != 0 }) {
					t.Errorf("row %d ends with the halves %04x, want zeros", to, h)
				}
			}
			same(t, "rows", table, wantTable)
			same(t, "gates", gates, wantGates)
			if got := math.Float32frombits(largest[0]); got != 90000 {
				t.Errorf("the largest is %v", got)
			}
		})
	}
}

// isHalf reports whether h is the float16 nearest to x.
func isHalf(h uint16, x float32) bool {
	if x != x || math.Abs(float64(x)) >= 65520 {
		return h>>10&31 == 31 && (h&1023 != 0) == (x != x)
	}
	d, step := float64(float16(h))-float64(x), math.Ldexp(1, max(-14, math.Ilogb(float64(x)))-10)
	return math.Abs(d) <= step/2
}

func float16(h uint16) float32 {
	e, f := int(h>>10&31), float64(h&1023)
	v := math.Ldexp(f, -24)
	if e > 0 {
		v = math.Ldexp(1024+f, e-25)
	}
	if h>>15 != 0 {
		v = -v
	}
	return float32(v)
}

func TestRowsMove(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 1))
	table := random(r, 40*37)
	want := slices.Clone(table)
	targets, sources := words[uint32]{3, 0, 8}, words[uint32]{39, 20, 21}
	for i, to := range targets {
		copy(want[to*37:][:37], table[sources[i]*37:][:37])
	}
	m := &memory{}
	at := m.put(table)
	// Source and target are one array. The emulator keeps two copies of it, the first of which is the target.
	from := m.put(slices.Clone(table))
	m.launch(t, kernels.RowsMove(3), kernels.RowsMoveArgs{To: at, From: from, Targets: m.put(targets), Sources: m.put(sources), Count: 3, Words: 37})
	same(t, "moved", table, want)

	whole := make(words[float32], len(table))
	m.launch(t, kernels.RowsMove(40), kernels.RowsMoveArgs{To: m.put(whole), From: at, Count: 40, Words: 37})
	same(t, "copied", whole, table)
}

// dotOf computes a score as the CPU's Cross does: one sum, with one rounding for each product.
func dotOf(u, row []float32, scale float32) float32 {
	var sum float32
	for c, x := range row {
		sum = float32(math.FMA(float64(x), float64(u[c]), float64(sum)))
	}
	return sum * scale
}

func TestDot(t *testing.T) {
	for _, c := range []struct{ rows, queries, width int }{
		{1, 1, 1}, {127, 1, 33}, {129, 3, 64}, {300, 8, 31}, {140, 9, 70}, {130, 32, 7},
	} {
		t.Run(fmt.Sprintf("%d rows of %d, %d queries", c.rows, c.width, c.queries), func(t *testing.T) {
			r := rand.New(rand.NewPCG(3, uint64(c.rows)))
			table, vectors, scales := random(r, (c.rows+5)*c.width), random(r, c.queries*c.width), random(r, c.queries)
			table[5*c.width] = float32(math.Inf(1))
			m := &memory{}
			scores := make(words[float32], c.rows*c.queries)
			a := kernels.DotArgs{Table: m.put(table), Vectors: m.put(vectors), Scales: m.put(scales), Width: uint64(c.width)}
			a.Pairs = kernels.Pairs{Scores: m.put(scores), First: 5, Count: uint64(c.rows), Queries: uint64(c.queries)}
			m.launch(t, kernels.DotScan(c.rows, c.queries), a)
			for q := range c.queries {
				for i := range c.rows {
					want := dotOf(vectors[q*c.width:][:c.width], table[(i+5)*c.width:][:c.width], scales[q])
					checkDot(t, q, i, scores[q*c.rows+i], want)
				}
			}
			p, longest := gathered(r, m, c.rows+5, c.queries)
			a.Pairs = p.Pairs
			m.launch(t, kernels.DotRescore(longest, c.queries), a)
			for q := range c.queries {
				for at := p.starts[q]; at < p.starts[q+1]; at++ {
					row := table[int(p.rows[at])*c.width:][:c.width]
					checkDot(t, q, int(at), p.scores[at], dotOf(vectors[q*c.width:][:c.width], row, scales[q]))
				}
			}
		})
	}
}

func checkDot(t *testing.T, query, item int, got, want float32) {
	t.Helper()
	// An FMA computed in float64 rounds twice, which can differ from rounding once.
	if finite(got) != finite(want) || finite(got) && !(math.Abs(float64(got-want)) <= 2e-6*math.Max(1, math.Abs(float64(want)))) {
		t.Fatalf("query %d, entry %d: %v, want %v", query, item, got, want)
	}
}

func finite(x float32) bool { return x-x == 0 }

// gathering is a launch in which each query names the rows to score; one query names none.
type gathering struct {
	kernels.Pairs
	rows, starts words[uint32]
	scores       words[float32]
}

func gathered(r *rand.Rand, m *memory, table, queries int) (g gathering, longest int) {
	g.starts = words[uint32]{0}
	for q := range queries {
		n := r.IntN(150)
		if q == 1 {
			n = 0
		}
		for range n {
			g.rows = append(g.rows, uint32(r.IntN(table)))
		}
		longest = max(longest, n)
		g.starts = append(g.starts, uint32(len(g.rows)))
	}
	g.scores = make(words[float32], len(g.rows))
	g.Pairs = kernels.Pairs{Rows: m.put(g.rows), Starts: m.put(g.starts), Scores: m.put(g.scores), Queries: uint64(queries)}
	return g, longest
}
