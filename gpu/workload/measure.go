package workload

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/likenessdb/likeness/plugin/device"
	"github.com/likenessdb/likeness/rerank"
)

// versions returns the names of the workload's model and table on a device.
func (w *Work) versions() (of, table device.Version) {
	return device.Version{Name: "workload", Version: w.Model.Version}, device.Version{Name: "workload " + w.Name, Version: "1"}
}

// chunkRows is how many rows are sent to a device at a time.
const chunkRows = 4096

// Load loads the model and the table on a device. The caller must call Unload.
func (w *Work) Load(ctx context.Context, d device.Device) error {
	of, table := w.versions()
	if err := d.LoadModel(ctx, of, w.File); err != nil {
		return fmt.Errorf("case %s: loading the model: %w", w.Name, err)
	}
	err := d.LoadTable(ctx, device.TableHead{Table: table, Model: of, Rows: w.Rows.Rows, Cols: w.Rows.Cols}, func(yield func([]float32, error) bool) {
		for from := 0; from < w.Rows.Rows; from += chunkRows {
			if !yield(w.Rows.Slice(from, min(from+chunkRows, w.Rows.Rows)).Data, nil) {
				return
			}
		}
	})
	if err != nil {
		return fmt.Errorf("case %s: loading the table: %w", w.Name, err)
	}
	return nil
}

// Unload removes the model and the table.
func (w *Work) Unload(ctx context.Context, d device.Device) error {
	of, table := w.versions()
	return d.Unload(context.WithoutCancel(ctx), []device.Version{of}, []device.Version{table})
}

// Ask answers one query.
func (w *Work) Ask(ctx context.Context, d device.Device, query int) (device.Best, error) {
	of, table := w.versions()
	a := device.Ask{Model: of, Table: table, Query: w.Queries[query], K: w.K}
	if w.Candidates != nil {
		return d.Rescore(ctx, a, w.Candidates[query])
	}
	return d.Scan(ctx, a, nil)
}

// Times summarises run times in milliseconds.
type Times struct {
	Runs int     `json:"runs"`
	Min  float64 `json:"min_ms"`
	P50  float64 `json:"p50_ms"`
	P99  float64 `json:"p99_ms"`
}

// TimesOf summarises run times. It sorts took.
func TimesOf(took []time.Duration) Times {
	if len(took) == 0 {
		return Times{}
	}
	slices.Sort(took)
	ms := func(share float64) float64 {
		return float64(took[int(math.Ceil(share*float64(len(took))))-1]) / float64(time.Millisecond)
	}
	return Times{Runs: len(took), Min: float64(took[0]) / float64(time.Millisecond), P50: ms(0.5), P99: ms(0.99)}
}

// Effort says how often something is measured: Runs times, or until Time has passed, but at
// least once. Before that it runs Warm times without being measured.
type Effort struct {
	Runs, Warm int
	Time       time.Duration
}

// Spend calls run as often as the effort says. warm is true for the calls that are not
// measured.
func (e Effort) Spend(ctx context.Context, run func(warm bool) error) error {
	began := time.Now()
	for i := range e.Warm {
		if i > 0 && time.Since(began) > e.Time { // a slow run needs no warm-up
			break
		}
		if err := run(true); err != nil {
			return err
		}
	}
	began = time.Now()
	for i := range max(1, e.Runs) {
		if i > 0 && time.Since(began) > e.Time {
			break
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := run(false); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// Answered summarises a device's answers to a loaded workload.
type Answered struct {
	// Batch is the time from the first query of a batch to its last answer, Call the time
	// of each query.
	Batch Times `json:"batch"`
	Call  Times `json:"call"`
	// Measured counts the answers in a batch that rest on a measured error and are not
	// proved.
	Measured int           `json:"measured_answers,omitempty"`
	Answers  []device.Best `json:"-"` // the last answer to each query
}

// Measure repeatedly runs all queries at once.
func (w *Work) Measure(ctx context.Context, d device.Device, e Effort) (Answered, error) {
	a := Answered{Answers: make([]device.Best, len(w.Queries))}
	var batches, calls []time.Duration
	err := e.Spend(ctx, func(warm bool) error {
		each := make([]time.Duration, len(w.Queries))
		began := time.Now()
		g, ctx := errgroup.WithContext(ctx)
		for q := range w.Queries {
			g.Go(func() (err error) {
				began := time.Now()
				a.Answers[q], err = w.Ask(ctx, d, q)
				each[q] = time.Since(began)
				return err
			})
		}
		if err := g.Wait(); err != nil {
			return fmt.Errorf("case %s: %w", w.Name, err)
		}
		if !warm {
			batches, calls = append(batches, time.Since(began)), append(calls, each...)
		}
		return nil
	})
	a.Batch, a.Call = TimesOf(batches), TimesOf(calls)
	for i := range a.Answers {
		if a.Answers[i].Measured > 0 {
			a.Measured++
		}
	}
	return a, err
}

// Check compares an answer with the CPU's scores: it must have the right number of rows,
// each score must lie within the stated errors of both sides, and no row may be left out
// that scores more than the last row by more than these errors.
func (w *Work) Check(query int, b device.Best) error {
	enc, err := w.Model.Encode(w.Queries[query])
	if err != nil {
		return fmt.Errorf("case %s: %w", w.Name, err)
	}
	items, count := rerank.Items{Features: w.Rows}, w.Rows.Rows
	if w.Candidates != nil {
		count = len(w.Candidates[query])
		items.Rows = make([]int32, count)
		for i, row := range w.Candidates[query] {
			items.Rows[i] = int32(row)
		}
	}
	scores := make([]float32, count)
	if err := enc.Score(scores, items); err != nil {
		return fmt.Errorf("case %s: %w", w.Name, err)
	}
	off := float64(b.Epsilon) + float64(enc.Bound(nil, nil).Epsilon)
	if b.Measured > 0 {
		off += float64(b.MeasuredError)
	}
	if err := w.agree(query, b, scores, off); err != nil {
		return fmt.Errorf("case %s, query %d: the answer is not the CPU's: %w", w.Name, query, err)
	}
	return nil
}

func (w *Work) agree(query int, b device.Best, scores []float32, off float64) error {
	if want := min(w.K, len(scores)); len(b.Rows) != want || len(b.Scores) != want {
		return fmt.Errorf("%d rows and %d scores, want %d", len(b.Rows), len(b.Scores), want)
	}
	scored := map[uint32]float32{}
	for i, row := range b.Rows {
		scored[row] = b.Scores[i]
	}
	seen := 0
	for i, score := range scores {
		row := uint32(i)
		if w.Candidates != nil {
			row = w.Candidates[query][i]
		}
		if have, ok := scored[row]; ok {
			seen++
			if d := math.Abs(float64(have) - float64(score)); !(d <= off) {
				return fmt.Errorf("row %d scores %v, on the CPU %v, which may differ by %v", row, have, score, off)
			}
		} else if last := b.Scores[len(b.Scores)-1]; float64(score)-float64(last) > 2*off {
			return fmt.Errorf("row %d scores %v and is left out, where the last scores %v", row, score, last)
		}
	}
	if seen != len(b.Rows) {
		return fmt.Errorf("of %d rows %d were asked for", len(b.Rows), seen)
	}
	return nil
}
