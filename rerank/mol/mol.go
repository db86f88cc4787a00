package mol

import (
	"fmt"
	"math"
	"sync"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/companion"
	"github.com/likenessdb/likeness/rerank/distilled"
	"github.com/likenessdb/likeness/rerank/kernel"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// Tensor names, as RAILS gives them.
const (
	querySide = "_query_embeddings_fn._query_emb_proj_module"
	itemSide  = "_item_embeddings_fn._item_emb_proj_module"
	userTable = "_query_embeddings_fn._uid_embeddings_%d.weight"
	gateQuery = "_gating_fn._query_only_partial_module"
	gateItem  = "_gating_fn._item_only_partial_module"
	gatePair  = "_gating_fn._qi_partial_module"
)

// Similarity is a Mixture-of-Logits. It is immutable and safe for concurrent use.
type Similarity struct {
	c    Config
	spec rerank.Spec

	query, item side
	users       []rerank.Matrix
	// Parts of the gates. exists() is false for a part that the model lacks.
	byQuery, byItem, byPair mlp
	// stretches divides the columns of a component into ranges that fit the first-level
	// cache.
	stretches   []stretch
	slopes      []float64   // slopes of byPair, for RoundingError
	weightNorms weightNorms // of byPair, for Bound

	reduced *reduced // byPair in bfloat16, for Screen; nil if byPair is not a network of two layers

	kernels  *kernel.Set
	probes   *distilled.Probes
	learned  *companion.Companion              // nil if the model has none
	solver   func() (*companion.Solver, error) // of learned, made when it is first asked for
	meanItem []float32                         // feature row of the mean item; nil if the model does not include it
	scratch  *sync.Pool                        // *scratch
}

var (
	_ rerank.Similarity = (*Similarity)(nil)
	_ rerank.Deriver    = (*Similarity)(nil)
)

// New builds a MoL from tensors under their RAILS names. It returns rerank.ErrModel, naming
// the tensor, its shape and the shape that the configuration requires; tensor.ErrShape is
// wrapped inside.
func New(c Config, t tensor.Set) (*Similarity, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	s := &Similarity{c: c, kernels: kernel.Best(), scratch: &sync.Pool{New: func() any { return new(scratch) }}}
	r := tensor.NewReader(t)
	if err := s.load(r); err != nil {
		return nil, err
	}
	if err := r.Err(distilled.Prefix, companion.Prefix); err != nil {
		return nil, fmt.Errorf("%w: %w", rerank.ErrModel, err)
	}
	s.prepareTiles()
	s.slopes = s.byPair.outputSlopes()
	s.weightNorms = s.byPair.norms()
	s.reduced = s.byPair.reduce()
	s.describe()
	var err error
	if s.probes, err = distilled.Read(t, s.spec.QueryDim, s.spec.ItemDim); err != nil {
		return nil, err
	}
	if s.learned, err = companion.Read(t, s.spec.QueryDim, s.queryFeatures()); err != nil {
		return nil, err
	}
	if s.learned != nil && (s.queryOnly() || len(s.users) > 0) {
		return nil, fmt.Errorf("%w: a learned companion is for gates of query and item, without users", rerank.ErrModel)
	}
	s.solver = sync.OnceValues(func() (*companion.Solver, error) { return s.learned.Solver(s) })
	return s, s.encodeMean()
}

// WithKernels returns a copy of the similarity that computes with the given kernels.
func (s *Similarity) WithKernels(k *kernel.Set) rerank.Similarity {
	other := *s
	other.kernels = k
	return &other
}

func (s *Similarity) load(r *tensor.Reader) error {
	c := &s.c
	if !c.ComponentsGiven {
		s.query = readSide(r, querySide, c.QueryDim, c.QueryHidden, c.projectedComponents()*c.Dim, c.QueryNonlinearity)
		s.item = readSide(r, itemSide, c.ItemDim, c.ItemHidden, c.PairsItem*c.Dim, c.ItemNonlinearity)
	}
	// With wide sums, a probe transformed for the stored vectors yields the same inner
	// products, apart from one rounding of each element (see Bound).
	s.item.out.wide = s.item.isLinear() && !c.hasUnitComponents()
	for i, size := range c.UserTables {
		data := r.Get(fmt.Sprintf(userTable, i), size+1, c.Dim)
		s.users = append(s.users, rerank.Matrix{Rows: size + 1, Cols: c.Dim, Data: data})
	}
	return s.loadGates(r)
}

func (s *Similarity) loadGates(r *tensor.Reader) error {
	c, pairs := &s.c, s.c.pairs()
	query, item := r.Has(gateQuery+".0.weight"), r.Has(gateItem+".1.weight")
	pair := r.Has(gatePair + ".1.weight")
	switch {
	case c.GatingQuery != nil && *c.GatingQuery != query:
		return fmt.Errorf("%w: gating_query_fn is %t, but tensor %q exists: %t", rerank.ErrModel, *c.GatingQuery, gateQuery+".0.weight", query)
	case c.GatingItem != nil && *c.GatingItem != item:
		return fmt.Errorf("%w: gating_item_fn is %t, but tensor %q exists: %t", rerank.ErrModel, *c.GatingItem, gateItem+".1.weight", item)
	case !query && !item && !pair:
		return fmt.Errorf("%w: the gates have no part; want tensors of %q, %q or %q", rerank.ErrModel, gateQuery, gateItem, gatePair)
	case c.Combination == GLUSiLU && !(query && item && pair):
		return fmt.Errorf("%w: gating_combination_type %s needs all parts; tensors exist of the query's %t, the item's %t, the logits' %t",
			rerank.ErrModel, c.Combination, query, item, pair)
	case c.ComponentsGiven && (query || item):
		return fmt.Errorf("%w: components_given: gates of the query's or item's embedding cannot be computed from components", rerank.ErrModel)
	}
	if err := s.c.checkWidths(query, item); err != nil {
		return err
	}
	if query {
		s.byQuery.first = readLinear(r, gateQuery+".0", c.QueryDim, c.GatingQueryHidden, true)
		s.byQuery.second = readLinear(r, gateQuery+".2", c.GatingQueryHidden, pairs, false)
	}
	if item {
		s.byItem.first = readLinear(r, gateItem+".1", c.ItemDim, c.GatingItemHidden, true)
		s.byItem.second = readLinear(r, gateItem+".3", c.GatingItemHidden, pairs, false)
	}
	switch {
	case pair && c.GatingPairHidden > 0:
		s.byPair.first = readLinear(r, gatePair+".1", pairs, c.GatingPairHidden, true)
		s.byPair.second = readLinear(r, gatePair+".3", c.GatingPairHidden, pairs, true)
	case pair:
		s.byPair.second = readLinear(r, gatePair+".1", pairs, pairs, true)
	}
	return nil
}

// describe fills in the spec.
func (s *Similarity) describe() {
	c := &s.c
	s.spec = rerank.Spec{
		Kind: rerank.KindMoL, QueryDim: c.QueryDim, ItemDim: c.ItemDim, Features: c.PairsItem * c.Dim, Block: c.Dim,
		Normalise: c.Normalise, UserIDs: len(c.UserTables) > 0, SingleInnerProduct: s.queryOnly(),
		MaxScore: float32(math.Inf(1)), PairsQuery: c.PairsQuery, PairsItem: c.PairsItem,
	}
	if c.ComponentsGiven {
		s.spec.QueryDim, s.spec.ItemDim = c.PairsQuery*c.Dim, c.PairsItem*c.Dim
	}
	if s.byItem.exists() {
		s.spec.Features += c.pairs()
	}
	if c.hasUnitComponents() {
		s.spec.MaxScore = s.c.maxScore()
	}
}

// maxScore returns 1/τ, which bounds φ because φ is a weighted mean of cosines divided by
// τ.
func (c *Config) maxScore() float32 { return float32(1 / c.Temperature) }

// queryOnly reports whether the query alone decides the gates, which makes φ one inner
// product.
func (s *Similarity) queryOnly() bool {
	return s.c.Combination == None && s.byQuery.exists() && !s.byItem.exists() && !s.byPair.exists()
}

func (s *Similarity) encodeMean() error {
	if s.probes.MeanItem() == nil {
		return nil
	}
	base := rerank.Matrix{Rows: 1, Cols: s.spec.ItemDim, Data: s.probes.MeanItem()}
	row := rerank.NewMatrix(1, s.spec.Features)
	s.meanItem = row.Data
	return s.EncodeItems(row, base)
}

// Spec implements rerank.Similarity.
func (s *Similarity) Spec() rerank.Spec { return s.spec }
