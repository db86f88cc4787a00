// Package bench measures a GPU: the limits of the device, how long its kernels take for the
// cases of package workload and what share of those limits they reach, how long certified
// answers take in the same process and through the plugin, and the same cases in PyTorch.
// It does not depend on a driver.
package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/likenessdb/likeness/gpu"
	"github.com/likenessdb/likeness/gpu/agreement"
	"github.com/likenessdb/likeness/gpu/bound"
	"github.com/likenessdb/likeness/gpu/kernels"
	"github.com/likenessdb/likeness/gpu/workload"
	"github.com/likenessdb/likeness/plugin/device"
	"github.com/likenessdb/likeness/rerank"
)

// Machine is a gpu.Machine that can be measured. All methods must be called from the
// goroutine that opened it.
type Machine interface {
	gpu.Machine
	Details() gpu.Details
	// Limits prepares a measurement of the device's limits on the given amount of memory.
	Limits(bytes int64) (Limiter, error)
	// Phases returns how long the device spent on each phase of the last Run: receiving the
	// queries, scoring, ranking, and returning the answers.
	Phases() [4]time.Duration
}

// Options says what to measure.
type Options struct {
	Cases []workload.Case
	Seed  uint32
	// Effort applies to each measurement. Quick shortens the measurement of the limits.
	Effort workload.Effort
	Quick  bool
	// Rows limits the number of rows of every table. 0 means no limit. A case that becomes
	// smaller has no targets.
	Rows int
	// Open opens the machine. It is called on the goroutine that uses the machine, and
	// again after the machine was closed.
	Open func() (Machine, error)
	// Device opens the same device for certified answers. This package closes it.
	Device func() (*gpu.Device, error)
	// Plugin serves a device and returns a client of it in the role of another process. If
	// nil, the plugin is not measured.
	Plugin func(ctx context.Context, d *gpu.Device) (seen device.Device, stop func(), err error)
	// PyTorch runs the same cases in PyTorch. If nil, there is no comparison.
	PyTorch *PyTorch
	// Agreement says how many queries of AgreementCase are also answered by the CPU.
	Agreement agreement.Options
	// Parts lists the parts to measure; they run in a fixed order. nil means all that are
	// available.
	Parts []Part
	// Before is an earlier report. Its figures are kept for whatever is not measured now.
	// It may be nil.
	Before *Report
	// Told is called with progress messages for people.
	Told func(what string)
	// Saved, if not nil, is called with the report whenever a measurement is added to it.
	Saved func(*Report) error
}

// Report contains all measurements.
type Report struct {
	Version string      `json:"version"`
	Date    string      `json:"date"`
	Command string      `json:"command"`
	Device  gpu.Facts   `json:"device"`
	Details gpu.Details `json:"details"`
	Limits  Limits      `json:"limits"`
	PyTorch string      `json:"pytorch,omitempty"` // version of PyTorch, or why it was not measured
	Cases   []Result    `json:"cases"`
	// Agreement compares the device with the CPU; nil if not compared.
	Agreement *agreement.Result `json:"agreement,omitempty"`
	Seconds   float64           `json:"seconds"`
}

// Result contains the measurements of a case.
type Result struct {
	workload.Case
	Shape string `json:"shape,omitempty"`
	// Steps are the device's steps for an answer whose bound closes at once: bounded and
	// exact, or only exact.
	Steps []Step `json:"steps"`
	// Device is the time of all steps together, including the copies of queries and
	// answers.
	Device workload.Times `json:"device"`
	// Answer times certified answers to all queries at once in the same process; Plugin
	// times them through gRPC.
	Answer workload.Answered  `json:"answer"`
	Plugin *workload.Answered `json:"plugin,omitempty"`
	// PyTorch has one row for each way of running PyTorch.
	PyTorch []Row `json:"pytorch,omitempty"`
	Bars    []Bar `json:"bars,omitempty"`

	fromBefore bool // copied from the earlier report, not measured again
}

// Step contains the times of one launch for all queries of a case.
type Step struct {
	Way string `json:"way"`
	// Median milliseconds on the device.
	Send  float64 `json:"send_ms"`
	Score float64 `json:"score_ms"`
	Rank  float64 `json:"rank_ms"`
	Fetch float64 `json:"fetch_ms"`
	// Shares says what share of each limit the scoring reaches.
	Shares Shares `json:"shares"`
}

// Run measures. On an error it returns what was measured so far as well.
func Run(ctx context.Context, o Options) (*Report, error) {
	began := time.Now()
	r, err := o.newReport()
	if err != nil {
		return r, err
	}
	before, known := r.Seconds, r.Device.Name != ""
	for _, p := range []struct {
		part    Part
		measure func(context.Context, *Report) error
	}{{PartKernels, o.onMachine}, {PartAnswers, o.answers}, {PartAgreement, o.measureAgreement}, {PartPyTorch, o.pytorch}} {
		wanted := o.has(p.part)
		if p.part == PartKernels { // the limits and the device's description come with this part
			wanted = wanted || o.has(PartLimits) || !known
		}
		if err == nil && wanted {
			err = p.measure(ctx, r)
		}
	}
	r.judge()
	r.Seconds = before + time.Since(began).Seconds()
	return r, err
}

// onMachine measures limits and kernels on a thread of its own.
func (o *Options) onMachine(ctx context.Context, r *Report) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		done <- func() error {
			m, err := o.Open()
			if err != nil {
				return err
			}
			return errors.Join(o.machine(ctx, m, r), m.Close())
		}()
	}()
	return <-done
}

func (o *Options) machine(ctx context.Context, m Machine, r *Report) (err error) {
	if r.Device, err = m.Facts(); err != nil {
		return err
	}
	r.Details = m.Details()
	if o.has(PartLimits) {
		if err := errors.Join(o.limits(ctx, m, r), o.save(r)); err != nil {
			return err
		}
	}
	if !o.has(PartKernels) {
		return nil
	}
	return o.eachCase(r, "on the device", func(c *Result) error {
		w, err := workload.Make(c.Case, o.Seed)
		if err == nil {
			err = o.kernels(ctx, m, c, w, &r.Limits)
		}
		if err != nil {
			return fmt.Errorf("case %s: %w", c.Name, err)
		}
		return nil
	})
}

// limits measures the device's limits, on memory much larger than its cache.
func (o *Options) limits(ctx context.Context, m Machine, r *Report) (err error) {
	bytes := min(2<<30, r.Device.Free/4)
	if o.Rows > 0 { // a stand-in for a device
		bytes = min(bytes, 1<<20)
	}
	bytes = bytes / 1024 * 1024
	o.Told("what the device can do at most")
	l, err := m.Limits(bytes)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Free()) }()
	r.Limits, err = measureLimits(ctx, l, r.Device.Processors, bytes, o.Quick)
	return err
}

// kernels measures the steps of a case.
func (o *Options) kernels(ctx context.Context, m Machine, c *Result, w *workload.Work, l *Limits) (err error) {
	n := gpu.NetworkOf(w.Model)
	if n.MoL != nil {
		c.Shape = fmt.Sprintf("%d×%d×%d", n.MoL.PairsQuery, n.MoL.PairsItem, n.MoL.Dim)
	}
	loaded, err := m.LoadModel(n)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, loaded.Free()) }()
	t, err := m.NewTable(loaded, w.Rows.Rows)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.Free()) }()
	if err := errors.Join(t.Write(0, w.Rows), t.Resize(w.Rows.Rows, nil)); err != nil {
		return err
	}
	steps, err := newSteps(n, loaded, t, w)
	if err != nil {
		return err
	}
	return steps.measure(ctx, m, c, l, o.Effort)
}

// steps contains the jobs of a case.
type steps struct {
	network *gpu.Network
	work    *workload.Work
	rough   []gpu.Job // jobs of the bounded step; nil if all rows are scored exactly
	kept    int       // how many of the rows that rough keeps are scored exactly (K')
	exact   []gpu.Job
}

func newSteps(n *gpu.Network, loaded gpu.Model, t gpu.Table, w *workload.Work) (*steps, error) {
	s := &steps{network: n, work: w}
	of, loss := bound.New(n.MoL), measureLoss(n, w.Rows)
	for q := range w.Queries {
		enc, err := w.Model.Encode(w.Queries[q])
		if err != nil {
			return nil, err
		}
		o := rerank.EncodedAbilitiesOf(enc).Operate
		if o == nil {
			return nil, fmt.Errorf("%w: the model encodes queries that no device can score", device.ErrRequest)
		}
		j := gpu.Job{Table: t, Query: o.Operands(), Way: gpu.Exact, Keep: w.K + 1}
		if w.Candidates != nil {
			j.Rows = w.Candidates[q]
		}
		s.exact = append(s.exact, j)
		if loaded.Approximates() {
			j.Way = gpu.Approximate
			s.kept, j.Keep = gpu.FirstKeep(w.K, j.Rows != nil)
			if limits, ok := of.Limits(&j.Query, &loss); ok {
				j.Way, j.Limits = gpu.Bounded, limits
			}
			s.rough = append(s.rough, j)
		}
	}
	return s, nil
}

// measureLoss returns the rounding error of some of the rows in float16. It need not be
// accurate, because run times do not depend on it.
func measureLoss(n *gpu.Network, rows rerank.Matrix) rerank.Loss {
	p := bound.Packing(n.MoL, n.Features)
	loss := rerank.NewLoss(p)
	words, back := make([]uint32, p.RowWords()), make([]float32, rows.Cols)
	for r := range min(rows.Rows, 1000) {
		row := rows.Row(r)
		p.Pack(words, row)
		p.Unpack(back, words, 1)
		if n.MoL != nil { // item gates stay float32
			first := n.MoL.PairsItem * n.MoL.Dim
			copy(back[first:], row[first:])
		}
		loss.Add(p, row, back)
	}
	return loss
}

// measure repeatedly runs the steps for all queries at once.
func (s *steps) measure(ctx context.Context, m Machine, c *Result, l *Limits, e workload.Effort) error {
	var total []time.Duration
	var phases [2][4][]time.Duration // for each step and phase
	run := func(step int, jobs []gpu.Job, warm bool) ([]gpu.Survivors, time.Duration, error) {
		found, err := m.Run(jobs)
		all := time.Duration(0)
		for i, p := range m.Phases() {
			all += p
			if !warm {
				phases[step][i] = append(phases[step][i], p)
			}
		}
		return found, all, err
	}
	err := e.Spend(ctx, func(warm bool) error {
		jobs, all := s.exact, time.Duration(0)
		if s.rough != nil {
			found, took, err := run(0, s.rough, warm)
			if err != nil {
				return err
			}
			all, jobs = took, s.exactJobs(found)
		}
		_, took, err := run(1, jobs, warm)
		if !warm {
			total = append(total, all+took)
		}
		return err
	})
	if err != nil {
		return err
	}
	c.Device, c.Steps = workload.TimesOf(total), nil
	if s.rough != nil {
		c.Steps = append(c.Steps, s.newStep("bounded", phases[0], l, 0))
	}
	c.Steps = append(c.Steps, s.newStep("exact", phases[1], l, s.kept))
	return nil
}

// exactJobs returns jobs that score exactly the best of the rows that the rough step kept.
func (s *steps) exactJobs(found []gpu.Survivors) []gpu.Job {
	jobs := make([]gpu.Job, len(found))
	for i, f := range found {
		jobs[i] = s.exact[i]
		n := min(s.kept, len(f.Rows))
		f.BestFirst(n)
		jobs[i].Rows, jobs[i].Keep = f.Rows[:n], min(jobs[i].Keep, n)
	}
	return jobs
}

// newStep summarises the times of a step. kept is how many rows of each query it scored, or 0
// for the rows of the case.
func (s *steps) newStep(way string, phases [4][]time.Duration, l *Limits, kept int) Step {
	var half [4]float64
	for i, took := range phases {
		half[i] = workload.TimesOf(took).P50
	}
	pairs, items := s.work.Pairs(), float64(s.work.Rows.Rows)
	if kept > 0 {
		pairs = float64(kept * s.work.Batch)
	}
	if kept > 0 || s.work.Candidates != nil {
		items = pairs
	}
	return Step{
		Way: way, Send: half[0], Score: half[1], Rank: half[2], Fetch: half[3],
		Shares: l.Share(s.cost(way), pairs, items, half[1]),
	}
}

func (s *steps) cost(way string) kernels.Cost {
	n := s.network
	switch {
	case n.InnerProduct() && way == "exact":
		return kernels.DotCost(n.Features)
	case n.InnerProduct():
		return kernels.ScreenCost(n.Features, len(s.exact))
	}
	shape := kernels.Shape{PairsQuery: n.MoL.PairsQuery, PairsItem: n.MoL.PairsItem, Dim: n.MoL.Dim, Hidden: n.MoL.First.Rows}
	if way == "exact" {
		return shape.ExactCost(n.Features)
	}
	return shape.TensorCost(n.MoL.ItemGates)
}

// answers measures certified answers in this process and through the plugin.
func (o *Options) answers(ctx context.Context, r *Report) error {
	return o.onDevice(func(d *gpu.Device) (err error) {
		var seen device.Device
		if o.Plugin != nil {
			var stop func()
			if seen, stop, err = o.Plugin(ctx, d); err != nil {
				return err
			}
			defer stop()
		}
		return o.eachCase(r, "certified answers", func(c *Result) error { return o.measureAnswers(ctx, d, seen, c) })
	})
}

func (o *Options) onDevice(measure func(d *gpu.Device) error) error {
	d, err := o.Device()
	if err != nil {
		return err
	}
	return errors.Join(measure(d), d.Close())
}

// eachCase calls measure for every case that is to be measured.
func (o *Options) eachCase(r *Report, what string, measure func(c *Result) error) error {
	for i := range r.Cases {
		c := &r.Cases[i]
		if c.fromBefore {
			continue
		}
		o.Told(fmt.Sprintf("case %d of %d, %s: %s", i+1, len(r.Cases), what, c.Name))
		if err := errors.Join(measure(c), o.save(r)); err != nil {
			return err
		}
	}
	return nil
}

// pytorch runs the cases in PyTorch, after computing the expected rows.
func (o *Options) pytorch(ctx context.Context, r *Report) error {
	if !o.has(PartAnswers) {
		err := o.onDevice(func(d *gpu.Device) error {
			return o.eachCase(r, "the rows to find", func(c *Result) error { return o.answerOnce(ctx, d, c) })
		})
		if err != nil {
			return err
		}
	}
	return o.PyTorch.run(ctx, o, r)
}

// answerOnce answers each query of a case once, without timing it.
func (o *Options) answerOnce(ctx context.Context, d *gpu.Device, c *Result) (err error) {
	w, err := workload.Make(c.Case, o.Seed)
	if err == nil {
		err = w.Load(ctx, d)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Unload(ctx, d)) }()
	a, err := w.Measure(ctx, d, workload.Effort{Runs: 1})
	c.Answer.Answers = a.Answers
	return err
}

// measureAnswers measures certified answers to a case.
func (o *Options) measureAnswers(ctx context.Context, d *gpu.Device, seen device.Device, c *Result) (err error) {
	w, err := workload.Make(c.Case, o.Seed)
	if err != nil {
		return err
	}
	if err := w.Load(ctx, d); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Unload(ctx, d)) }()
	if c.Answer, err = w.Measure(ctx, d, o.Effort); err != nil {
		return err
	}
	for q := range min(2, len(w.Queries)) {
		if err := w.Check(q, c.Answer.Answers[q]); err != nil {
			return err
		}
	}
	if seen == nil {
		return nil
	}
	through, err := w.Measure(ctx, seen, o.Effort)
	c.Plugin = &through
	return err
}
