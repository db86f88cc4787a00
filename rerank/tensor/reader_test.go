package tensor_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/rerank/tensor"
)

func TestReader(t *testing.T) {
	nan := float32(math.NaN())
	set := tensor.Set{
		"a":       {Shape: []int{2, 1}, Data: []float32{1, 2}},
		"short":   {Shape: []int{2, 1}, Data: []float32{1}},
		"bad":     {Shape: []int{2}, Data: []float32{1, nan}},
		"huge":    {Shape: []int{1 << 20, 1 << 20}},
		"minus":   {Shape: []int{-1}},
		"other.x": {Shape: []int{1}, Data: []float32{1}},
	}
	r := tensor.NewReader(set)
	if v := r.Get("a", -1, 1); len(v) != 2 || !r.Has("a") || r.Dim("a", 0) != 2 || r.Dim("a", 5) != 0 || r.Dim("b", 0) != 0 {
		t.Errorf("tensor a is %v", v)
	}
	for want, read := range map[string]func(r *tensor.Reader){
		`"absent" is missing`:                func(r *tensor.Reader) { r.Get("absent", 1) },
		`"a" has shape [2 1], want [1 2]`:    func(r *tensor.Reader) { r.Get("a", 1, 2) },
		"has 1 numbers, want 2":              func(r *tensor.Reader) { r.Get("short", 2, 1) },
		`"bad"[1] is NaN`:                    func(r *tensor.Reader) { r.Get("bad", 2) },
		"too large":                          func(r *tensor.Reader) { r.Get("huge", -1, -1) },
		"has shape [-1]":                     func(r *tensor.Reader) { r.Get("minus", -1) },
		`"absent" is missing, want shape [3`: func(r *tensor.Reader) { r.Get("absent", 3); r.Get("bad", 2) },
		`"a" of shape [2 1] has no place`:    func(*tensor.Reader) {},
	} {
		r := tensor.NewReader(set)
		read(r)
		if err := r.Err("other."); !errors.Is(err, tensor.ErrShape) || !strings.Contains(err.Error(), want) {
			t.Errorf("want ErrShape with %q, have: %v", want, err)
		}
	}
	all := tensor.NewReader(tensor.Set{"other.x": set["other.x"]})
	if err := all.Err("other."); err != nil {
		t.Errorf("a tensor of others: %v", err)
	}
	if err := all.Err(); !errors.Is(err, tensor.ErrShape) {
		t.Errorf("a tensor of nobody: %v", err)
	}
}
