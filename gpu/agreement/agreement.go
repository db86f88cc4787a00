// Package agreement compares a device's answers to many queries with the exact scan of
// this machine's processors, which proves its own in float32.
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

// Options say how much is compared.
type Options struct {
	// Queries are asked at most, Batch of them at once.
	Queries, Batch int
	// Time is when no further batch begins, after the tables are made; 0: never. The
	// processors take most of it.
	Time time.Duration
	Seed uint32
}

// Tolerance is how far a score may be from the processors'.
const Tolerance = 1e-4

// Result is what was found. Of Wanted queries Queries were compared: fewer where the time was up.
type Result struct {
	Case    string `json:"case"`
	Rows    int    `json:"rows"`
	K       int    `json:"k"`
	Wanted  int    `json:"wanted_queries"`
	Queries int    `json:"queries"`
	// SameRows counts the queries whose K rows are those of the processors, SameOrder those
	// of them in the same order, Near those none of whose scores is further off than Tolerance.
	SameRows  int `json:"same_rows"`
	SameOrder int `json:"same_order"`
	Near      int `json:"near"`
	// Error is the greatest difference of a score of a row that both have.
	Error float64 `json:"error"`
	// Differ are the first queries whose rows are not the same, by number.
	Differ []int `json:"differ,omitempty"`
	// DeviceSeconds and CPUSeconds are what each side took for the queries, on Threads.
	DeviceSeconds float64 `json:"device_seconds"`
	CPUSeconds    float64 `json:"cpu_seconds"`
	Threads       int     `json:"threads"`
}

func (r *Result) String() string {
	return fmt.Sprintf("%s, %d rows, %d of %d queries: top %d the same for %d, in order for %d; scores within %g for %d, at most %.2g off (%.1f s on the device, %.1f s on %d threads)",
		r.Case, r.Rows, r.Queries, r.Wanted, r.K, r.SameRows, r.SameOrder, Tolerance, r.Near, r.Error, r.DeviceSeconds, r.CPUSeconds, r.Threads)
}

// maxDiffer query numbers that a Result lists.
const maxDiffer = 10

// Compare makes a scan's table of a case, loads it, and asks both sides. told gets the result
// so far after each batch. It returns that with the error that ended it.
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

// newScanner goes over the rows of a case on all processors.
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

// batch asks queries [from, to) of both.
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

// add counts the answers to a query.
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
