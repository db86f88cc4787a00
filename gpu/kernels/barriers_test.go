package kernels_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/likenessdb/likeness/gpu/kernels"
)

// TestBarriers leaves out one barrier of a kernel after the other, and the waits for
// asynchronous copies: each time the emulator must see it, by another outcome in one of
// its two orders or by ending the kernel. So the tests would see one that is missing.
func TestBarriers(t *testing.T) {
	needsEmulator(t)
	for name, launch := range map[string]func(t *testing.T, m *memory) (kernels.Launch, kernels.Arguments){
		"dot_rows":   dotBarriers,
		"dot_screen": screenBarriers,
		"mol_exact":  exactBarriers,
		"top_k":      topKBarriers,
		"resident, two stages": func(t *testing.T, m *memory) (kernels.Launch, kernels.Arguments) {
			t.Helper()
			return scanBarriers(t, m, made(t, kernels.Shape{PairsQuery: 4, PairsItem: 4, Dim: 64, Hidden: 128}, 200, 9))
		},
		"resident, one stage": func(t *testing.T, m *memory) (kernels.Launch, kernels.Arguments) {
			t.Helper()
			return scanBarriers(t, m, made(t, kernels.Shape{PairsQuery: 8, PairsItem: 4, Dim: 128, Hidden: 128}, 150, 2))
		},
		"single": rescoreBarriers,
		"streamed": func(t *testing.T, m *memory) (kernels.Launch, kernels.Arguments) {
			t.Helper()
			g := golden(t, "../../testdata/golden/mol/d_lm_4x4x768", 3)
			g.repeat(70)
			return scanBarriers(t, m, g)
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := &memory{}
			l, a := launch(t, m)
			before := m.contents()
			count, err := m.run(l, a, how{})
			if err != nil || count == 0 {
				t.Fatal(count, err)
			}
			want := m.contents()
			first := 1
			if l.Name != "dot_rows" && l.Name != "mol_exact" && l.Name != "top_k" {
				first = skipWaits
			}
			for skip := first; skip <= count; skip++ {
				if skip == 0 {
					continue
				}
				seen := false
				for _, reverse := range []bool{false, true} {
					m.restore(before)
					if _, err := m.run(l, a, how{reverse, skip}); err != nil || !equal(m.contents(), want) {
						seen = true
						break
					}
				}
				if !seen {
					t.Errorf("without barrier %d of %d the outcome is the same", skip, count)
				}
			}
		})
	}
}

// skipWaits leaves out no barrier, but the waits.
const skipWaits = -1

func equal(a, b [][]byte) bool {
	for i := range a {
		if !bytes.Equal(a[i], b[i]) {
			return false
		}
	}
	return true
}

func dotBarriers(_ *testing.T, m *memory) (kernels.Launch, kernels.Arguments) {
	r := rand.New(rand.NewPCG(1, 1))
	const rows, queries, width = 300, 2, 70
	a := kernels.DotArgs{
		Table: m.put(random(r, rows*width)), Vectors: m.put(random(r, queries*width)), Scales: m.put(random(r, queries)), Width: width,
	}
	a.Pairs = kernels.Pairs{Scores: m.put(make(words[float32], rows*queries)), Count: rows, Queries: queries}
	l := kernels.DotScan(rows, queries)
	l.GridX = 1
	return l, a
}

func screenBarriers(t *testing.T, m *memory) (kernels.Launch, kernels.Arguments) {
	t.Helper()
	s := screened(rand.New(rand.NewPCG(1, 3)), 300, 150, 9)
	a := s.arguments(t, m)
	a.Pairs = kernels.Pairs{Scores: m.put(make(words[float32], 300*9)), Count: 300, Queries: 9}
	l := kernels.ScreenScan(300, 9, 1)
	l.GridX = 1
	return l, a
}

func exactBarriers(t *testing.T, m *memory) (kernels.Launch, kernels.Arguments) {
	t.Helper()
	g := made(t, kernels.Shape{PairsQuery: 8, PairsItem: 8, Dim: 40, Hidden: 70}, 37, 1)
	l, tile, err := g.shape().ExactScan(g.rows.Rows, 1, sharedMemory)
	if err != nil {
		t.Fatal(err)
	}
	l.GridX = 1
	a := g.exactArgs(m, tile)
	a.Pairs = kernels.Pairs{Scores: m.put(make(words[float32], g.rows.Rows)), Count: uint64(g.rows.Rows), Queries: 1}
	return l, a
}

// topKBarriers keeps one entry: the outcome has one order.
func topKBarriers(_ *testing.T, m *memory) (kernels.Launch, kernels.Arguments) {
	r := rand.New(rand.NewPCG(1, 2))
	const entries = 3000
	s := kernels.TopKPlan(entries, 1, 1)[0]
	return s.Launch, kernels.TopKArgs{
		Scores: m.put(random(r, entries)), OutScores: m.put(make(words[float32], 1)), OutRows: m.put(make(words[uint32], 1)),
		OutStats: m.put(make(words[kernels.TopKStats], 1)), Count: entries, Part: uint64(s.Part), Keep: 1,
	}
}

func scanBarriers(t *testing.T, m *memory, g *given) (kernels.Launch, kernels.Arguments) {
	t.Helper()
	a := g.tensorArgs(t, m)
	n, queries := g.rows.Rows, len(g.queries)
	a.Pairs = kernels.Pairs{Scores: m.put(make(words[float32], n*queries)), Count: uint64(n), Queries: uint64(queries)}
	return g.shape().Scan(n, queries, 1), a
}

func rescoreBarriers(t *testing.T, m *memory) (kernels.Launch, kernels.Arguments) {
	t.Helper()
	g := made(t, kernels.Shape{PairsQuery: 4, PairsItem: 4, Dim: 64, Hidden: 128}, 50, 1)
	a := g.tensorArgs(t, m)
	rows := make(words[uint32], 270)
	for i := range rows {
		rows[i] = uint32(i * 7 % 50)
	}
	a.Pairs = kernels.Pairs{
		Rows: m.put(rows), Starts: m.put(words[uint32]{0, uint32(len(rows))}), Scores: m.put(make(words[float32], len(rows))), Queries: 1,
	}
	l := g.shape().Rescore(len(rows), 1, 1)
	l.GridX = 1
	return l, a
}
