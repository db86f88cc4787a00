package fit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/distilled"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// DistilOptions are the options of a fit of learned probes. Defaults are those of
// DefaultDistilOptions. Of the common ones Normalise is the similarity's own, and
// Cold and ColdShare say nothing here: every item is in the lesson.
type DistilOptions struct {
	Common
	// Heads are HeadLinear, HeadResidual or both.
	Heads []string
	// Hidden is the width of the residual head's MLP.
	Hidden int
	// K is the length of the answers that a probe is to find.
	K int
	// Focus is the number of items that share the weight of a lesson, as the
	// perplexity of the similarity's softmax; 0 is 5K, and an eighth of the
	// collection at most.
	Focus float64
	// List is the number of items of a lesson.
	List int
	// Depths are the numbers of candidates at which first stages are compared.
	Depths []int
	Batch  int
	Rounds int     // passes over the queries, at most
	Rate   float64 // of Adam, relative to the size of the parameters
	// Softmax is the number of items up to which the softmax runs over all of them;
	// beyond it over the lists of the batch and Draws sampled ones.
	Softmax, Draws int
	// Scores is the number of scores of the similarity that the lessons may cost:
	// with more queries, some are left out, of a larger collection, only the items
	// that the probe finds are scored.
	Scores int
}

// DefaultDistilOptions are good for collections of up to some hundred thousand items.
func DefaultDistilOptions() DistilOptions {
	return DistilOptions{
		Common: DefaultCommon(), Heads: []string{HeadLinear, HeadResidual}, Hidden: 512,
		K: 10, List: 256, Depths: []int{50, 100, 200, 500}, Batch: 256, Rounds: 10, Rate: 0.05,
		Softmax: 1 << 15, Draws: 4096, Scores: 1 << 27,
	}
}

func (o DistilOptions) check() error {
	for _, h := range o.Heads {
		if h != HeadLinear && h != HeadResidual {
			return fmt.Errorf("%w: head %q is neither %s nor %s", ErrOption, h, HeadLinear, HeadResidual)
		}
	}
	switch {
	case len(o.Heads) == 0:
		return fmt.Errorf("%w: no head is asked for; name %s or %s", ErrOption, HeadLinear, HeadResidual)
	case o.K < 1 || o.List < 2 || o.Batch < 1 || o.Rounds < 1 || o.Hidden < 1 || o.Draws < 1 || o.Scores < 1 || o.Softmax < 0:
		return fmt.Errorf("%w: k %d, list %d, batch %d, rounds %d, hidden %d, draws %d, scores %d, softmax %d; want positive numbers",
			ErrOption, o.K, o.List, o.Batch, o.Rounds, o.Hidden, o.Draws, o.Scores, o.Softmax)
	case !(o.Rate > 0) || math.IsInf(o.Rate, 0) || !(o.Focus == 0 || o.Focus > 1) || math.IsInf(o.Focus, 0):
		return fmt.Errorf("%w: rate %g and focus %g; want a rate above 0 and a focus above 1", ErrOption, o.Rate, o.Focus)
	case len(o.Depths) == 0 || slices.Min(o.Depths) < 1:
		return fmt.Errorf("%w: depths %v; want one at least, all above 0", ErrOption, o.Depths)
	}
	return nil
}

// Distilled is the outcome of Distil.
type Distilled struct {
	// Tensors are those of the probes, for the model's file beside its own.
	Tensors tensor.Set
	Report  DistilReport
}

// Distil fits query-side maps u(q) so that ⟨u(q), x⟩ over the stored vectors x
// ranks like the similarity (package distilled). It learns from the similarity's
// own scores by a listwise divergence (ListNet: Cao et al. 2007; as a distillation
// Hinton et al. 2015), and needs no labels. It uses every core, and the same data,
// options and seed give the same probes whatever their number.
//
// It returns ErrData, ErrOption, ErrCheckpoint or the context's error; where the
// context ended after a round, also the best probes until then.
func Distil(ctx context.Context, m rerank.Similarity, d Data, o DistilOptions) (*Distilled, error) {
	w, err := newDistilWork(m, d, o)
	if err != nil {
		return nil, err
	}
	if err := w.learn(ctx); err != nil {
		return nil, err
	}
	err = w.fitHeads(ctx)
	if err != nil && len(w.heads) == 0 {
		return nil, err
	}
	w.report.Interrupted = err != nil
	if rest := w.finish(); rest != nil {
		return nil, rest
	}
	return &Distilled{Tensors: w.tensors, Report: w.report}, err
}

// distilWork is one run of Distil.
type distilWork struct {
	options  DistilOptions
	spec     rerank.Spec
	teacher  *teacher
	lessons  lessons
	examiner examiner
	unit     float64  // what the queries were divided by
	exact    bool     // the start is the similarity itself
	first    []ranked // the lists before any probe; nil where all items are ranked
	keeper   *keeper

	heads   map[string]*probeHead
	tensors tensor.Set
	report  DistilReport
}

func newDistilWork(m rerank.Similarity, d Data, o DistilOptions) (*distilWork, error) {
	spec := m.Spec()
	o.Normalise = spec.Normalise
	if err := o.check(); err != nil {
		return nil, err
	}
	if err := o.Common.check(d); err != nil {
		return nil, err
	}
	if err := checkLessons(spec, d); err != nil {
		return nil, err
	}
	slices.Sort(o.Depths)
	o.Depths = slices.Compact(o.Depths)
	w := &distilWork{options: o, spec: spec, heads: map[string]*probeHead{}, tensors: tensor.Set{}, unit: 1}
	w.report = DistilReport{Seed: o.Seed, Items: d.Items.Rows, Queries: d.Queries.Rows, K: min(o.K, d.Items.Rows-1)}
	p, err := w.prepare(d)
	if err != nil {
		return nil, err
	}
	if w.teacher, err = newTeacher(m, d); err != nil {
		return nil, err
	}
	if err := w.divide(p); err != nil {
		return nil, err
	}
	scores, err := w.teacher.fingerprint(w.lessons.train)
	if err != nil {
		return nil, err
	}
	w.keeper, err = newKeeper(o.Checkpoint, "distilled", d, struct {
		DistilOptions
		Model string
	}{o, scores})
	return w, err
}

// checkLessons returns ErrData.
func checkLessons(spec rerank.Spec, d Data) error {
	switch {
	case d.Items.Cols != spec.ItemDim || d.Queries.Cols != spec.QueryDim:
		return fmt.Errorf("%w: items have %d columns and queries %d; the model takes %d and %d",
			ErrData, d.Items.Cols, d.Queries.Cols, spec.ItemDim, spec.QueryDim)
	case len(d.Items.Data) != d.Items.Rows*d.Items.Cols || len(d.Queries.Data) != d.Queries.Rows*d.Queries.Cols:
		return fmt.Errorf("%w: %d items and %d queries have %d and %d numbers; every row needs the same length",
			ErrData, d.Items.Rows, d.Queries.Rows, len(d.Items.Data), len(d.Queries.Data))
	case d.Items.Rows < 3:
		return fmt.Errorf("%w: %d items; a first stage leaves some out, which needs three at least", ErrData, d.Items.Rows)
	case d.Times != nil && len(d.Times) != d.Queries.Rows:
		return fmt.Errorf("%w: times of %d queries for a matrix of %d", ErrData, len(d.Times), d.Queries.Rows)
	case d.UserIDs != nil && len(d.UserIDs) != d.Queries.Rows:
		return fmt.Errorf("%w: user ids of %d queries for a matrix of %d", ErrData, len(d.UserIDs), d.Queries.Rows)
	case spec.UserIDs && d.UserIDs == nil:
		return fmt.Errorf("%w: the model embeds users, so every query must name one", ErrData)
	}
	return nil
}

// prepare scales copies of the vectors.
func (w *distilWork) prepare(d Data) (*problem, error) {
	p := &problem{times: d.Times, relevant: make([][]int32, d.Queries.Rows)}
	var err error
	var zero []bool
	if p.items, _, err = scaled("items", d.Items, w.spec.Normalise); err != nil {
		return nil, err
	}
	if p.queries, zero, err = scaled("queries", d.Queries, w.spec.Normalise); err != nil {
		return nil, err
	}
	for q := range zero {
		if zero[q] && w.spec.Normalise {
			w.report.ZeroQueries++
			continue
		}
		p.relevant[q] = []int32{0} // any: it is in the log
	}
	p.counts.Queries = d.Queries.Rows - w.report.ZeroQueries
	if !w.spec.Normalise {
		w.unit = float64(rootMeanSquare(d.Queries))
	}
	return p, nil
}

// mostHeld bounds the queries that judge the probes, mostLearned those that teach.
const (
	mostHeld    = 512
	mostLearned = 1 << 16
)

// divide says which queries teach and which judge.
func (w *distilWork) divide(p *problem) error {
	s, err := p.split(w.options.Common)
	if err != nil {
		return fmt.Errorf("%w: of %d queries %d are left to learn from and %d to judge the probes; bring more queries or change the share held out (%g)",
			ErrData, p.counts.Queries, len(s.train), len(s.held), w.options.HeldOut)
	}
	rng := rand.New(rand.NewPCG(w.options.Seed, 0x5917))
	some := func(rows []int32, most int) []int32 {
		rows = slices.Clone(rows)
		rng.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
		return rows[:min(len(rows), most)]
	}
	each := p.items.Rows
	if each > w.options.Softmax {
		each = shortlist + strays
	}
	train := some(s.train, min(mostLearned, max(w.options.Batch, w.options.Scores/each)))
	held := some(s.held, min(mostHeld, max(64, w.options.Scores/8/p.items.Rows)))
	w.lessons = lessons{items: p.items, queries: p.queries, train: train}
	w.examiner = examiner{
		teacher: w.teacher, items: p.items, queries: held, vectors: rerank.NewMatrix(len(held), p.queries.Cols),
		depths: w.depths(), fields: map[string]rerank.Matrix{"": p.items},
	}
	gather(w.examiner.vectors, p.queries, held)
	w.report.LearnedQueries, w.report.HeldOutQueries, w.report.Depths = len(train), len(held), w.examiner.depths
	return nil
}

// depths are those below the size of the collection; with fewer than two of them
// also 2K.
func (w *distilWork) depths() []int {
	depths := slices.DeleteFunc(slices.Clone(w.options.Depths), func(d int) bool { return d >= w.report.Items })
	if len(depths) < 2 && len(w.options.Depths) > 1 || len(depths) == 0 {
		depths = append(depths, min(2*w.report.K, w.report.Items-1))
		slices.Sort(depths)
	}
	return slices.Compact(depths)
}

// learn asks the similarity for its ranking of the items, for every query.
func (w *distilWork) learn(ctx context.Context) error {
	o, l := w.options, &w.lessons
	begin := func(stage string, n int) func(int) { return o.Progress.begin(stage, n) }
	var err error
	if w.examiner.top, err = w.teacher.top(ctx, w.examiner.queries, w.report.K, begin("ranking by the model, held-out queries", len(w.examiner.queries))); err != nil {
		return err
	}
	done := begin("ranking by the model", len(l.train))
	if !w.large() {
		l.lists, err = w.teacher.top(ctx, l.train, min(o.List, l.items.Rows), done)
	} else {
		l.lists, err = w.firstLists(ctx, done)
		w.first = l.lists
	}
	if err != nil {
		return err
	}
	w.focus()
	return nil
}

// focus chooses the temperature.
func (w *distilWork) focus() {
	o, l := w.options, &w.lessons
	focus := o.Focus
	if focus == 0 {
		focus = min(5*float64(w.report.K), max(2, float64(l.items.Rows)/8))
	}
	w.report.Focus = min(focus, float64(min(o.List, l.items.Rows))/2)
	l.temperature = temperature(l.lists, w.report.Focus)
	w.report.Temperature = l.temperature
}

// finish compares the heads with the other first stages.
func (w *distilWork) finish() error {
	x := &w.examiner
	for _, h := range w.report.Heads {
		u := rerank.NewMatrix(x.vectors.Rows, x.items.Cols)
		w.heads[h.Head].forward(u, x.vectors)
		w.report.Stages = append(w.report.Stages, x.probe("distilled "+h.Head, h.Head, u))
		unit := w.unit
		if h.Start == startExact {
			unit = 1
		}
		maps.Copy(w.tensors, w.heads[h.Head].tensors(h.Head, unit))
	}
	w.tensors[distilled.MeanItem] = tensor.Tensor{Shape: []int{w.spec.ItemDim}, Data: w.meanItem()}
	for _, s := range []rerank.Strategy{rerank.Average, rerank.PerEmbedding} {
		if w.report.Interrupted { // whoever stopped it does not want to wait
			break
		}
		stage, err := x.strategy(s)
		if err != nil && !errors.Is(err, rerank.ErrStrategy) {
			return err
		}
		if stage != nil {
			w.report.Stages = append(w.report.Stages, *stage)
		}
	}
	if x.vectors.Cols == x.items.Cols {
		w.report.Stages = append(w.report.Stages, x.probe("stored", "", x.vectors))
	}
	w.report.conclude(w.spec)
	return nil
}

// meanItem is the mean of the base vectors as the similarity sees them.
func (w *distilWork) meanItem() []float32 {
	if w.spec.Normalise {
		return centre(w.lessons.items)
	}
	return centre(w.teacher.base)
}
