package kernels_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/gpu/kernels"
)

// entry is a score and its row.
type entry struct {
	score float32
	row   uint32
}

// before orders entries by score, highest first, then by row. Scores that are not finite come last.
func before(a, b entry) int {
	switch {
	case finite(a.score) != finite(b.score):
		if finite(a.score) {
			return -1
		}
		return 1
	case finite(a.score) && a.score != b.score:
		if a.score > b.score {
			return -1
		}
		return 1
	default:
		return int(int64(a.row) - int64(b.row))
	}
}

// wantTop is the reference: all entries, sorted.
func wantTop(entries []entry, keep int) (kept []entry, stats kernels.TopKStats) {
	slices.SortFunc(entries, before)
	stats.Next, stats.Scored = float32(math.Inf(-1)), uint32(len(entries))
	for i, e := range entries {
		if !finite(e.score) {
			stats.NotFinite++
		} else if i == keep {
			stats.Next = e.score
		}
	}
	kept = entries[:min(keep, len(entries))]
	stats.Kept = uint32(len(kept))
	return kept, stats
}

// topK runs the launches of a plan and returns the results of the last one.
func topK(t *testing.T, m *memory, first kernels.TopKArgs, steps []kernels.TopKStep, queries int) (scores words[float32], rows words[uint32], stats words[kernels.TopKStats]) {
	t.Helper()
	a := first
	for i, s := range steps {
		scores, rows = make(words[float32], queries*s.Parts*s.Keep), make(words[uint32], queries*s.Parts*s.Keep)
		stats = make(words[kernels.TopKStats], queries*s.Parts)
		if i > 0 {
			a = kernels.TopKArgs{Scores: a.OutScores, Rows: a.OutRows, InStats: a.OutStats, InParts: uint64(steps[i-1].Parts)}
		}
		a.Count, a.Part, a.Keep = uint64(s.Entries), uint64(s.Part), uint64(s.Keep)
		a.OutScores, a.OutRows, a.OutStats = m.put(scores), m.put(rows), m.put(stats)
		m.launch(t, s.Launch, a)
	}
	return scores, rows, stats
}

// checkTop compares a query's answer with the reference.
func checkTop(t *testing.T, scores []float32, rows []uint32, stats kernels.TopKStats, entries []entry) {
	t.Helper()
	want, wantStats := wantTop(entries, len(rows))
	if stats != wantStats {
		t.Fatalf("stats %+v, want %+v", stats, wantStats)
	}
	var got []entry
	for i, r := range rows {
		if r != kernels.Absent {
			got = append(got, entry{scores[i], r})
		}
	}
	slices.SortFunc(got, before)
	if len(got) != len(want) {
		t.Fatalf("%d entries, want %d", len(got), len(want))
	}
	for i, e := range got {
		if e.row != want[i].row || math.Float32bits(e.score) != math.Float32bits(want[i].score) {
			t.Fatalf("entry %d is %v, want %v", i, e, want[i])
		}
	}
}

func TestTopK(t *testing.T) {
	none := func(*rand.Rand) float32 { return float32(math.NaN()) }
	normal := func(r *rand.Rand) float32 { return float32(r.NormFloat64()) }
	few := func(r *rand.Rand) float32 { return float32(r.IntN(5)) - 2 }
	equal := func(*rand.Rand) float32 { return -0.25 }
	mixed := func(r *rand.Rand) float32 {
		odd := []float32{float32(math.Inf(1)), float32(math.NaN()), float32(math.Inf(-1)), 0, float32(math.Copysign(0, -1)), 1e-45, math.MaxFloat32}
		if i := r.IntN(20); i < len(odd) {
			return odd[i]
		}
		return normal(r)
	}
	for _, c := range []struct {
		name              string
		n, queries, keep  int
		score             func(*rand.Rand) float32
		bitmap, live, own bool
	}{
		{"one", 1, 1, 1, normal, false, false, false},
		{"fewer than kept", 5, 2, 64, normal, false, false, false},
		{"as many as kept", 64, 1, 64, normal, false, false, false},
		{"one more", 65, 1, 64, mixed, false, false, false},
		{"parts", 40000, 1, 64, normal, false, false, false},
		{"parts of ties", 33000, 2, 10, few, false, true, false},
		{"equal", 5000, 1, 100, equal, true, false, false},
		{"not finite", 300, 1, 10, none, false, false, false},
		{"mixed", 3000, 3, 50, mixed, true, true, false},
		{"most", 20000, 1, 9000, mixed, false, false, false},
		{"rows of their own", 400, 5, 33, mixed, true, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(c.n), uint64(c.keep)))
			m := &memory{}
			a := kernels.TopKArgs{First: 7}
			bits := func() words[uint32] {
				b := make(words[uint32], (c.n+7+31)/32)
				for i := range b {
					b[i] = r.Uint32()
				}
				return b
			}
			var live words[uint32]
			bitmaps := make(addresses, c.queries)
			if c.live {
				live = bits()
				a.Live = m.put(live)
			}
			entries := make([][]entry, c.queries)
			var scores words[float32]
			var rows words[uint32]
			starts := words[uint32]{0}
			for q := range entries {
				n := c.n
				if c.own {
					n = r.IntN(c.n)
				}
				for i, row := range r.Perm(c.n)[:n] {
					if !c.own {
						row = i
					}
					e := entry{c.score(r), uint32(row + 7)}
					scores, rows, entries[q] = append(scores, e.score), append(rows, e.row), append(entries[q], e)
				}
				starts = append(starts, uint32(len(rows)))
			}
			a.Scores = m.put(scores)
			if c.own {
				a.Rows, a.Starts = m.put(rows), m.put(starts)
			}
			if c.bitmap {
				bitmaps[0] = bits() // others have none
				a.Bitmaps = m.put(bitmaps)
			}
			for q := range entries {
				entries[q] = slices.DeleteFunc(entries[q], func(e entry) bool { return !set(live, e.row) || !set(bitmaps[q], e.row) })
			}
			scores, rows, stats := topK(t, m, a, kernels.TopKPlan(c.n, c.queries, c.keep), c.queries)
			for q, all := range entries {
				checkTop(t, scores[q*c.keep:][:c.keep], rows[q*c.keep:][:c.keep], stats[q], all)
			}
		})
	}
}

// set reports whether the bitmap has the row's bit. Without a bitmap every row counts.
func set(bitmap []uint32, row uint32) bool {
	return bitmap == nil || bitmap[row/32]>>(row%32)&1 != 0
}

// A row that is named twice makes two entries, and no more entries are kept than were asked for.
func TestTopKOfEqualRows(t *testing.T) {
	m := &memory{}
	scores, rows := make(words[float32], 90), make(words[uint32], 90)
	for i := range rows {
		rows[i] = uint32(i % 3)
	}
	a := kernels.TopKArgs{Scores: m.put(scores), Rows: m.put(rows)}
	_, got, stats := topK(t, m, a, kernels.TopKPlan(90, 1, 40), 1)
	slices.Sort(got)
	if got[29] != 0 || got[30] != 1 || got[39] != 1 || stats[0].Kept != 40 {
		t.Errorf("kept %v, %+v; want thirty times 0, ten times 1", got, stats[0])
	}
}

func ExampleTopKPlan() {
	for _, s := range kernels.TopKPlan(674044, 32, 64) {
		fmt.Println(s.Entries, "entries a query in", s.Parts, "parts")
	}
	// Output:
	// 674044 entries a query in 42 parts
	// 2688 entries a query in 1 parts
}
