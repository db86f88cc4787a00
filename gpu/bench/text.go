package bench

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/likenessdb/likeness/gpu/kernels"
)

// Text writes the report for people.
func (r *Report) Text(w io.Writer) error {
	f, d, l := &r.Device, &r.Details, &r.Limits
	_, _ = fmt.Fprintf(w, "%s, capability %s, %d multiprocessors, driver %s %s, %d MiB\n", f.Name, f.Capability, f.Processors, f.Driver, d.Release, f.Memory>>20)
	_, _ = fmt.Fprintf(w, "clocks at most %.0f MHz, memory %.0f MHz × %d bits: %.0f GB/s\n\n", d.ClockMHz, d.MemoryClockMHz, d.BusBits, d.GBs())
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "limit\tmeasured\ta clock and multiprocessor")
	for _, row := range l.rows() {
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\n", row[0], row[1], row[2])
	}
	_, _ = fmt.Fprintln(t, "\t\t")
	if err := t.Flush(); err != nil {
		return err
	}
	r.steps(w)
	r.answers(w)
	r.bars(w)
	if r.Agreement != nil {
		_, _ = fmt.Fprintf(w, "\nagreement with the CPU: %s\n", r.Agreement)
	}
	if r.PyTorch != "" {
		_, _ = fmt.Fprintf(w, "\nPyTorch: %s\n", r.PyTorch)
	}
	return nil
}

// rows returns, for each limit, its name, its value with unit, and the operations per clock
// and multiprocessor.
func (l *Limits) rows() [][3]string {
	clock := func(k kernels.Limit, times float64) string {
		if l.PerClock[k] == 0 {
			return ""
		}
		return fmt.Sprintf("%.1f", times*l.PerClock[k])
	}
	return [][3]string{
		{"memory, read", fmt.Sprintf("%.0f GB/s", l.ReadGBs), ""},
		{"memory, copied (read and written)", fmt.Sprintf("%.0f GB/s", l.CopyGBs), ""},
		{"tensor cores, mma.sync of float16 with float32 sums", fmt.Sprintf("%.1f TFLOP/s", l.TensorTFLOPS), clock(kernels.LimitTensor, 1)},
		{"float32, multiply-adds", fmt.Sprintf("%.2f TFLOP/s", l.FMATFLOPS), clock(kernels.LimitFMA, 2)},
		{"exponential, approximate", fmt.Sprintf("%.0f G/s", l.Exp2), clock(kernels.LimitExp2, 1)},
		{"reciprocal, approximate", fmt.Sprintf("%.0f G/s", l.Reciprocal), clock(kernels.LimitReciprocal, 1)},
		{"tanh, approximate", fmt.Sprintf("%.0f G/s", l.Tanh), clock(kernels.LimitTanh, 1)},
		{"instructions of a warp", fmt.Sprintf("%.0f G/s", l.Issue), clock(kernels.LimitFMA, 1./32)},
		{"clock meanwhile", fmt.Sprintf("%.0f MHz", l.ClockMHz), ""},
	}
}

func (r *Report) steps(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "on the device\tstep\tsend ms\tscore\trank\tfetch\tbytes\ttensor\tfp32\tspecial\tissue\tbinds")
	for i := range r.Cases {
		c := &r.Cases[i]
		for _, s := range c.Steps {
			h := &s.Shares
			_, _ = fmt.Fprintf(t, "%s\t%s\t%.3f\t%.3f\t%.3f\t%.3f\t%s\t%s\t%s\t%s\t%s\t%s\n", c.Name, s.Way, s.Send, s.Score, s.Rank, s.Fetch,
				percent(h.Bytes), percent(h.Tensor), percent(h.FP32), percent(h.Special), percent(h.Issue), h.Binds)
		}
	}
	_ = t.Flush()
}

func percent(share float64) string {
	if share == 0 {
		return ""
	}
	return fmt.Sprintf("%.0f %%", 100*share)
}

func (r *Report) answers(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "\nmilliseconds, least / half / p99\tdevice\tcertified answers\tthrough the plugin\tPyTorch eager\tcompiled")
	for i := range r.Cases {
		c := &r.Cases[i]
		plugin := ""
		if c.Plugin != nil {
			plugin = three(c.Plugin.Batch.Min, c.Plugin.Batch.P50, c.Plugin.Batch.P99)
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", c.Name, three(c.Device.Min, c.Device.P50, c.Device.P99),
			three(c.Answer.Batch.Min, c.Answer.Batch.P50, c.Answer.Batch.P99), plugin, c.pytorch(false), c.pytorch(true))
	}
	_ = t.Flush()
}

func three(a, b, c float64) string { return fmt.Sprintf("%.3f / %.3f / %.3f", a, b, c) }

// pytorch formats the times of PyTorch for a case, with their ratios to the device's time.
func (r *Result) pytorch(compiled bool) (text string) {
	for i := range r.PyTorch {
		p := &r.PyTorch[i]
		if p.Compiled != compiled {
			continue
		}
		if text != "" {
			text += ", "
		}
		if p.Times.P50 == 0 {
			text += p.Type + " failed"
			continue
		}
		text += fmt.Sprintf("%s %.3f (%.1f×)", p.Type, p.Times.P50, p.Times.P50/max(r.Device.P50, 1e-9))
	}
	return text
}

func (r *Report) bars(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "\ncase\twanted\t\tmeasured\t\t")
	none := true
	for i := range r.Cases {
		for _, b := range r.Cases[i].Bars {
			none = false
			have, state, want := b.format()
			_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", r.Cases[i].Name, b.What, want, have, state, b.Why)
		}
	}
	if !none {
		_ = t.Flush()
	}
}

// Summary returns each target with its outcome, one a line, then what the device is and how
// its answers agree with the CPU's.
func (r *Report) Summary() string {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for i := range r.Cases {
		for _, bar := range r.Cases[i].Bars {
			have, state, want := bar.format()
			_, _ = fmt.Fprintf(t, "%s\t%s, %s\t%s\t%s\t%s\n", strings.ToUpper(state), r.Cases[i].Name, bar.What, want, have, bar.Why)
		}
	}
	_ = t.Flush()
	if b.Len() == 0 {
		b.WriteString("No case has its full table, so there are no bars.\n")
	}
	f := &r.Device
	fmt.Fprintf(&b, "\n%s, capability %s, %d multiprocessors, driver %s %s, %d MiB\n", f.Name, f.Capability, f.Processors, f.Driver, r.Details.Release, f.Memory>>20)
	if r.Agreement != nil {
		fmt.Fprintf(&b, "agreement with the CPU: %s\n", r.Agreement)
	}
	fmt.Fprintf(&b, "PyTorch: %s\n", orNone(r.PyTorch))
	return b.String()
}

// format formats a target: the measured value, whether it is met, and the wanted value.
func (b *Bar) format() (have, state, want string) {
	want, have = fmt.Sprintf("at most %g ms", b.Want), fmt.Sprintf("%.3f ms", b.Have)
	if b.Unit == "x" {
		want, have = fmt.Sprintf("at least %g×", b.Want), fmt.Sprintf("%.2f×", b.Have)
	}
	switch {
	case !b.Measured:
		return "", "not measured", want
	case b.Met:
		return have, "met", want
	default:
		return have, "missed", want
	}
}
