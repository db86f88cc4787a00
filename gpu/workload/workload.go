// Package workload generates the inputs for measuring a device (models, tables, queries and
// candidates of typical sizes, from a seed) and measures how long a device.Device takes to
// answer.
//
// Every number of a table is a hash of the seed and its position, so that another program
// can generate the same table: see Number.
package workload

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"

	"github.com/likenessdb/likeness/gpu/parity"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// ErrCase: the case does not exist.
var ErrCase = errors.New("no such case")

// Case is a table and a batch of queries.
type Case struct {
	Name string      `json:"name"`
	Kind rerank.Kind `json:"kind"`
	// Shape is the shape of a MoL. Tables of other kinds have rows of Dim numbers.
	Shape parity.Shape `json:"-"`
	Dim   int          `json:"dim,omitempty"`
	Rows  int          `json:"rows"`
	// Candidates is how many rows of each query are rescored; 0 means that the table is
	// scanned.
	Candidates int `json:"candidates,omitempty"`
	// Batch is how many queries run at once, K the number of rows of an answer.
	Batch int  `json:"batch"`
	K     int  `json:"k"`
	Bars  Bars `json:"-"`
}

// Bars are the performance targets of a case. 0 means no target.
type Bars struct {
	// Device, Answer and Plugin are limits in milliseconds: on the device including both
	// copies, for certified answers in the same process, and through the plugin.
	Device, Answer, Plugin float64
	// Eager and Compiled are by which factor the device must be faster than PyTorch: than
	// eager float32, and than the best compiled variant.
	Eager, Compiled float64
}

// withPyTorch adds the targets that every case has: as fast as compiled PyTorch, and three
// times as fast as eager PyTorch, unless b says otherwise.
func withPyTorch(b Bars) Bars {
	b.Eager, b.Compiled = cmp.Or(b.Eager, 3), max(1, b.Compiled)
	return b
}

// Cases returns all cases.
func Cases() []Case {
	shape := func(pq, px, d int) parity.Shape {
		return parity.Shape{PairsQuery: pq, PairsItem: px, Dim: d, Hidden: 128}
	}
	books, lm := shape(8, 8, 32), shape(4, 4, 768)
	return []Case{
		{
			Name: "rescore-8x4x64", Kind: rerank.KindMoL, Shape: shape(8, 4, 64), Rows: 200_000, Candidates: 4000, Batch: 32, K: 100,
			Bars: withPyTorch(Bars{Device: 0.1, Plugin: 0.6}),
		},
		{
			Name: "scan-8x8x32", Kind: rerank.KindMoL, Shape: books, Rows: 674_044, Batch: 32, K: 10,
			Bars: withPyTorch(Bars{Device: 2.2, Answer: 2.2, Compiled: 1.5}),
		},
		{
			Name: "scan-8x8x32-one", Kind: rerank.KindMoL, Shape: books, Rows: 674_044, Batch: 1, K: 10,
			Bars: withPyTorch(Bars{Device: 0.25, Answer: 0.25, Compiled: 1.5}),
		},
		{
			Name: "scan-4x4x768", Kind: rerank.KindMoL, Shape: lm, Rows: 109_739, Batch: 32, K: 10,
			Bars: withPyTorch(Bars{Device: 1, Answer: 1, Compiled: 1.5}),
		},
		{Name: "bilinear-768", Kind: rerank.KindBilinear, Dim: 768, Rows: 350_000, Batch: 32, K: 10, Bars: withPyTorch(Bars{})},
		{Name: "bilinear-768-one", Kind: rerank.KindBilinear, Dim: 768, Rows: 350_000, Batch: 1, K: 10, Bars: withPyTorch(Bars{Eager: 1})}, // both only read the table
		{Name: "maxsim-256", Kind: rerank.KindMaxSim, Dim: 256, Rows: 500_000, Batch: 32, K: 10, Bars: withPyTorch(Bars{})},
		{Name: "rbe-512", Kind: rerank.KindRBE, Dim: 512, Rows: 500_000, Batch: 32, K: 10, Bars: withPyTorch(Bars{})},
	}
}

// Named returns the cases with the given names, or every case if no name is given. It returns
// ErrCase.
func Named(names []string) ([]Case, error) {
	all := Cases()
	if len(names) == 0 {
		return all, nil
	}
	var out []Case
	for _, name := range names {
		found := false
		for _, c := range all {
			if found = c.Name == name; found {
				out = append(out, c)
				break
			}
		}
		if !found {
			known := make([]string, len(all))
			for i, c := range all {
				known[i] = c.Name
			}
			return nil, fmt.Errorf("%w: %q; there are %q", ErrCase, name, known)
		}
	}
	return out, nil
}

// AtMost returns the case with a table of at most the given number of rows. A case that
// becomes smaller has no targets.
func (c Case) AtMost(rows int) Case {
	if rows > 0 && rows < c.Rows {
		c.Rows, c.Bars = rows, Bars{}
		c.Candidates, c.K = min(c.Candidates, rows), min(c.K, rows)
	}
	return c
}

func (c *Case) String() string {
	what := fmt.Sprintf("%s of %d", c.Kind, c.Dim)
	if c.Kind == rerank.KindMoL {
		what = c.Shape.String()
	}
	if c.Candidates > 0 {
		return fmt.Sprintf("%s, %d × %d candidates, K = %d", what, c.Batch, c.Candidates, c.K)
	}
	return fmt.Sprintf("%s, %d rows, %d at once, K = %d", what, c.Rows, c.Batch, c.K)
}

// Pairs returns how many pairs of query and row a batch scores.
func (c *Case) Pairs() float64 {
	if c.Candidates > 0 {
		return float64(c.Batch) * float64(c.Candidates)
	}
	return float64(c.Batch) * float64(c.Rows)
}

// Work is a Case with its generated data.
type Work struct {
	Case
	Model   *model.Model
	File    []byte // the model as a file
	Rows    rerank.Matrix
	Queries []rerank.Query
	// Candidates lists the rows to rescore for each query; nil means a scan.
	Candidates [][]uint32
}

// Make generates the data of a case. The table is in memory only once, as float32.
func Make(c Case, seed uint32) (*Work, error) {
	m, err := newModel(&c, seed)
	if err != nil {
		return nil, fmt.Errorf("case %s: %w", c.Name, err)
	}
	var file bytes.Buffer
	if err := model.Encode(&file, m); err != nil {
		return nil, fmt.Errorf("case %s: %w", c.Name, err)
	}
	w := &Work{Case: c, Model: m, File: file.Bytes(), Rows: table(m.Spec(), c.Rows, seed)}
	for i := range c.Batch {
		q := make([]float32, m.Spec().QueryDim)
		fill(q, seed^0xabcd, uint64(i)*uint64(len(q)))
		w.Queries = append(w.Queries, rerank.Query{Vector: q})
	}
	w.Candidates = Candidates(&c)
	return w, nil
}

// Candidates returns the rows to rescore for each query, or nil if the case scans.
func Candidates(c *Case) (all [][]uint32) {
	if c.Candidates == 0 {
		return nil
	}
	for i := range c.Batch {
		all = append(all, candidates(c.Rows, c.Candidates, i))
	}
	return all
}

// candidates returns rows that are far apart, each once, and different for each query.
func candidates(rows, count, query int) []uint32 {
	step := 7919 % rows
	for step == 0 || gcd(step, rows) != 1 {
		step++
	}
	out, at := make([]uint32, count), query*104_729%rows
	for i := range out {
		out[i] = uint32(at)
		at = (at + step) % rows
	}
	return out
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

func newModel(c *Case, seed uint32) (*model.Model, error) {
	p := model.Parameters{Kind: c.Kind, Name: "workload", Tensors: tensor.Set{}}
	var config any
	switch c.Kind {
	case rerank.KindMoL:
		return parity.MoL(c.Shape, uint64(seed))
	case rerank.KindBilinear:
		config = map[string]any{"query_embedding_dim": c.Dim, "item_embedding_dim": c.Dim, "form": "diagonal"}
		w := make([]float32, c.Dim)
		for i := range w {
			w[i] = 1 + Number(seed, uint64(i))/2
		}
		p.Tensors["w"] = tensor.Tensor{Shape: []int{c.Dim}, Data: w}
	case rerank.KindRBE:
		ids := make([]rerank.ID, c.Dim)
		for i := range ids {
			ids[i] = rerank.UintID(uint64(i + 1))
		}
		config = map[string]any{"support_items": ids, "support_queries": ids}
		projection := make([]float32, c.Dim*c.Dim)
		for i := range c.Dim {
			projection[i*c.Dim+i] = 1
		}
		p.Tensors["projection"] = tensor.Tensor{Shape: []int{c.Dim, c.Dim}, Data: projection}
	case rerank.KindDot, rerank.KindMaxSim:
		config = map[string]any{"dim": c.Dim}
	default:
		return nil, fmt.Errorf("%w: of the kind %q", ErrCase, c.Kind)
	}
	var err error
	if p.Config, err = json.Marshal(config); err != nil {
		return nil, err
	}
	return model.New(p)
}

// Number returns the i-th number for a seed, in [−1, 1). It applies murmur3's finaliser to
// the low 32 bits of i·0x9e3779b1 + seed; the upper 24 bits count multiples of 2⁻²³.
func Number(seed uint32, i uint64) float32 {
	h := uint32(i)*0x9e3779b1 + seed
	h ^= h >> 16
	h *= 0x85ebca6b
	h ^= h >> 13
	h *= 0xc2b2ae35
	h ^= h >> 16
	return float32(int32(h>>8)-1<<23) * 0x1p-23
}

func fill(dst []float32, seed uint32, first uint64) {
	for i := range dst {
		dst[i] = Number(seed, first+uint64(i))
	}
}

// table returns a matrix with Number(seed, r·cols + c) at row r and column c. The
// components of a MoL are then divided by their norms; other numbers are multiplied by √3,
// so that their mean square is 1.
func table(s rerank.Spec, rows int, seed uint32) rerank.Matrix {
	m := rerank.NewMatrix(rows, s.Features)
	workers := runtime.GOMAXPROCS(0)
	var g sync.WaitGroup
	for w := range workers {
		g.Go(func() {
			for r := rows * w / workers; r < rows*(w+1)/workers; r++ {
				row := m.Row(r)
				fill(row, seed, uint64(r)*uint64(s.Features))
				unit := 0
				if s.Block > 0 {
					unit = s.PairsItem
				}
				for j := range unit {
					rerank.Normalise(row[j*s.Block:][:s.Block])
				}
				for i := unit * s.Block; i < len(row); i++ {
					row[i] *= float32(math.Sqrt(3))
				}
			}
		})
	}
	g.Wait()
	return m
}
