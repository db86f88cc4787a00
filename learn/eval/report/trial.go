package report

import (
	_ "embed"
	"io"

	"github.com/likenessdb/likeness/internal/atomicfile"
	"github.com/likenessdb/likeness/learn/trial"
)

//go:embed trial.html
var trialPage string

// trialView is the data of the template of a trial.
type trialView struct {
	*trial.Report
	Evaluation *reportView // nil if nothing was learned
}

// WriteTrial writes the HTML page of a trial, atomically.
func WriteTrial(path string, r *trial.Report) error {
	view := trialView{Report: r}
	if r.Learned != nil {
		view.Evaluation = &reportView{Report: r.Learned.Judgment, Figures: reportFigures(r.Learned.Judgment)}
	}
	return atomicfile.Write(path, func(w io.Writer) error {
		return writePage(w, trialPage+evaluation, evaluationFunctions(), view)
	})
}
