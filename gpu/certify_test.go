package gpu

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/gpu/kernels"
	"github.com/likenessdb/likeness/rerank"
)

// scripted is a machine whose rows have given scores: rough ones for approximate scans, exact ones for float32. An upper
// bound is the rough score plus Limits.Base.
type scripted struct {
	rough, exact []float32
	launches     []string
}

func (m *scripted) Facts() (Facts, error) {
	return Facts{Name: "scripted", Memory: 1 << 30, Free: 1 << 30, MaxBatch: 8, MaxKeep: 8192}, nil
}
func (m *scripted) ModelBytes(*Network) int64           { return 1 }
func (m *scripted) TableBytes(*Network, int) int64      { return 1 }
func (m *scripted) LoadModel(*Network) (Model, error)   { return m, nil }
func (m *scripted) NewTable(Model, int) (Table, error)  { return m, nil }
func (m *scripted) Close() error                        { return nil }
func (m *scripted) Approximates() bool                  { return true }
func (m *scripted) Free() error                         { return nil }
func (m *scripted) Write(int, rerank.Matrix) error      { return nil }
func (m *scripted) Patch([]uint32, rerank.Matrix) error { return nil }
func (m *scripted) CopyFrom(Table, int) error           { return nil }
func (m *scripted) Resize(int, []uint32) error          { return nil }
func (m *scripted) Run(jobs []Job) ([]Survivors, error) {
	out := make([]Survivors, len(jobs))
	for i, j := range jobs {
		scores, way := m.rough, "rough"
		switch j.Way {
		case Exact:
			scores, way = m.exact, "exact"
		case Bounded:
			way, scores = "bounded", nil
			for _, x := range m.rough {
				scores = append(scores, x+j.Limits.Base)
			}
		case Approximate:
		}
		rows := j.Rows
		if rows == nil {
			for r := range scores {
				rows = append(rows, uint32(r))
			}
		}
		m.launches = append(m.launches, fmt.Sprintf("%s %d of %d", way, j.Keep, len(rows)))
		top := rerank.NewTopK(j.Keep + 1)
		for _, r := range rows {
			top.Push(rerank.Scored{ID: rerank.UintID(uint64(r)), Score: scores[r], Index: int(r)})
		}
		out[i] = Survivors{Next: none32, Scored: len(rows)}
		for n, s := range top.Sorted() {
			if n == j.Keep {
				out[i].Next = s.Score
				break
			}
			out[i].Rows, out[i].Scores = append(out[i].Rows, uint32(s.Index)), append(out[i].Scores, s.Score)
		}
	}
	return out, nil
}

// TestCertify: a scan scores the best rows of its list, then further rows down the list, until the bounds of all other rows
// lie below the answer. It scans again for a longer list only if the list does not suffice. If that fails, all rows are scored
// in float32, or the answer says that it rests on measured errors. Row i has the rough score −i, and row 100 has the
// third-best exact score.
func TestCertify(t *testing.T) {
	const rows = 20000
	m := &scripted{}
	for i := range rows {
		m.rough = append(m.rough, -float32(i)/1000)
	}
	m.exact = append(m.exact, m.rough...)
	m.exact[100] = -0.0015
	for _, c := range []struct {
		name     string
		bound    float64 // +Inf: without one
		measured int     // pairs that were measured; their error is 0.05
		want     string
		loose    int64
	}{
		{"closes at once", 0.02, 0, "[bounded 512 of 20000 exact 4 of 64]", 0},
		{"closes down the list", 0.1, 0, "[bounded 512 of 20000 exact 4 of 64 exact 4 of 40]", 0},
		{"closes with a longer list", 0.7, 0, "[bounded 512 of 20000 exact 4 of 64 exact 4 of 448 bounded 1024 of 20000 exact 4 of 702]", 0},
		{"never closes", 1.5, 0, "[bounded 512 of 20000 exact 4 of 64 exact 4 of 448 exact 4 of 20000]", looseFor},
		{"no bound", math.Inf(1), 0, "[exact 4 of 20000]", 0},
		{"no bound, but measured", math.Inf(1), 500, "[rough 512 of 20000 exact 4 of 64 exact 4 of 39]", 0},
		{"by what was measured", 1.5, 500, "[bounded 512 of 20000 exact 4 of 64 exact 4 of 448 rough 512 of 20000 exact 4 of 103]", looseFor},
	} {
		m.launches = nil
		tb := &table{model: &loaded{onMachine: m}, onMachine: m, rows: rows, rounding: &rounding{mostKept: 1024, wantedPairs: c.measured, count: c.measured, worst: 0.05}}
		s := &search{ctx: context.Background(), table: tb, k: 3, count: rows, done: make(chan struct{})}
		if !math.IsInf(c.bound, 1) {
			s.limits = &kernels.Limits{Base: float32(c.bound)}
		}
		s.begin()
		for more := true; more; {
			found, _ := m.Run([]Job{s.job()})
			more = s.step(found[0])
		}
		if got := fmt.Sprint(m.launches); got != c.want {
			t.Errorf("%s: launches %s, want %s", c.name, got, c.want)
		}
		if s.best.Measured != c.measured || s.err != nil {
			t.Errorf("%s: measured on %d pairs (%v), want %d", c.name, s.best.Measured, s.err, c.measured)
		}
		slices.Sort(s.best.Rows)
		if got := fmt.Sprint(s.best.Rows, s.best.Next); c.bound > 0.05 && got != "[0 1 100] -0.002" {
			t.Errorf("%s: rows and next %s, want [0 1 100] -0.002", c.name, got)
		}
		if got := tb.skipBounds.Load(); got != c.loose {
			t.Errorf("%s: %d searches are not to try bounds, want %d", c.name, got, c.loose)
		}
	}
}

// TestProved: an answer is proved only if the score of its row K+1, less the rounding of float32, exceeds the bound of every
// row that was not kept. A tie proves nothing. A measured error can take the place of the bound.
func TestProved(t *testing.T) {
	const k = 3
	for name, c := range map[string]struct {
		scores   []float32 // exact, of the rows that were kept
		next     float32   // the best bound of the others
		exactly  float64
		measured float64 // an error that was measured, instead of a bound
		answered bool
	}{
		"above":                         {[]float32{9, 8, 7, 6}, 5, 0.5, 0, true},
		"a tie":                         {[]float32{9, 8, 7, 6}, 6, 0, 0, false},
		"above by less than rounding":   {[]float32{9, 8, 7, 6}, 5.5, 0.75, 0, false},
		"the row behind is not above":   {[]float32{9, 8, 7, 4}, 5, 0, 0, false},
		"fewer rows than K+1":           {[]float32{9, 8, 7}, 5, 0, 0, false},
		"the row behind is not finite":  {[]float32{9, 8, 7, float32(math.NaN())}, 5, 0, 0, false},
		"nothing was left out":          {[]float32{9, 8, 7}, none32, 0, 0, true},
		"above what was measured":       {[]float32{9, 8, 7, 6}, 5, 0.25, 0.5, true},
		"not above what was measured":   {[]float32{9, 8, 7, 6}, 5, 0.25, 0.75, false},
		"a tie with what was measured":  {[]float32{9, 8, 7, 6}, 5, 0.5, 0.5, false},
		"measured, nothing was left":    {[]float32{9, 8}, none32, 0.5, 0.5, true},
		"measured, and not K+1 of them": {[]float32{9, 8, 7}, 5, 0, 0.5, false},
	} {
		tb := &table{rows: 5000, rounding: &rounding{mostKept: 1024, wantedPairs: 10, count: 10, worst: c.measured / measuredMargin}}
		rough := Survivors{Next: c.next, Scored: 5000, NotFinite: 7}
		for i := range 64 {
			rough.Rows, rough.Scores = append(rough.Rows, uint32(i)), append(rough.Scores, 9-float32(i)/20)
		}
		s := &search{ctx: context.Background(), table: tb, k: k, keep: 64, list: 64, scoring: 64, least: math.Inf(-1), count: 5000, exactError: c.exactly, rough: rough, done: make(chan struct{})}
		found := Survivors{Scores: c.scores, Next: none32, Scored: len(c.scores)}
		for i := range c.scores {
			found.Rows = append(found.Rows, uint32(i))
		}
		decide := s.certify
		if c.measured > 0 {
			decide = s.trust
		}
		if answered := !decide(found); answered != c.answered {
			t.Errorf("%s: answered %t, want %t", name, answered, c.answered)
			continue
		}
		if !c.answered {
			continue
		}
		if s.best.Scored != rough.Scored || s.best.NotFinite != rough.NotFinite {
			t.Errorf("%s: %d rows were scored and %d are not finite, want those of the first step", name, s.best.Scored, s.best.NotFinite)
		}
		want := none32
		if len(c.scores) > k {
			want = c.scores[k]
		}
		if s.best.Next != want || s.best.Epsilon != roundUp(c.exactly) || len(s.best.Rows) != min(k, len(c.scores)) {
			t.Errorf("%s: next %v, ε %v, %d rows; want %v, %v and %d", name, s.best.Next, s.best.Epsilon, len(s.best.Rows), want, roundUp(c.exactly), min(k, len(c.scores)))
		}
	}
}

// TestMeasuredError: the measured error is twice the greatest error of any pair so far. It is unknown until enough pairs
// were seen.
func TestMeasuredError(t *testing.T) {
	r := &rounding{wantedPairs: 4}
	pairs := func(rough ...float32) {
		var a, b Survivors
		for i, x := range rough {
			a.Rows, a.Scores = append(a.Rows, uint32(i)), append(a.Scores, x)
			b.Rows, b.Scores = append(b.Rows, uint32(i)), append(b.Scores, 0)
		}
		r.addPairs(a, b)
	}
	pairs(1, -8, 2)
	if got := r.error(); !math.IsInf(got, 1) {
		t.Errorf("after 3 of 4 pairs: %v, want none yet", got)
	}
	pairs(1, float32(math.NaN()))
	if got := r.error(); got != 16 || r.pairs() != 4 {
		t.Errorf("%v of %d pairs, want twice 8 of 4", got, r.pairs())
	}
}
