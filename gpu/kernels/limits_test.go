package kernels_test

import (
	"math"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/gpu/kernels"
)

// TestLimits: each kernel does the work that it is said to do.
func TestLimits(t *testing.T) {
	const rounds, steps, chains = 3, 8, 8
	chain := func(step func(float32) float32) (sum float64) {
		for i := range chains {
			x := float32(i+1) / 8
			for range rounds * steps {
				x = step(x)
			}
			sum += float64(x)
		}
		return sum
	}
	want := map[kernels.Limit]float64{
		kernels.LimitFMA:        chain(func(x float32) float32 { return x/2 + 0.5 }),
		kernels.LimitExp2:       chain(func(x float32) float32 { return float32(math.Exp2(-float64(x))) }),
		kernels.LimitReciprocal: chain(func(x float32) float32 { return 1 / (1 + x) }),
		kernels.LimitTanh:       chain(func(x float32) float32 { return float32(math.Tanh(float64(x))) }),
		kernels.LimitTensor:     rounds * chains * 4 * 16 / 1024., // 16 products of 2⁻¹⁰ in each of a lane's four sums
	}
	for _, limit := range kernels.ArithmeticLimits() {
		l := limit.Launch(1)
		l.GridX = 2
		m, out, clocks := &memory{}, make(words[float32], l.GridX*l.Block), make(words[uint64], 1)
		a := kernels.LimitArgs{Out: m.put(out), Clocks: m.put(clocks), First: rounds, Second: limit.Factor()}
		needsEmulator(t)
		if _, err := m.run(l, a, how{}); err != nil {
			t.Fatal(err)
		}
		for i, x := range out {
			if d := math.Abs(float64(x) - want[limit]); !(d <= 2e-3*want[limit]) {
				t.Fatalf("%s: thread %d has %v, want %v", limit, i, x, want[limit])
			}
		}
		if clocks[0] == 0 || limit.Work(l, 2) != 2*limit.Work(l, 1) {
			t.Errorf("%s: %d clocks, work of %v and %v", limit, clocks[0], limit.Work(l, 1), limit.Work(l, 2))
		}
	}
}

// TestLimitRead: all of the memory is read, once.
func TestLimitRead(t *testing.T) {
	for _, count := range []int{0, 1, 1000, 256 * 2 * 5} {
		l := kernels.LimitRead.Launch(1)
		l.GridX = 2
		from, want := make(words[uint32], 4*count), uint32(0)
		for i := range from {
			from[i] = uint32(i * i)
			want += from[i]
		}
		m, out := &memory{}, make(words[uint32], l.GridX*l.Block)
		a := kernels.LimitArgs{Out: m.put(out), Clocks: m.put(make(words[uint64], 1)), First: m.put(from), Second: uint64(count)}
		needsEmulator(t)
		if _, err := m.run(l, a, how{}); err != nil {
			t.Fatal(err)
		}
		sum := uint32(0)
		for _, x := range out {
			sum += x
		}
		if sum != want {
			t.Errorf("%d pieces: the sum is %d, want %d", count, sum, want)
		}
	}
}

// TestLimitsPTX: the module has a kernel of four parameters for each limit, whose loops
// do what is measured.
func TestLimitsPTX(t *testing.T) {
	for limit, instruction := range map[kernels.Limit]string{
		kernels.LimitFMA: "fma.rn.f32", kernels.LimitExp2: "ex2.approx.ftz.f32", kernels.LimitReciprocal: "rcp.approx.ftz.f32",
		kernels.LimitTanh: "tanh.approx.f32", kernels.LimitTensor: "mma.sync", kernels.LimitRead: "ld.global.v4.u32",
	} {
		_, entry, found := strings.Cut(kernels.LimitsPTX(), ".entry limit_"+string(limit)+"(")
		entry, _, _ = strings.Cut(entry, ".entry")
		if !found || strings.Count(entry, ".param .u64") != 4 || strings.Count(entry, instruction) < 5 {
			t.Errorf("%s: %d parameters, %d times %s", limit, strings.Count(entry, ".param .u64"), strings.Count(entry, instruction), instruction)
		}
	}
}

// TestCost: the counts equal those in the package comment.
func TestCost(t *testing.T) {
	c := kernels.Shape{PairsQuery: 8, PairsItem: 8, Dim: 32, Hidden: 128}.TensorCost(true)
	if special := c.Tanh + c.Exp2 + c.Reciprocal; special != 264 || c.Tensor != 288*4096/32 || c.ItemBytes != 768 {
		t.Errorf("%+v: %v special functions, want 264", c, special)
	}
	for _, s := range kernels.Shapes() {
		if s.TensorCost(false).Instructions < 20 {
			t.Errorf("%s: its instructions were not counted", s)
		}
	}
}
