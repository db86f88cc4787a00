package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// ErrShape: the shape does not fit the kind.
var ErrShape = errors.New("shape does not fit the kind")

// Scoring describes a measurement of Encoded.Score with random candidates.
type Scoring struct {
	Kind rerank.Kind
	// Shape is PQxPXxD for mol; TxVxD for maxsim (T query vectors, whose scores are added,
	// and V vectors per item); the dimension for bilinear and dot; and DxR for bilinear of
	// rank R.
	Shape  string
	Hidden int // width of the gates of mol
	// Candidates is the number of candidates of each of the Batch queries. Each query has
	// its own candidates. With Shared, all queries have the same candidates, scored in one
	// call.
	Candidates, Batch, Threads int
	Shared                     bool
	// Encode makes each round encode its queries too, before scoring.
	Encode bool
	Format rerank.Format
	// Gather picks candidates at random from a table of Rows feature rows, limited to
	// TableBytes. Otherwise candidates are contiguous, in tiles for kinds that use them.
	Gather     bool
	Rows       int
	TableBytes int
	Kernel     *kernel.Set
	Runs       int           // at least
	Budget     time.Duration // at least
}

// Spread is in milliseconds.
type Spread struct {
	Min float64 `json:"min"`
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
}

// Scored is the result of a Scoring.
type Scored struct {
	Kind       rerank.Kind   `json:"kind"`
	Shape      string        `json:"shape"`
	Hidden     int           `json:"hidden,omitempty"`
	Candidates int           `json:"candidates"`
	Batch      int           `json:"batch"`
	Shared     bool          `json:"shared,omitempty"`
	Encode     bool          `json:"encode,omitempty"`
	Threads    int           `json:"threads"`
	Format     rerank.Format `json:"format"`
	Gather     bool          `json:"gather"`
	Rows       int           `json:"rows"` // of the table
	Kernel     string        `json:"kernel"`
	Runs       int           `json:"runs"`
	MS         Spread        `json:"ms"`
	CPU        Spread        `json:"cpu_ms"` // of all threads
	// Flops is the number of operations of the model per candidate, with a multiply-add as
	// two. It counts inner products and gate layers, but no activations, softmax or
	// gathering.
	Flops       int     `json:"flops_per_candidate"`
	GFLOPS      float64 `json:"gflops"` // at ms.min
	PeakGFLOPS  float64 `json:"peak_gflops"`
	ShareOfPeak float64 `json:"share_of_peak"`
}

// dims parses the shape.
func (s Scoring) dims() ([]int, error) {
	want := map[rerank.Kind]int{rerank.KindMoL: 3, rerank.KindMaxSim: 3, rerank.KindBilinear: 1, rerank.KindDot: 1}[s.Kind]
	var dims []int
	for part := range strings.SplitSeq(s.Shape, "x") {
		n, err := strconv.Atoi(part)
		if err != nil || n < 1 || n > 1<<16 {
			return nil, fmt.Errorf("%w: %q in %q is no number from 1 to 65,536", ErrShape, part, s.Shape)
		}
		dims = append(dims, n)
	}
	if len(dims) != want && (s.Kind != rerank.KindBilinear || len(dims) != 2) {
		return nil, fmt.Errorf("%w: %q has %d numbers, kind %s takes %d", ErrShape, s.Shape, len(dims), s.Kind, want)
	}
	return dims, nil
}

// subject is the similarity to measure.
type subject struct {
	similarity rerank.Similarity
	rows       int // feature rows per item
	tokens     int // number of query vectors whose scores are added
	flops      int
}

func (s Scoring) subject() (subject, error) {
	dims, err := s.dims()
	if err != nil {
		return subject{}, err
	}
	r := rand.New(rand.NewPCG(1, 2))
	d, out := dims[len(dims)-1], subject{rows: 1, tokens: 1}
	k := kind{kind: s.Kind, config: fmt.Sprintf(`{"dim": %d, "normalise": true}`, d)}
	switch s.Kind {
	case rerank.KindMoL:
		k = molOf(r, "mol", molShape{dim: 64, pq: dims[0], px: dims[1], d: d, gate: s.Hidden})
		out.flops = 2*dims[0]*dims[1]*d + 4*dims[0]*dims[1]*s.Hidden
	case rerank.KindMaxSim:
		out.tokens, out.rows, out.flops = dims[0], dims[1], 2*dims[0]*dims[1]*d
	case rerank.KindBilinear:
		k.config = fmt.Sprintf(`{"query_embedding_dim": %d, "item_embedding_dim": %d, "normalise": true}`, d, d)
		k.tensors, out.flops = tensor.Set{"W": randomTensor(r, d, d)}, 2*d
		if len(dims) == 2 {
			d = dims[0]
			k.config = fmt.Sprintf(`{"query_embedding_dim": %d, "item_embedding_dim": %d, "normalise": true, "form": "low_rank"}`, d, d)
			k.tensors, out.flops = tensor.Set{"P": randomTensor(r, d, dims[1]), "Q": randomTensor(r, d, dims[1])}, 2*dims[1]
		}
	default:
		out.flops = 2 * d
	}
	m, err := model.New(model.Parameters{Kind: k.kind, Name: "bench", Config: json.RawMessage(k.config), Tensors: k.tensors})
	if err != nil {
		return subject{}, err
	}
	if s.Kernel != nil {
		m = m.WithKernels(s.Kernel)
	}
	out.similarity = m.Similarity
	return out, nil
}

// RunScore measures how long the scoring of candidates takes. It returns ErrShape, or the context's error.
func RunScore(ctx context.Context, s Scoring) (Scored, error) {
	sub, err := s.subject()
	if err != nil {
		return Scored{}, err
	}
	if s.Kernel == nil {
		s.Kernel = kernel.Best()
	}
	calls, rows, err := s.calls(sub)
	if err != nil {
		return Scored{}, err
	}
	out := Scored{
		Kind: s.Kind, Shape: s.Shape, Candidates: s.Candidates, Batch: s.Batch, Shared: s.Shared, Encode: s.Encode, Threads: s.Threads,
		Format: s.Format, Gather: s.Gather, Rows: rows, Kernel: s.Kernel.Name(), Flops: sub.flops,
	}
	if s.Kind == rerank.KindMoL {
		out.Hidden = s.Hidden
	}
	wall, cpu, peak, err := s.measure(ctx, calls)
	if err != nil {
		return Scored{}, err
	}
	out.Runs, out.MS, out.CPU = len(wall), spread(wall), spread(cpu)
	out.GFLOPS = float64(sub.flops) * float64(s.Candidates) * float64(s.Batch) / out.MS.Min / 1e6
	out.PeakGFLOPS = peak
	out.ShareOfPeak = out.GFLOPS / peak
	return out, nil
}

// measure times rounds of all calls. Between them it measures the peak rate, so that both
// are affected by the same state of the machine.
func (s Scoring) measure(ctx context.Context, calls [][]func() error) (wall, cpu []float64, peak float64, err error) {
	const warmUp = 3
	used := processorTime()
	began := time.Now()
	for i := 0; i < s.Runs+warmUp || time.Since(began) < s.Budget; i++ {
		if err := ctx.Err(); err != nil {
			return nil, nil, 0, err
		}
		if i%16 == 0 {
			peak = max(peak, Peak(s.Kernel, s.Threads, 4*time.Millisecond))
		}
		errs := make([]error, s.Threads)
		used()
		start := time.Now()
		parallel(s.Threads, func(t int) {
			for _, call := range calls[t] {
				errs[t] = errors.Join(errs[t], call())
			}
		})
		took, spent := time.Since(start), used()
		if err := errors.Join(errs...); err != nil {
			return nil, nil, 0, err
		}
		if i >= warmUp {
			wall, cpu = append(wall, took.Seconds()*1e3), append(cpu, spent.Seconds()*1e3)
		}
	}
	return wall, cpu, peak, nil
}

func spread(ms []float64) Spread {
	slices.Sort(ms)
	at := func(q float64) float64 { return ms[min(int(q*float64(len(ms))), len(ms)-1)] }
	return Spread{Min: ms[0], P50: at(0.5), P99: at(0.99)}
}

// calls returns what each thread does in one round, and the number of rows in the table.
func (s Scoring) calls(sub subject) (calls [][]func() error, rows int, err error) {
	candidates, err := s.makeItems(sub)
	if err != nil {
		return nil, 0, err
	}
	queries, err := s.queries(sub)
	if err != nil {
		return nil, 0, err
	}
	calls = make([][]func() error, s.Threads)
	for t := range calls {
		encoded, encode := s.encode(sub, slices.Concat(queries...))
		if s.Encode {
			calls[t] = append(calls[t], encode)
		}
		for b := range s.Batch {
			batch := encoded[b*sub.tokens:][:sub.tokens]
			if s.Shared {
				if b > 0 {
					break
				}
				batch = encoded
			}
			// Each thread gets whole tiles.
			tiles := (s.Candidates + rerank.Lanes - 1) / rerank.Lanes
			from, to := t*tiles/s.Threads*rerank.Lanes, min((t+1)*tiles/s.Threads*rerank.Lanes, s.Candidates)
			calls[t] = append(calls[t], s.call(sub, batch, candidates.of(b, from, to), to-from))
		}
	}
	return calls, candidates.rows, nil
}

// encode returns the encoded queries and a function that encodes them once more.
func (s Scoring) encode(sub subject, queries []query) ([]rerank.Encoded, func() error) {
	encoded, plain := make([]rerank.Encoded, len(queries)), make([]rerank.Query, len(queries))
	for i, q := range queries {
		encoded[i], plain[i] = q.encoded, q.Query
	}
	return encoded, func() error {
		encodedAgain, err := rerank.EncodeAll(sub.similarity, rerank.AbilitiesOf(sub.similarity).EncodeBatch, plain)
		copy(encoded, encodedAgain)
		return err
	}
}

// call returns a function that scores items for the queries of a batch, together if the
// similarity can do that.
func (s Scoring) call(sub subject, batch []rerank.Encoded, items rerank.Items, n int) func() error {
	dst := make([]float32, len(batch)*n)
	total := make([]float32, len(batch)/sub.tokens*n)
	together := rerank.AbilitiesOf(sub.similarity).ScoreBatch
	return func() error {
		if len(batch) == 1 {
			return batch[0].Score(dst, items)
		}
		if err := rerank.ScoreAll(dst, together, batch, items); err != nil {
			return err
		}
		if sub.tokens > 1 {
			addTokens(s.Kernel, total, dst, sub.tokens, n)
		}
		return nil
	}
}

// query is a random query.
type query struct {
	rerank.Query
	encoded rerank.Encoded
}

// addTokens adds the scores of the vectors that belong to the same query.
func addTokens(k *kernel.Set, total, scores []float32, tokens, n int) {
	for q := 0; q*n < len(total); q++ {
		out := total[q*n:][:n]
		copy(out, scores[q*tokens*n:])
		for t := 1; t < tokens; t++ {
			k.Add(out, scores[(q*tokens+t)*n:][:n])
		}
	}
}

func (s Scoring) queries(sub subject) ([][]query, error) {
	r := rand.New(rand.NewPCG(3, 4))
	queries := make([][]query, s.Batch)
	for b := range queries {
		for range sub.tokens {
			v := make([]float32, sub.similarity.Spec().QueryDim)
			for i := range v {
				v[i] = float32(r.NormFloat64() / math.Sqrt(float64(len(v))))
			}
			q := query{Query: rerank.Query{Vector: v}}
			var err error
			if q.encoded, err = sub.similarity.Encode(q.Query); err != nil {
				return nil, err
			}
			queries[b] = append(queries[b], q)
		}
	}
	return queries, nil
}
