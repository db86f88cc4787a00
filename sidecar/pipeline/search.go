package pipeline

import (
	"context"
	"fmt"
	"math"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
)

// Search answers one request.
func (p *Pipeline) Search(ctx context.Context, r Request) (Answer, error) {
	a, err := p.search(ctx, r)
	if p.observer != nil {
		p.observer.Searched(r.Route, r, a, err)
	}
	return a, err
}

func (p *Pipeline) search(ctx context.Context, r Request) (Answer, error) {
	l, ok := p.routes[r.Route]
	if !ok {
		return Answer{}, fmt.Errorf("%w: %q; the routes are %q", ErrRoute, r.Route, p.names)
	}
	o, err := l.open(ctx)
	if err != nil {
		return Answer{}, err
	}
	if r.K <= 0 || r.K > o.MaxK {
		return Answer{}, &FieldError{Field: "k", Problem: fmt.Sprintf("%d is not between 1 and %d", r.K, o.MaxK)}
	}
	enc, err := o.Model.Encode(r.Query)
	if err != nil {
		return Answer{}, err
	}
	a := Answer{Strategy: o.Strategy, Model: o.Model.Name, Version: o.Model.Version}
	var ids []rerank.ID
	var items rerank.Items
	var lists []rerank.List
	var probes []rerank.Probe
	if o.Strategy == rerank.Scan {
		items = o.Table.All()
		for i := range o.Table.Len() {
			ids = append(ids, o.Table.ID(i))
		}
	} else {
		probes, err = enc.Probes(rerank.Plan{Strategy: o.Strategy, Depth: max(o.Depth, r.K+1), AverageDepth: o.AverageDepth, Weights: o.Weights, Derived: o.Companion != "" && o.Strategy != rerank.Distilled, Head: o.Head})
		if err != nil {
			return Answer{}, err
		}
		lists, err = o.Store.Search(ctx, adapters.SearchRequest{Collection: o.Collection, Vector: o.Vector, Probes: probes, Filter: r.Filter, Exact: o.ExactSearch, UnitVectors: o.UnitVectors})
		if err != nil {
			return Answer{}, err
		}
		seen := map[rerank.ID]bool{}
		for _, list := range lists {
			for _, id := range list.IDs {
				if !seen[id] {
					seen[id] = true
					ids = append(ids, id)
				}
			}
		}
		rows, err := o.Store.(adapters.Fetcher).Fetch(ctx, adapters.FetchRequest{Collection: o.Collection, IDs: ids, Vectors: []string{o.Vector}})
		if err != nil {
			return Answer{}, err
		}
		ids = rows.IDs
		items.Features = rerank.NewMatrix(len(ids), o.spec.Features)
		if err := o.Model.EncodeItems(items.Features, rows.Vectors[0]); err != nil {
			return Answer{}, err
		}
	}
	scores := make([]float32, len(ids))
	if err := enc.Score(scores, items); err != nil {
		return Answer{}, err
	}
	top := rerank.NewTopK(r.K)
	for i, s := range scores {
		top.Push(rerank.Scored{ID: ids[i], Score: s, Index: i})
	}
	kth := float32(math.Inf(-1))
	for _, s := range top.Sorted() {
		a.Hits = append(a.Hits, Hit{ID: s.ID, Score: s.Score})
		kth = s.Score
	}
	exact := len(lists) > 0
	for _, list := range lists {
		exact = exact && list.Exact
	}
	e := rerank.Evidence{K: r.K, Returned: len(a.Hits), KthScore: kth, MaxScore: o.spec.MaxScore, ListsExact: exact, Scanned: o.Strategy == rerank.Scan, SingleInnerProduct: o.spec.SingleInnerProduct}
	e.Bound = enc.Bound(probes, lists)
	a.Certificate = rerank.Certify(e)
	a.Certificate.Stop, a.Certificate.Rounds, a.Certificate.Depth, a.Certificate.Candidates = rerank.StopFixed, 1, o.Depth, len(ids)
	return a, nil
}

// Score returns φ of items that the caller brings.
func (p *Pipeline) Score(ctx context.Context, r ScoreRequest) (ScoreAnswer, error) {
	l, ok := p.routes[r.Route]
	if !ok {
		return ScoreAnswer{}, fmt.Errorf("%w: %q; the routes are %q", ErrRoute, r.Route, p.names)
	}
	o, err := l.open(ctx)
	if err != nil {
		return ScoreAnswer{}, err
	}
	enc, err := o.Model.Encode(r.Query)
	if err != nil {
		return ScoreAnswer{}, err
	}
	features := rerank.NewMatrix(r.Vectors.Rows, o.spec.Features)
	if err := o.Model.EncodeItems(features, r.Vectors); err != nil {
		return ScoreAnswer{}, err
	}
	a := ScoreAnswer{Scores: make([]float32, r.Vectors.Rows), Model: o.Model.Name, Version: o.Model.Version}
	return a, enc.Score(a.Scores, rerank.Items{Features: features})
}
