package main

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os/exec"
	"slices"
	"testing"
)

// drawn are draws of one generator, one kind after the other.
type drawn struct {
	Uint64  []uint64  `json:"uint64"`
	Below   []uint64  `json:"below"`
	Perm    []int     `json:"perm"`
	Float64 []float64 `json:"float64"`
	Normal  []float64 `json:"normal"`
}

// drawInPython draws what drawInGo does. Of the limits of below one is a power of
// two, and one is so high that every fourth draw is refused.
const drawInPython = `
import gorand, json
def draw(seed, stream):
    r = gorand.Rand(seed, stream)
    return {
        "uint64": [r.uint64() for _ in range(100)],
        "below": [r.below(n) for n in (1, 2, 3, 64, 2000, 3 << 62) for _ in range(50)],
        "perm": r.perm(700),
        "float64": [r.float64() for _ in range(100)],
        "normal": [r.normal() for _ in range(20000)],
    }
print(json.dumps([draw(1, 0x2e7), draw(5, 0xd1), draw((1 << 64) - 1, 20)]))
`

func drawInGo(seed, stream uint64) (d drawn) {
	r := rand.New(rand.NewPCG(seed, stream))
	for range 100 {
		d.Uint64 = append(d.Uint64, r.Uint64())
	}
	for _, n := range []uint64{1, 2, 3, 64, 2000, 3 << 62} {
		for range 50 {
			d.Below = append(d.Below, r.Uint64N(n))
		}
	}
	d.Perm = r.Perm(700)
	for range 100 {
		d.Float64 = append(d.Float64, r.Float64())
	}
	for range 20000 {
		d.Normal = append(d.Normal, r.NormFloat64())
	}
	return d
}

// TestReferenceDrawsAsGo holds the reference's generator to Go's. Normal numbers of
// the tail are logarithms, which two libraries round each in its own way.
func TestReferenceDrawsAsGo(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3, and the reference's draws are Python's")
	}
	out, err := exec.CommandContext(t.Context(), python, "-B", "-c", drawInPython).Output()
	if err != nil {
		t.Fatalf("python3: %v", err)
	}
	var got []drawn
	if err := json.Unmarshal(out, &got); err != nil || len(got) != 3 {
		t.Fatalf("%d generators, want 3: %v", len(got), err)
	}
	for i, want := range []drawn{drawInGo(1, 0x2e7), drawInGo(5, 0xd1), drawInGo(math.MaxUint64, 20)} {
		if !slices.Equal(got[i].Uint64, want.Uint64) || !slices.Equal(got[i].Below, want.Below) || !slices.Equal(got[i].Perm, want.Perm) || !slices.Equal(got[i].Float64, want.Float64) {
			t.Errorf("generator %d: uniform draws are not Go's", i)
		}
		if len(got[i].Normal) != len(want.Normal) {
			t.Fatalf("generator %d: %d normal draws, want %d", i, len(got[i].Normal), len(want.Normal))
		}
		for k, w := range want.Normal {
			if v := got[i].Normal[k]; !(math.Abs(v-w) <= 1e-15*math.Abs(w)) {
				t.Errorf("generator %d: normal draw %d is %v, want %v", i, k, v, w)
				break
			}
		}
	}
}
