package bilinear

import (
	"time"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/judge"
	"github.com/likenessdb/likeness/learn/fit/train"
	"github.com/likenessdb/likeness/rerank/bilinear"
)

// Limits of a fit to a large log.
const (
	largePairs  = 100_000
	wholePairs  = 50_000 // below, all trials are whole fits
	leastJudges = 500    // queries that judge a round
)

// shortShare is how many times as long as a short trial a whole fit is; in a large log a short trial has one round.
const shortShare = 4

// itemSets returns how many sets of held-out items decide the setting. In a large log one
// set has items and queries enough.
func (f *fitter) itemSets() int {
	if f.large {
		return 1
	}
	return itemSets
}

// simpleRounds returns the rounds of the diagonal form that others are compared with: it learns fast.
func (f *fitter) simpleRounds() int { return max(2, f.short) }

// thin returns a judge of a round or a trial, which costs no more than a round of the fit.
func (f *fitter) thin(j *judge.Judge) *judge.Judge { return j.Within(f.plans.round, leastJudges) }

// planRounds finds how large the log is and plans the cost of a round.
func (f *fitter) planRounds() {
	o := f.options
	f.pairs = f.countPairs(f.split.All())
	f.large = f.pairs >= largePairs
	size, steps := train.BatchSize(o.Batch, len(f.split.Train), f.countPairs(f.split.Train))
	candidates := f.log.Counts.LoggedItems
	if candidates > o.Softmax {
		candidates = size + o.Draws
	}
	f.rounds = o.roundsFor(size, steps)
	if f.short = (f.rounds + shortShare - 1) / shortShare; f.large {
		f.short = 1
	}
	f.plans.round = float64(steps) * stepCost(size, candidates, f.log.Items.Cols)
	f.judge = f.thin(f.judge)
}

// countPairs returns how many pairs of the queries a fit learns from.
func (f *fitter) countPairs(queries []int32) int {
	n := 0
	for _, q := range queries {
		own := len(f.log.Relevant[q])
		if most := f.options.PairsPerQuery; most > 0 {
			own = min(own, most)
		}
		n += own
	}
	return n
}

// speeds says how long the parts of a fit take, as multiplications of steps that take as long, so
// that the progress counts all parts alike.
type speeds struct {
	judgement float64 // of a query
	setup     float64 // of a learner
}

// measureSpeeds measures the speeds of a fit to a large log: the plain similarity ranks for some
// queries, and a learner takes some steps, which it forgets.
func (f *fitter) measureSpeeds() error {
	f.speeds.judgement = float64(f.log.Items.Rows) * float64(f.log.Items.Cols)
	if !f.large || f.options.Progress == nil {
		return nil
	}
	const steps, queries = 5, 100
	j := f.judge.Thin(1 + len(f.judge.Queries)/queries)
	began := time.Now()
	j.Marks(f.plain)
	judged := time.Since(began).Seconds() / float64(max(1, len(j.Queries)))

	began = time.Now()
	pairs := f.log.TrainingPairs(f.split, nil)
	form, err := f.newForm(f.options.Form, pairs)
	if err != nil || len(pairs) == 0 {
		return err
	}
	l := newLearner(f.log, form, pairs, setting{scale: 1, rate: f.options.rateFor(f.options.Form)}, 0, f.options)
	setup := time.Since(began).Seconds()
	l.computeGradients(l.batches.Next()) // its buffers are there then
	began = time.Now()
	for range steps {
		l.computeGradients(l.batches.Next())
	}
	perSecond := steps * l.stepCost() / max(time.Since(began).Seconds(), 1e-6)
	f.speeds = speeds{judgement: judged * perSecond, setup: setup * perSecond}
	return nil
}

// costOf returns how long a judgement takes.
func (f *fitter) costOf(j *judge.Judge) float64 { return float64(len(j.Queries)) * f.speeds.judgement }

// plans holds the estimated multiplications of each part of a fit: one round, a trial without one set of items, the
// fit that is judged, the final fit to all pairs, the simpler form, the ranks of the spectrum, and the decision
// between forms.
type plans struct{ round, trial, judged, final, simple, spectrum, decision float64 }

// planWork plans the fit and begins its stage of the progress. trials is how many fits
// choosing takes.
func (f *fitter) planWork(trials int) {
	o := f.options
	p, rounds := f.plans, float64(f.rounds)
	judged := f.costOf(f.judge)
	perRound := p.round + judged
	if f.report.Guarded { // nothing ends a trial early
		perRound = p.round
	}
	setup := f.speeds.setup
	p.judged, p.final = setup+rounds*perRound, setup+rounds*p.round
	learned, judgements, wholeTrials := float64(f.short)*p.round, 1.0, 2.0
	if f.triesWhole() {
		learned, wholeTrials = rounds*perRound, 0
	}
	if f.report.Guarded {
		kept := 1 - o.ColdShare // of the items, and of their pairs
		learned *= kept * kept
		judgements = 2 // of the held-out items too
	}
	p.trial = setup + learned + judgements*judged
	ranked := float64(min(judge.FirstLook, len(f.split.HeldOut))) * f.speeds.judgement
	rivals := 2.0
	if o.Form == bilinear.Full {
		p.spectrum, rivals = spectrumRanks*judged, 4
		if f.isSquare() {
			p.simple = setup + float64(f.simpleRounds())*p.round
		}
	}
	p.decision = rivals * ranked
	f.plans = p
	total := float64(trials)*p.trial + wholeTrials*p.judged + p.judged + p.final + p.simple + p.spectrum + p.decision
	f.work = fit.NewWork(o.Progress, "fitting", total)
}

// spectrumRanks is about how many ranks of a spectrum are judged.
const spectrumRanks = 12
