package bilinear

import (
	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/judge"
	"github.com/likenessdb/likeness/learn/fit/train"
	"github.com/likenessdb/likeness/rerank/bilinear"
)

// Limits of a fit to a large log. Its settings are chosen by short fits, so that all trials
// together cost less than one fit: a large log has enough pairs in a round to tell settings
// apart.
const (
	largePairs   = 100_000
	shortRounds  = 1   // of a trial
	simpleRounds = 2   // of the diagonal form, which learns fast
	leastJudges  = 500 // queries that judge a round
)

// itemSets returns how many sets of held-out items decide the setting. In a large log one
// set has items and queries enough.
func (f *fitter) itemSets() int {
	if f.large {
		return 1
	}
	return itemSets
}

// thin returns a judge of a round or a trial, which costs no more than a round of the fit.
func (f *fitter) thin(j *judge.Judge) *judge.Judge { return j.Within(f.plans.round, leastJudges) }

// planRounds finds how large the log is and plans the cost of a round.
func (f *fitter) planRounds() {
	o := f.options
	f.large = f.log.Counts.Pairs >= largePairs
	size, steps := train.BatchSize(o.Batch, len(f.split.Train), f.log.Counts.Pairs)
	candidates := f.log.Counts.LoggedItems
	if candidates > o.Softmax {
		candidates = size + o.Draws
	}
	f.rounds = o.roundsFor(size, steps)
	f.plans.round = float64(steps) * stepCost(size, candidates, f.log.Items.Cols)
	f.judge = f.thin(f.judge)
}

// plans are the multiplications that the parts of a fit take, as planned: a trial's fit
// without one set of items, the fit that is judged, the fit to all pairs, the simpler form,
// the ranks of the spectrum, and the decision.
type plans struct{ round, trial, judged, final, simple, spectrum, decision float64 }

// planWork plans the fit and begins its stage of the progress. trials is how many fits
// choosing takes.
func (f *fitter) planWork(trials int) {
	o := f.options
	p, rounds := f.plans, float64(f.rounds)
	perRound := p.round + f.judge.Cost()
	p.trial, p.judged, p.final = rounds*perRound, rounds*perRound, rounds*p.round
	if f.large {
		p.trial = shortRounds*p.round + f.judge.Cost()
	}
	ranked := float64(min(1000, len(f.split.HeldOut))) * float64(f.log.Items.Rows) * float64(f.log.Items.Cols)
	rivals := 2.0
	if o.Form == bilinear.Full {
		p.spectrum, rivals = spectrumRanks*f.judge.Cost(), 4
		if f.isSquare() {
			if p.simple = p.judged; f.large {
				p.simple = simpleRounds * p.round
			}
		}
	}
	p.decision = rivals * ranked
	f.plans = p
	total := float64(trials)*p.trial + p.judged + p.final + p.simple + p.spectrum + p.decision
	f.work = fit.NewWork(o.Progress, "fitting", total)
}

// spectrumRanks is about how many ranks of a spectrum are judged.
const spectrumRanks = 12
