// Package agreement compares a device's answers to many queries with an exact scan on the
// CPU, which computes in float32 and proves its answers.
package agreement

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/likenessdb/likeness/gpu/workload"
	"github.com/likenessdb/likeness/plugin/device"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/scan"
	"github.com/likenessdb/likeness/rerank/table"
)

// Options says how much to compare.
type Options struct {
	// Queries is the greatest number of queries to compare, Batch how many of them run at
	// once.
	Queries, Batch int
	// Time limits how long new batches are started, once the tables are built. 0 means no
	// limit. Most of the time is spent on the CPU.
	Time time.Duration
	Seed uint32
}

// Tolerance is how far a device's score may differ from the CPU's.
const Tolerance = 1e-4

// Result is the outcome of a comparison. Queries is less than Wanted if the time ran out.
type Result struct {
	Case    string `json:"case"`
	Rows    int    `json:"rows"`
	K       int    `json:"k"`
	Wanted  int    `json:"wanted_queries"`
	Queries int    `json:"queries"`
	// SameRows counts the queries for which device and CPU return the same K rows,
	// SameOrder those with the same order too. Near counts the queries whose shared rows
	// all have scores within Tolerance.
	SameRows  int `json:"same_rows"`
	SameOrder int `json:"same_order"`
	Near      int `json:"near"`
	// Error is the greatest difference between the scores of a row that both sides
	// returned.
	Error float64 `json:"error"`
	// Differ lists the first queries for which the rows differ, by number.
	Differ []int `json:"differ,omitempty"`
	// DeviceSeconds and CPUSeconds are the run times of each side; the CPU used Threads
	// threads.
	DeviceSeconds float64 `json:"device_seconds"`
	CPUSeconds    float64 `json:"cpu_seconds"`
	Threads       int     `json:"threads"`
}

func (r *Result) String() string {
	return fmt.Sprintf("%s, %d rows, %d of %d queries: top %d the same for %d, in order for %d; scores within %g for %d, at most %.2g off (%.1f s on the device, %.1f s on %d threads)",
		r.Case, r.Rows, r.Queries, r.Wanted, r.K, r.SameRows, r.SameOrder, Tolerance, r.Near, r.Error, r.DeviceSeconds, r.CPUSeconds, r.Threads)
}

// maxDiffer limits the query numbers in a Result.
const maxDiffer = 10

// Compare builds the table of a case, loads it on both sides, and compares their answers.
// It calls told with the result so far after each batch. On an error it returns the result
// so far as well.
func Compare(ctx context.Context, d device.Device, c workload.Case, o Options, told func(Result)) (r Result, err error) {
	c.Batch, c.Candidates = o.Queries, 0
	r = Result{Case: c.Name, Rows: c.Rows, K: min(c.K, c.Rows), Wanted: o.Queries, Threads: runtime.GOMAXPROCS(0)}
	w, err := workload.Make(c, o.Seed)
	if err != nil {
		return r, err
	}
	here, err := newScanner(w)
	if err == nil {
		err = w.Load(ctx, d)
	}
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, w.Unload(ctx, d)) }()
	began := time.Now()
	for from := 0; from < o.Queries; from += o.Batch {
		if o.Time > 0 && time.Since(began) > o.Time {
			break
		}
		if err := r.batch(ctx, d, here, w, from, min(from+o.Batch, o.Queries)); err != nil {
			return r, err
		}
		told(r)
	}
	return r, nil
}

// newScanner returns a scanner of a case's rows on all CPUs.
func newScanner(w *workload.Work) (*scan.Scanner, error) {
	ids := make([]rerank.ID, w.Rows.Rows)
	for i := range ids {
		ids[i] = rerank.UintID(uint64(i))
	}
	spec := w.Model.Spec()
	t, err := table.FromMemory(table.Meta{
		Model: w.Model.Name, ModelVersion: w.Model.Version, Collection: w.Name, Layout: table.LayoutTiles, Block: spec.Block,
	}, ids, w.Rows, nil)
	if err != nil {
		return nil, fmt.Errorf("case %s: the table of the processors: %w", w.Name, err)
	}
	return scan.New(t, spec), nil
}

// batch compares the answers to the queries [from, to).
func (r *Result) batch(ctx context.Context, d device.Device, here *scan.Scanner, w *workload.Work, from, to int) error {
	there, began := make([]device.Best, to-from), time.Now()
	g, asking := errgroup.WithContext(ctx)
	for i := range there {
		g.Go(func() (err error) {
			there[i], err = w.Ask(asking, d, from+i)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return fmt.Errorf("case %s: asking the device: %w", w.Name, err)
	}
	r.DeviceSeconds += time.Since(began).Seconds()
	queries, results := make([]scan.Query, to-from), make([]scan.Result, to-from)
	for i := range queries {
		enc, err := w.Model.Encode(w.Queries[from+i])
		if err != nil {
			return fmt.Errorf("case %s: %w", w.Name, err)
		}
		queries[i] = scan.Query{Encoded: enc, K: r.K}
	}
	began = time.Now()
	if err := here.Batch(ctx, queries, results); err != nil {
		return fmt.Errorf("case %s: scanning on the processors: %w", w.Name, err)
	}
	r.CPUSeconds += time.Since(began).Seconds()
	for i := range there {
		r.add(from+i, there[i], results[i].Top)
	}
	return nil
}

// add compares the two answers to a query and updates the counters.
func (r *Result) add(query int, there device.Best, here []rerank.Scored) {
	r.Queries++
	scores := map[uint32]float32{}
	rows := make([]uint32, len(here))
	for i, s := range here {
		rows[i] = uint32(s.Index)
		scores[rows[i]] = s.Score
	}
	shared, near := 0, true
	for i, row := range there.Rows {
		if score, ok := scores[row]; ok {
			shared++
			off := math.Abs(float64(score) - float64(there.Scores[i]))
			r.Error = max(r.Error, off)
			near = near && off <= Tolerance
		}
	}
	if near {
		r.Near++
	}
	if shared != len(rows) || shared != len(there.Rows) {
		if len(r.Differ) < maxDiffer {
			r.Differ = append(r.Differ, query)
		}
		return
	}
	r.SameRows++
	if slices.Equal(rows, there.Rows) {
		r.SameOrder++
	}
}
