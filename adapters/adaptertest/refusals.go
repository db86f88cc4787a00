package adaptertest

import (
	"testing"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
)

// refusals calls, for each capability that can be absent, the operation that
// needs it. has is false where the adapter does not have the interface.
var refusals = map[Capability]func(t *testing.T, e *env) (err error, has bool){
	Exact: func(t *testing.T, e *env) (error, bool) {
		lists := e.search(t, adapters.SearchRequest{Collection: e.base.Collection, Exact: true, Probes: e.probes(baseDim, 1, 5)})
		if lists[0].Exact {
			t.Error("a store without exact search must not claim that a list is exact")
		}
		return adapters.ErrUnsupported, true
	},
	Filter: func(t *testing.T, e *env) (error, bool) {
		_, err := e.store.Search(t.Context(), adapters.SearchRequest{Collection: e.base.Collection, Filter: "colour", Probes: e.probes(baseDim, 1, 5)})
		return err, true
	},
	Fetch: func(t *testing.T, e *env) (error, bool) {
		f, ok := e.store.(adapters.Fetcher)
		if !ok {
			return nil, false
		}
		_, err := f.Fetch(t.Context(), adapters.FetchRequest{Collection: e.base.Collection, IDs: []rerank.ID{rerank.UintID(1)}})
		return err, true
	},
	Payload: func(t *testing.T, e *env) (error, bool) {
		f, ok := e.store.(adapters.Fetcher)
		if !ok {
			return nil, false
		}
		_, err := f.Fetch(t.Context(), adapters.FetchRequest{Collection: e.base.Collection, IDs: []rerank.ID{rerank.UintID(1)}, Payload: true})
		return err, true
	},
	Scan: func(t *testing.T, e *env) (error, bool) {
		s, ok := e.store.(adapters.Scanner)
		if !ok {
			return nil, false
		}
		return s.Scan(t.Context(), adapters.ScanRequest{Collection: e.base.Collection}, func(adapters.Rows, string) error { return nil }), true
	},
	Range: func(t *testing.T, e *env) (error, bool) {
		s, ok := e.store.(adapters.RangeSearcher)
		if !ok {
			return nil, false
		}
		_, err := s.SearchRange(t.Context(), adapters.SearchRequest{Collection: e.base.Collection, Probes: e.probes(baseDim, 1, 5)}, 0)
		return err, true
	},
	Describe: func(t *testing.T, e *env) (error, bool) {
		d, ok := e.store.(adapters.Describer)
		if !ok {
			return nil, false
		}
		_, err := d.Describe(t.Context(), e.base.Collection)
		return err, true
	},
	Match: func(t *testing.T, e *env) (error, bool) {
		m, ok := e.store.(adapters.Matcher)
		if !ok {
			return nil, false
		}
		_, err := m.Match(t.Context(), e.base.Collection, "")
		return err, true
	},
	Alias: func(t *testing.T, e *env) (error, bool) {
		a, ok := e.store.(adapters.Aliaser)
		if !ok {
			return nil, false
		}
		return a.SwitchAlias(t.Context(), e.name(), e.base.Collection), true
	},
	Owners: func(t *testing.T, e *env) (error, bool) {
		s := adapters.Schema{Owner: "item", Fields: vectorFields(adapters.InnerProduct, 4, "vec")}
		return e.createRefused(t, s)
	},
	Write: func(t *testing.T, e *env) (error, bool) {
		return e.createRefused(t, adapters.Schema{Fields: vectorFields(adapters.InnerProduct, 4, "vec")})
	},
	MultipleFields: func(t *testing.T, e *env) (error, bool) {
		return e.createRefused(t, adapters.Schema{Fields: vectorFields(adapters.InnerProduct, 4, "a", "b")})
	},
	CosineMetric: func(t *testing.T, e *env) (error, bool) {
		return e.createRefused(t, adapters.Schema{Fields: vectorFields(adapters.Cosine, 4, "vec")})
	},
	L2Metric: func(t *testing.T, e *env) (error, bool) {
		return e.createRefused(t, adapters.Schema{Fields: vectorFields(adapters.L2, 4, "vec")})
	},
	NumberIDs: func(t *testing.T, e *env) (error, bool) {
		return e.createRefused(t, adapters.Schema{Fields: vectorFields(adapters.InnerProduct, 4, "vec")})
	},
	TextIDs: func(t *testing.T, e *env) (error, bool) {
		return e.createRefused(t, adapters.Schema{TextIDs: true, Fields: vectorFields(adapters.InnerProduct, 4, "vec")})
	},
}

// createRefused makes a collection that the store should not take; one that it
// takes is dropped again.
func (e *env) createRefused(t *testing.T, s adapters.Schema) (error, bool) {
	w, ok := e.store.(adapters.Writer)
	if !ok {
		return nil, false
	}
	s.Collection = e.name()
	err := w.Create(t.Context(), s)
	if err == nil {
		e.dropLater(t, s.Collection)
	}
	return err, true
}
