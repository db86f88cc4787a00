package main

import (
	"fmt"
	"math"
	"strings"
)

// line is a curve of the plot: the recall of a way by number of calls.
type line struct {
	name, colour string
	of           func(budgetRow) bool
}

var plotted = []line{
	{"database's order", "#8da0b3", func(r budgetRow) bool { return r.Supports == 0 }},
	{"supports, one round", "#e08e5b", func(r budgetRow) bool { return r.Rounds == 1 && !r.Mixed }},
	{"four rounds", "#2b4c9b", func(r budgetRow) bool { return r.Rounds == 4 && !r.Mixed }},
	{"four rounds, mixed", "#6f9e6e", func(r budgetRow) bool { return r.Rounds == 4 && r.Mixed }},
}

// Sizes of a panel, in pixels.
const (
	panelWidth, panelHeight = 250, 180
	panelLeft, panelTop     = 60, 50
	panelGap                = 50
)

var titles = map[string]string{"boosted": "boosted trees", "cross": "cross-encoder"}

// plot draws the recall of the ranker's 10 and 100 best items by number of calls, two
// panels per ranker.
func plot(names []string, all map[string]figures) string {
	var b strings.Builder
	width := panelLeft + 2*(panelWidth+panelGap)
	height := panelTop + len(names)*(panelHeight+70)
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12" fill="#222">`, width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#fff"/>`, width, height)
	for i, l := range plotted {
		fmt.Fprintf(&b, `<rect x="%d" y="10" width="10" height="10" fill="%s"/><text x="%d" y="19">%s</text>`, panelLeft+145*i, l.colour, panelLeft+145*i+14, l.name)
	}
	for row, name := range names {
		for k, of := range []string{"10", "100"} {
			panel(&b, panelLeft+k*(panelWidth+panelGap), panelTop+row*(panelHeight+70), titles[name]+": recall of its "+of, all[name].Budget, k)
		}
	}
	return b.String() + "</svg>\n"
}

// panel draws one panel: Recall[k], from 0 to 1, over the calls on a logarithmic scale.
func panel(b *strings.Builder, left, top int, title string, rows []budgetRow, k int) {
	least, most := math.Log2(float64(budgets[0])), math.Log2(float64(budgets[len(budgets)-1]))
	x := func(calls int) float64 {
		return float64(left) + (math.Log2(float64(calls))-least)/(most-least)*panelWidth
	}
	y := func(recall float64) float64 { return float64(top) + (1-recall)*panelHeight }
	fmt.Fprintf(b, `<text x="%d" y="%d">%s</text>`, left, top-8, title)
	for _, r := range []float64{0, 0.25, 0.5, 0.75, 1} {
		fmt.Fprintf(b, `<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%.2f</text>`,
			left, left+panelWidth, y(r), y(r), left-5, y(r)+4, r)
	}
	for _, calls := range budgets {
		fmt.Fprintf(b, `<text x="%.1f" y="%d" text-anchor="middle">%d</text>`, x(calls), top+panelHeight+16, calls)
	}
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="middle">calls of the ranker</text>`, left+panelWidth/2, top+panelHeight+32)
	for _, l := range plotted {
		var points []string
		for _, r := range rows {
			if l.of(r) {
				points = append(points, fmt.Sprintf("%.1f,%.1f", x(r.Calls), y(r.Recall[k].Mean)))
			}
		}
		fmt.Fprintf(b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`, strings.Join(points, " "), l.colour)
	}
}
