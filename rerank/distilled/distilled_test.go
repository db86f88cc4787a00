package distilled_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/distilled"
	"github.com/likenessdb/likeness/rerank/tensor"
)

func set() tensor.Set {
	return tensor.Set{
		"probe.linear.W": {Shape: []int{2, 3}, Data: []float32{
			1, 2, 3,
			4, 5, 6,
		}},
		"probe.residual.W":        {Shape: []int{2, 3}, Data: []float32{1, 0, 0, 0, 1, 0}},
		"probe.residual.0.weight": {Shape: []int{1, 2}, Data: []float32{1, -1}},
		"probe.residual.0.bias":   {Shape: []int{1}, Data: []float32{0.5}},
		"probe.residual.2.weight": {Shape: []int{3, 1}, Data: []float32{1, 2, 3}},
		"probe.residual.2.bias":   {Shape: []int{3}, Data: []float32{0, 0, 1}},
		"probe.mean_item":         {Shape: []int{3}, Data: []float32{7, 8, 9}},
		"W":                       {Shape: []int{1}, Data: []float32{1}}, // the kind's own
	}
}

func TestProbe(t *testing.T) {
	p, err := distilled.Read(set(), 2, 3)
	if err != nil {
		t.Fatal(err)
	}
	if have := p.Names(); !slices.Equal(have, []string{"residual", "linear"}) {
		t.Errorf("heads are %q", have)
	}
	if !slices.Equal(p.MeanItem(), []float32{7, 8, 9}) {
		t.Errorf("mean item is %v", p.MeanItem())
	}
	// h = 1·2 − 1·1 + 0.5 = 1.5, silu(1.5) = 1.5/(1+e^−1.5)
	h := float32(1.5 / (1 + math.Exp(-1.5)))
	for head, want := range map[string][]float32{
		"linear":   {2*1 + 1*4, 2*2 + 1*5, 2*3 + 1*6},
		"residual": {2 + h, 1 + 2*h, 3*h + 1},
		"":         {2 + h, 1 + 2*h, 3*h + 1},
	} {
		probe, err := p.Probe([]float32{2, 1}, rerank.Plan{Depth: 9, Head: head})
		if err != nil || probe.Depth != 9 || probe.Target != rerank.TargetNone || probe.Field != "" {
			t.Fatalf("head %q: %+v, %v", head, probe, err)
		}
		for i, v := range probe.Vector {
			if !(math.Abs(float64(v-want[i])) <= 1e-6) {
				t.Errorf("head %q: %v, want %v", head, probe.Vector, want)
			}
		}
	}
	if _, err := p.Probe([]float32{2, 1}, rerank.Plan{Head: "best"}); !errors.Is(err, rerank.ErrStrategy) || !strings.Contains(err.Error(), "linear, residual") {
		t.Errorf("an unknown head: %v", err)
	}
}

func TestRead(t *testing.T) {
	empty, err := distilled.Read(tensor.Set{}, 2, 3)
	if err != nil || empty.MeanItem() != nil {
		t.Fatalf("no probes: %v", err)
	}
	if _, err := empty.Probe([]float32{1, 1}, rerank.Plan{}); !errors.Is(err, rerank.ErrStrategy) {
		t.Errorf("no probes: %v", err)
	}
	for want, change := range map[string]func(tensor.Set){
		`"probe.linear.W" has shape`:           func(s tensor.Set) { s["probe.linear.W"] = tensor.Tensor{Shape: []int{3, 3}, Data: make([]float32, 9)} },
		`"probe.residual.2.weight" is missing`: func(s tensor.Set) { delete(s, "probe.residual.2.weight") },
		`"probe.residual.0.bias" of shape [1] has no`: func(s tensor.Set) {
			delete(s, "probe.residual.0.weight")
			delete(s, "probe.residual.2.weight")
			delete(s, "probe.residual.2.bias")
		},
		`"probe.mean_item"[0] is +Inf`: func(s tensor.Set) { s["probe.mean_item"].Data[0] = float32(math.Inf(1)) },
		`"probe.other" of shape`:       func(s tensor.Set) { s["probe.other"] = tensor.Tensor{Shape: []int{0}} },
	} {
		s := set()
		change(s)
		if _, err := distilled.Read(s, 2, 3); !errors.Is(err, rerank.ErrModel) || !strings.Contains(err.Error(), want) {
			t.Errorf("want ErrModel with %q, have: %v", want, err)
		}
	}
}
