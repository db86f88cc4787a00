package report

import (
	"fmt"
	"html/template"
	"math"
	"strings"
)

// Plots are narrow enough that a phone shows their text without much shrinking. They
// take their colours from the page's style sheet, and so follow light, dark and print.
const (
	width, height                    = 420.0, 260.0
	left, right, top, bottom float64 = 52, 12, 12, 44
)

// Series is a named line in one of six colours.
type Series struct {
	Name   string
	Points []Point
	Dashed bool
	Colour int
}

// Point is a point of a line. Low and High bound its interval, if they differ.
type Point struct{ X, Y, Low, High float64 }

// Axis is the range and the label of an axis.
type Axis struct {
	Label    string
	From, To float64
	Log      bool // logarithmic, base 10; From must be above 0
}

// Lines draws lines over two axes, with a legend. Screen readers read the title and
// the description.
func Lines(title, description string, x, y Axis, lines []Series) template.HTML {
	c := newCanvas(title, description, x, y)
	for _, s := range lines {
		c.drawLine(s.Colour%6, s)
	}
	return c.closeSVG(lines)
}

// Bars draws one horizontal bar from 0 for each value, with its interval.
func Bars(title, description, label string, names []string, values []Point) template.HTML {
	x := Axis{Label: label}
	for _, v := range values {
		x.From, x.To = min(x.From, v.Y, v.Low), max(x.To, v.Y, v.High)
	}
	if x.From == x.To {
		x.To = 1
	}
	c := newCanvas(title, description, x, Axis{From: 0, To: float64(len(values))})
	step := (height - top - bottom) / float64(max(1, len(values)))
	for n, v := range values {
		mid := top + (float64(n)+0.5)*step
		from, to := c.px(0), c.px(v.Y)
		c.printf(`<rect class="f%d" x="%.1f" y="%.1f" width="%.1f" height="%.1f"><title>%s: %.4f</title></rect>`,
			barClass(v.Y), min(from, to), mid-step*0.3, max(1, math.Abs(to-from)), step*0.6, template.HTMLEscapeString(names[n]), v.Y)
		c.printf(`<path class="whisker" d="M%.1f %.1fH%.1f"/>`, c.px(v.Low), mid, c.px(v.High))
		c.printf(`<text x="%.1f" y="%.1f" text-anchor="end">%s</text>`, left-6, mid+4, template.HTMLEscapeString(names[n]))
	}
	c.printf(`<path class="axis" d="M%.1f %.1fV%.1f"/>`, c.px(0), top, height-bottom)
	return c.closeSVG(nil)
}

func barClass(v float64) int {
	if v < 0 {
		return 1
	}
	return 0
}

// Steps draws histograms: the shares of bins of equal width, each series as a filled outline.
func Steps(title, description string, x Axis, names []string, shares [][]float64) template.HTML {
	y := Axis{Label: "share"}
	for _, s := range shares {
		for _, v := range s {
			y.To = max(y.To, v)
		}
	}
	c := newCanvas(title, description, x, y)
	legend := make([]Series, len(names))
	for n, s := range shares {
		legend[n] = Series{Name: names[n], Colour: n}
		var d strings.Builder
		_, _ = fmt.Fprintf(&d, "M%.1f %.1f", c.px(x.From), c.py(0))
		for i, v := range s {
			_, _ = fmt.Fprintf(&d, "V%.1fH%.1f", c.py(v), c.px(x.From+(x.To-x.From)*float64(i+1)/float64(len(s))))
		}
		_, _ = fmt.Fprintf(&d, "V%.1fZ", c.py(0))
		c.printf(`<path class="f%d s%d area" d="%s"/>`, n, n, d.String())
	}
	return c.closeSVG(legend)
}

// Cells draws an n by m table of shares as squares whose opacity is the share.
func Cells(title, description, rows, cols string, n, m int, shares []float64) template.HTML {
	c := &canvas{}
	c.openSVG(title, description)
	most := 0.0
	for _, v := range shares {
		most = max(most, v)
	}
	w, h := (width-left-right)/float64(m), (height-top-bottom)/float64(n)
	for i, v := range shares {
		x, y := left+float64(i%m)*w, top+float64(i/m)*h
		c.printf(`<rect class="f0 cell" x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill-opacity="%.3f"><title>%d, %d: %.4f</title></rect>`,
			x, y, w-1, h-1, v/max(most, 1e-12), i/m, i%m, v)
		if n*m <= 32 {
			c.printf(`<text class="in" x="%.1f" y="%.1f" text-anchor="middle">%.2f</text>`, x+w/2, y+h/2+4, v)
		}
	}
	c.printf(`<text x="%.1f" y="%.1f" text-anchor="middle">%s</text>`, (left+width-right)/2, height-12, template.HTMLEscapeString(cols))
	c.printf(`<text transform="translate(16 %.1f) rotate(-90)" text-anchor="middle">%s</text>`, (top+height-bottom)/2, template.HTMLEscapeString(rows))
	return c.closeSVG(nil)
}

// canvas is an SVG under construction.
type canvas struct {
	b    strings.Builder
	x, y Axis
}

func newCanvas(title, description string, x, y Axis) *canvas {
	if !(x.To > x.From) {
		x.To = x.From + 1
	}
	if !(y.To > y.From) {
		y.To = y.From + 1
	}
	c := &canvas{x: x, y: y}
	c.openSVG(title, description)
	c.drawAxes()
	return c
}

func (c *canvas) openSVG(title, description string) {
	c.printf(`<svg viewBox="0 0 %g %g" role="img"><title>%s</title><desc>%s</desc>`,
		width, height, template.HTMLEscapeString(title), template.HTMLEscapeString(description))
}

func (c *canvas) printf(format string, args ...any) { _, _ = fmt.Fprintf(&c.b, format, args...) }

func (a Axis) position(v float64) float64 {
	if a.Log {
		return (math.Log(v) - math.Log(a.From)) / (math.Log(a.To) - math.Log(a.From))
	}
	return (v - a.From) / (a.To - a.From)
}

func (c *canvas) px(v float64) float64 { return left + c.x.position(v)*(width-left-right) }
func (c *canvas) py(v float64) float64 { return height - bottom - c.y.position(v)*(height-top-bottom) }

func (c *canvas) drawAxes() {
	for _, v := range c.x.tickValues() {
		c.printf(`<path class="grid" d="M%.1f %.1fV%.1f"/><text x="%.1f" y="%.1f" text-anchor="middle">%s</text>`,
			c.px(v), top, height-bottom, c.px(v), height-bottom+15, formatTick(v))
	}
	if c.y.Label != "" {
		for _, v := range c.y.tickValues() {
			c.printf(`<path class="grid" d="M%.1f %.1fH%.1f"/><text x="%.1f" y="%.1f" text-anchor="end">%s</text>`,
				left, c.py(v), width-right, left-5, c.py(v)+4, formatTick(v))
		}
		c.printf(`<text transform="translate(12 %.1f) rotate(-90)" text-anchor="middle">%s</text>`, (top+height-bottom)/2, template.HTMLEscapeString(c.y.Label))
	}
	c.printf(`<path class="axis" d="M%.1f %.1fH%.1f"/>`, left, height-bottom, width-right)
	c.printf(`<text x="%.1f" y="%.1f" text-anchor="middle">%s</text>`, (left+width-right)/2, height-10, template.HTMLEscapeString(c.x.Label))
}

// tickValues returns about five round numbers, or for a logarithmic axis powers of ten with
// 2 and 5 between.
func (a Axis) tickValues() []float64 {
	var found []float64
	if a.Log {
		factors := []float64{1, 2, 5}
		if a.To/a.From > 1e3 {
			factors = factors[:1]
		}
		for p := math.Floor(math.Log10(a.From)); p <= math.Log10(a.To); p++ {
			for _, f := range factors {
				if v := f * math.Pow(10, p); v >= a.From*0.999 && v <= a.To*1.001 {
					found = append(found, v)
				}
			}
		}
		return found
	}
	step := math.Pow(10, math.Floor(math.Log10((a.To-a.From)/4)))
	for _, f := range []float64{1, 2, 5, 10} {
		if (a.To-a.From)/(f*step) <= 6 {
			step *= f
			break
		}
	}
	for n := math.Ceil(a.From/step - 1e-9); n*step <= a.To+1e-9*step; n++ {
		found = append(found, n*step)
	}
	return found
}

func formatTick(v float64) string {
	if math.Abs(v) < 1e-12 {
		return "0"
	}
	return fmt.Sprintf("%.4g", v)
}

func (c *canvas) drawLine(n int, s Series) {
	var d strings.Builder
	for i, p := range s.Points {
		command := "L"
		if i == 0 {
			command = "M"
		}
		_, _ = fmt.Fprintf(&d, "%s%.1f %.1f", command, c.px(p.X), c.py(p.Y))
		if p.High > p.Low {
			c.printf(`<path class="s%d" d="M%.1f %.1fV%.1f"/>`, n, c.px(p.X), c.py(p.Low), c.py(p.High))
		}
	}
	dash := ""
	if s.Dashed {
		dash = ` stroke-dasharray="5 4"`
	}
	c.printf(`<path class="s%d" d="%s"%s/>`, n, d.String(), dash)
	if s.Dashed || len(s.Points) > 60 {
		return
	}
	for _, p := range s.Points {
		c.printf(`<circle class="f%d" cx="%.1f" cy="%.1f" r="3"><title>%s: %.6g, %.4f</title></circle>`,
			n, c.px(p.X), c.py(p.Y), template.HTMLEscapeString(s.Name), p.X, p.Y)
	}
}

// closeSVG closes the SVG and adds a legend in HTML, which wraps on a narrow screen.
func (c *canvas) closeSVG(lines []Series) template.HTML {
	c.printf("</svg>")
	if len(lines) > 0 {
		c.printf(`<p class="legend">`)
		for _, s := range lines {
			mark := ""
			if s.Dashed {
				mark = " dashed"
			}
			c.printf(`<span><i class="b%d%s"></i>%s</span> `, s.Colour%6, mark, template.HTMLEscapeString(s.Name))
		}
		c.printf("</p>")
	}
	return template.HTML(c.b.String()) //nolint:gosec // every text in it is escaped above
}
