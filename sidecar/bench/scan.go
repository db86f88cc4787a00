package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/likenessdb/likeness/internal/largepages"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/scan"
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// scanDim is the dimension of the random vectors of a scan.
const scanDim = 64

// Scanning describes a measurement of exact scans.
type Scanning struct {
	Kind rerank.Kind
	// Shape is PQxPXxD for mol, VxD for maxsim, and the dimension for bilinear and dot.
	Shape     string
	Hidden    int // width of the gates of mol
	QueryOnly bool
	// Model, if not nil, is measured instead of a random model of Kind and Shape. Its Items
	// items are made of Vectors, repeated with small random changes, and it is queried with
	// Queries.
	Model            *model.Model
	Vectors, Queries rerank.Matrix

	Items, K, Batch, Threads int
	Format                   rerank.Format
	// Tiles stores float32 rows in tiles. Other formats are always in tiles.
	Tiles bool
	// Full also stores the rows in float32, which are then scored.
	Full bool
	// Whole scores every item, without using bounds.
	Whole  bool
	Kernel *kernel.Set
	Runs   int           // at least
	Budget time.Duration // at least
}

// Scans is the result of a Scanning.
type Scans struct {
	Kind    rerank.Kind   `json:"kind"`
	Shape   string        `json:"shape,omitempty"`
	Hidden  int           `json:"hidden,omitempty"`
	Model   string        `json:"model,omitempty"`
	Items   int           `json:"items"`
	K       int           `json:"k"`
	Batch   int           `json:"batch"`
	Threads int           `json:"threads"`
	Format  rerank.Format `json:"format"`
	Layout  table.Layout  `json:"layout"`
	Full    bool          `json:"full_precision"`
	Whole   bool          `json:"whole"`
	Kernel  string        `json:"kernel"`
	Runs    int           `json:"runs"`
	// MS is the time of one pass over the table for all queries of a batch.
	MS  Spread `json:"ms"`
	CPU Spread `json:"cpu_ms"` // of all threads
	// Scored is the share of items that were scored in float32, over all queries. Bounds
	// ruled out the others.
	Scored         float64 `json:"scored_share"`
	ItemsPerSecond float64 `json:"items_per_second"` // at ms.min, multiplied by the number of queries
	// Flops is the number of operations of the model per item, with a multiply-add as two.
	// Bytes is the size of an item in the table.
	Flops  int     `json:"flops_per_item"`
	Bytes  int     `json:"bytes_per_item"`
	GFLOPS float64 `json:"gflops"`
	GBs    float64 `json:"gb_s"`
	// The machine's limits, measured between the passes, and which of them applies. The
	// share exceeds 1 if bounds avoid work that the limit counts.
	PeakGFLOPS    float64 `json:"peak_gflops"`
	SequentialGBs float64 `json:"sequential_gb_s"`
	Binds         string  `json:"binds"` // arithmetic or memory
	ShareOfLimit  float64 `json:"share_of_limit"`
	// Top lists the items of the answer to the first query, best first.
	Top []int `json:"top"`
}

// RunScan measures. It returns ErrShape, an error of the model or table, or the context's
// error.
func RunScan(ctx context.Context, s Scanning) (Scans, error) {
	if s.Kernel == nil {
		s.Kernel = kernel.Best()
	}
	var flops int
	if s.Model == nil {
		var err error
		if flops, err = s.generate(); err != nil {
			return Scans{}, err
		}
	} else {
		flops = s.flopsOf(s.Model)
	}
	m := s.Model.WithKernels(s.Kernel)
	t, err := s.table(m)
	if err != nil {
		return Scans{}, err
	}
	queries, err := s.encode(m)
	if err != nil {
		return Scans{}, err
	}
	r := Scans{
		Kind: m.Spec().Kind, Items: s.Items, K: s.K, Batch: s.Batch, Threads: s.Threads, Format: t.Meta().Format, Layout: t.Meta().Layout, Full: t.Meta().Full,
		Whole: s.Whole, Kernel: s.Kernel.Name(), Flops: flops, Bytes: t.Packed().RowWords() * 4 * t.Meta().Rows / max(s.Items, 1),
	}
	if s.Shape != "" {
		r.Shape, r.Hidden = s.Shape, s.Hidden
	} else {
		r.Model = m.Name
	}
	return r, r.measure(ctx, s, scan.New(t, m.Spec()), queries)
}

// generate generates a random model, vectors and queries.
func (s *Scanning) generate() (flops int, err error) {
	d, err := Scoring{Kind: s.Kind, Shape: s.shapeOfScoring()}.dims()
	if err != nil {
		return 0, err
	}
	r := rand.New(rand.NewPCG(1, 2))
	dim := d[len(d)-1]
	k := kind{kind: s.Kind, config: fmt.Sprintf(`{"dim": %d, "normalise": true}`, dim)}
	switch s.Kind {
	case rerank.KindMoL:
		k = molOf(r, "mol", molShape{dim: scanDim, pq: d[0], px: d[1], d: dim, gate: s.Hidden, queryOnly: s.QueryOnly})
		dim = scanDim
		flops = 2*d[0]*d[1]*d[2] + 4*d[0]*d[1]*s.Hidden
		if s.QueryOnly {
			flops = 2 * d[1] * d[2]
		}
	case rerank.KindMaxSim:
		flops = 2 * d[1] * dim
	case rerank.KindBilinear:
		k.config = fmt.Sprintf(`{"query_embedding_dim": %d, "item_embedding_dim": %d, "normalise": true}`, dim, dim)
		k.tensors, flops = tensor.Set{"W": randomTensor(r, dim, dim)}, 2*dim
	default:
		flops = 2 * dim
	}
	s.Model, err = model.New(model.Parameters{Kind: k.kind, Name: "bench", Config: json.RawMessage(k.config), Tensors: k.tensors})
	s.Vectors, s.Queries = normal(r, s.Items*s.rowsOfItem(), dim), normal(r, 16, dim)
	return flops, err
}

// shapeOfScoring returns the shape in the form of Scoring, which includes the number of
// query vectors.
func (s *Scanning) shapeOfScoring() string {
	if s.Kind == rerank.KindMaxSim {
		return "1x" + s.Shape
	}
	return s.Shape
}

// rowsOfItem returns the number of vectors per item.
func (s *Scanning) rowsOfItem() int {
	if s.Kind != rerank.KindMaxSim {
		return 1
	}
	var n int
	_, _ = fmt.Sscanf(s.Shape, "%dx", &n) // generate has validated it
	return n
}

func normal(r *rand.Rand, rows, cols int) rerank.Matrix {
	m := rerank.NewMatrix(rows, cols)
	for i := range m.Data {
		m.Data[i] = float32(r.NormFloat64())
	}
	return m
}

// flopsOf returns the operations per item of a given model.
func (s *Scanning) flopsOf(m *model.Model) int {
	spec := m.Spec()
	if spec.SingleInnerProduct {
		return 2 * spec.Features
	}
	var c struct {
		Hidden int `json:"gating_qi_hidden_dim"`
	}
	_ = json.Unmarshal(m.Parameters().Config, &c) // cannot fail: it was parsed when the model was opened
	pairs := spec.PairsQuery * spec.PairsItem
	return 2*spec.PairsQuery*spec.PairsItem*spec.Block + 4*pairs*c.Hidden
}

// table builds the items' features. Repeated vectors are moved in a random direction by a
// tenth of their length.
func (s *Scanning) table(m *model.Model) (*table.Table, error) {
	rows, spec := s.rowsOfItem(), m.Spec()
	features := rerank.NewMatrix(s.Items*rows, spec.Features)
	largepages.Advise(bytesOf(features.Data))
	r := rand.New(rand.NewPCG(3, 4))
	const block = 1024
	base := rerank.NewMatrix(block, s.Vectors.Cols)
	for from := 0; from < features.Rows; from += block {
		n := min(block, features.Rows-from)
		for i := range n {
			row := base.Row(i)
			copy(row, s.Vectors.Row((from+i)%s.Vectors.Rows))
			if from+i >= s.Vectors.Rows {
				move(r, row)
			}
		}
		if err := m.EncodeItems(features.Slice(from, from+n), base.Slice(0, n)); err != nil {
			return nil, err
		}
	}
	ids := make([]rerank.ID, s.Items)
	for i := range ids {
		ids[i] = rerank.UintID(uint64(i))
	}
	var starts []int32
	if spec.GroupedRows {
		for i := range s.Items + 1 {
			starts = append(starts, int32(i*rows))
		}
	}
	meta := table.Meta{Model: m.Name, ModelVersion: m.Version, Collection: "items", Format: s.Format, Block: spec.Block, Full: s.Full}
	if s.Tiles || s.Format != rerank.FormatFloat32 {
		meta.Layout = table.LayoutTiles
	}
	return table.FromMemory(meta, ids, features, starts)
}

func move(r *rand.Rand, v []float32) {
	scale := 0.1 * rerank.Norm(v) / math.Sqrt(float64(len(v)))
	for i := range v {
		v[i] += float32(r.NormFloat64() * scale)
	}
}

func (s *Scanning) encode(m *model.Model) ([]rerank.Encoded, error) {
	queries := make([]rerank.Encoded, min(s.Queries.Rows, 64))
	for i := range queries {
		var err error
		if queries[i], err = m.Encode(rerank.Query{Vector: s.Queries.Row(i), HasUserID: m.Spec().UserIDs}); err != nil {
			return nil, err
		}
	}
	return queries, nil
}

// measure times the passes. Between them it measures the limits.
func (r *Scans) measure(ctx context.Context, s Scanning, scanner *scan.Scanner, queries []rerank.Encoded) error {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(s.Threads))
	batch, results := make([]scan.Query, s.Batch), make([]scan.Result, s.Batch)
	var wall, cpu []float64
	var items, scored int
	used, began := processorTime(), time.Now()
	for i := 0; i <= s.Runs || time.Since(began) < s.Budget; i++ {
		if i%8 == 0 {
			r.PeakGFLOPS = max(r.PeakGFLOPS, Peak(s.Kernel, s.Threads, 4*time.Millisecond))
			r.SequentialGBs = max(r.SequentialGBs, readRate(s, scanner.Table()))
		}
		for q := range batch {
			batch[q] = scan.Query{Encoded: queries[(i*s.Batch+q)%len(queries)], K: s.K, Whole: s.Whole}
			results[q].Top = results[q].Top[:0]
		}
		used()
		start := time.Now()
		err := scanner.Batch(ctx, batch, results)
		took, spent := time.Since(start), used()
		if err != nil {
			return err
		}
		if i == 0 {
			for _, row := range results[0].Top {
				r.Top = append(r.Top, row.Index)
			}
			continue
		}
		wall, cpu = append(wall, took.Seconds()*1e3), append(cpu, spent.Seconds()*1e3)
		for _, result := range results {
			items, scored = items+result.Items, scored+result.Scored
		}
	}
	r.Runs, r.MS, r.CPU, r.Scored = len(wall), spread(wall), spread(cpu), float64(scored)/float64(max(items, 1))
	r.limits()
	return nil
}

// readRate measures how fast a part of the table's rows can be read.
func readRate(s Scanning, t *table.Table) float64 {
	m := t.Features()
	if m.Rows == 0 {
		return MeasureMachine(s.Kernel, s.Threads, 64<<20, 1024).SequentialGBs
	}
	m = m.Slice(0, min(m.Rows, 256<<20/(4*m.Cols)))
	share := m.Rows / s.Threads
	return best(2, s.Threads, func(thread int) float64 {
		s.Kernel.Read(m.Slice(thread*share, (thread+1)*share).Data)
		return float64(share * m.Cols * 4)
	})
}

// limits compares the fastest pass with the machine's limits.
func (r *Scans) limits() {
	seconds, work := r.MS.Min/1e3, float64(r.Items)*float64(r.Batch)
	r.ItemsPerSecond = work / seconds
	r.GFLOPS = work * float64(r.Flops) / seconds / 1e9
	r.GBs = float64(r.Items) * float64(r.Bytes) / seconds / 1e9
	r.Binds, r.ShareOfLimit = "arithmetic", r.GFLOPS/r.PeakGFLOPS
	if memory := r.GBs / r.SequentialGBs; memory > r.ShareOfLimit {
		r.Binds, r.ShareOfLimit = "memory", memory
	}
}
