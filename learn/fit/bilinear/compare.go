package bilinear

import (
	"fmt"
	"slices"
	"strings"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/judge"
	"github.com/likenessdb/likeness/learn/verdict"
)

// addRival adds a form to the similarities that the held-out queries compare. It must not
// have seen them.
func (f *fitter) addRival(name string, judged form) {
	numbers := 0
	for _, v := range judged.params() {
		numbers += len(v)
	}
	f.rivals = append(f.rivals, judge.RivalOf(name, numbers, judged.probe))
}

// watched returns the rival, whose marks count as work. Where a decision needs more queries than
// were planned, their judgement, by the given number of rivals, is a stage of its own.
func (f *fitter) watched(r judge.Rival, rivals int) judge.Rival {
	marks := r.Marks
	r.Marks = func(j *judge.Judge) ([]float64, error) {
		cost := f.costOf(j)
		if f.task != nil && !f.task.Has(cost) {
			f.task.End()
			planned := cost * float64(rivals)
			f.work = fit.NewWork(f.options.Progress, fmt.Sprintf("judging by %d more queries", len(j.Queries)), planned)
			f.task = f.work.Begin(planned)
		}
		defer f.task.Add(cost)
		return marks(j)
	}
	return r
}

// decide compares the rivals with the plain similarity on as many held-out queries as the
// decision needs, and reports the outcome. An interrupted fit looks at few.
func (f *fitter) decide() error {
	all := judge.NewShuffled(f.log, f.options.Measure, f.split.HeldOut, f.options.Seed)
	rule := verdict.DefaultRule()
	rule.Margin = f.options.Margin
	decide := judge.Decide
	if f.report.Interrupted {
		decide = judge.DecideQuickly
	}
	plain := judge.RivalOf(f.report.plainName(f.isSquare()), 0, f.plain)
	rivals := slices.Clone(f.rivals)
	for i := range rivals {
		rivals[i] = f.watched(rivals[i], len(rivals)+1)
	}
	o, err := decide(all, f.watched(plain, len(rivals)+1), rivals, rule)
	if err != nil {
		return err
	}
	r := &f.report
	r.Choices = []Choice{{Name: plain.Name, Value: o.Plain}}
	for i, rival := range o.Rivals {
		standing := o.Decision.Standings[i]
		r.Choices = append(r.Choices, Choice{
			Name: rival.Name, Value: o.Values[i], Numbers: rival.Numbers, Standing: standing,
			AsGood: standing == verdict.Best || standing == verdict.AsGood,
		})
		if rival.Name == string(f.options.Form) {
			r.Logged = o.Gains[i]
		}
	}
	r.Verdict = fit.NewVerdict(o.Decision, o.Queries, o.Choice())
	if !f.isSquare() && o.Decision.Choice < 0 {
		r.Verdict.Text = append([]string{"Use it: queries and items have no inner product, and nothing fitted further is shown to be better."}, r.Verdict.Text[1:]...)
	}
	switch {
	case r.Guarding != nil:
		r.Verdict.Text = append(r.Verdict.Text, r.Guarding.Text())
	case r.Cold != nil && f.options.Cold == fit.ColdAuto:
		r.Verdict.Text = append(r.Verdict.Text, fit.UnguardedText(r.Measure, *r.Cold, r.ColdTraffic))
	}
	r.Recommendation = strings.Join(r.Verdict.Text, "\n")
	return nil
}
