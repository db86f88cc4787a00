package mol

import (
	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/judge"
)

// stepCost is how many times as long as a score a step takes for it: for the score, and for its
// gradients by both sides.
const stepCost = 3

// searchedPulls is the number of pulls that a search of the default pulls usually tries.
const searchedPulls = 2

// plans are the multiplications that the parts of a fit take, as planned: the fit of a pull
// without a set of items, the fit that is judged, what measures it, and the fit to all pairs.
type plans struct{ trial, judged, measured, final float64 }

// planWork plans the fit, after the multiplications that choosing the bilinear form takes, and begins its stage of the
// progress. sets is the number of sets of held-out items.
func (f *fitter) planWork(bilinearForm float64, sets int) {
	rounds := float64(f.options.Rounds)
	round := stepCost * f.roundScores() * float64(f.log.Items.Cols)
	sample := f.thin(f.newJudge(f.split.HeldOut, nil))
	p := &f.plans
	kept := 1 - f.options.ColdShare // of the items, and of their pairs
	p.trial = kept*kept*rounds*round + 2*sample.Cost()
	p.judged = rounds * (round + sample.Cost())
	p.measured = f.costOf(2*min(judge.FirstLook, len(f.split.HeldOut))) +
		f.costOf(2*len(firstStages(f.options.Gates))*min(recallQueries, len(sample.Queries)))
	p.final = rounds * round
	trials := 0.0
	switch {
	case f.report.Guarded:
		trials = float64(min(searchedPulls, len(f.options.Pulls)) * sets)
	case sets > 0:
		trials = 1
	}
	f.work = fit.NewWork(f.options.Progress, "fitting", bilinearForm+trials*p.trial+p.judged+p.measured+p.final)
}

// costOf returns the multiplications of ranking all items for some queries by one similarity.
func (f *fitter) costOf(queries int) float64 {
	return float64(queries) * float64(f.log.Items.Rows) * float64(f.log.Items.Cols)
}

// begin ends the task under way and begins the next one.
func (f *fitter) begin(planned float64) {
	f.task.End()
	f.task = f.work.Begin(planned)
}
