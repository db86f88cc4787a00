// Package parity compares a device with the CPU. It loads, scans and rescores golden cases
// and random models of every kind and of the shapes that devices have kernels for. Each
// answer is compared with the scores of the plain Go kernels and, if there are any, with
// golden scores.
package parity

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/likenessdb/likeness/plugin/device"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/mol"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// Options says how much to compare.
type Options struct {
	Rows, Queries, K int
	Seed             uint64
	// Bounds, if not nil, compares the device's upper bound of every row of a loaded model
	// with the CPU's score. It returns the number of pairs of query and row, and the
	// greatest share of a bound's room that an error takes.
	Bounds func(ctx context.Context, model device.Version, s *Subject) (pairs int, room float64, err error)
}

// Result is the outcome of a case.
type Result struct {
	Case    string `json:"case"`
	Rows    int    `json:"rows"`
	Queries int    `json:"queries"`
	K       int    `json:"k"`
	// Same counts the scans that returned the same rows as the CPU in the same order.
	Same int `json:"same"`
	// Golden: the case has reference scores, and GoldenError is the greatest difference
	// from them.
	Golden      bool    `json:"golden,omitempty"`
	GoldenError float64 `json:"golden_error,omitempty"`
	// Error is the greatest difference from the CPU's φ. Epsilon is the greatest error that
	// the device itself stated.
	Error   float64 `json:"error"`
	Epsilon float64 `json:"epsilon"`
	// Bounds counts the upper bounds that were compared with φ, and BoundsRoom is the
	// greatest share that an error takes of a bound's room.
	Bounds     int     `json:"bounds,omitempty"`
	BoundsRoom float64 `json:"bounds_room,omitempty"`
	// Failed is the reason why the case failed, or empty.
	Failed string `json:"failed,omitempty"`
}

// Shape is the shape of a MoL: P_Q, P_X, D and the width of the gates' hidden layer.
type Shape struct{ PairsQuery, PairsItem, Dim, Hidden int }

func (s Shape) String() string {
	return fmt.Sprintf("mol %d×%d×%d, gates of %d", s.PairsQuery, s.PairsItem, s.Dim, s.Hidden)
}

// Subject is a model with rows and queries.
type Subject struct {
	Name    string
	Model   *model.Model
	Rows    rerank.Matrix // feature rows
	Queries []rerank.Query
	// Wants holds reference scores, one row per query; it may be empty. Owners, if set,
	// holds the item that owns each row; an expected score is then the best score of an
	// item's rows.
	Wants  rerank.Matrix
	Owners []int
}

// Random builds a subject of every kind, with odd sizes and with rows that are not finite,
// and a MoL of each shape.
func Random(shapes []Shape, o Options) ([]Subject, error) {
	var all []Subject
	add := func(name string, m *model.Model, err error) error {
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		s := Subject{Name: name, Model: m, Rows: Rows(m, o.Rows, o.Seed)}
		for q := range o.Queries {
			s.Queries = append(s.Queries, query(m, o.Seed+uint64(q)))
		}
		all = append(all, s)
		return nil
	}
	err := errors.Join(
		addModel(add, "dot 768", func() (*model.Model, error) { return Dot(768) }),
		addModel(add, "dot 21, not finite", func() (*model.Model, error) { return Dot(21) }),
		addModel(add, "bilinear 33, not finite", func() (*model.Model, error) {
			w := numbers(33, 33, o.Seed, 0.2)
			return newModel(rerank.KindBilinear, map[string]any{"query_embedding_dim": 33, "item_embedding_dim": 33},
				tensor.Set{"W": {Shape: []int{33, 33}, Data: w.Data}})
		}),
		addModel(add, "maxsim 47, not finite", func() (*model.Model, error) {
			return newModel(rerank.KindMaxSim, map[string]any{"dim": 47}, nil)
		}),
		addModel(add, "rbe 19, not finite", func() (*model.Model, error) {
			p := numbers(19, 11, o.Seed, 0.2)
			return newRBE(19, 11, func(i, j int) float32 { return p.Row(i)[j] })
		}),
	)
	for _, s := range shapes {
		for _, name := range []string{s.String(), s.String() + ", not finite"} {
			err = errors.Join(err, addModel(add, name, func() (*model.Model, error) { return MoL(s, o.Seed) }))
		}
	}
	for i := range all {
		if strings.HasSuffix(all[i].Name, "not finite") {
			addNonFinite(all[i].Rows)
		}
	}
	return all, err
}

func addModel(add func(string, *model.Model, error) error, name string, make func() (*model.Model, error)) error {
	m, err := make()
	return add(name, m, err)
}

// addNonFinite sets one number in the first, the middle and the last row to NaN or
// infinity.
func addNonFinite(m rerank.Matrix) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for i, x := range []float32{nan, inf, -inf} {
		row := m.Row(i * (m.Rows - 1) / 2)
		row[i*(len(row)-1)/2] = x
	}
}

// Check compares each subject and reports each result by calling told. It stops with the
// error of ctx.
func Check(ctx context.Context, d device.Device, subjects []Subject, o Options, told func(Result)) error {
	for i := range subjects {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		told(checkSubject(ctx, d, &subjects[i], o))
	}
	return ctx.Err()
}

// checkSubject loads a model and its rows, compares, and unloads both.
func checkSubject(ctx context.Context, d device.Device, s *Subject, o Options) Result {
	r := Result{Case: s.Name, Rows: s.Rows.Rows, Queries: len(s.Queries), K: min(o.K, s.Rows.Rows), Golden: s.Wants.Rows > 0}
	var file bytes.Buffer
	if err := model.Encode(&file, s.Model); err != nil {
		r.Failed = err.Error()
		return r
	}
	at, table := device.Version{Name: "parity", Version: s.Model.Version}, device.Version{Name: "parity " + s.Name, Version: "1"}
	err := d.LoadModel(ctx, at, file.Bytes())
	if err == nil {
		err = d.LoadTable(ctx, device.TableHead{Table: table, Model: at, Rows: s.Rows.Rows, Cols: s.Rows.Cols}, chunks(s.Rows))
	}
	for q := 0; err == nil && q < len(s.Queries); q++ {
		a := device.Ask{Model: at, Table: table, Query: s.Queries[q], K: r.K}
		if err = r.compare(ctx, d, s.Model, a, s.Rows); err == nil && r.Golden {
			err = r.compareGolden(ctx, d, s, a, q)
		}
	}
	if err == nil && o.Bounds != nil {
		r.Bounds, r.BoundsRoom, err = o.Bounds(ctx, at, s)
	}
	if err = errors.Join(err, d.Unload(context.WithoutCancel(ctx), []device.Version{at}, []device.Version{table})); err != nil {
		r.Failed = err.Error()
	}
	return r
}

// compareGolden compares the scores of all rows with the golden scores, within the tolerance of
// testdata/golden/README.md.
func (r *Result) compareGolden(ctx context.Context, d device.Device, s *Subject, a device.Ask, q int) error {
	a.K = min(s.Rows.Rows, 1000) // every device can return that many rows
	b, err := d.Scan(ctx, a, nil)
	if err != nil {
		return fmt.Errorf("scan for the golden scores: %w", err)
	}
	wants, have := s.Wants.Row(q), map[int]float32{}
	for i, row := range b.Rows { // the best of an owner's rows comes first
		at := int(row)
		if s.Owners != nil {
			at = s.Owners[row]
		}
		if _, ok := have[at]; !ok {
			have[at] = b.Scores[i]
		}
	}
	largest := 1.0
	for _, x := range wants {
		largest = max(largest, math.Abs(float64(x)))
	}
	off := 5e-6*largest + float64(b.Epsilon)
	for at, x := range have {
		if at >= len(wants) {
			return fmt.Errorf("%w: %d golden scores", ErrGolden, len(wants))
		}
		e := math.Abs(float64(x) - float64(wants[at]))
		r.GoldenError = max(r.GoldenError, e)
		if !(e <= off) {
			return fmt.Errorf("row %d scores %v, the golden score is %v, which may differ by %v", at, x, wants[at], off)
		}
	}
	return nil
}

func chunks(m rerank.Matrix) device.Rows {
	return func(yield func([]float32, error) bool) {
		for from := 0; from < m.Rows; from += 4096 {
			if !yield(m.Slice(from, min(from+4096, m.Rows)).Data, nil) {
				return
			}
		}
	}
}

func query(m *model.Model, seed uint64) rerank.Query {
	return rerank.Query{Vector: numbers(1, m.Spec().QueryDim, seed, 1).Data}
}

// compare compares a scan, and a rescoring of every third row, with the CPU's scores.
func (r *Result) compare(ctx context.Context, d device.Device, m *model.Model, a device.Ask, rows rerank.Matrix) error {
	enc, err := m.WithKernels(kernel.Go()).Encode(a.Query)
	if err != nil {
		return err
	}
	scores := make([]float32, rows.Rows)
	if err := enc.Score(scores, rerank.Items{Features: rows}); err != nil {
		return err
	}
	var all, third []uint32
	for i := range scores {
		all = append(all, uint32(i))
		if i%3 == 0 {
			third = append(third, uint32(i))
		}
	}
	scanned, err := d.Scan(ctx, a, nil)
	if err != nil {
		return fmt.Errorf("scan: %w", err)
	}
	rescored, err := d.Rescore(ctx, a, third)
	if err != nil {
		return fmt.Errorf("rescoring: %w", err)
	}
	off := float64(enc.Bound(nil, nil).Epsilon)
	if err := r.agree(scanned, scores, all, off); err != nil {
		return fmt.Errorf("scan: %w", err)
	}
	if slices.Equal(scanned.Rows, best(scores, all, a.K)) {
		r.Same++
	}
	if err := r.agree(rescored, scores, third, off); err != nil {
		return fmt.Errorf("rescoring: %w", err)
	}
	return nil
}

// best returns the k best of the given rows.
func best(scores []float32, rows []uint32, k int) []uint32 {
	top := rerank.NewTopK(k)
	for _, row := range rows {
		top.Push(rerank.Scored{ID: rerank.UintID(uint64(row)), Score: scores[row], Index: int(row)})
	}
	var out []uint32
	for _, s := range top.Sorted() {
		out = append(out, uint32(s.Index))
	}
	return out
}

// agree verifies that each score lies within the stated errors of both sides, and that no
// row was left out that scores more than the last row by more than these errors.
func (r *Result) agree(b device.Best, scores []float32, rows []uint32, off float64) error {
	wants := best(scores, rows, r.K)
	if len(b.Rows) != len(wants) {
		return fmt.Errorf("%d rows, want %d", len(b.Rows), len(wants))
	}
	off += float64(b.Epsilon)
	r.Epsilon = max(r.Epsilon, float64(b.Epsilon))
	for i, row := range b.Rows {
		if !finite(scores[row]) && !finite(b.Scores[i]) && !finite(scores[wants[i]]) {
			continue // rows that are not finite are ordered by number alone
		}
		e := math.Abs(float64(b.Scores[i]) - float64(scores[row]))
		r.Error = max(r.Error, e)
		if !(e <= off) {
			return fmt.Errorf("row %d scores %v, on the CPU %v, which may differ by %v", row, b.Scores[i], scores[row], off)
		}
		if d := float64(scores[wants[i]]) - float64(scores[row]); !(math.Abs(d) <= 2*off) {
			return fmt.Errorf("place %d has row %d, which scores %v on the CPU, where row %d has %v", i, row, scores[row], wants[i], scores[wants[i]])
		}
	}
	return nil
}

func finite(x float32) bool { return x-x == 0 }

// newModel builds a model from its kind's configuration.
func newModel(kind rerank.Kind, config any, set tensor.Set) (*model.Model, error) {
	raw, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	return model.New(model.Parameters{Kind: kind, Name: "parity", Config: raw, Tensors: set})
}

// Dot returns a dot-product model.
func Dot(dim int) (*model.Model, error) {
	return newModel(rerank.KindDot, map[string]int{"dim": dim}, nil)
}

// newRBE returns a CUR approximation for m support items and n support queries.
func newRBE(m, n int, projection func(i, j int) float32) (*model.Model, error) {
	ids := func(n int) (out []rerank.ID) {
		for i := range n {
			out = append(out, rerank.UintID(uint64(i+1)))
		}
		return out
	}
	p := make([]float32, m*n)
	for i := range p {
		p[i] = projection(i/n, i%n)
	}
	return newModel(rerank.KindRBE, map[string]any{"support_items": ids(m), "support_queries": ids(n)},
		tensor.Set{"projection": {Shape: []int{m, n}, Data: p}})
}

// MoL returns a model with random weights and all parts of the gates.
func MoL(s Shape, seed uint64) (*model.Model, error) {
	const dim, width = 16, 16
	pairs := s.PairsQuery * s.PairsItem
	config, err := json.Marshal(mol.Config{
		QueryDim: dim, ItemDim: dim, Dim: s.Dim, PairsQuery: s.PairsQuery, PairsItem: s.PairsItem, Temperature: 0.05, L2Norm: true,
		GatingQueryHidden: width, GatingItemHidden: width, GatingPairHidden: s.Hidden, Combination: mol.GLUSiLU,
	})
	if err != nil {
		return nil, err
	}
	set := tensor.Set{}
	add := func(name string, shape ...int) {
		rows, cols, size := 1, shape[0], 0.1 // a bias
		if len(shape) == 2 {
			rows, cols = shape[0], shape[1]
			size = 1 / math.Sqrt(float64(cols))
		}
		set[name] = tensor.Tensor{Shape: shape, Data: numbers(rows, cols, seed+uint64(len(set)), size).Data}
	}
	add("_query_embeddings_fn._query_emb_proj_module.1.weight", s.PairsQuery*s.Dim, dim)
	add("_query_embeddings_fn._query_emb_proj_module.1.bias", s.PairsQuery*s.Dim)
	add("_item_embeddings_fn._item_emb_proj_module.1.weight", s.PairsItem*s.Dim, dim)
	add("_item_embeddings_fn._item_emb_proj_module.1.bias", s.PairsItem*s.Dim)
	add("_gating_fn._query_only_partial_module.0.weight", width, dim)
	add("_gating_fn._query_only_partial_module.0.bias", width)
	add("_gating_fn._query_only_partial_module.2.weight", pairs, width)
	add("_gating_fn._item_only_partial_module.1.weight", width, dim)
	add("_gating_fn._item_only_partial_module.1.bias", width)
	add("_gating_fn._item_only_partial_module.3.weight", pairs, width)
	add("_gating_fn._qi_partial_module.1.weight", s.Hidden, pairs)
	add("_gating_fn._qi_partial_module.1.bias", s.Hidden)
	add("_gating_fn._qi_partial_module.3.weight", pairs, s.Hidden)
	add("_gating_fn._qi_partial_module.3.bias", pairs)
	return model.New(model.Parameters{Kind: rerank.KindMoL, Name: "parity", Config: config, Tensors: set})
}

// Rows returns n random rows: components of norm 1, and normally distributed numbers
// elsewhere.
func Rows(m *model.Model, n int, seed uint64) rerank.Matrix {
	s := m.Spec()
	rows := numbers(n, s.Features, seed+1000, 1)
	for r := range n {
		row := rows.Row(r)
		for j := range max(1, s.PairsItem) {
			if s.Block > 0 {
				rerank.Normalise(row[j*s.Block:][:s.Block])
			}
		}
	}
	return rows
}

func numbers(rows, cols int, seed uint64, size float64) rerank.Matrix {
	rng := rand.New(rand.NewPCG(seed, 11))
	m := rerank.NewMatrix(rows, cols)
	for i := range m.Data {
		m.Data[i] = float32(size * rng.NormFloat64())
	}
	return m
}
