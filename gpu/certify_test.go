package gpu

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/likenessdb/likeness/gpu/kernels"
	"github.com/likenessdb/likeness/rerank"
)

// scripted is a machine whose tables have two scores a row, rough and exact, and whose
// bounds are the rough ones and Limits.Base.
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

// TestCertify: more rows are kept until what is left out is bounded below the answer;
// where it cannot be, all rows are scored in float32, or the answer says that it rests
// on what was measured. Rows score −i roughly, and row 100 really has the best score
// of all but two.
func TestCertify(t *testing.T) {
	const rows = 2000
	m := &scripted{}
	for i := range rows {
		m.rough = append(m.rough, -float32(i)/1000)
	}
	m.exact = append(m.exact, m.rough...)
	m.exact[100] = -0.0015
	for _, c := range []struct {
		name     string
		bound    float64 // +Inf: there is none
		measured int     // pairs that were measured; their error is 0.05
		want     string
		loose    int64
	}{
		{"closes at once", 0.02, 0, "[bounded 64 of 2000 exact 4 of 64]", 0},
		{"closes when doubled", 0.1, 0, "[bounded 64 of 2000 exact 4 of 64 bounded 256 of 2000 exact 4 of 256]", 0},
		{"never closes", 1.5, 0, "[bounded 64 of 2000 exact 4 of 64 exact 4 of 2000]", looseFor},
		{"no bound", math.Inf(1), 0, "[exact 4 of 2000]", 0},
		{"no bound, but measured", math.Inf(1), 500, "[rough 64 of 2000 exact 4 of 64 rough 256 of 2000 exact 4 of 256]", 0},
		{"by what was measured", 1.5, 500, "[bounded 64 of 2000 exact 4 of 64 rough 64 of 2000 exact 4 of 64 rough 256 of 2000 exact 4 of 256]", looseFor},
	} {
		m.launches = nil
		tb := &table{model: &loaded{on: m}, on: m, rows: rows, rounding: &rounding{mostKept: 1024, wanted: c.measured, count: c.measured, worst: 0.05}}
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
		if got := fmt.Sprint(s.best.Rows, s.best.Next); c.bound > 0.05 && got != "[0 1 100] -0.002" {
			t.Errorf("%s: rows and next %s, want [0 1 100] -0.002", c.name, got)
		}
		if got := tb.loose.Load(); got != c.loose {
			t.Errorf("%s: %d searches are not to try bounds, want %d", c.name, got, c.loose)
		}
	}
}
