package main

import (
	"fmt"
	"math"
	"os"
	"strings"

	"github.com/likenessdb/likeness/learn/fit"
	fitbilinear "github.com/likenessdb/likeness/learn/fit/bilinear"
	fitmaxsim "github.com/likenessdb/likeness/learn/fit/maxsim"
)

// The size of a panel and its margin, in pixels.
const (
	plotWidth, plotHeight = 640.0, 240.0
	plotMargin            = 56.0
)

// plotSpectrum draws the singular values, which bound what a rank can reach, and the
// quality of each rank by a measure.
func plotSpectrum(path string, m fit.Measure, s *fitbilinear.Spectrum) error {
	label := fmt.Sprintf("rank %d", s.Suggested)
	values := panel{title: "singular values of " + s.Of + ": |φ − φ_r| ≤ ‖q‖‖x‖σ(r+1)", x: "number", line: true, mark: float64(s.Suggested), label: label}
	for i, v := range s.Singular {
		values.points = append(values.points, [2]float64{float64(i + 1), v})
	}
	quality := panel{title: m.Name() + " of " + rankColumn(s) + ", held-out queries", x: "rank", line: true, dots: true, mark: float64(s.Suggested), label: label}
	for _, r := range s.Ranks {
		quality.points = append(quality.points, [2]float64{float64(r.Rank), r.Value})
	}
	return writePlot(path, "Spectrum of "+s.Of, values, quality)
}

// plotBudgets draws the quality on held-out queries for each budget of vectors.
func plotBudgets(path string, r *fitmaxsim.Report) error {
	logged := panel{title: r.Measure.Name() + " of held-out queries", x: "vectors an item", line: true, dots: true, mark: r.MAvg, label: fmt.Sprintf("%g", r.MAvg)}
	cold := logged
	cold.title, cold.points = r.Measure.Name()+" of held-out items, as without logs", nil
	logged.points = append(logged.points, [2]float64{0, r.Logged.Baseline})
	for _, t := range r.Trials {
		if t.Beta != r.Trials[0].Beta {
			continue
		}
		logged.points = append(logged.points, [2]float64{t.MAvg, t.Logged.Value})
		if t.Cold != nil {
			if cold.points == nil {
				cold.points = append(cold.points, [2]float64{0, t.Cold.Baseline})
			}
			cold.points = append(cold.points, [2]float64{t.MAvg, t.Cold.Value})
		}
	}
	if cold.points == nil {
		return writePlot(path, "Budgets of behavioural vectors", logged)
	}
	return writePlot(path, "Budgets of behavioural vectors", logged, cold)
}

// writePlot writes a self-contained SVG of panels, one above the other.
func writePlot(path, title string, panels ...panel) error {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" font-family="sans-serif" font-size="12">`+"\n", plotWidth, float64(len(panels))*plotHeight)
	fmt.Fprintf(&b, "<title>%s</title>\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n", title)
	for i, p := range panels {
		p.draw(&b, float64(i)*plotHeight)
	}
	b.WriteString("</svg>\n")
	return os.WriteFile(path, []byte(b.String()), 0o644)
}

// panel is one plot. A dashed line stands at x = mark, unless mark is 0.
type panel struct {
	title, x   string
	points     [][2]float64
	line, dots bool
	mark       float64
	label      string // label of the dashed line
}

func (p panel) draw(b *strings.Builder, top float64) {
	low, high := p.extent()
	right := p.points[len(p.points)-1][0]
	at := func(x, y float64) (float64, float64) {
		return plotMargin + (x/max(right, 1))*(plotWidth-2*plotMargin),
			top + plotHeight - plotMargin/1.4 - (y-low)/(high-low)*(plotHeight-plotMargin*1.4)
	}
	left, bottom := at(0, low)
	end, ceiling := at(right, high)
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f">%s</text>`+"\n", left, top+18, p.title)
	fmt.Fprintf(b, `<path d="M%.1f %.1fV%.1fH%.1f" fill="none" stroke="#444"/>`+"\n", left, ceiling, bottom, end)
	for i := range 5 {
		y := low + (high-low)*float64(i)/4
		_, py := at(0, y)
		fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="end">%.3g</text>`+"\n", left-6, py+4, y)
		x := math.Round(right * float64(i) / 4)
		px, _ := at(x, low)
		fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="middle">%g</text>`+"\n", px, bottom+16, x)
	}
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="end">%s</text>`+"\n", end, bottom+30, p.x)
	p.curve(b, at)
	if p.mark > 0 {
		x, _ := at(p.mark, low)
		fmt.Fprintf(b, `<path d="M%.1f %.1fV%.1f" stroke="#b5432a" stroke-dasharray="4 3"/><text x="%.1f" y="%.1f" fill="#b5432a">%s</text>`+"\n",
			x, ceiling, bottom, x+4, ceiling+12, p.label)
	}
}

func (p panel) curve(b *strings.Builder, at func(x, y float64) (float64, float64)) {
	var path strings.Builder
	for i, v := range p.points {
		x, y := at(v[0], v[1])
		path.WriteString(map[bool]string{true: "M", false: "L"}[i == 0])
		fmt.Fprintf(&path, "%.1f %.1f", x, y)
		if p.dots {
			fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="3" fill="#2a5db5"/>`+"\n", x, y)
		}
	}
	if p.line {
		fmt.Fprintf(b, `<path d="%s" fill="none" stroke="#2a5db5"/>`+"\n", path.String())
	}
}

// extent returns the range of the y axis, which is never empty. The axis of a curve without dots
// includes 0.
func (p panel) extent() (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, v := range p.points {
		low, high = min(low, v[1]), max(high, v[1])
	}
	if !p.dots {
		low = min(low, 0)
	}
	if high <= low {
		high = low + 1
	}
	return low, high
}
