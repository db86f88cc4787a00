//go:build cuda

package cuda

import (
	"slices"
	"testing"

	"github.com/likenessdb/likeness/gpu"
	"github.com/likenessdb/likeness/gpu/kernels"
	"github.com/likenessdb/likeness/gpu/workload"
	"github.com/likenessdb/likeness/rerank"
)

// rescoring returns the launch of the case rescore-8x4x64, with host memory for its queries,
// and the rows of each query.
func rescoring(t testing.TB) (*launch, [][]uint32) {
	t.Helper()
	cases, err := workload.Named([]string{"rescore-8x4x64"})
	if err != nil {
		t.Fatal(err)
	}
	c := cases[0]
	rows := workload.Candidates(&c)
	c.Rows, c.Candidates = 100, 0 // the table itself is not read
	w, err := workload.Make(c, 1)
	if err != nil {
		t.Fatal(err)
	}
	m := &Machine{queries: arena{host: make([]byte, 4<<20)}}
	l := &launch{m: m, t: &table{of: &network{of: gpu.NetworkOf(w.Model), tensor: true}}, some: true}
	for q := range w.Queries {
		enc, err := w.Model.Encode(w.Queries[q])
		if err != nil {
			t.Fatal(err)
		}
		l.jobs = append(l.jobs, gpu.Job{Query: rerank.EncodedAbilitiesOf(enc).Operate.Operands(), Way: gpu.Bounded, Rows: rows[q], Limits: kernels.Limits{Base: float32(q)}})
	}
	return l, rows
}

// TestPack: the queries of a launch lie in pinned memory one behind the other, in the room
// that was counted for them, and writing them allocates nothing.
func TestPack(t *testing.T) {
	l, rows := rescoring(t)
	a := &l.m.queries
	pack := func() counts {
		c := l.count()
		a.used = 0
		l.pack(c)
		return c
	}
	c := pack()
	if most := c.bytes(len(l.jobs)); a.used > most || c.rows != 32*4000 {
		t.Errorf("%d bytes and %d rows are written, room was counted for %d and 128,000", a.used, c.rows, most)
	}
	written := numbersOf[uint32](a.host[l.pairs.Rows-uint64(a.on.at):][:4*c.rows])
	starts := numbersOf[uint32](a.host[l.pairs.Starts-uint64(a.on.at):][:4*c.starts])
	limits := numbersOf[float32](a.host[l.limits-uint64(a.on.at):][:4*c.limits])
	for q, want := range rows {
		if !slices.Equal(written[starts[q]:starts[q+1]], want) || limits[5*q] != float32(q) {
			t.Errorf("query %d: other rows, or the limit %v", q, limits[5*q])
		}
	}
	if n := testing.AllocsPerRun(10, func() { pack() }); n > 0 {
		t.Errorf("packing allocates %v times", n)
	}
}

func BenchmarkPack(b *testing.B) {
	l, _ := rescoring(b)
	b.ReportAllocs()
	for b.Loop() {
		l.m.queries.used = 0
		l.pack(l.count())
	}
}

// TestMerge: a piece's best entries join those of earlier pieces, and the best of all stay.
func TestMerge(t *testing.T) {
	out := gpu.Survivors{Next: -100}
	merge(&out, 2, []float32{1, 5, 3}, []uint32{1, 2, 3}, kernels.TopKStats{Next: 0.5, Scored: 10})
	merge(&out, 2, []float32{4, 0, 9}, []uint32{14, kernels.Absent, 19}, kernels.TopKStats{Next: 3.5, Scored: 7, NotFinite: 1})
	slices.Sort(out.Rows)
	if !slices.Equal(out.Rows, []uint32{2, 19}) || out.Next != 4 || out.Scored != 17 || out.NotFinite != 1 {
		t.Errorf("%+v, want the rows 2 and 19 and then a score of 4", out)
	}
}

// TestDetails: an attribute that the driver does not tell is 0, and the others are there.
func TestDetails(t *testing.T) {
	t.Setenv("FAKE_CUDA_ATTRIBUTE", "13") // the clock
	m := &Machine{shared: 7}
	if d := m.Details(); d.ClockMHz != 0 || d.SharedBytes != 7 {
		t.Errorf("%+v", d)
	}
	t.Setenv("FAKE_CUDA_ATTRIBUTE", "")
	if d := m.Details(); d.ClockMHz != 1000 {
		t.Errorf("%+v", d)
	}
}
