// Package report writes an evaluation or a calibration as one self-contained HTML page
// without scripts. Plots are SVG, with tables of their numbers. The page suits screens
// of any size, light or dark, and print.
package report

import (
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/likenessdb/likeness/internal/atomicfile"
	"github.com/likenessdb/likeness/learn/eval"
	"github.com/likenessdb/likeness/learn/verdict"
	"github.com/likenessdb/likeness/rerank"
)

//go:embed page.html
var page string

//go:embed style.html
var style string

//go:embed evaluation.html
var evaluation string

// Write writes the HTML page of a report. It returns the error of w.
func Write(w io.Writer, r *eval.Report) error {
	return writePage(w, page+evaluation, evaluationFunctions(), reportView{Report: r, Figures: reportFigures(r)})
}

// evaluationFunctions are the functions of the template of an evaluation.
func evaluationFunctions() template.FuncMap {
	return template.FuncMap{
		"number": number, "signed": signed, "percent": percent, "interval": interval, "paired": formatPaired,
		"join": strings.Join, "trafficMetrics": eval.TrafficMetrics, "answer": formatAnswer, "negate": func(v float64) float64 { return -v },
	}
}

// WriteFile writes the page atomically: path holds either its old content or the whole
// page.
func WriteFile(path string, r *eval.Report) error {
	return atomicfile.Write(path, func(w io.Writer) error { return Write(w, r) })
}

func writePage(w io.Writer, page string, functions template.FuncMap, view any) error {
	t, err := template.New("page").Funcs(functions).Parse(page)
	if err == nil {
		t, err = t.Parse(style)
	}
	if err != nil {
		return err
	}
	return t.ExecuteTemplate(w, "page", view)
}

// reportView is the data of the template.
type reportView struct {
	*eval.Report
	Figures []Figure
}

// Figure is a plot and the table of its numbers.
type Figure struct {
	Title, Note string
	SVG         template.HTML
	Header      []string
	Rows        [][]string
}

func number(v float64) string { return fmt.Sprintf("%.4f", v) }
func signed(v float64) string { return fmt.Sprintf("%+.4f", v) }

// A share, and an interval, stays on one line of a narrow cell: the spaces are no-break spaces.
func percent(v float64) string { return fmt.Sprintf("%.1f\u00a0%%", 100*v) }

func interval(i eval.Interval) string { return number(i.Low) + "\u00a0to\u00a0" + number(i.High) }

func formatPaired(p eval.Paired) string {
	return fmt.Sprintf("%s (%s\u00a0to\u00a0%s)", signed(p.Difference), signed(p.Low), signed(p.High))
}

func formatAnswer(v eval.Verdict) string {
	switch v.Answer {
	case verdict.Yes:
		return "Worth it"
	case verdict.No:
		return "Not worth it"
	case verdict.Unclear:
		return "Cannot tell"
	default:
		return "No baseline"
	}
}

// reportFigures returns the plots for which the report has numbers.
func reportFigures(r *eval.Report) []Figure {
	var found []Figure
	add := func(f Figure, ok bool) {
		if ok {
			found = append(found, f)
		}
	}
	add(depthFigure(r))
	for i := range r.Models {
		m := &r.Models[i]
		add(segmentsFigure(r, m))
		add(scoresFigure(m.Name, m.Histogram))
		add(spectrumFigure(m))
		add(gatesFigure(m))
	}
	if len(found) > 0 {
		add(scoresFigure(r.BaselineName, r.BaselineHistogram))
	}
	return found
}

// depthFigure plots the quality of answers against the number of candidates scored.
func depthFigure(r *eval.Report) (Figure, bool) {
	metric := r.Method.Metric
	f := Figure{
		Title: "Quality against candidates", Header: []string{"model", "strategy", "candidates", "first-stage recall", metric, "lost by the first stage"},
		Note: "What each first stage leaves of the similarity: dashed, the exact ranking of all items and the baseline.",
	}
	var lines []Series
	x, y := Axis{Label: "candidates", Log: true, From: math.Inf(1)}, Axis{Label: metric, From: math.Inf(1)}
	see := func(v float64) { y.From, y.To = min(y.From, v), max(y.To, v) }
	for model, m := range r.Models {
		for _, s := range m.Strategies {
			if s.Strategy != rerank.Scan {
				x.From, x.To = min(x.From, s.Candidates), max(x.To, s.Candidates)
			}
			v := s.Metrics[metric]
			see(v)
			f.Rows = append(f.Rows, []string{m.Name, s.Name, fmt.Sprintf("%.0f", s.Candidates), number(s.FirstStageRecall), number(v), formatPaired(s.Loss)})
			if s.Strategy == rerank.Scan {
				continue
			}
			name := m.Name + ", " + string(s.Strategy)
			at := slices.IndexFunc(lines, func(l Series) bool { return l.Name == name })
			if at < 0 {
				at = len(lines)
				lines = append(lines, Series{Name: name, Colour: model})
			}
			lines[at].Points = append(lines[at].Points, Point{X: s.Candidates, Y: v})
		}
	}
	if len(lines) == 0 {
		return f, false
	}
	if x.To <= x.From {
		x.To = x.From * 2
	}
	level := func(name string, v float64, colour int) {
		see(v)
		lines = append(lines, Series{Name: name, Colour: colour, Points: []Point{{X: x.From, Y: v}, {X: x.To, Y: v}}, Dashed: true})
	}
	for model, m := range r.Models {
		level(m.Name+", exact", m.Metrics[metric], model)
	}
	if r.Baseline != nil {
		level(r.BaselineName, r.Baseline[metric], len(r.Models))
	}
	for _, l := range lines {
		slices.SortFunc(l.Points, func(a, b Point) int { return cmp.Compare(a.X, b.X) })
	}
	margin := max(0.002, (y.To-y.From)*0.08)
	y.From, y.To = y.From-margin, y.To+margin
	f.SVG = Lines(f.Title, f.Note, x, y, lines)
	return f, true
}

func segmentsFigure(r *eval.Report, m *eval.ModelReport) (Figure, bool) {
	f := Figure{
		Title: "Gain per segment: " + m.Name, Header: []string{"segment", "items", "queries", r.JudgedBy(), "baseline", "difference"},
		Note: "Difference to the baseline with its interval. Head, torso and tail each have a third of the pairs, by the items' popularity.",
	}
	var names []string
	var values []Point
	for _, s := range m.Segments {
		row := []string{s.Name, fmt.Sprint(s.Items), fmt.Sprint(s.Queries), number(s.Metric), "", ""}
		if s.Gain != nil {
			row[4], row[5] = number(*s.Baseline), formatPaired(*s.Gain)
			names = append(names, s.Name)
			values = append(values, Point{Y: s.Gain.Difference, Low: s.Gain.Low, High: s.Gain.High})
		}
		f.Rows = append(f.Rows, row)
	}
	judged := r.Judge(m)
	if g := judged.Gain; g != nil {
		names = append([]string{"all"}, names...)
		values = append([]Point{{Y: g.Difference, Low: g.Low, High: g.High}}, values...)
		f.Rows = append([][]string{{"all", fmt.Sprint(r.Counts.Items), fmt.Sprint(r.Counts.Queries), number(judged.Value), number(judged.Baseline), formatPaired(*g)}}, f.Rows...)
	}
	if len(values) == 0 {
		return f, false
	}
	f.SVG = Bars(f.Title, f.Note, "difference of "+r.JudgedBy(), names, values)
	return f, true
}

func scoresFigure(name string, h *eval.Histogram) (Figure, bool) {
	if h == nil {
		return Figure{}, false
	}
	f := Figure{
		Title: "Scores: " + name, Header: []string{"score from", "to", "relevant", "others"},
		Note: fmt.Sprintf("Shares of the relevant items and of a sample of the others, over %d queries. The less they overlap, the better they are told apart.", h.Queries),
	}
	n := len(h.Relevant)
	edge := func(i int) string { return fmt.Sprintf("%.4g", h.From+(h.To-h.From)*float64(i)/float64(n)) }
	for i := range n {
		f.Rows = append(f.Rows, []string{edge(i), edge(i + 1), number(h.Relevant[i]), number(h.Others[i])})
	}
	f.SVG = Steps(f.Title, f.Note, Axis{Label: "score", From: h.From, To: h.To}, []string{"relevant", "others"}, [][]float64{h.Relevant, h.Others})
	return f, true
}

// shownSingular is the number of singular values that the table shows.
const shownSingular = 20

func spectrumFigure(m *eval.ModelReport) (Figure, bool) {
	if len(m.Spectrum) == 0 {
		return Figure{}, false
	}
	f := Figure{
		Title: "Spectrum of W − I: " + m.Name, Header: []string{"rank", "singular value", "energy up to it"},
		Note: "Singular values of what the model adds to the plain inner product. A steep fall says that a low rank is enough.",
	}
	svg, energy := Spectrum(f.Title, f.Note, m.Spectrum)
	f.SVG = svg
	for i, v := range m.Spectrum[:min(len(m.Spectrum), shownSingular)] {
		f.Rows = append(f.Rows, []string{fmt.Sprint(i + 1), number(v), percent(energy[i])})
	}
	return f, true
}

// Spectrum plots singular values, the greatest first, and returns the cumulative
// shares of Σσ².
func Spectrum(title, note string, singular []float64) (template.HTML, []float64) {
	var total, sum float64
	for _, v := range singular {
		total += v * v
	}
	line := Series{Name: "singular value"}
	energy := make([]float64, len(singular))
	y := Axis{Label: "σ"}
	for i, v := range singular {
		sum += v * v
		energy[i] = sum / max(total, math.SmallestNonzeroFloat64)
		line.Points = append(line.Points, Point{X: float64(i + 1), Y: v})
		y.To = max(y.To, v)
	}
	return Lines(title, note, Axis{Label: "rank", From: 1, To: float64(max(2, len(singular))), Log: true}, y, []Series{line}), energy
}

func gatesFigure(m *eval.ModelReport) (Figure, bool) {
	g := m.Gates
	if g == nil {
		return Figure{}, false
	}
	f := Figure{
		Title: "Gate usage: " + m.Name, Header: []string{"query component", "item component", "mean gate"},
		Note: fmt.Sprintf("Mean weight of each pair of components at the first items of %d queries; the greatest gate of a score is %s on average, the entropy of the means %.3g of %.3g.",
			g.Queries, number(g.Largest), g.Entropy, math.Log(float64(len(g.Mean)))),
	}
	for i, v := range g.Mean {
		f.Rows = append(f.Rows, []string{fmt.Sprint(i / g.PairsItem), fmt.Sprint(i % g.PairsItem), number(v)})
	}
	f.SVG = Cells(f.Title, f.Note, "query component", "item component", g.PairsQuery, g.PairsItem, g.Mean)
	return f, true
}
