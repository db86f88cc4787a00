package mol

import (
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/rerank"
)

// TestNetwork: the formula of Network, in float64, scores what Score does, in
// every golden case.
func TestNetwork(t *testing.T) {
	dirs, err := filepath.Glob(filepath.Join(golden, "mol", "*"))
	if err != nil || len(dirs) == 0 {
		t.Fatal(dirs, err)
	}
	for _, dir := range dirs {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			s, in := goldenCase(t, dir), readFile(t, dir, "inputs.safetensors")
			var items, queries rerank.Matrix
			if s.c.ComponentsGiven {
				items, queries = matrix(t, in, "item_components"), matrix(t, in, "query_components")
			} else {
				items, queries = matrix(t, in, "item_embeddings"), matrix(t, in, "query_embeddings")
			}
			rows := features(t, s, items)
			enc := encode(t, s, rerank.Query{Vector: queries.Row(0), UserID: 7, HasUserID: true})
			n, o := s.Network(), enc.(rerank.Operator).Operands()
			for r, want := range score(t, enc, rerank.Items{Features: rows}) {
				if got := byNetwork(&n, &o, rows.Row(r)); !(math.Abs(got-float64(want)) <= 2e-5*math.Max(1, math.Abs(got))) {
					t.Fatalf("row %d: %v, Score says %v", r, got, want)
				}
			}
		})
	}
}

func byNetwork(n *Network, o *rerank.Operands, row []float32) float64 {
	if n.Fixed {
		return float64(o.Scale) * dot64(o.Vectors.Data, row)
	}
	pairs := n.PairsQuery * n.PairsItem
	logits := make([]float64, pairs)
	for l := range logits {
		j := l % n.PairsItem
		logits[l] = dot64(o.Vectors.Row(l/n.PairsItem), row[j*n.Dim:][:n.Dim]) / n.Temperature
	}
	h := logits
	if n.First.Rows > 0 {
		h = layer(n.First, n.FirstBias, logits)
		for i, x := range h {
			h[i] = x / (1 + math.Exp(-x))
		}
	}
	z := make([]float64, pairs)
	if n.Second.Rows > 0 {
		z = layer(n.Second, n.SecondBias, h)
	}
	for l := range z {
		query, item := 0.0, 0.0
		if o.Gates != nil {
			query = float64(o.Gates[l])
		}
		if n.ItemGates {
			item = float64(row[n.PairsItem*n.Dim+l])
		}
		if n.Combination == GLUSiLU {
			z[l] += query * item
			z[l] /= 1 + math.Exp(-z[l])
		} else {
			z[l] += query + item
		}
	}
	var sum, mixed float64
	for l, top := 0, slices.Max(z); l < pairs; l++ {
		w := math.Exp(z[l] - top)
		sum, mixed = sum+w, mixed+w*logits[l]
	}
	return mixed / sum
}

func layer(w rerank.Matrix, bias []float32, x []float64) []float64 {
	out := make([]float64, w.Rows)
	for r := range out {
		out[r] = float64(bias[r])
		for k, v := range w.Row(r) {
			out[r] += float64(v) * x[k]
		}
	}
	return out
}

func dot64(a, b []float32) (sum float64) {
	for k, x := range a {
		sum += float64(x) * float64(b[k])
	}
	return sum
}
