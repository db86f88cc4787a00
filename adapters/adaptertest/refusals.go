package adaptertest

import (
	"testing"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
)

// refusals holds, for each optional capability, a function that calls the operation.
// The function returns false if the adapter lacks the interface.
var refusals = map[Capability]func(t *testing.T, e *env) (has bool, err error){
	Exact: func(t *testing.T, e *env) (bool, error) {
		lists := e.search(t, adapters.SearchRequest{Collection: e.base.Collection, Exact: true, Probes: e.probes(baseDim, 1, 5)})
		if lists[0].Exact {
			t.Error("a store without exact search must not claim that a list is exact")
		}
		return true, adapters.ErrUnsupported
	},
	Filter: func(t *testing.T, e *env) (bool, error) {
		_, err := e.store.Search(t.Context(), adapters.SearchRequest{Collection: e.base.Collection, Filter: "colour", Probes: e.probes(baseDim, 1, 5)})
		return true, err
	},
	Fetch: func(t *testing.T, e *env) (bool, error) {
		f, ok := e.store.(adapters.Fetcher)
		if !ok {
			return false, nil
		}
		_, err := f.Fetch(t.Context(), adapters.FetchRequest{Collection: e.base.Collection, IDs: []rerank.ID{rerank.UintID(1)}})
		return true, err
	},
	Payload: func(t *testing.T, e *env) (bool, error) {
		f, ok := e.store.(adapters.Fetcher)
		if !ok {
			return false, nil
		}
		_, err := f.Fetch(t.Context(), adapters.FetchRequest{Collection: e.base.Collection, IDs: []rerank.ID{rerank.UintID(1)}, Payload: true})
		return true, err
	},
	Scan: func(t *testing.T, e *env) (bool, error) {
		s, ok := e.store.(adapters.Scanner)
		if !ok {
			return false, nil
		}
		return true, s.Scan(t.Context(), adapters.ScanRequest{Collection: e.base.Collection}, func(adapters.Rows, string) error { return nil })
	},
	Describe: func(t *testing.T, e *env) (bool, error) {
		d, ok := e.store.(adapters.Describer)
		if !ok {
			return false, nil
		}
		_, err := d.Describe(t.Context(), e.base.Collection)
		return true, err
	},
	Match: func(t *testing.T, e *env) (bool, error) {
		m, ok := e.store.(adapters.Matcher)
		if !ok {
			return false, nil
		}
		_, err := m.Match(t.Context(), e.base.Collection, "")
		return true, err
	},
	Alias: func(t *testing.T, e *env) (bool, error) {
		a, ok := e.store.(adapters.Aliaser)
		if !ok {
			return false, nil
		}
		return true, a.SwitchAlias(t.Context(), e.name(), e.base.Collection)
	},
	Owners: func(t *testing.T, e *env) (bool, error) {
		s := adapters.Schema{Owner: "item", Fields: vectorFields(adapters.InnerProduct, 4, "vec")}
		return e.createRefused(t, s)
	},
	Write: func(t *testing.T, e *env) (bool, error) {
		return e.createRefused(t, adapters.Schema{Fields: vectorFields(adapters.InnerProduct, 4, "vec")})
	},
	MultipleFields: func(t *testing.T, e *env) (bool, error) {
		return e.createRefused(t, adapters.Schema{Fields: vectorFields(adapters.InnerProduct, 4, "a", "b")})
	},
	CosineMetric: func(t *testing.T, e *env) (bool, error) {
		return e.createRefused(t, adapters.Schema{Fields: vectorFields(adapters.Cosine, 4, "vec")})
	},
	L2Metric: func(t *testing.T, e *env) (bool, error) {
		return e.createRefused(t, adapters.Schema{Fields: vectorFields(adapters.L2, 4, "vec")})
	},
	NumberIDs: func(t *testing.T, e *env) (bool, error) {
		return e.createRefused(t, adapters.Schema{Fields: vectorFields(adapters.InnerProduct, 4, "vec")})
	},
	TextIDs: func(t *testing.T, e *env) (bool, error) {
		return e.createRefused(t, adapters.Schema{TextIDs: true, Fields: vectorFields(adapters.InnerProduct, 4, "vec")})
	},
}

// createRefused tries to create a collection that the store should refuse. If the
// store accepts it, createRefused drops it.
func (e *env) createRefused(t *testing.T, s adapters.Schema) (bool, error) {
	w, ok := e.store.(adapters.Writer)
	if !ok {
		return false, nil
	}
	s.Collection = e.name()
	err := w.Create(t.Context(), s)
	if err == nil {
		e.dropLater(t, s.Collection)
	}
	return true, err
}
