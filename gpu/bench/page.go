package bench

import (
	"fmt"
	"html"
	"strings"
)

// wantedQueries is how many compared queries a claim of agreement needs.
const wantedQueries = 10_000

// Page formats the report as Markdown. Without a device it names the cases that are to be
// measured.
func (r *Report) Page() string {
	var b strings.Builder
	if r.Device.Name == "" {
		names := make([]string, len(r.Cases))
		for i := range r.Cases {
			names[i] = r.Cases[i].Name
		}
		return fmt.Sprintf("Nothing was measured on a device, and nothing is claimed. To be measured: %s; the device's limits, its agreement with the CPU, and "+
			"uploads beside searches. `gpu/bench/bars.go` has what is wanted of each.\n", strings.Join(names, ", "))
	}
	f, d := &r.Device, &r.Details
	fmt.Fprintf(&b, "## Measured\n\n%s, compute capability %s, %d multiprocessors, %d GiB; driver %s, CUDA %s; %s. Made by `%s` in %.0f s; the figures are in [gpu.json](gpu.json).\n",
		f.Name, f.Capability, f.Processors, f.Memory>>30, d.Release, f.Driver, r.Date, r.Command, r.Seconds)
	fmt.Fprintf(&b, "PyTorch: %s.\n\n![Times of each case](gpu.svg)\n\n", strings.TrimSuffix(orNone(r.PyTorch), "."))
	b.WriteString("| limit | measured | a clock and multiprocessor |\n|---|---|---|\n")
	for _, row := range r.Limits.rows() {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", row[0], row[1], row[2])
	}
	b.WriteString("\n| bar | wanted | measured | |\n|---|---|---|---|\n")
	for i := range r.Cases {
		for _, bar := range r.Cases[i].Bars {
			if have, state, want := bar.format(); bar.Measured {
				fmt.Fprintf(&b, "| %s, %s | %s | %s | %s |\n", r.Cases[i].Name, bar.What, want, have, strings.TrimSuffix(state+": "+bar.Why, ": "))
			}
		}
	}
	if a := r.Agreement; a != nil {
		fmt.Fprintf(&b, "\nAgreement with the CPU: %s.\n", a)
	}
	r.tables(&b)
	if missing := r.missing(); missing != "" {
		b.WriteString("\n### Not yet measured\n\n| case | what | bars |\n|---|---|---|\n" + missing)
	}
	return b.String()
}

func orNone(s string) string {
	if s == "" {
		return "not measured"
	}
	return s
}

// missing returns table rows for the targets without a measurement, and for figures that
// this program does not measure.
func (r *Report) missing() string {
	var b strings.Builder
	for i := range r.Cases {
		c := &r.Cases[i]
		var bars []string
		for _, bar := range c.Bars {
			if _, _, want := bar.format(); !bar.Measured {
				bars = append(bars, bar.What+": "+want)
			}
		}
		if len(bars) > 0 {
			fmt.Fprintf(&b, "| %s | %s | %s |\n", c.Name, c.Case.String(), strings.Join(bars, "; "))
		}
	}
	if r.Agreement == nil || r.Agreement.Queries < wantedQueries {
		b.WriteString("| agreement | the top 10 of 10,000 queries equal to float32 on the CPU, scores within 1e-4 | 99.9 %, all |\n")
	}
	b.WriteString("| changes | upload of a table, patches, and answers while both go on | |\n")
	return b.String()
}

func (r *Report) tables(b *strings.Builder) {
	b.WriteString("\nMilliseconds on the device, half of the runs at most, and the share of each limit that scoring reaches:\n\n")
	b.WriteString("| case | step | send | score | rank | fetch | bytes | tensor cores | float32 | special functions | issue |\n|---|---|---|---|---|---|---|---|---|---|---|\n")
	for i := range r.Cases {
		for _, s := range r.Cases[i].Steps {
			h := &s.Shares
			fmt.Fprintf(b, "| %s | %s | %.3f | %.3f | %.3f | %.3f | %s | %s | %s | %s | %s |\n", r.Cases[i].Name, s.Way, s.Send, s.Score, s.Rank, s.Fetch,
				percent(h.Bytes), percent(h.Tensor), percent(h.FP32), percent(h.Special), percent(h.Issue))
		}
	}
	b.WriteString("\nMilliseconds for all queries of a case, least / half / p99; PyTorch by half of the runs, and as a multiple of the device:\n\n")
	b.WriteString("| case | | device | certified answers | through the plugin | PyTorch, eager | PyTorch, compiled |\n|---|---|---|---|---|---|---|\n")
	for i := range r.Cases {
		c := &r.Cases[i]
		plugin := ""
		if c.Plugin != nil {
			plugin = three(c.Plugin.Batch.Min, c.Plugin.Batch.P50, c.Plugin.Batch.P99)
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s | %s |\n", c.Name, c.Case.String(), three(c.Device.Min, c.Device.P50, c.Device.P99),
			three(c.Answer.Batch.Min, c.Answer.Batch.P50, c.Answer.Batch.P99), plugin, c.pytorch(false), c.pytorch(true))
	}
}

// bar is one bar of the plot.
type bar struct {
	name, colour string
	ms           float64
}

// Plot returns an SVG with a group of bars for each case. Times are multiples of the
// device's time.
func (r *Report) Plot() string {
	const left, width, high, gap, top, most = 190.0, 860.0, 12.0, 14.0, 40.0, 20.0
	var b strings.Builder
	y, scale := top, (width-left-120)/most
	for i := range r.Cases {
		c := &r.Cases[i]
		all := c.plotted()
		fmt.Fprintf(&b, `<text x="%g" y="%g" text-anchor="end">%s</text>`, left-8, y+float64(len(all))*high/2+4, html.EscapeString(c.Name))
		for _, bar := range all {
			times := bar.ms / max(c.Device.P50, 1e-9)
			w := min(times, most) * scale
			fmt.Fprintf(&b, `<rect x="%g" y="%g" width="%.1f" height="%g" fill="%s"><title>%s</title></rect>`, left, y, w, high-1, bar.colour, html.EscapeString(bar.name))
			fmt.Fprintf(&b, `<text x="%.1f" y="%g" font-size="9">%.3f ms</text>`, left+w+3, y+high-3, bar.ms)
			y += high
		}
		y += gap
	}
	x := left
	var legend strings.Builder
	for _, k := range colours {
		fmt.Fprintf(&legend, `<rect x="%g" y="12" width="10" height="10" fill="%s"/><text x="%g" y="21">%s</text>`, x, k.colour, x+14, k.name)
		x += 28 + 6.5*float64(len(k.name))
	}
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" font-family="sans-serif" font-size="12" fill="#222"><rect width="%g" height="%g" fill="#fff"/>%s%s<text x="%g" y="%g">%s: time, as a multiple of the device's; shorter is better</text></svg>`+"\n",
		width, y+24, width, y+24, legend.String(), b.String(), left, y+12, html.EscapeString(r.Device.Name))
}

// colours are the plot's colours, the same as in bench/plots.py.
var colours = []struct{ name, colour string }{
	{"device", "#2b4c9b"}, {"certified answers", "#6f86c4"}, {"plugin", "#a9b7dd"}, {"PyTorch eager", "#e08e5b"}, {"PyTorch compiled", "#b5563c"},
}

func (r *Result) plotted() (all []bar) {
	add := func(colour int, name string, ms float64) {
		if ms > 0 {
			all = append(all, bar{name, colours[colour].colour, ms})
		}
	}
	add(0, "on the device", r.Device.P50)
	add(1, "certified answers", r.Answer.Batch.P50)
	if r.Plugin != nil {
		add(2, "through the plugin", r.Plugin.Batch.P50)
	}
	for i := range r.PyTorch {
		p := &r.PyTorch[i]
		if p.Compiled {
			add(4, "PyTorch, compiled, "+p.Type, p.Times.P50)
		} else {
			add(3, "PyTorch, eager, "+p.Type, p.Times.P50)
		}
	}
	return all
}

// Unmeasured returns a report of all cases without a device.
func Unmeasured(o Options) *Report {
	r := &Report{}
	for _, c := range o.Cases {
		r.Cases = append(r.Cases, Result{Case: c})
		r.Cases[len(r.Cases)-1].judge()
	}
	return r
}
