package linalg

import (
	"math"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/rerank"
)

// TestLogs: logarithms agree with math.Log from the least normal number to the greatest, near 1 and at the powers of 2.
func TestLogs(t *testing.T) {
	v := []float32{1, math.Nextafter32(1, 0), math.Nextafter32(1, 2), 1e-6, 1 + 1e-6, 0.70710677, 0.7071068, 1.4142135, 1.4142137, math.MaxFloat32}
	for e := -126; e < 128; e++ {
		v = append(v, float32(math.Ldexp(1, e)), float32(math.Ldexp(1.37, e)))
	}
	logs := slices.Clone(v)
	Logs(logs)
	for i, x := range v {
		want := math.Log(float64(x))
		if got := float64(logs[i]); !(math.Abs(got-want) <= 2e-7*max(1, math.Abs(want))) {
			t.Errorf("the logarithm of %v is %v, want %v", x, got, want)
		}
	}
}

// TestSoftmax: the results add up to 1 and are in the proportions of the exponentials, also where these alone would overflow.
func TestSoftmax(t *testing.T) {
	for _, c := range [][]float32{{0}, {1, 2, 3}, {-1e30, 0, 1e30}, {1000, 1001, 999, 1000.5, 998}} {
		v := append([]float32(nil), c...)
		Softmax(v)
		var top, total float64 = math.Inf(-1), 0
		for _, x := range c {
			top = max(top, float64(x))
		}
		for _, x := range c {
			total += math.Exp(float64(x) - top)
		}
		for i, x := range c {
			if want := math.Exp(float64(x)-top) / total; !(math.Abs(float64(v[i])-want) <= 1e-6) {
				t.Errorf("softmax of %v has %v at %d, want %v", c, v[i], i, want)
			}
		}
	}
	for _, bad := range []float64{math.NaN(), math.Inf(1)} {
		v := make([]float32, 40)
		v[17] = float32(bad)
		Softmax(v)
		for i, x := range v {
			if x == x {
				t.Errorf("softmax with %v has %v at %d, want NaN", bad, x, i)
			}
		}
	}
}

func TestAddPull(t *testing.T) {
	grad := []float32{1, 1, 1}
	value := AddPull(grad, []float32{3, 0, 1}, []float32{1, 1, 1}, 0.5)
	if value != 0.5*(4+1) || grad[0] != 3 || grad[1] != 0 || grad[2] != 1 {
		t.Errorf("the pull is %g, the gradient %v", value, grad)
	}
}

// TestShapes: a matrix of another shape uses the memory that is there, if it is enough.
func TestShapes(t *testing.T) {
	m := rerank.Matrix{Rows: 2, Cols: 3, Data: []float32{1, 2, 3, 4, 5, 6}}
	for _, c := range []struct {
		rows, cols int
		same       bool
	}{{3, 2, true}, {1, 1, true}, {6, 1, true}, {7, 1, false}, {3, 3, false}} {
		got := Resize(m, c.rows, c.cols)
		if got.Rows != c.rows || got.Cols != c.cols || len(got.Data) != c.rows*c.cols || (&got.Data[0] == &m.Data[0]) != c.same {
			t.Errorf("%d by %d: %d by %d, %d numbers", c.rows, c.cols, got.Rows, got.Cols, len(got.Data))
		}
	}
	if got := Gather(m, []int32{1, 0, 1}); got.Rows != 3 || got.Cols != 3 || !slices.Equal(got.Data, []float32{4, 5, 6, 1, 2, 3, 4, 5, 6}) {
		t.Errorf("gathered %+v", got)
	}
	sums := []float32{9, 9, 9}
	if SumRows(sums, m); !slices.Equal(sums, []float32{5, 7, 9}) {
		t.Errorf("sums %v", sums)
	}
	copies := CloneArrays([][]float32{m.Row(0), m.Row(1)})
	copies[1][2] = 7
	if m.Data[5] != 6 {
		t.Error("a copy shares its memory")
	}
	if CopyArrays([][]float32{m.Row(0), m.Row(1)}, copies); m.Data[5] != 7 || m.Data[0] != 1 {
		t.Errorf("copied back: %v", m.Data)
	}
	if Dot([]float32{1, 2, 3}, []float32{4, 5, 6}) != 32 {
		t.Error("1·4 + 2·5 + 3·6 is not 32")
	}
	wide := Narrow(Widen(m))
	if wide.Rows != 2 || wide.Cols != 3 || !slices.Equal(wide.Data, m.Data) {
		t.Errorf("in float64 and back: %+v", wide)
	}
	if got := Symmetric(rerank.Matrix{Rows: 2, Cols: 2, Data: []float32{1, 2, 9, 3}}); got.At(0, 0) != 1 || got.At(1, 0) != 2 || got.At(0, 1) != 2 || got.At(1, 1) != 3 {
		t.Errorf("the symmetric matrix is %v", got)
	}
}
