package rbe

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/judge"
	"github.com/likenessdb/likeness/learn/fit/linalg"
	"github.com/likenessdb/likeness/learn/fit/train"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// patience is how many rounds without an improvement end the training.
const patience = 5

// trainPerceptrons trains perceptrons over the CUR vectors of the items. If the
// perceptrons of the best round are better than CUR, it adds them to the fit.
func (f *fitter) trainPerceptrons(ctx context.Context, fitted *Fitted, items rerank.Matrix) error {
	o := f.options
	if o.Categories != nil {
		o.Own = fitted.SupportItems // a checkpoint belongs to them; categories are no part of its options
	}
	trials, err := train.OpenTrials(o.Checkpoint, "rbe", fit.Data{Items: f.scores, Queries: o.QueryFeatures}, o)
	if err != nil {
		return err
	}
	learn, watch := f.drawWatched()
	l := newLearner(items, f.supportScores(fitted.SupportItems, learn), f.queryFeatures(learn), transpose(selectColumns(f.scores, learn)), o)
	watched := watchedQueries{f.supportScores(fitted.SupportItems, watch), f.queryFeatures(watch), transpose(selectColumns(f.scores, watch))}
	trained, err := trials.Train(ctx, l, train.Plan{
		Name: "perceptrons", Rounds: o.Rounds, Patience: patience, Done: o.Progress.Begin("training perceptrons", o.Rounds),
		Judge: func(rounds int) (float64, error) {
			if rounds == 0 {
				return watched.hitRate(watched.supportScores, items), nil // the hit rate of CUR alone
			}
			return watched.hitRate(l.embedQueries(watched.supportScores, watched.features), l.embedItems()), nil
		},
		Note: func(s *train.Snapshot) {
			o.notef("round %d: loss %.4f, hit rate %.4f", s.Round, s.LastRound().MeanLoss, s.LastRound().Rating)
		},
	})
	if err != nil {
		return err
	}
	for _, r := range trained.History {
		f.report.History = append(f.report.History, Round{Round: r.Number, Loss: r.MeanLoss, HitRate: r.Rating})
	}
	f.report.Rounds = trained.TakenRounds
	if trained.TakenRounds == 0 {
		f.report.Warnings = append(f.report.Warnings, "no round of the perceptrons was better than CUR, which was kept")
		return nil
	}
	fitted.Hidden, fitted.Out, fitted.Features = o.Hidden, o.Out, o.QueryFeatures.Cols
	l.addTensors(fitted.Tensors)
	heldOut := l.embedQueries(f.supportScores(fitted.SupportItems, f.split.heldOut), f.queryFeatures(f.split.heldOut))
	f.report.Chosen = f.judge(heldOut, l.embedItems())
	return nil
}

// queryFeatures returns the features of the queries, which may have no columns.
func (f *fitter) queryFeatures(queries []int) rerank.Matrix {
	if f.options.QueryFeatures.Cols == 0 {
		return rerank.NewMatrix(len(queries), 0)
	}
	return selectRows(f.options.QueryFeatures, queries)
}

// drawWatched takes a tenth of the known queries to monitor the training.
func (f *fitter) drawWatched() (learn, watch []int) {
	rng := rand.New(rand.NewPCG(f.options.Seed, 0xd1))
	n := max(1, len(f.split.known)/10)
	for i, at := range rng.Perm(len(f.split.known)) {
		if i < n {
			watch = append(watch, f.split.known[at])
		} else {
			learn = append(learn, f.split.known[at])
		}
	}
	slices.Sort(watch)
	slices.Sort(learn)
	return learn, watch
}

// watchedQueries are the queries that monitor the training, one per row: their scores of the
// support items, their features, and their scores of all items.
type watchedQueries struct{ supportScores, features, truth rerank.Matrix }

// hitRate returns HitRate(10) of the inner products of the queries' and items' vectors.
func (w watchedQueries) hitRate(queries, items rerank.Matrix) float64 {
	approximate := rerank.NewMatrix(queries.Rows, items.Rows)
	linalg.Multiply(approximate, queries, false, items, true)
	return hitRates(approximate, w.truth, []HitPair{{judge.Cutoff, judge.Cutoff}})[0].Mean
}

// learner trains perceptrons whose inner products are added to CUR. It is a
// train.Learner.
type learner struct {
	options Options
	queries rerank.Matrix // R(S_I, q) of each training query
	// features holds the features of the queries. They are multiplied by featureScale when read, so
	// that they are as large as the scores.
	features     rerank.Matrix
	featureScale float32
	truth        rerank.Matrix // the ranker's scores: a row for each training query, a column for each item
	items        rerank.Matrix // CUR vectors of the items
	adam         *train.Adam
	tau          float64
	bounds       []float64 // the bound of each query for the listwise loss; nil for the other loss

	query, item *eluNet
	// offset holds w and b: each score of item vector t has the offset ⟨w, t⟩ + b.
	offset, offsetGrads [2][]float32
}

var _ train.Learner = (*learner)(nil)

// newLearner makes a learner at its start, where the perceptrons add nothing to CUR.
func newLearner(items, queries, features, truth rerank.Matrix, o Options) *learner {
	m := items.Cols
	t := &learner{options: o, queries: queries, features: features, truth: truth, items: items}
	if size := rootMeanSquare(features); size > 0 {
		t.featureScale = float32(rootMeanSquare(queries) / size)
	}
	rng := rand.New(rand.NewPCG(o.Seed, 0x2e7))
	t.query, t.item = newELUNet(m+features.Cols, o.Hidden, o.Out, rootMeanSquare(queries), rng), newELUNet(m, o.Hidden, o.Out, rootMeanSquare(items), rng)
	clear(t.item.params[2])
	t.offset = [2][]float32{make([]float32, m), make([]float32, 1)}
	t.offsetGrads = [2][]float32{make([]float32, m), make([]float32, 1)}
	t.adam = train.NewAdam(o.Rate, t.Parameters())
	t.tau = rowDeviation(truth) / 4
	if o.Loss == LossListwise {
		for q := range truth.Rows {
			sorted := slices.Clone(truth.Row(q))
			slices.Sort(sorted)
			t.bounds = append(t.bounds, quantile(sorted, 1-float64(min(o.Top, len(sorted)))/float64(len(sorted))))
		}
	}
	return t
}

// rootMeanSquare returns the root mean square of all numbers.
func rootMeanSquare(m rerank.Matrix) float64 {
	return rerank.Norm(m.Data) / math.Sqrt(float64(max(1, len(m.Data))))
}

// rowDeviation returns the root mean square difference of a number from the mean of its
// row.
func rowDeviation(m rerank.Matrix) float64 {
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

// Parameters implements train.Learner.
func (t *learner) Parameters() [][]float32 {
	return slices.Concat(t.query.params[:], t.item.params[:], t.offset[:])
}

func (t *learner) gradients() [][]float32 {
	return slices.Concat(t.query.grads[:], t.item.grads[:], t.offsetGrads[:])
}

// TakeRound implements train.Learner. A round goes over the queries once, in an order
// that depends on the seed and the round alone.
func (t *learner) TakeRound(ctx context.Context, round int) (float64, error) {
	o := t.options
	rng := rand.New(rand.NewPCG(o.Seed, uint64(round)+1))
	order := rng.Perm(t.queries.Rows)
	var total float64
	steps := 0
	for from := 0; from < len(order); from += o.Batch {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		total += t.takeStep(order[from:min(from+o.Batch, len(order))], rng)
		steps++
	}
	if mean := total / float64(max(1, steps)); !math.IsNaN(mean) && !math.IsInf(mean, 0) {
		return mean, nil
	}
	return 0, fmt.Errorf("%w: the loss is no number; lower the rate (%g)", fit.ErrOption, o.Rate)
}

// takeStep trains on a batch of queries and a sample of the items, and returns the loss.
func (t *learner) takeStep(batch []int, rng *rand.Rand) float64 {
	queries, columns := selectRows(t.queries, batch), t.drawItems(batch, rng)
	items, truth := selectRows(t.items, columns), selectColumns(selectRows(t.truth, batch), columns)
	scores := rerank.NewMatrix(len(batch), len(columns))
	linalg.Multiply(scores, queries, false, items, true)
	a, c := t.query.forward(t.queryInputs(queries, selectRows(t.features, batch))), t.item.forward(items)
	learned := rerank.NewMatrix(len(batch), len(columns))
	linalg.Multiply(learned, a, false, c, true)
	offsets := t.offsets(items)
	for q := range batch {
		row := scores.Row(q)
		for x, v := range learned.Row(q) {
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
	t.adam.Update(t.Parameters(), t.gradients())
	return loss
}

// backward sets the gradients from d, the gradient of the scores. a and c are the outputs
// of the perceptrons for the queries and the items.
func (t *learner) backward(d, a, c, items rerank.Matrix) {
	da, dc := rerank.NewMatrix(a.Rows, a.Cols), rerank.NewMatrix(c.Rows, c.Cols)
	linalg.Multiply(da, d, false, c, false)
	linalg.Multiply(dc, d, true, a, false)
	t.query.backward(da)
	t.item.backward(dc)
	sums := make([]float32, d.Cols)
	linalg.SumRows(sums, d)
	clear(t.offsetGrads[0])
	t.offsetGrads[1][0] = 0
	for x, v := range sums {
		t.offsetGrads[1][0] += v
		for i, y := range items.Row(x) {
			t.offsetGrads[0][i] += v * y
		}
	}
}

// offsets returns ⟨w, t⟩ + b of each item vector t.
func (t *learner) offsets(items rerank.Matrix) []float32 {
	out := make([]float32, items.Rows)
	linalg.Multiply(rerank.Matrix{Rows: items.Rows, Cols: 1, Data: out}, items, false, rerank.Matrix{Rows: 1, Cols: items.Cols, Data: t.offset[0]}, true)
	for i := range out {
		out[i] += t.offset[1][0]
	}
	return out
}

// drawItems returns the items of a step, ascending: all items, or the ten best of each query in the
// batch and random ones.
func (t *learner) drawItems(batch []int, rng *rand.Rand) []int {
	n := t.items.Rows
	chosen := make([]bool, n)
	if n > t.options.Draws {
		for _, q := range batch {
			for _, x := range highestRows(t.truth.Row(q), judge.Cutoff) {
				chosen[x] = true
			}
		}
		for range t.options.Draws {
			chosen[rng.IntN(n)] = true
		}
	}
	var items []int
	for x, in := range chosen {
		if in || n <= t.options.Draws {
			items = append(items, x)
		}
	}
	return items
}

// queryInputs returns what the queries' perceptron reads: scores of the support items, and features.
func (t *learner) queryInputs(supportScores, features rerank.Matrix) rerank.Matrix {
	if features.Cols == 0 {
		return supportScores
	}
	in := rerank.NewMatrix(supportScores.Rows, supportScores.Cols+features.Cols)
	for r := range in.Rows {
		rest := in.Row(r)[copy(in.Row(r), supportScores.Row(r)):]
		for i, v := range features.Row(r) {
			rest[i] = t.featureScale * v
		}
	}
	return in
}

// embedQueries returns f_Q of queries, given as their scores of the support items and their features.
func (t *learner) embedQueries(supportScores, features rerank.Matrix) rerank.Matrix {
	ones := slices.Repeat([]float32{1}, supportScores.Rows)
	return joinColumns(supportScores, t.query.forward(t.queryInputs(supportScores, features)), ones)
}

// embedItems returns f_I of all items.
func (t *learner) embedItems() rerank.Matrix {
	return joinColumns(t.items, t.item.forward(t.items), t.offsets(t.items))
}

// joinColumns puts two matrices and a column side by side.
func joinColumns(a, b rerank.Matrix, last []float32) rerank.Matrix {
	out := rerank.NewMatrix(a.Rows, a.Cols+b.Cols+1)
	for r := range a.Rows {
		row := out.Row(r)
		copy(row, a.Row(r))
		copy(row[a.Cols:], b.Row(r))
		row[len(row)-1] = last[r]
	}
	return out
}

// Position implements train.Learner.
func (t *learner) Position() train.Position {
	return train.Position{Moments: slices.Concat(t.adam.First, t.adam.Second), Steps: t.adam.Step}
}

// Resume implements train.Learner.
func (t *learner) Resume(p train.Position) error {
	t.adam.Step = p.Steps
	return train.RestoreArrays(slices.Concat(t.adam.First, t.adam.Second), p.Moments)
}

// addTensors adds the perceptrons and the offset to the tensors of a model.
func (t *learner) addTensors(set tensor.Set) {
	t.query.addTensors(set, "query")
	scaled := set["query.0.weight"]
	scaled.Data = slices.Clone(scaled.Data)
	for i := range scaled.Data { // the model reads features as they are
		if i%t.query.in >= t.queries.Cols {
			scaled.Data[i] *= t.featureScale
		}
	}
	set["query.0.weight"] = scaled
	t.item.addTensors(set, "item")
	set["offset.weight"] = tensor.Tensor{Shape: []int{len(t.offset[0])}, Data: t.offset[0]}
	set["offset.bias"] = tensor.Tensor{Shape: []int{1}, Data: t.offset[1]}
}
