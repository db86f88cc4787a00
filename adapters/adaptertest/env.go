package adaptertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
)

// Most cases share one collection, with an inner-product field, number ids and the payload
// of Item. Rows firstTwin to afterTwins−1 have equal vectors.
const (
	baseRows   = 300
	baseDim    = 24
	firstTwin  = 100
	afterTwins = 112
)

// runs counts this process's runs of the kit, so that their collections get different
// names.
var runs atomic.Int64

// env is one run of the kit.
type env struct {
	kit   Kit
	store adapters.Store
	base  Fixture // base collection, as loaded
	id    string
	made  atomic.Int64
	// reasons says why cases were skipped, by the names of their tests.
	reasons sync.Map
}

func newEnv(t *testing.T, k Kit) *env {
	t.Helper()
	if k.Prefix == "" {
		k.Prefix = "kit"
	}
	if k.Fields == 0 {
		k.Fields = 4
	}
	e := &env{kit: k, id: fmt.Sprintf("%s_%d_%d", k.Prefix, time.Now().UnixNano()%1e9, runs.Add(1))}
	e.store = e.open(t)
	e.base = e.load(t, baseFixture())
	return e
}

func (e *env) open(t *testing.T) adapters.Store {
	t.Helper()
	s := e.kit.Open(t)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// name returns a collection name that nothing else uses.
func (e *env) name() string { return fmt.Sprintf("%s_%d", e.id, e.made.Add(1)) }

// checkCount checks the number of rows of a collection, if the store counts rows.
func (e *env) checkCount(t *testing.T, collection string, want int64) {
	t.Helper()
	c, ok := e.store.(adapters.Counter)
	if !ok {
		return
	}
	if n, err := c.Count(t.Context(), collection); n != want || err != nil {
		t.Errorf("counted %d rows, %v, want %d", n, err, want)
	}
	if _, err := c.Count(t.Context(), e.name()); !errors.Is(err, adapters.ErrNotFound) {
		t.Errorf("counted no collection: %v, want ErrNotFound", err)
	}
}

func (e *env) lacks(c Capability) bool { return slices.Contains(e.kit.Lacks, c) }

// load creates and fills a collection, which is removed when t ends.
func (e *env) load(t *testing.T, f Fixture) Fixture {
	t.Helper()
	if f.Collection == "" {
		f.Collection = e.name()
	}
	if e.kit.Load != nil {
		e.kit.Load(t, e.store, f)
		return f
	}
	w, ok := e.store.(adapters.Writer)
	if !ok {
		t.Fatal("the kit has no Load and the adapter is no Writer")
	}
	if err := w.Create(t.Context(), f.Schema); err != nil {
		t.Fatalf("create %s: %v", f.Collection, err)
	}
	e.dropLater(t, f.Collection)
	if len(f.Rows.IDs) == 0 {
		return f
	}
	if err := w.Write(t.Context(), f.Collection, f.Schema, f.Rows); err != nil {
		t.Fatalf("write to %s: %v", f.Collection, err)
	}
	return f
}

func (e *env) dropLater(t *testing.T, collection string) {
	w := e.store.(adapters.Writer)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 30*time.Second)
		defer cancel()
		if err := w.Drop(ctx, collection); err != nil {
			t.Errorf("drop %s: %v", collection, err)
		}
	})
}

func vectorFields(m adapters.Metric, dim int, names ...string) []adapters.VectorField {
	fields := make([]adapters.VectorField, len(names))
	for i, n := range names {
		fields[i] = adapters.VectorField{Name: n, Dim: dim, Metric: m, FullPrecision: true}
	}
	return fields
}

func baseFixture() Fixture {
	rng := rand.New(rand.NewPCG(7, 11))
	f := Fixture{Schema: adapters.Schema{Fields: vectorFields(adapters.InnerProduct, baseDim, "vec")}}
	m := randomMatrix(rng, baseRows, baseDim)
	for r := range baseRows {
		f.Rows.IDs = append(f.Rows.IDs, rerank.UintID(uint64(r+1)))
		f.Rows.Payloads = append(f.Rows.Payloads, itemPayload(r))
		if r > firstTwin && r < afterTwins {
			copy(m.Row(r), m.Row(firstTwin))
		}
	}
	f.Rows.Vectors = []rerank.Matrix{m}
	return f
}

func itemPayload(r int) json.RawMessage {
	colours := []string{"red", "green", "blue"}
	p, err := json.Marshal(Item{
		Colour: colours[r%3],
		Size:   int64(r % 100),
		Big:    1<<53 + int64(r%5),
		Weight: float64(r) + 0.1,
		Label:  fmt.Sprintf("Größe %d – 漢字 🙂 \"quoted\" <b>", r),
	})
	if err != nil {
		panic(err) // unreachable: JSON can represent every value of the struct
	}
	return p
}

func randomMatrix(rng *rand.Rand, rows, cols int) rerank.Matrix {
	m := rerank.NewMatrix(rows, cols)
	for i := range m.Data {
		m.Data[i] = float32(rng.NormFloat64())
	}
	return m
}

func unitMatrix(rng *rand.Rand, rows, cols int) rerank.Matrix {
	m := randomMatrix(rng, rows, cols)
	for r := range rows {
		rerank.Normalise(m.Row(r))
	}
	return m
}

// probes returns n random probes.
func (e *env) probes(dim, n, depth int) []rerank.Probe {
	m := randomMatrix(rand.New(rand.NewPCG(uint64(dim), uint64(n))), n, dim)
	probes := make([]rerank.Probe, n)
	for i := range probes {
		probes[i] = rerank.Probe{Vector: m.Row(i), Depth: depth}
	}
	return probes
}

func (e *env) search(t *testing.T, r adapters.SearchRequest) []rerank.List {
	t.Helper()
	lists, err := e.store.Search(t.Context(), r)
	if err != nil {
		t.Fatalf("search: %v", err)
	}
	if len(lists) != len(r.Probes) {
		t.Fatalf("%d lists for %d probes", len(lists), len(r.Probes))
	}
	return lists
}

// storeAs returns the store as the interface T.
func storeAs[T any](t *testing.T, e *env) T {
	t.Helper()
	s, ok := e.store.(T)
	if !ok {
		t.Fatalf("the kit claims a capability, and %T has not the interface %s", e.store, strings.TrimPrefix(fmt.Sprintf("%T", (*T)(nil)), "*"))
	}
	return s
}

// exactScores returns the float64 inner product of a probe with each row of field f, or with
// the normalised row on a cosine field.
func exactScores(f Fixture, field int, probe []float32) []float64 {
	m := f.Rows.Vectors[field]
	out := make([]float64, m.Rows)
	for r := range out {
		for i, x := range m.Row(r) {
			out[r] += float64(x) * float64(probe[i])
		}
		if f.Fields[field].Metric == adapters.Cosine {
			out[r] /= math.Max(rerank.Norm(m.Row(r)), math.SmallestNonzeroFloat64)
		}
	}
	return out
}
