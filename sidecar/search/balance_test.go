package search_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/adaptertest/recorder"
	"github.com/likenessdb/likeness/internal/balance"
	"github.com/likenessdb/likeness/internal/turns"
	"github.com/likenessdb/likeness/plugin"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/scan"
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
	"github.com/likenessdb/likeness/sidecar/search/score"
)

// frail is a toy whose parts can each fail or panic.
type frail struct {
	*toy
	part string // encode, items, score, explain, bound, probes
	do   func() error
}

func (f *frail) at(part string) error {
	if f.do == nil || f.part != part {
		return nil
	}
	return f.do()
}

func (f *frail) Encode(q rerank.Query) (rerank.Encoded, error) {
	if err := f.at("encode"); err != nil {
		return nil, err
	}
	e, err := f.toy.Encode(q)
	if err != nil {
		return nil, err
	}
	return &frailQuery{e.(*toyQuery), f}, nil
}

func (f *frail) EncodeItems(dst, base rerank.Matrix) error {
	if err := f.at("items"); err != nil {
		return err
	}
	return f.toy.EncodeItems(dst, base)
}

type frailQuery struct {
	*toyQuery
	of *frail
}

func (e *frailQuery) Probes(p rerank.Plan) ([]rerank.Probe, error) {
	if err := e.of.at("probes"); err != nil {
		return nil, err
	}
	return e.toyQuery.Probes(p)
}

func (e *frailQuery) Score(dst []float32, items rerank.Items) error {
	if err := e.of.at("score"); err != nil {
		return err
	}
	return e.toyQuery.Score(dst, items)
}

func (e *frailQuery) ScoreWide(dst []float64, items rerank.Items) (float64, error) {
	if err := e.of.at("score wide"); err != nil {
		return 0, err
	}
	return e.toyQuery.ScoreWide(dst, items)
}

func (e *frailQuery) Explain(items rerank.Items) ([]rerank.Explanation, error) {
	if err := e.of.at("explain"); err != nil {
		return nil, err
	}
	return e.toyQuery.Explain(items)
}

func (e *frailQuery) Bound(probes []rerank.Probe, lists []rerank.List) rerank.Bound {
	_ = e.of.at("bound")
	return e.toyQuery.Bound(probes, lists)
}

// TestEverythingComesBack: processor turns, the route's version, the table's snapshots and
// goroutines are given back after each step of a search or a scoring was cancelled, failed,
// panicked, or hung until the deadline.
func TestEverythingComesBack(t *testing.T) {
	down := errors.New("down")
	ends := map[string]func(cancel context.CancelFunc) error{
		"cancelled": func(cancel context.CancelFunc) error { cancel(); return nil },
		"failed":    func(context.CancelFunc) error { return down },
		"panicked":  func(context.CancelFunc) error { panic("canary") },
	}
	parts := []string{"encode", "probes", "items", "score", "explain", "bound", string(recorder.Search), string(recorder.Fetch), string(recorder.Match), string(recorder.Describe), "rank", "describe", "device"}
	for name, end := range ends {
		for _, part := range parts {
			t.Run(part+" "+name, func(t *testing.T) { everythingComesBack(t, part, end) })
		}
	}
}

func everythingComesBack(t *testing.T, part string, end func(context.CancelFunc) error) {
	shared := turns.New(2)
	balance.Check(t, balance.Turns(shared))
	plain := &toy{dim: 6, blocks: 3}
	sim := &frail{toy: plain}
	w := newRecorded(t, plain, random(1, 400, 6))
	w.sim = sim
	l, path := w.mapped(t, 300)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	armed := false
	strike := func(here string) error {
		if !armed || here != part {
			return nil
		}
		return end(cancel)
	}
	store, err := recorder.New(w.store, &w.calls, recorder.Hooks{Before: func(_ context.Context, c recorder.Call) error { return strike(string(c.Method)) }})
	must(t, err)
	j := &critic{relevance: opinion, wants: plugin.Description{Version: "1"}}
	j.before = func(context.Context, int, []plugin.Item) error { return strike("rank") }
	for _, strategy := range []rerank.Strategy{rerank.Scan, rerank.PerEmbedding} {
		for _, placement := range []route.Placement{route.PlacementTable, route.PlacementStored} {
			armed, sim.do = false, nil
			rt := w.route(placement, func(r *route.Route) {
				r.Store, r.Vector, r.Table, r.Live, r.Strategy, r.Timeout = store, vectorField, nil, l, strategy, 5*time.Second
				r.Depth = 150 // more candidates than one processor encodes at a time
				r.Freshness, r.Device = freshness(false), &striking{strike}
				r.Ranker, r.RankerName = &strikingRanker{j, strike}, "critic"
			})
			p, err := search.New([]*route.Route{rt}, search.Options{Turns: shared})
			must(t, err)
			if part != string(recorder.Describe) {
				must(t, p.Open(t.Context()))
			}
			sim.part, sim.do, armed = part, func() error { return end(cancel) }, true
			request := search.Request{Route: "r", Query: rerank.Query{Vector: random(2, 1, 6).Row(0)}, K: 5, Filter: even, Explain: true}
			for range 5 {
				ctx, cancel = context.WithCancel(t.Context()) //nolint:fatcontext // each search ends its own
				surviving(func() { _, err = p.Search(ctx, request) })
				surviving(func() {
					_, err = p.Score(ctx, search.ScoreRequest{Route: "r", Query: request.Query, IDs: w.items()[290:310], Explain: true})
				})
				surviving(func() {
					pinned, release := route.Pin(ctx)
					defer release()
					_, err = p.Search(pinned, request)
				})
				cancel()
			}
			armed, sim.do = false, nil
			balance.Now(t, balance.Turns(shared), balance.Ended("the route", func() (<-chan struct{}, error) {
				next, err := p.Prepare(t.Context(), rt)
				if err != nil {
					return nil, err
				}
				return next.Switch(), nil
			}))
		}
	}
	must(t, l.Close())
	balance.Now(t, balance.Unmapped(path))
}

// surviving calls do and recovers a panic.
func surviving(do func()) {
	defer func() { _ = recover() }()
	do()
}

// mapped opens a live table of the world's first items, and returns the path of its file.
func (w *recorded) mapped(t testing.TB, items int) (l *table.Live, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "t.table")
	writer, err := table.NewWriter(path, table.Meta{Model: "toy", ModelVersion: version, Collection: collection, Features: w.sim.Spec().Features, Kind: string(rerank.KindMoL)})
	must(t, err)
	must(t, writer.Append(w.items()[:items], w.table.Features().Slice(0, items)))
	must(t, writer.Close())
	l, err = table.OpenLive(path, table.Expect{}, table.LiveOptions{Unsynced: true})
	must(t, err)
	t.Cleanup(func() { must(t, l.Close()) })
	return l, path
}

// striking is a device that only fails, as strike tells it.
type striking struct{ strike func(string) error }

func (d *striking) Rescore(context.Context, *table.Table, rerank.Query, []int32, int) (score.Selection, error) {
	return score.Selection{}, d.err()
}

func (d *striking) Scan(context.Context, *table.Table, rerank.Query, *scan.Bitmap, int) (score.Selection, error) {
	return score.Selection{}, d.err()
}

func (d *striking) Judge(error) {}

func (d *striking) err() error {
	if err := d.strike("device"); err != nil {
		return err
	}
	return fmt.Errorf("%w: it does nothing", adapters.ErrUnsupported)
}

// strikingRanker fails as it is told when its description is requested.
type strikingRanker struct {
	*critic
	strike func(string) error
}

func (r *strikingRanker) Describe(ctx context.Context) (plugin.Description, error) {
	if err := r.strike("describe"); err != nil {
		return plugin.Description{}, err
	}
	return r.critic.Describe(ctx)
}
