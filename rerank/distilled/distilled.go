// Package distilled implements learned probes: query-side maps u(q), trained so that ⟨u(q),
// x⟩ on the stored vector x ranks like the similarity. They work with any kind of
// similarity and need no new vectors in the database.
package distilled

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// Prefix begins the names of all tensors of this package in a model's tensor set.
const Prefix = "probe."

// Residual names the head that is used if a plan names none.
const Residual = "residual"

// MeanItem names the tensor that holds the mean base vector.
const MeanItem = Prefix + "mean_item"

// Probes holds the learned probes of a model. It is immutable.
type Probes struct {
	names []string
	heads map[string]head
	mean  []float32
}

// head computes u(q) = q·W + MLP(q). The MLP (linear → SiLU → linear) is optional.
type head struct {
	w          rerank.Matrix // transposed: row i computes element i of u
	first      rerank.Matrix // zero rows if there is no MLP
	firstBias  []float32
	second     rerank.Matrix
	secondBias []float32
}

// Read extracts the learned probes from a model's tensor set:
//
//	probe.<head>.W            (query_dim, item_dim), multiplies from the right
//	probe.<head>.0.weight     (h, query_dim), .bias (h): optional, with .2
//	probe.<head>.2.weight     (item_dim, h), .bias (item_dim)
//	probe.mean_item           (item_dim), optional: the mean base vector
//
// It returns rerank.ErrModel and tensor.ErrShape. A set without probes is not an error.
func Read(t tensor.Set, queryDim, itemDim int) (*Probes, error) {
	own := tensor.Set{}
	p := &Probes{heads: map[string]head{}}
	for name, v := range t {
		if !strings.HasPrefix(name, Prefix) {
			continue
		}
		own[name] = v
		if h, ok := strings.CutSuffix(strings.TrimPrefix(name, Prefix), ".W"); ok {
			p.names = append(p.names, h)
		}
	}
	r := tensor.NewReader(own)
	for _, name := range p.names {
		p.heads[name] = readHead(r, Prefix+name, queryDim, itemDim)
	}
	if r.Has(MeanItem) {
		p.mean = r.Get(MeanItem, itemDim)
	}
	if err := r.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", rerank.ErrModel, err)
	}
	slices.Sort(p.names)
	if i := slices.Index(p.names, Residual); i > 0 {
		p.names = slices.Insert(slices.Delete(p.names, i, i+1), 0, Residual)
	}
	return p, nil
}

func readHead(r *tensor.Reader, prefix string, queryDim, itemDim int) head {
	w := rerank.Matrix{Rows: queryDim, Cols: itemDim, Data: r.Get(prefix+".W", queryDim, itemDim)}
	if w.Data == nil {
		return head{}
	}
	h := head{w: kernel.Transpose(w)}
	if !r.Has(prefix + ".0.weight") {
		return h
	}
	hidden := r.Dim(prefix+".0.weight", 0)
	h.first = rerank.Matrix{Rows: hidden, Cols: queryDim, Data: r.Get(prefix+".0.weight", hidden, queryDim)}
	h.firstBias = r.Get(prefix+".0.bias", hidden)
	h.second = rerank.Matrix{Rows: itemDim, Cols: hidden, Data: r.Get(prefix+".2.weight", itemDim, hidden)}
	h.secondBias = r.Get(prefix+".2.bias", itemDim)
	return h
}

// Names returns the names of the heads in order of preference: residual first, then by
// name.
func (p *Probes) Names() []string { return slices.Clone(p.names) }

// MeanItem returns the mean base vector of the collection on which the model was fitted, or
// nil if the model does not include it. The caller must not change it.
func (p *Probes) MeanItem() []float32 { return p.mean }

// Probe returns the probe of the head plan.Head, or of the preferred head if plan.Head is
// empty. q must already be normalised if the model normalises. The probe searches the
// stored vector. Probe returns rerank.ErrStrategy if the head does not exist, and
// rerank.ErrQuery if u(q) is not finite.
func (p *Probes) Probe(q []float32, plan rerank.Plan) (rerank.Probe, error) {
	if len(p.names) == 0 {
		return rerank.Probe{}, fmt.Errorf("%w: %s needs a learned probe and the model has none; "+
			"fit one to the model, or use another strategy", rerank.ErrStrategy, rerank.Distilled)
	}
	name := cmp.Or(plan.Head, p.names[0])
	h, ok := p.heads[name]
	if !ok {
		return rerank.Probe{}, fmt.Errorf("%w: %s: the model has no learned probe %q; it has %s",
			rerank.ErrStrategy, rerank.Distilled, name, strings.Join(slices.Sorted(maps.Keys(p.heads)), ", "))
	}
	u := h.apply(q)
	// A finite query can still be too large for float32.
	if err := rerank.CheckFinite("learned probe", u); err != nil {
		return rerank.Probe{}, err
	}
	return rerank.Probe{Vector: u, Depth: plan.Depth}, nil
}

func (h head) apply(q []float32) []float32 {
	k := kernel.Best()
	row := rerank.Matrix{Rows: 1, Cols: len(q), Data: q}
	u := make([]float32, h.w.Rows)
	k.MulT(u, len(u), row, h.w, nil)
	if h.first.Rows == 0 {
		return u
	}
	hidden := rerank.NewMatrix(1, h.first.Rows)
	k.MulT(hidden.Data, hidden.Cols, row, h.first, h.firstBias)
	k.SiLU(hidden.Data)
	rest := make([]float32, len(u))
	k.MulT(rest, len(rest), hidden, h.second, h.secondBias)
	for i, v := range rest {
		u[i] += v
	}
	return u
}
