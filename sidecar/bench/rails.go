package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/dot"
	"github.com/likenessdb/likeness/rerank/kernel"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/mol"
	"github.com/likenessdb/likeness/rerank/scan"
	"github.com/likenessdb/likeness/rerank/table"
)

// Retrieval describes a measurement of the ways to find the top K of a Mixture-of-Logits,
// after table 5 of the RAILS paper. Every first-stage list is searched exactly, in this
// process.
type Retrieval struct {
	// Model is the Mixture-of-Logits. If it is nil, a random model of Shape (PQxPXxD) and
	// Hidden is measured, with Items random items.
	Model            *model.Model
	Vectors, Queries rerank.Matrix // the base vectors of items and queries of Model
	Shape            string
	Hidden, Items    int

	K       []int // lengths of answers, in ascending order
	Batches []int // numbers of queries that are answered at a time, for latencies
	Threads int
	Runs    int // batches that are measured
	// TwoPass is the number of queries for which algorithm 1 runs.
	TwoPass int
}

// Retrieved is the result of a Retrieval.
type Retrieved struct {
	Model   string   `json:"model"`
	Items   int      `json:"items"`
	Queries int      `json:"queries"`
	Pairs   int      `json:"pairs"`
	K       []int    `json:"k"`
	Batches []int    `json:"batches"`
	Threads int      `json:"threads"`
	Methods []Method `json:"methods"`
	// TwoPass is algorithm 1, one entry per K. It is empty if the query alone decides the
	// gates, because one list is the exact answer then.
	TwoPass []TwoPasses `json:"algorithm_1,omitempty"`
	Example []Examined  `json:"example"`
}

// Method is one way to find the top K.
type Method struct {
	Name string `json:"name"`
	// Hit is the mean share of the exact top K that the method returns, one number per K;
	// -1 if the method finds fewer than K candidates for a query.
	Hit        []float64 `json:"hit_rate"`
	Candidates float64   `json:"candidates"` // scored items per query, in the mean
	// MS is the time to answer a batch with the greatest K, one entry per size of a batch,
	// and CPU the processor time of all threads.
	MS  []Spread `json:"ms"`
	CPU []Spread `json:"cpu_ms"`
}

// TwoPasses describes how algorithm 1 found the top K of some queries. Its numbers are means
// over these queries.
type TwoPasses struct {
	K          int     `json:"k"`
	Candidates float64 `json:"candidates"`
	// Second is the share of the items that the second pass scored. Its threshold was the K-th
	// best score of a candidate.
	Second float64 `json:"second_share"`
	// Printed is that share with the threshold that the paper prints: the lowest score of a
	// candidate.
	Printed float64 `json:"second_share_printed"`
	Same    bool    `json:"same_as_scan"`
	MS      Spread  `json:"ms"` // one query, one thread
}

// Examined is one of the best items of the first query, after table 6 of the paper: its
// terms with the greatest gates, and where the lists of the first stage have it.
type Examined struct {
	Item    int           `json:"item"`
	Score   float32       `json:"score"`
	Terms   []rerank.Term `json:"terms"`
	Pair    int           `json:"best_pair_rank"` // its rank in the list of a pair that has it first
	Average int           `json:"average_rank"`
}

// retrieval is a Retrieval whose model, items and lists are ready.
type retrieval struct {
	Retrieval
	table   *table.Table
	exact   *scan.Scanner
	items   rerank.Items
	fields  map[string]*fieldLists
	queries []rerank.Encoded
	best    [][]rerank.Scored // the exact answer of each query, of the greatest K
}

// fieldLists searches one vector field.
type fieldLists struct {
	similarity rerank.Similarity
	vectors    rerank.Matrix
	scanner    *scan.Scanner
}

// RunRetrieval measures. It returns ErrShape, an error of the model, or the context's error.
func RunRetrieval(ctx context.Context, in Retrieval, progress func(string)) (Retrieved, error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(in.Threads))
	if in.Model == nil {
		if err := in.generate(); err != nil {
			return Retrieved{}, err
		}
	}
	spec := in.Model.Spec()
	if spec.Kind != rerank.KindMoL {
		return Retrieved{}, fmt.Errorf("%w: a model of kind %s, want %s", ErrShape, spec.Kind, rerank.KindMoL)
	}
	progress("items")
	r, err := in.open()
	if err != nil {
		return Retrieved{}, err
	}
	out := Retrieved{
		Model: in.Model.Name, Items: in.Vectors.Rows, Queries: len(r.queries), Pairs: spec.PairsQuery * spec.PairsItem,
		K: in.K, Batches: in.Batches, Threads: in.Threads,
	}
	for _, m := range methods() {
		progress(m.name)
		method, err := r.measure(ctx, m)
		switch {
		case errors.Is(err, rerank.ErrStrategy):
			continue
		case err != nil:
			return Retrieved{}, fmt.Errorf("%s: %w", m.name, err)
		}
		out.Methods = append(out.Methods, method)
	}
	progress("algorithm 1")
	if out.TwoPass, err = r.twoPasses(ctx); err != nil {
		return Retrieved{}, err
	}
	out.Example, err = r.example()
	return out, err
}

// generate makes a random model and random items.
func (in *Retrieval) generate() error {
	d, err := Scoring{Kind: rerank.KindMoL, Shape: in.Shape}.dims()
	if err != nil {
		return err
	}
	r := rand.New(rand.NewPCG(11, 12))
	k := molOf(r, "random "+in.Shape, molShape{dim: scanDim, pq: d[0], px: d[1], d: d[2], gate: in.Hidden})
	in.Model, err = model.New(model.Parameters{Kind: k.kind, Name: k.name, Config: json.RawMessage(k.config), Tensors: k.tensors})
	in.Vectors, in.Queries = normal(r, in.Items, scanDim), normal(r, 64, scanDim)
	return err
}

// open encodes items and queries, and derives the fields that lists search.
func (in Retrieval) open() (*retrieval, error) {
	m, spec := in.Model, in.Model.Spec()
	r := &retrieval{Retrieval: in, fields: map[string]*fieldLists{}}
	features := rerank.NewMatrix(in.Vectors.Rows, spec.Features)
	if err := m.EncodeItems(features, in.Vectors); err != nil {
		return nil, err
	}
	r.items = rerank.Items{Features: features}
	var err error
	if r.table, err = tableOf(features, table.Meta{Model: m.Name, ModelVersion: m.Version, Collection: "items", Block: spec.Block}); err != nil {
		return nil, err
	}
	r.exact = scan.New(r.table, spec)
	if derive := rerank.AbilitiesOf(m.Similarity).Derive; derive != nil {
		for _, f := range derive.Fields() {
			if f.Strategies == nil || f.Weights == rerank.GateWeights {
				continue
			}
			vectors := rerank.NewMatrix(features.Rows, f.Dim)
			if err := derive.Derive(vectors, f.Name, rerank.Items{Features: features}); err != nil {
				return nil, err
			}
			if r.fields[f.Name], err = newFieldLists(vectors); err != nil {
				return nil, err
			}
		}
	}
	if r.fields[""], err = newFieldLists(in.Vectors); err != nil {
		return nil, err
	}
	for i := range in.Queries.Rows {
		e, err := m.Encode(rerank.Query{Vector: in.Queries.Row(i), HasUserID: spec.UserIDs})
		if err != nil {
			return nil, err
		}
		r.queries = append(r.queries, e)
	}
	return r, nil
}

// tableOf returns a table of features whose ids are the row numbers.
func tableOf(features rerank.Matrix, meta table.Meta) (*table.Table, error) {
	ids := make([]rerank.ID, features.Rows)
	for i := range ids {
		ids[i] = rerank.UintID(uint64(i))
	}
	return table.FromMemory(meta, ids, features, nil)
}

func newFieldLists(vectors rerank.Matrix) (*fieldLists, error) {
	s, err := dot.New(dot.Config{Dim: vectors.Cols}, nil)
	if err != nil {
		return nil, err
	}
	t, err := tableOf(vectors, table.Meta{})
	if err != nil {
		return nil, err
	}
	return &fieldLists{similarity: s, vectors: vectors, scanner: scan.New(t, s.Spec())}, nil
}

// method is a way to find the top K: a plan of probes, or a scan.
type method struct {
	name  string
	plan  rerank.Plan
	whole bool // a scan that scores every item
}

// methods returns the rows of the table.
func methods() []method {
	all := []method{
		{name: "every item scored", plan: rerank.Plan{Strategy: rerank.Scan}, whole: true},
		{name: "exact scan", plan: rerank.Plan{Strategy: rerank.Scan}},
	}
	for _, depth := range []int{5, 10, 50, 100, 200} {
		all = append(all, method{name: fmt.Sprintf("per_embedding %d", depth), plan: rerank.Plan{Strategy: rerank.PerEmbedding, Depth: depth}})
	}
	for _, depth := range []int{200, 500, 1000, 2000, 4000} {
		all = append(all, method{name: fmt.Sprintf("average %d", depth), plan: rerank.Plan{Strategy: rerank.Average, Depth: depth}})
	}
	for _, depth := range [][2]int{{5, 200}, {50, 500}, {100, 1000}} {
		all = append(all, method{
			name: fmt.Sprintf("combined %d, %d", depth[0], depth[1]),
			plan: rerank.Plan{Strategy: rerank.Combined, Depth: depth[0], AverageDepth: depth[1]},
		})
	}
	for _, depth := range []int{200, 1000} {
		all = append(all, method{name: fmt.Sprintf("distilled %d", depth), plan: rerank.Plan{Strategy: rerank.Distilled, Depth: depth}})
	}
	return all
}

// measure answers every query once for the hit rates, then batches for the latencies.
func (r *retrieval) measure(ctx context.Context, m method) (Method, error) {
	m.plan.Derived = m.plan.Strategy != rerank.Distilled
	found := make([]scan.Result, len(r.queries))
	if err := r.answer(ctx, m, r.queries, found); err != nil {
		return Method{}, err
	}
	if r.best == nil { // the first method is exact
		for _, f := range found {
			r.best = append(r.best, f.Top)
		}
	}
	out := Method{Name: m.name}
	for _, k := range r.K {
		out.Hit = append(out.Hit, r.hitRate(found, min(k, r.items.Len())))
	}
	for _, f := range found {
		out.Candidates += float64(f.Scored) / float64(len(found))
	}
	for _, size := range r.Batches {
		batch, results := make([]rerank.Encoded, size), make([]scan.Result, size)
		var ms, cpu []float64
		used := processorTime()
		for run := range r.Runs + 1 {
			for q := range batch {
				batch[q] = r.queries[(run*size+q)%len(r.queries)]
			}
			used()
			began := time.Now()
			if err := r.answer(ctx, m, batch, results); err != nil {
				return Method{}, err
			}
			took, spent := time.Since(began), used()
			if run > 0 { // the first warms up
				ms, cpu = append(ms, took.Seconds()*1e3), append(cpu, spent.Seconds()*1e3)
			}
		}
		out.MS, out.CPU = append(out.MS, spread(ms)), append(out.CPU, spread(cpu))
	}
	return out, nil
}

// hitRate returns the mean share of the exact top k among the first k of each answer, or -1
// if an answer has fewer than k rows.
func (r *retrieval) hitRate(found []scan.Result, k int) float64 {
	sum := 0.0
	for q, f := range found {
		if len(f.Top) < k {
			return -1
		}
		hits := 0
		for _, row := range r.best[q][:k] {
			if slices.ContainsFunc(f.Top[:k], func(x rerank.Scored) bool { return x.Index == row.Index }) {
				hits++
			}
		}
		sum += float64(hits) / float64(k)
	}
	return sum / float64(len(found))
}

// answer finds the top of the greatest K for a batch of queries.
func (r *retrieval) answer(ctx context.Context, m method, queries []rerank.Encoded, results []scan.Result) error {
	k := slices.Max(r.K)
	for i := range results {
		results[i] = scan.Result{Top: results[i].Top[:0]}
	}
	if m.plan.Strategy == rerank.Scan {
		batch := make([]scan.Query, len(queries))
		for i, e := range queries {
			batch[i] = scan.Query{Encoded: e, K: k, Whole: m.whole}
		}
		return r.exact.Batch(ctx, batch, results)
	}
	candidates, err := r.candidates(ctx, m.plan, queries)
	if err != nil {
		return err
	}
	errs := make([]error, r.Threads)
	var threads sync.WaitGroup
	for t := range r.Threads {
		threads.Go(func() {
			for q := t; q < len(queries) && errs[t] == nil; q += r.Threads {
				errs[t] = r.rescore(queries[q], candidates[q], k, &results[q])
			}
		})
	}
	threads.Wait()
	return errors.Join(errs...)
}

// candidates returns the union of the lists of each query's probes. All probes of one field
// share a pass over its vectors.
func (r *retrieval) candidates(ctx context.Context, plan rerank.Plan, queries []rerank.Encoded) ([][]int32, error) {
	type probes struct {
		queries []scan.Query
		owners  []int
	}
	byField := map[string]*probes{}
	for q, e := range queries {
		all, err := e.Probes(plan)
		if err != nil {
			return nil, err
		}
		for _, p := range all {
			f := r.fields[p.Field]
			if f == nil {
				return nil, fmt.Errorf("%w: a probe of the field %q, which is not derived here", rerank.ErrStrategy, p.Field)
			}
			probe, err := f.similarity.Encode(rerank.Query{Vector: p.Vector})
			if err != nil {
				return nil, err
			}
			if byField[p.Field] == nil {
				byField[p.Field] = &probes{}
			}
			of := byField[p.Field]
			of.queries, of.owners = append(of.queries, scan.Query{Encoded: probe, K: p.Depth}), append(of.owners, q)
		}
	}
	candidates := make([][]int32, len(queries))
	for name, of := range byField {
		lists := make([]scan.Result, len(of.queries))
		if err := r.fields[name].scanner.Batch(ctx, of.queries, lists); err != nil {
			return nil, err
		}
		for i, list := range lists {
			for _, row := range list.Top {
				candidates[of.owners[i]] = append(candidates[of.owners[i]], int32(row.Index))
			}
		}
	}
	for q, c := range candidates {
		slices.Sort(c)
		candidates[q] = slices.Compact(c)
	}
	return candidates, nil
}

// rescore scores a query's candidates and keeps the best k.
func (r *retrieval) rescore(e rerank.Encoded, candidates []int32, k int, out *scan.Result) error {
	items, scores := r.items, make([]float32, len(candidates))
	items.Rows = candidates
	if err := e.Score(scores, items); err != nil {
		return err
	}
	best := rerank.NewTopK(k)
	for i, row := range candidates {
		best.Push(rerank.Scored{ID: rerank.UintID(uint64(row)), Score: scores[i], Index: int(row)})
	}
	out.Top, out.Scored = best.AppendSorted(out.Top), len(candidates)
	return nil
}

// twoPasses runs algorithm 1 for the first queries and every K.
func (r *retrieval) twoPasses(ctx context.Context) ([]TwoPasses, error) {
	queries := r.queries[:min(r.TwoPass, len(r.queries))]
	if r.Model.Spec().SingleInnerProduct || len(queries) == 0 {
		return nil, nil
	}
	var out []TwoPasses
	for _, k := range r.K {
		p := TwoPasses{K: k, Same: true}
		var ms []float64
		for q, e := range queries {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			began := time.Now()
			found, err := mol.FindTwoPass(e, r.items, k, false)
			if err != nil {
				return nil, err
			}
			ms = append(ms, time.Since(began).Seconds()*1e3)
			printed, err := mol.FindTwoPass(e, r.items, k, true)
			if err != nil {
				return nil, err
			}
			share := 1 / float64(len(queries))
			p.Candidates += float64(found.Candidates) * share
			p.Second += float64(found.Second) / float64(r.items.Len()) * share
			p.Printed += float64(printed.Second) / float64(r.items.Len()) * share
			p.Same = p.Same && slices.EqualFunc(found.Top, r.best[q][:len(found.Top)], func(a, b rerank.Scored) bool { return a.Index == b.Index })
		}
		p.MS = spread(ms)
		out = append(out, p)
	}
	return out, nil
}

// exampleRows and exampleTerms limit the example.
const (
	exampleRows  = 5
	exampleTerms = 2
)

// example explains the best items of the first query.
func (r *retrieval) example() ([]Examined, error) {
	explain := rerank.EncodedAbilitiesOf(r.queries[0]).Explain
	if explain == nil {
		return nil, nil
	}
	var rows []int32
	for _, row := range r.best[0][:min(exampleRows, len(r.best[0]))] {
		rows = append(rows, int32(row.Index))
	}
	items := r.items
	items.Rows = rows
	explained, err := explain.Explain(items)
	if err != nil {
		return nil, err
	}
	pair, err := r.ranks(rerank.PerEmbedding, rows)
	if err != nil {
		return nil, err
	}
	average, err := r.ranks(rerank.Average, rows)
	if err != nil {
		return nil, err
	}
	var out []Examined
	for i, e := range explained {
		slices.SortStableFunc(e.Terms, func(a, b rerank.Term) int { return int(math.Copysign(1, float64(b.Gate-a.Gate))) })
		out = append(out, Examined{Item: int(rows[i]), Score: e.Score, Terms: e.Terms[:min(exampleTerms, len(e.Terms))], Pair: pair[i], Average: average[i]})
	}
	return out, nil
}

// ranks returns, for each row, its best rank in a list of the first query's probes.
func (r *retrieval) ranks(strategy rerank.Strategy, rows []int32) ([]int, error) {
	probes, err := r.queries[0].Probes(rerank.Plan{Strategy: strategy, Depth: 1, Derived: true})
	if err != nil {
		return nil, err
	}
	best, scores := make([]int, len(rows)), make([]float32, r.items.Len())
	for i := range best {
		best[i] = math.MaxInt
	}
	for _, p := range probes {
		kernel.Best().Rows(scores, p.Vector, r.fields[p.Field].vectors, nil)
		for i, row := range rows {
			rank := 1
			for _, s := range scores {
				if s > scores[row] {
					rank++
				}
			}
			best[i] = min(best[i], rank)
		}
	}
	return best, nil
}
