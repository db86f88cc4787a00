package fit

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// rbePatience is the number of rounds without a better one before the end.
const rbePatience = 5

// rbeTrainer learns what perceptrons add to CUR.
type rbeTrainer struct {
	work        *rbeWork
	queries     rerank.Matrix // R(S_I, q) of the queries that are learned from
	truth       rerank.Matrix // R of all items for them
	items       rerank.Matrix // t
	query, item *eluNet
	offset      [2][]float32 // w and b
	offsetGrads [2][]float32
	adam        *adam
	tau         float64
	bounds      []float64 // of the listwise loss
}

// rbeState is what a trainer needs to go on.
type rbeState struct {
	Round, At int
	Best      float64
	Params    [][]float32
	Kept      [][]float32 // of the round At
	First     [][]float32
	Second    [][]float32
	Step      int
	History   []RBERound
}

// train fits the perceptrons and takes the best round, if any is better than CUR.
func (w *rbeWork) train(ctx context.Context, f *FittedRBE, items rerank.Matrix) error {
	learn, watch := w.divide()
	t := w.trainer(f.SupportItems, learn, items)
	watched, truth := w.asked(f.SupportItems, watch), transposed(columnsOf(w.scores, watch))
	s := &rbeState{Best: t.hit(watched, truth, false)}
	keep, err := newKeeper(w.options.Checkpoint, "rbe", Data{Items: w.scores}, w.options)
	if err != nil {
		return err
	}
	if err := keep.load(s); err != nil {
		return err
	}
	t.restore(s)
	done := w.options.Progress.begin("training perceptrons", w.options.Rounds)
	for done(s.Round); s.Round < w.options.Rounds && s.Round-s.At < rbePatience; {
		loss, err := t.round(ctx, s.Round)
		if err != nil {
			return err
		}
		s.Round++
		hit := t.hit(watched, truth, true)
		s.History = append(s.History, RBERound{Round: s.Round, Loss: loss, Hit: hit})
		if hit > s.Best {
			s.Best, s.At, s.Kept = hit, s.Round, clones(t.params())
		}
		t.describe(s)
		w.note("round %d: loss %.4f, hit rate %.4f", s.Round, loss, hit)
		if err := keep.save(func() any { return s }, false); err != nil {
			return err
		}
		done(1)
	}
	w.report.History, w.report.Rounds = s.History, s.At
	if s.At == 0 {
		w.report.Warnings = append(w.report.Warnings, "no round of the perceptrons was better than CUR, which was kept")
		return nil
	}
	for i, p := range t.params() {
		copy(p, s.Kept[i])
	}
	f.Hidden, f.Out = w.options.Hidden, w.options.Out
	t.tensors(f.Tensors)
	w.report.Chosen = w.judge(t.embedQueries(w.asked(f.SupportItems, w.held)), t.embedItems())
	return nil
}

// divide takes a tenth of the known queries to watch the training by.
func (w *rbeWork) divide() (learn, watch []int) {
	rng := rand.New(rand.NewPCG(w.options.Seed, 0xd1))
	n := max(1, len(w.known)/10)
	for i, at := range rng.Perm(len(w.known)) {
		if i < n {
			watch = append(watch, w.known[at])
		} else {
			learn = append(learn, w.known[at])
		}
	}
	slices.Sort(watch)
	slices.Sort(learn)
	return learn, watch
}

func (w *rbeWork) trainer(supports, learn []int, items rerank.Matrix) *rbeTrainer {
	o := w.options
	m := items.Cols
	t := &rbeTrainer{work: w, queries: w.asked(supports, learn), truth: transposed(columnsOf(w.scores, learn)), items: items}
	rng := rand.New(rand.NewPCG(o.Seed, 0x2e7))
	t.query, t.item = newELUNet(m, o.Hidden, o.Out, rootMeanSquareOf(t.queries), rng), newELUNet(m, o.Hidden, o.Out, rootMeanSquareOf(items), rng)
	clear(t.item.params[2]) // so that the first round starts at CUR
	t.offset = [2][]float32{make([]float32, m), make([]float32, 1)}
	t.offsetGrads = [2][]float32{make([]float32, m), make([]float32, 1)}
	t.adam = newAdam(o.Rate, t.params())
	t.tau = spreadOf(t.truth) / 4
	if o.Loss == LossListwise {
		for q := range t.truth.Rows {
			sorted := slices.Clone(t.truth.Row(q))
			slices.Sort(sorted)
			t.bounds = append(t.bounds, quantile(sorted, 1-float64(min(o.Top, len(sorted)))/float64(len(sorted))))
		}
	}
	return t
}

func rootMeanSquareOf(m rerank.Matrix) float64 {
	return rerank.Norm(m.Data) / math.Sqrt(float64(max(1, len(m.Data))))
}

// spreadOf is the root mean square of the scores around each row's mean.
func spreadOf(m rerank.Matrix) float64 {
	var square float64
	for r := range m.Rows {
		var sum float64
		for _, v := range m.Row(r) {
			sum += float64(v)
		}
		mean := sum / float64(max(1, m.Cols))
		for _, v := range m.Row(r) {
			square += (float64(v) - mean) * (float64(v) - mean)
		}
	}
	return max(math.Sqrt(square/float64(max(1, len(m.Data)))), math.SmallestNonzeroFloat32)
}

func (t *rbeTrainer) params() [][]float32 {
	return slices.Concat(t.query.params[:], t.item.params[:], t.offset[:])
}

func (t *rbeTrainer) grads() [][]float32 {
	return slices.Concat(t.query.grads[:], t.item.grads[:], t.offsetGrads[:])
}

// round goes over the queries once, in an order of the round's own.
func (t *rbeTrainer) round(ctx context.Context, round int) (float64, error) {
	o := t.work.options
	rng := rand.New(rand.NewPCG(o.Seed, uint64(round)+1))
	order := rng.Perm(t.queries.Rows)
	var total float64
	steps := 0
	for from := 0; from < len(order); from += o.Batch {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		total += t.step(order[from:min(from+o.Batch, len(order))], rng)
		steps++
	}
	if mean := total / float64(max(1, steps)); !math.IsNaN(mean) && !math.IsInf(mean, 0) {
		return mean, nil
	}
	return 0, fmt.Errorf("%w: the loss is no number; lower the rate (%g)", ErrOption, o.Rate)
}

// step learns from a batch of queries, over a sample of the items.
func (t *rbeTrainer) step(batch []int, rng *rand.Rand) float64 {
	queries, columns := rowsOf(t.queries, batch), t.sample(batch, rng)
	items, truth := rowsOf(t.items, columns), columnsOf(rowsOf(t.truth, batch), columns)
	scores := rerank.NewMatrix(len(batch), len(columns))
	multiply(scores, queries, false, items, true)
	a, c := t.query.forward(queries), t.item.forward(items)
	more := rerank.NewMatrix(len(batch), len(columns))
	multiply(more, a, false, c, true)
	offsets := t.offsets(items)
	for q := range batch {
		row := scores.Row(q)
		for x, v := range more.Row(q) {
			row[x] += v + offsets[x]
		}
	}
	var loss float64
	if t.bounds == nil {
		loss = softmaxLoss(scores, truth, t.tau)
	} else {
		bounds := make([]float64, len(batch))
		for i, q := range batch {
			bounds[i] = t.bounds[q]
		}
		loss = -listwiseGain(scores, truth, bounds, t.tau)
	}
	t.backward(scores, a, c, items)
	t.adam.update(t.params(), t.grads())
	return loss
}

// backward sets the gradients by that of the scores.
func (t *rbeTrainer) backward(d, a, c, items rerank.Matrix) {
	da, dc := rerank.NewMatrix(a.Rows, a.Cols), rerank.NewMatrix(c.Rows, c.Cols)
	multiply(da, d, false, c, false)
	multiply(dc, d, true, a, false)
	t.query.backward(da)
	t.item.backward(dc)
	sums := make([]float32, d.Cols)
	sumRows(sums, d)
	clear(t.offsetGrads[0])
	t.offsetGrads[1][0] = 0
	for x, v := range sums {
		t.offsetGrads[1][0] += v
		for i, y := range items.Row(x) {
			t.offsetGrads[0][i] += v * y
		}
	}
}

// offsets are ⟨w, t⟩ + b of items.
func (t *rbeTrainer) offsets(items rerank.Matrix) []float32 {
	out := make([]float32, items.Rows)
	multiply(rerank.Matrix{Rows: items.Rows, Cols: 1, Data: out}, items, false, rerank.Matrix{Rows: 1, Cols: items.Cols, Data: t.offset[0]}, true)
	for i := range out {
		out[i] += t.offset[1][0]
	}
	return out
}

// sample are all items, or the ten best of each query of the batch and random ones.
func (t *rbeTrainer) sample(batch []int, rng *rand.Rand) []int {
	n := t.items.Rows
	chosen := make([]bool, n)
	if n > t.work.options.Draws {
		for _, q := range batch {
			for _, x := range highestRows(t.truth.Row(q), cutoff) {
				chosen[x] = true
			}
		}
		for range t.work.options.Draws {
			chosen[rng.IntN(n)] = true
		}
	}
	var columns []int
	for x, in := range chosen {
		if in || n <= t.work.options.Draws {
			columns = append(columns, x)
		}
	}
	return columns
}

// embedQueries and embedItems are f_Q and f_I.
func (t *rbeTrainer) embedQueries(queries rerank.Matrix) rerank.Matrix {
	ones := slices.Repeat([]float32{1}, queries.Rows)
	return joined(queries, t.query.forward(queries), ones)
}

func (t *rbeTrainer) embedItems() rerank.Matrix {
	return joined(t.items, t.item.forward(t.items), t.offsets(t.items))
}

func joined(a, b rerank.Matrix, last []float32) rerank.Matrix {
	out := rerank.NewMatrix(a.Rows, a.Cols+b.Cols+1)
	for r := range a.Rows {
		row := out.Row(r)
		copy(row, a.Row(r))
		copy(row[a.Cols:], b.Row(r))
		row[len(row)-1] = last[r]
	}
	return out
}

// hit is HitRate(10) of queries, by CUR alone or with the perceptrons.
func (t *rbeTrainer) hit(queries, truth rerank.Matrix, trained bool) float64 {
	items := t.items
	if trained {
		queries, items = t.embedQueries(queries), t.embedItems()
	}
	approximate := rerank.NewMatrix(queries.Rows, items.Rows)
	multiply(approximate, queries, false, items, true)
	return hitRates(approximate, truth, []HitPair{{cutoff, cutoff}})[0].Mean
}

// describe and restore move the state.
func (t *rbeTrainer) describe(s *rbeState) {
	s.Params, s.First, s.Second, s.Step = t.params(), t.adam.first, t.adam.second, t.adam.step
}

func (t *rbeTrainer) restore(s *rbeState) {
	if s.Params == nil {
		return
	}
	for i, p := range t.params() {
		copy(p, s.Params[i])
		copy(t.adam.first[i], s.First[i])
		copy(t.adam.second[i], s.Second[i])
	}
	t.adam.step = s.Step
}

// tensors adds the perceptrons to a model's.
func (t *rbeTrainer) tensors(set tensor.Set) {
	t.query.tensors(set, "query")
	t.item.tensors(set, "item")
	set["offset.weight"] = tensor.Tensor{Shape: []int{len(t.offset[0])}, Data: t.offset[0]}
	set["offset.bias"] = tensor.Tensor{Shape: []int{1}, Data: t.offset[1]}
}
