// Package distilled fits learned probes: query-side maps u(q) whose inner products with
// the stored vectors rank like a similarity (package rerank/distilled).
package distilled

import (
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/judge"
	"github.com/likenessdb/likeness/learn/fit/linalg"
	"github.com/likenessdb/likeness/learn/fit/samples"
	"github.com/likenessdb/likeness/learn/fit/teacher"
	"github.com/likenessdb/likeness/learn/fit/train"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/distilled"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// Fitted is the outcome of a fit.
type Fitted struct {
	// Tensors are the tensors of the probes, for the model's file beside its own.
	Tensors tensor.Set
	Report  Report
}

// Fit fits query-side maps u(q) so that ⟨u(q), x⟩ over the stored vectors x ranks like
// the similarity. It learns from the similarity's own scores by a listwise divergence
// (ListNet: Cao et al. 2007; as a distillation Hinton et al. 2015) and needs no labels.
// It uses every core.
//
// Fit returns fit.ErrData, fit.ErrOption, fit.ErrCheckpoint or the context's error; if
// the context ended after a round, it also returns the best probes so far.
func Fit(ctx context.Context, m rerank.Similarity, d fit.Data, o Options) (*Fitted, error) {
	f, err := newFitter(m, d, o)
	if err != nil {
		return nil, err
	}
	if err := f.makeLessons(ctx); err != nil {
		return nil, err
	}
	err = f.trainHeads(ctx)
	if err != nil && len(f.heads) == 0 {
		return nil, err
	}
	f.report.Interrupted = err != nil
	tensors, failed := f.finish()
	if failed != nil {
		return nil, failed
	}
	return &Fitted{Tensors: tensors, Report: f.report}, err
}

// fitter is one run of Fit.
type fitter struct {
	options Options
	teacher *teacher.Teacher
	lessons lessons
	exam    *teacher.Exam
	// heldOut holds the rows of the queries that judge, judges their vectors.
	heldOut []int32
	judges  rerank.Matrix
	trials  *train.Trials
	// queryScale is the number by which all query vectors were divided for training.
	queryScale float64
	// firstLists are the lists made before any head was trained; nil if the similarity ranks all
	// items.
	firstLists []teacher.Ranked

	heads  map[string]*head // the heads fitted so far, by kind
	report Report
}

// newFitter checks and prepares the data, and divides the queries.
func newFitter(m rerank.Similarity, d fit.Data, o Options) (*fitter, error) {
	spec := m.Spec()
	o.Normalise = spec.Normalise
	if err := o.check(); err != nil {
		return nil, err
	}
	if err := o.Common.Check(d); err != nil {
		return nil, err
	}
	if err := checkData(spec, d); err != nil {
		return nil, err
	}
	o.Depths = slices.Compact(slices.Sorted(slices.Values(o.Depths)))
	f := &fitter{options: o, heads: map[string]*head{}, queryScale: 1}
	f.report = Report{Seed: o.Seed, Items: d.Items.Rows, Queries: d.Queries.Rows, RecallTable: rerank.RecallTable{K: min(o.K, d.Items.Rows-1)}}
	log, err := f.prepareLog(d)
	if err != nil {
		return nil, err
	}
	if f.teacher, err = teacher.New(m, d); err != nil {
		return nil, err
	}
	if err := f.divideQueries(log); err != nil {
		return nil, err
	}
	modelPrint, err := fingerprint(f.teacher, f.lessons.train)
	if err != nil {
		return nil, err
	}
	f.trials, err = train.OpenTrials(o.Checkpoint, "distilled", d, struct {
		Options
		Model string
	}{o, modelPrint})
	return f, err
}

// prepareLog makes a log of scaled vectors. Every query that the similarity can rank gets some
// item, so that a split divides all these queries.
func (f *fitter) prepareLog(d fit.Data) (*samples.Log, error) {
	l := &samples.Log{Times: d.Times, Relevant: make([][]int32, d.Queries.Rows)}
	unit := f.options.Normalise
	var err error
	var isZero []bool
	if l.Items, _, err = samples.Scale("items", d.Items, unit, d.Forget); err != nil {
		return nil, err
	}
	if l.Queries, isZero, err = samples.Scale("queries", d.Queries, unit, d.Forget); err != nil {
		return nil, err
	}
	for q := range isZero {
		if isZero[q] && unit {
			f.report.ZeroQueries++
			continue
		}
		l.Relevant[q] = []int32{0}
	}
	l.Counts.Queries = d.Queries.Rows - f.report.ZeroQueries
	if !unit {
		f.queryScale = float64(samples.RootMeanSquareNorm(d.Queries))
	}
	return l, nil
}

// maxHeldOut bounds the queries that judge the probes, maxLearned the queries that train them.
const (
	maxHeldOut = 512
	maxLearned = 1 << 16
)

// divideQueries decides which queries train the probes and which judge them.
func (f *fitter) divideQueries(l *samples.Log) error {
	o := f.options
	split, err := l.Split(o.Common)
	if err != nil {
		return fmt.Errorf("%w: of %d queries %d are left to learn from and %d to judge the probes; bring more queries or change the share held out (%g)",
			fit.ErrData, l.Counts.Queries, len(split.Train), len(split.HeldOut), o.HeldOut)
	}
	rng := rand.New(rand.NewPCG(o.Seed, 0x5917))
	scoresPerQuery := l.Items.Rows
	if f.isLarge() {
		scoresPerQuery = shortlist + randomItems
	}
	learned := samples.Choose(split.Train, min(maxLearned, max(o.Batch, o.Scores/scoresPerQuery)), rng)
	heldOut := samples.Choose(split.HeldOut, min(maxHeldOut, max(64, o.Scores/8/l.Items.Rows)), rng)
	f.lessons = lessons{items: l.Items, queries: l.Queries, train: learned}
	f.heldOut, f.judges = heldOut, linalg.Gather(l.Queries, heldOut)
	f.report.LearnedQueries, f.report.HeldOutQueries = len(learned), len(heldOut)
	return nil
}

// makeLessons lets the similarity rank the items for every query.
func (f *fitter) makeLessons(ctx context.Context) error {
	progress, l := f.options.Progress, &f.lessons
	var err error
	done := progress.Begin("ranking by the model, held-out queries", len(f.heldOut))
	if f.exam, err = teacher.NewExam(ctx, f.teacher, l.items, f.heldOut, f.report.K, f.options.Depths, done); err != nil {
		return err
	}
	f.report.RecallTable = f.exam.Table()
	done = progress.Begin("ranking by the model", len(l.train))
	if f.isLarge() {
		f.firstLists, err = f.makeFirstLists(ctx, done)
		l.lists = f.firstLists
	} else {
		l.lists, err = f.teacher.RankAll(ctx, l.train, min(f.options.List, l.items.Rows), done)
	}
	if err != nil {
		return err
	}
	f.chooseTemperature()
	return nil
}

// chooseTemperature sets the temperature of the similarity's softmax by Options.Focus.
func (f *fitter) chooseTemperature() {
	items := f.lessons.items.Rows
	focus := f.options.Focus
	if focus == 0 {
		focus = min(5*float64(f.report.K), max(2, float64(items)/8))
	}
	f.report.Focus = min(focus, float64(min(f.options.List, items))/2)
	f.lessons.temperature = findTemperature(f.lessons.lists, f.report.Focus)
	f.report.Temperature = f.lessons.temperature
}

// patience is the number of rounds without a better rating before a head's training ends.
const patience = 3

// trainHeads fits the heads that the options ask for. If the context ends after a round
// of a head, that head has its best parameters so far and the error is the context's.
func (f *fitter) trainHeads(ctx context.Context) error {
	start, name, err := f.findStart()
	if err != nil {
		return err
	}
	kinds := slices.Clone(f.options.Heads)
	slices.Sort(kinds) // the linear head first
	for _, kind := range slices.Compact(kinds) {
		if err := f.trainHead(ctx, kind, start, name); err != nil {
			return err
		}
	}
	return nil
}

// findStart returns the W with which the heads start, and the start's name.
func (f *fitter) findStart() (rerank.Matrix, string, error) {
	exact, ok, err := exactStart(f.teacher, f.lessons.train, f.options.Normalise)
	if err != nil || ok {
		return exact, startExact, err
	}
	return f.lessons.chooseStart(f.teacher, f.options)
}

// trainHead trains a head from the named start. An exact start is kept as it is.
func (f *fitter) trainHead(ctx context.Context, kind string, start rerank.Matrix, startName string) error {
	o := f.options
	isExact, hidden := startName == startExact, 0
	if kind == HeadResidual && !isExact {
		hidden = o.Hidden
	}
	h := newHead(start, hidden, o.Seed)
	report := HeadReport{Head: kind, Start: startName, Of: o.Rounds, Parameters: h.size()}
	if isExact {
		report.Recall = f.meanRecall(h)
		f.addHead(h, report)
		return nil
	}
	h.startTraining(o.Rate)
	if f.isLarge() {
		f.lessons.lists = f.firstLists
	}
	l := newLearner(&f.lessons, h, o)
	if f.isLarge() {
		l.renewLists = f.renewLists
	}
	trained, err := f.trials.Train(ctx, l, train.Plan{
		Name: kind, Rounds: o.Rounds, Patience: patience, KeepTrained: true,
		Done:  o.Progress.Begin("fitting the "+kind+" probe", o.Rounds),
		Judge: func(int) (float64, error) { return f.meanRecall(h), nil },
		Note: func(s *train.Snapshot) {
			o.Notef("%s probe, round %d: divergence %.3f, held-out recall@%d %.4f", kind, s.Round, s.LastRound().MeanLoss, f.report.K, s.LastRound().Rating)
		},
	})
	if trained != nil && trained.Round > 0 {
		report.Rounds, report.Loss, report.Recall = trained.TakenRounds, trained.LastRound().MeanLoss, trained.Best
		f.addHead(h, report)
	}
	return err
}

// addHead adds a head that was fitted.
func (f *fitter) addHead(h *head, r HeadReport) {
	f.heads[r.Head] = h
	f.report.Heads = append(f.report.Heads, r)
}

// finish compares the heads with the other first stages, and returns the heads' tensors.
func (f *fitter) finish() (tensor.Set, error) {
	tensors := tensor.Set{}
	for _, r := range f.report.Heads {
		f.report.Stages = append(f.report.Stages, f.examine(r.Head, f.heads[r.Head]))
		scale := f.queryScale
		if r.Start == startExact {
			scale = 1
		}
		maps.Copy(tensors, f.heads[r.Head].tensors(r.Head, scale))
	}
	tensors[distilled.MeanItem] = tensor.Tensor{Shape: []int{f.lessons.items.Cols}, Data: f.meanItem()}
	if !f.report.Interrupted { // a fit that was interrupted should end at once
		others, err := f.exam.Strategies(rerank.Companion, rerank.Average, rerank.PerEmbedding)
		if err != nil {
			return nil, err
		}
		f.report.Stages = append(f.report.Stages, others...)
	}
	if f.judges.Cols == f.lessons.items.Cols {
		f.report.Stages = append(f.report.Stages, f.exam.Vectors(rerank.FirstStage{Strategy: rerank.StoredSearch}, f.judges))
	}
	f.report.conclude(f.teacher.Similarity.Spec())
	return tensors, nil
}

// examine measures a head on the held-out queries.
func (f *fitter) examine(name string, h *head) rerank.FirstStage {
	u := rerank.NewMatrix(f.judges.Rows, f.lessons.items.Cols)
	h.forward(u, f.judges)
	return f.exam.Vectors(rerank.FirstStage{Strategy: rerank.Distilled, Head: name}, u)
}

// meanRecall returns the recall of a head as the only probe, as a mean over the depths.
func (f *fitter) meanRecall(h *head) float64 {
	return judge.Mean(f.examine("", h).Recall, nil)
}

// meanItem returns the mean of the items' vectors as the similarity sees them.
func (f *fitter) meanItem() []float32 {
	if f.options.Normalise {
		return meanOfRows(f.lessons.items)
	}
	return meanOfRows(f.teacher.Items)
}

// fingerprint returns a hash of some item encodings and scores. It differs between similarities
// that encode or score differently.
func fingerprint(t *teacher.Teacher, queries []int32) (string, error) {
	encoded := make([]rerank.Encoded, min(len(queries), 4))
	for i := range encoded {
		var err error
		if encoded[i], err = t.Encode(queries[i]); err != nil {
			return "", err
		}
	}
	scores := rerank.NewMatrix(len(encoded), t.Encoded.Len())
	if err := t.Score(scores.Data, encoded); err != nil {
		return "", err
	}
	h := train.NewHasher()
	h.AddMatrix(t.Encoded.Features)
	h.AddMatrix(scores)
	return hex.EncodeToString(h.Sum()), nil
}
