package bench_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/likenessdb/likeness/gpu"
	"github.com/likenessdb/likeness/gpu/agreement"
	"github.com/likenessdb/likeness/gpu/bench"
	"github.com/likenessdb/likeness/gpu/hosted"
	"github.com/likenessdb/likeness/gpu/kernels"
	"github.com/likenessdb/likeness/gpu/workload"
	"github.com/likenessdb/likeness/plugin/device"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// machine scores in plain Go and reports made-up times: a millisecond for every phase, and a microsecond
// a round for every measured kernel.
type machine struct{ *hosted.Machine }

func (machine) Details() gpu.Details {
	return gpu.Details{ClockMHz: 1000, MemoryClockMHz: 1000, BusBits: 4096, Release: "1.2"}
}

func (machine) Phases() [4]time.Duration {
	return [4]time.Duration{time.Millisecond, time.Millisecond, time.Millisecond, time.Millisecond}
}

func (machine) Limits(int64) (bench.Limiter, error) { return limiter{}, nil }

type limiter struct{}

func (limiter) Limit(l kernels.Limit, amount int64) (time.Duration, uint64, error) {
	if l == kernels.LimitRead {
		return time.Duration(amount) * time.Nanosecond, 0, nil // 1 GB/s
	}
	return time.Duration(amount) * time.Microsecond, uint64(amount) * 1000, nil
}

func (limiter) Copy() (time.Duration, error) { return time.Millisecond, nil }
func (limiter) Free() error                  { return nil }

func options(t *testing.T, names ...string) bench.Options {
	t.Helper()
	cases, err := workload.Named(names)
	if err != nil {
		t.Fatal(err)
	}
	plain := func() *hosted.Machine { return &hosted.Machine{Memory: 1 << 28} }
	return bench.Options{
		Cases: cases, Seed: 7, Quick: true, Effort: workload.Effort{Runs: 2}, Rows: 150, Told: func(string) {},
		Open: func() (bench.Machine, error) { return machine{plain()}, nil },
		Device: func() (*gpu.Device, error) {
			return gpu.New(func() (gpu.Machine, error) { return plain(), nil }, gpu.Options{})
		},
		Plugin: func(_ context.Context, d *gpu.Device) (device.Device, func(), error) { return d, func() {}, nil },
	}
}

// TestRun: every case is measured, its answers equal the CPU's, and the report shows every case.
func TestRun(t *testing.T) {
	r, err := bench.Run(t.Context(), options(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range r.Cases {
		if len(c.Steps) != 2 || c.Device.P50 != 8 || c.Answer.Batch.Runs < 1 || c.Plugin.Call.P50 <= 0 || len(c.Bars) != 0 {
			t.Errorf("%+v", c)
		}
	}
	if l := r.Limits; l.ReadGBs != 1 || l.ClockMHz != 1000 || l.TensorTFLOPS <= 0 {
		t.Errorf("%+v", l)
	}
	var text strings.Builder
	if err := r.Text(&text); err != nil || !strings.Contains(text.String(), "plain Go") || !strings.Contains(text.String(), "bilinear-768-one") {
		t.Errorf("%v:\n%s", err, &text)
	}
	if s := r.Summary(); !strings.HasPrefix(s, "No case has its full table") || !strings.Contains(s, "plain Go") {
		t.Errorf("the summary is %q", s)
	}
	for _, part := range []string{"## Measured", "| rbe-512 | exact |", "### Not yet measured"} {
		if !strings.Contains(r.Page(), part) {
			t.Errorf("the page lacks %q:\n%s", part, r.Page())
		}
	}
	if plot := r.Plot(); !strings.HasPrefix(plot, "<svg") || strings.Contains(plot, "NaN") {
		t.Error(plot)
	}
	raw, err := json.Marshal(r)
	if err != nil || !strings.Contains(string(raw), `"shape":"8×8×32"`) {
		t.Errorf("%v: %s", err, raw)
	}
}

// TestParts: a report can be measured in parts. Each part is saved when it ends, and keeps the figures of
// the others.
func TestParts(t *testing.T) {
	var saved []byte
	run := func(names []string, parts ...bench.Part) *bench.Report {
		t.Helper()
		o := options(t, names...)
		o.Parts, o.Agreement = parts, agreement.Options{Queries: 6, Batch: 4, Seed: 1}
		o.Saved = func(r *bench.Report) (err error) {
			saved, err = json.Marshal(r)
			return err
		}
		if saved != nil {
			before, err := bench.Read(saved)
			if err != nil {
				t.Fatal(err)
			}
			o.Before = before
		}
		if _, err := bench.Run(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		r, err := bench.Read(saved)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := run([]string{"maxsim-256"}, bench.PartLimits); r.Limits.ReadGBs != 1 || len(r.Cases[0].Steps) > 0 || r.Agreement != nil {
		t.Errorf("limits: %+v", r)
	}
	if r := run([]string{"maxsim-256"}, bench.PartKernels); r.Limits.ReadGBs != 1 || len(r.Cases[0].Steps) != 2 || r.Cases[0].Plugin != nil {
		t.Errorf("kernels: %+v", r)
	}
	if r := run([]string{"scan-8x8x32", "maxsim-256"}, bench.PartAnswers); len(r.Cases) != 2 || r.Cases[0].Name != "scan-8x8x32" || r.Cases[0].Plugin == nil || len(r.Cases[1].Steps) != 2 {
		t.Errorf("answers: %+v", r)
	}
	r := run([]string{"maxsim-256"}, bench.PartAgreement)
	if a := r.Agreement; a == nil || a.Queries != 6 || a.SameRows != 6 || r.Cases[0].Plugin == nil || !strings.Contains(r.Page(), "6 of 6 queries") {
		t.Errorf("agreement: %+v", r)
	}
	o := options(t, "maxsim-256")
	o.Before, o.Rows = r, 100
	if _, err := bench.Run(t.Context(), o); err == nil {
		t.Error("figures of tables of two sizes are one report")
	}
}

// TestShares: a kernel that takes exactly as long as a limit of the machine allows has a share of 1, and
// that limit is named as the one that binds.
func TestShares(t *testing.T) {
	l := bench.Limits{ReadGBs: 1000, TensorTFLOPS: 1000, FMATFLOPS: 50, Exp2: 4000, Reciprocal: 4000, Tanh: 4000, Issue: 2000}
	c := kernels.Shape{PairsQuery: 8, PairsItem: 8, Dim: 32, Hidden: 128}.TensorCost(true)
	const rows, queries = 1e6, 32
	s := l.Share(c, rows*queries, rows, 264*rows*queries/4000e6)
	if s.Binds != "special functions" || s.Special < 0.999 || s.Special > 1.001 {
		t.Errorf("%+v", s)
	}
	if s = l.Share(kernels.ScreenCost(768, 8), 8*rows, rows, (768*2+8*4)*rows/1000e6); s.Binds != "bytes" || s.Bytes < 0.999 || s.Bytes > 1.001 || s.Tensor <= 0 || s.FP32 != 0 {
		t.Errorf("%+v", s)
	}
	if s = l.Share(kernels.DotCost(768), rows, rows, (768*4+4)*rows/1000e6); s.Binds != "bytes" || s.Bytes < 0.999 || s.Bytes > 1.001 || s.Special != 0 {
		t.Errorf("%+v", s)
	}
}

// TestPyTorch: the program makes the same tables and finds the same rows as likeness, eager
// and compiled, on the CPU of a machine that has PyTorch (LIKENESS_PYTHON, or python3).
func TestPyTorch(t *testing.T) {
	python := os.Getenv("LIKENESS_PYTHON")
	if python == "" {
		python = "python3"
	}
	if err := exec.CommandContext(t.Context(), python, "-c", "import torch").Run(); err != nil {
		t.Skipf("%s has no PyTorch: %v", python, err)
	}
	for name, c := range map[string]struct {
		cases []string
		mode  string
		rows  int
	}{
		"eager":    {[]string{"rescore-8x4x64", "scan-8x8x32", "maxsim-256"}, "no", 2},
		"compiled": {[]string{"maxsim-256", "scan-8x8x32"}, "default", 4},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t, c.cases...)
			o.PyTorch = &bench.PyTorch{
				Python: python, Script: "../../bench/gpu/baseline.py",
				Arguments: []string{"--device", "cpu", "--seconds", "0.01", "--compile", c.mode},
			}
			r, err := bench.Run(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			for i := range r.Cases {
				one := &r.Cases[i]
				for _, p := range one.PyTorch {
					t.Logf("%s: %+v", one.Name, p)
					if p.Error != "" || p.Type == "float32" && (p.Agrees < 0.999 || p.Times.P50 <= 0) || p.Compiled && p.Graphs != 1 {
						t.Errorf("%s: %+v", one.Name, p)
					}
				}
				if len(one.PyTorch) != c.rows {
					t.Errorf("%s: %d rows of PyTorch (%s)", one.Name, len(one.PyTorch), r.PyTorch)
				}
			}
		})
	}
}

// TestNoPyTorch: the report says that PyTorch is missing, and there is no error.
func TestNoPyTorch(t *testing.T) {
	o := options(t, "maxsim-256")
	o.PyTorch = &bench.PyTorch{Python: "false", Script: "nothing"}
	r, err := bench.Run(t.Context(), o)
	if err != nil || !strings.HasPrefix(r.PyTorch, "not measured") {
		t.Errorf("%q, %v", r.PyTorch, err)
	}
}
