package eval

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/embedded"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/late"
	"github.com/likenessdb/likeness/rerank/maxsim"
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/sidecar/derive"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

// Collections of the embedded store that trials search.
const (
	collection = "items"
	companion  = "companion"
)

// trialRunner runs trials through the search engine and compares the answers with the exact
// ranking.
type trialRunner struct {
	in      Input
	table   *table.Table
	rows    []int // query rows
	queries []rerank.Query
	exact   *exactScan
	judge   *measureModel
	store   *embedded.Store
	derived []rerank.Field // fields of the companion
	engine  *search.Engine
}

// openEngine opens the engine for all trials. It rejects a strategy that the model cannot
// serve before any ranking.
func (b *trialRunner) openEngine(ctx context.Context) error {
	if err := b.loadStore(); err != nil {
		return err
	}
	routes := make([]*route.Route, len(b.in.Trials))
	for i, t := range b.in.Trials {
		var err error
		if routes[i], err = b.newRoute(t); err != nil {
			return err
		}
	}
	var err error
	if b.engine, err = search.New(routes, search.Options{}); err != nil {
		return err
	}
	return b.engine.Open(ctx)
}

func (b *trialRunner) runTrials(ctx context.Context) (Strategies, error) {
	var outcomes Strategies
	for _, t := range b.in.Trials {
		o, err := b.runTrial(ctx, b.engine, t)
		if err != nil {
			return nil, fmt.Errorf("strategy %s: %w", t.Name, err)
		}
		outcomes = append(outcomes, o)
	}
	return outcomes, nil
}

// loadStore fills the store with the items' vectors and, if the similarity derives fields,
// with a companion that has the fields of the trials' strategies.
func (b *trialRunner) loadStore() error {
	b.store = embedded.New()
	metric := adapters.InnerProduct
	if b.in.Model.Similarity.Spec().Normalise {
		metric = adapters.Cosine // rows of unit norm, normalised again in float32
	}
	stored := embedded.Field{VectorField: adapters.VectorField{Metric: metric}, Vectors: b.in.Items}
	err := b.store.Load(collection, embedded.Collection{Fields: []embedded.Field{stored}, IDs: b.in.ItemIDs})
	if err != nil {
		return err
	}
	d := rerank.AbilitiesOf(b.in.Model.Similarity).Derive
	if d == nil {
		return nil
	}
	b.derived = slices.DeleteFunc(slices.Clone(d.Fields()), func(f rerank.Field) bool { return !b.isSearched(f) })
	if len(b.derived) == 0 {
		return nil
	}
	fields := make([]embedded.Field, len(b.derived))
	// Behavioural vectors have a companion row each; several vectors of an item have one together.
	rows, owned := rerank.Items{Features: b.table.Features()}, b.table.Grouped()
	if b.in.Model.Similarity.Spec().ManyVectors {
		rows, owned = b.table.Slice(0, b.table.Len()), false
	}
	vectors, err := derive.Fields(d, b.derived, rows)
	if err != nil {
		return err
	}
	for i, f := range b.derived {
		fields[i] = embedded.Field{VectorField: adapters.VectorField{Name: f.Name}, Vectors: vectors[i]}
	}
	c := embedded.Collection{Fields: fields, IDs: b.in.ItemIDs}
	if owned {
		c.IDs, c.OwnerField, c.Owners = nil, maxsim.Owner, ownersOf(b.table)
	}
	return b.store.Load(companion, c)
}

// ownersOf returns the item of each row of a table.
func ownersOf(t *table.Table) []rerank.ID {
	var ids []rerank.ID
	for item := range t.Len() {
		from, to := t.Rows(item)
		for range to - from {
			ids = append(ids, t.ID(item))
		}
	}
	return ids
}

func (b *trialRunner) isSearched(f rerank.Field) bool {
	return slices.ContainsFunc(b.in.Trials, func(t Trial) bool {
		return slices.Contains(f.Strategies, t.Strategy) && (f.Weights == "" || f.Weights == t.componentWeights())
	})
}

func (t Trial) componentWeights() rerank.Weights {
	if t.Weights == "" {
		return rerank.UniformWeights
	}
	return t.Weights
}

func (b *trialRunner) newRoute(t Trial) (*route.Route, error) {
	r := &route.Route{
		Policy: route.Policy{Name: t.Name, Collection: collection, StoreName: "embedded", Placement: route.PlacementTable, Strategy: t.Strategy, Depth: t.Depth, AverageDepth: t.AverageDepth, Weights: t.componentWeights(), Head: t.Head, Timeout: time.Hour, ExactSearch: true, UnitVectors: b.in.Model.Similarity.Spec().Normalise, Failure: route.FailClosed, MaxK: math.MaxInt32, MaxDepth: math.MaxInt32},
		Parts:  route.Parts{Store: b.store, Model: b.in.Model, Table: b.table},
	}
	if slices.ContainsFunc(b.derived, func(f rerank.Field) bool { return slices.Contains(f.Strategies, t.Strategy) }) {
		r.Companion = companion
	}
	if t.Strategy == Stored {
		s := b.in.Model.Similarity.Spec()
		if s.QueryDim != s.ItemDim {
			return nil, fmt.Errorf("%w: strategy %s: queries have dimension %d and items %d", ErrInput, t.Name, s.QueryDim, s.ItemDim)
		}
		r.Model.Similarity, r.Strategy = storedFirst{b.in.Model.Similarity}, rerank.Distilled
	}
	return r, nil
}

// runTrial sends every query through the engine, on one goroutine for each core.
func (b *trialRunner) runTrial(ctx context.Context, p *search.Engine, t Trial) (Outcome, error) {
	rt := t.Name
	answers := make([]search.Answer, len(b.queries))
	took := make([]time.Duration, len(b.queries))
	done := b.in.Progress.begin("searching by "+rt, len(b.queries))
	err := runParallel(ctx, len(b.queries), func(_, i int) (err error) {
		start := time.Now()
		answers[i], err = p.Search(ctx, search.Request{Route: rt, Query: b.queries[i], K: b.in.K, Exclude: b.seen(b.rows[i])})
		took[i] = time.Since(start)
		done(1)
		if err != nil {
			return fmt.Errorf("query row %d: %w", b.rows[i], err)
		}
		return nil
	})
	if err != nil {
		return Outcome{}, err
	}
	o, err := b.summariseAnswers(ctx, answers, took)
	o.Name, o.Strategy, o.Depth = t.Name, t.Strategy, t.Depth
	return o, err
}

// seen returns the ids of the items that were seen before a query row.
func (b *trialRunner) seen(row int) []rerank.ID {
	var ids []rerank.ID
	for _, item := range b.in.seen(row) {
		ids = append(ids, b.table.ID(int(item)))
	}
	return ids
}

func (b *trialRunner) summariseAnswers(ctx context.Context, answers []search.Answer, took []time.Duration) (Outcome, error) {
	var o Outcome
	rankings := make([]Ranking, len(answers))
	for i, a := range answers {
		for _, hit := range a.Hits {
			row, ok := b.table.Find(hit.ID)
			if !ok {
				return o, fmt.Errorf("query row %d: the answer has the unknown item %s", b.rows[i], hit.ID)
			}
			rankings[i] = append(rankings[i], rerank.Scored{ID: hit.ID, Score: hit.Score, Index: row})
		}
		o.Candidates += float64(a.Certificate.Candidates)
		o.FirstStageRecall += overlapShare(rankings[i], b.exact.rankings[i], b.in.K)
		if a.Certificate.Proved() {
			o.Exact++
		}
	}
	n := float64(len(answers))
	o.Candidates, o.FirstStageRecall, o.Exact = o.Candidates/n, o.FirstStageRecall/n, o.Exact/n
	o.P50, o.P99 = Percentile(took, 0.50), Percentile(took, 0.99)
	return o, b.judge.compareStrategy(ctx, &o, measureQueries(rankings, b.rows, b.in.Pairs, b.in.K), b.exact)
}

// compareStrategy measures how much the candidates of a strategy lose against the exact
// ranking, and how much of the gain over the baseline remains.
func (j *measureModel) compareStrategy(ctx context.Context, o *Outcome, values map[string][]float64, exact *exactScan) (err error) {
	of := func(values map[string][]float64) series {
		return series{values: values[j.report.Method.Metric], weights: j.sampler.weights}
	}
	o.Metrics = j.sampler.meansOf(values)
	if o.Loss, err = j.sampler.compareSeries(ctx, of(exact.values), of(values)); err != nil || j.baselineScan == nil {
		return err
	}
	gain, err := j.sampler.compareSeries(ctx, of(values), of(j.baselineScan.values))
	o.Gain = &gain
	return err
}

// storedFirst is a similarity whose distilled probe is the query itself.
type storedFirst struct{ rerank.Similarity }

// Spec says that a probe's scores are not scores of the similarity.
func (s storedFirst) Spec() rerank.Spec {
	spec := s.Similarity.Spec()
	spec.SingleInnerProduct = false
	return spec
}

// VectorsDigest returns the digest of the wrapped similarity's own vectors, or "".
func (s storedFirst) VectorsDigest() string {
	if v := rerank.AbilitiesOf(s.Similarity).Vectors; v != nil {
		return v.VectorsDigest()
	}
	return ""
}

func (s storedFirst) Encode(q rerank.Query) (rerank.Encoded, error) {
	e, err := s.Similarity.Encode(q)
	if err != nil {
		return nil, err
	}
	vector := q.Vector
	if q.Vectors.Rows > 0 {
		vector = late.Means(q.Vectors, []int32{0, int32(q.Vectors.Rows)}).Row(0)
	}
	if s.Spec().Normalise {
		vector = slices.Clone(vector)
		rerank.Normalise(vector)
	}
	return storedQuery{Encoded: e, vector: vector}, nil
}

type storedQuery struct {
	rerank.Encoded
	vector []float32
}

func (q storedQuery) Probes(p rerank.Plan) ([]rerank.Probe, error) {
	return []rerank.Probe{{Vector: q.vector, Depth: p.Depth}}, nil
}

// Bound returns no bound, because the list of another similarity says nothing about
// items outside it.
func (q storedQuery) Bound(_ []rerank.Probe, lists []rerank.List) rerank.Bound {
	if len(lists) == 1 && lists[0].Exhausted {
		return rerank.Bound{Max: float32(math.Inf(-1))}
	}
	return rerank.Bound{Max: float32(math.Inf(1))}
}
