package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"

	"github.com/likenessdb/likeness/internal/atomicfile"
	"github.com/likenessdb/likeness/sidecar/calibrate"
)

//go:embed calibration.html
var calibrationPage string

// calibrationView is the data of the calibration template.
type calibrationView struct {
	*calibrate.Report
	Figures []Figure
}

// WriteCalibration writes the HTML page of a calibration, atomically.
func WriteCalibration(path string, r *calibrate.Report) error {
	return atomicfile.Write(path, func(w io.Writer) error {
		return writePage(w, calibrationPage, template.FuncMap{
			"number": number, "percent": percent, "minus": func(a, b float64) float64 { return a - b },
		}, calibrationView{Report: r, Figures: []Figure{recallFigure(r), latencyFigure(r)}})
	})
}

// recallFigure plots the recall of each rule against the number of candidates that it
// scores.
func recallFigure(r *calibrate.Report) Figure {
	f := Figure{
		Title: "Recall against candidates", Header: []string{"depth", "candidates", "mean recall", "share that reached it", "share at least", ""},
		Note: "The mean recall, the share of the queries that reached the promised one with its lower bound, and, dashed, the share that is promised.",
	}
	x, y := candidatesAxis(r), Axis{Label: fmt.Sprintf("recall@%d; share", r.Promise.K), From: r.Promise.Share, To: 1}
	mean, share := Series{Name: "mean recall"}, Series{Name: "share of queries", Colour: 1}
	for _, o := range r.Rules {
		reached := float64(o.Kept) / float64(o.Queries)
		mean.Points = append(mean.Points, Point{X: o.Candidates, Y: o.MeanRecall})
		share.Points = append(share.Points, Point{X: o.Candidates, Y: reached, Low: o.LeastShare, High: reached})
		y.From = min(y.From, o.MeanRecall, o.LeastShare)
		f.Rows = append(f.Rows, []string{fmt.Sprint(o.Depth), fmt.Sprintf("%.0f", o.Candidates), number(o.MeanRecall), number(reached), number(o.LeastShare), r.Mark(o)})
	}
	promised := Series{Name: "promised share", Colour: 3, Dashed: true, Points: []Point{{X: x.From, Y: r.Promise.Share}, {X: x.To, Y: r.Promise.Share}}}
	f.SVG = Lines(f.Title, f.Note, x, y, append([]Series{mean, share, promised}, markChosen(r, func(o calibrate.Outcome) float64 {
		return float64(o.Kept) / float64(o.Queries)
	}, y)...))
	return f
}

// latencyFigure plots the latency of a search under each rule.
func latencyFigure(r *calibrate.Report) Figure {
	f := Figure{
		Title: "Latency against candidates", Header: []string{"depth", "candidates", "p50 ms", "p99 ms", ""},
		Note: "Milliseconds of a search, the store's time included, as they were while the route was calibrated.",
	}
	x, y := candidatesAxis(r), Axis{Label: "ms"}
	half, most := Series{Name: "p50"}, Series{Name: "p99", Colour: 1}
	for _, o := range r.Rules {
		half.Points, most.Points = append(half.Points, Point{X: o.Candidates, Y: o.P50}), append(most.Points, Point{X: o.Candidates, Y: o.P99})
		y.To = max(y.To, o.P99)
		f.Rows = append(f.Rows, []string{fmt.Sprint(o.Depth), fmt.Sprintf("%.0f", o.Candidates), fmt.Sprintf("%.2f", o.P50), fmt.Sprintf("%.2f", o.P99), r.Mark(o)})
	}
	f.SVG = Lines(f.Title, f.Note, x, y, append([]Series{half, most}, markChosen(r, func(o calibrate.Outcome) float64 { return o.P50 }, y)...))
	return f
}

func candidatesAxis(r *calibrate.Report) Axis {
	x := Axis{Label: "candidates", Log: true, From: max(1, r.Rules[0].Candidates), To: 2}
	for _, o := range r.Rules {
		x.From, x.To = min(x.From, max(1, o.Candidates)), max(x.To, o.Candidates)
	}
	if x.From >= x.To {
		x.To = 2 * x.From
	}
	return x
}

// markChosen marks the chosen rule with a vertical line. It returns nil if no rule was
// chosen.
func markChosen(r *calibrate.Report, value func(calibrate.Outcome) float64, y Axis) []Series {
	for _, o := range r.Rules {
		if r.Mark(o) == "chosen" {
			return []Series{{Name: fmt.Sprintf("chosen: depth %d", o.Depth), Colour: 2, Points: []Point{
				{X: max(1, o.Candidates), Y: y.From}, {X: max(1, o.Candidates), Y: value(o)},
			}}}
		}
	}
	return nil
}
