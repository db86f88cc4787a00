package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"

	"github.com/likenessdb/likeness/gpu"
	"github.com/likenessdb/likeness/gpu/parity"
	"github.com/likenessdb/likeness/gpu/workload"
	"github.com/likenessdb/likeness/plugin/device"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/npy"
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/wiring"
)

// benchGPURoute names the route to measure and the settings of the measurement.
type benchGPURoute struct {
	source               *source
	name, queries        string
	k, batch, candidates int
}

// ofRoute measures the route's device with the route's model and table, and with queries of a file.
// It does not open the route's store.
func (f *benchGPUFlags) ofRoute(ctx context.Context, stderr io.Writer) (*gpuReport, error) {
	if f.route.k < 1 || f.route.batch < 1 || f.route.candidates < 0 {
		return nil, usagef("--k and --batch start at 1, --candidates at 0")
	}
	c, err := config.Load(f.route.source.Source)
	if err != nil {
		return nil, err
	}
	r, err := f.route.config(c)
	if err != nil {
		return nil, err
	}
	w, closeTable, err := f.route.openWork(ctx, c, f.rows)
	if err != nil {
		return nil, err
	}
	out, err := f.onPlugin(ctx, c, r.Device, w, stderr)
	return out, errors.Join(err, closeTable())
}

func (f *benchGPUFlags) onPlugin(ctx context.Context, c *config.Config, name string, w *workload.Work, stderr io.Writer) (_ *gpuReport, err error) {
	p, err := wiring.StartPlugin(ctx, c, name, slog.New(slog.NewTextHandler(stderr, nil)))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	ready, cancel := context.WithTimeout(ctx, c.Plugins[name].StartTimeout)
	defer cancel()
	if err := p.Ready(ready); err != nil {
		return nil, fmt.Errorf("plugins.%s: %w", name, err)
	}
	there := device.NewClient(p.Conn())
	said, err := there.Describe(ctx)
	if err != nil {
		return nil, fmt.Errorf("plugins.%s does not say what it is: %w", name, err)
	}
	one, err := f.measureWork(ctx, there, w)
	return &gpuReport{Device: said.Name, Version: said.Version, Cases: []gpuCase{one}}, err
}

// config returns the route's configuration in the version that is in service. It refuses a route
// without a device or a table.
func (b *benchGPURoute) config(c *config.Config) (config.Route, error) {
	r, err := routeOf(c, b.name, "")
	if err != nil {
		return r, err
	}
	if r.Device == "" || r.Table == "" {
		return r, usagef("--route: routes.%s has no device, or no table that one could score; give it both, or measure a device by --plugin", b.name)
	}
	return r, nil
}

// openWork opens the route's table and reads queries from the file. The rows of the returned work may
// lie in the table's memory, which closeTable releases.
func (b *benchGPURoute) openWork(ctx context.Context, c *config.Config, most int) (_ *workload.Work, closeTable func() error, err error) {
	parts, err := wiring.Open(ctx, c, wiring.Part{Route: b.name, WithoutStore: true})
	if err != nil {
		return nil, nil, err
	}
	opened := parts.Versions[b.name]
	m, t := opened.Model, opened.Route.CurrentTable()
	closeTable = func() error {
		t.Release()
		return parts.Close()
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, closeTable())
		}
	}()
	if t.Grouped() {
		return nil, closeTable, fmt.Errorf("routes.%s: its items own several rows, which a device does not score", b.name)
	}
	w := &workload.Work{Model: m, Rows: aliveRows(t, most)}
	n := w.Rows.Rows
	w.Case = workload.Case{Name: b.name, Kind: m.Spec().Kind, Dim: m.Spec().Features, Rows: n, Candidates: min(b.candidates, n), Batch: b.batch, K: min(b.k, n)}
	if mol := gpu.NetworkOf(m).MoL; mol != nil {
		w.Shape = parity.Shape{PairsQuery: mol.PairsQuery, PairsItem: mol.PairsItem, Dim: mol.Dim, Hidden: mol.First.Rows}
	}
	if n == 0 {
		return nil, closeTable, fmt.Errorf("routes.%s: its table has no row", b.name)
	}
	w.Candidates = workload.Candidates(&w.Case)
	if w.Queries, err = b.read(m); err != nil {
		return nil, closeTable, err
	}
	var file bytes.Buffer
	err = model.Encode(&file, m)
	w.File = file.Bytes()
	return w, closeTable, err
}

// aliveRows returns the table's rows that are not deleted, in float32: all of them if most is 0,
// else at most the first most rows.
func aliveRows(t *table.Table, most int) rerank.Matrix {
	n := t.Count()
	if most > 0 {
		n = min(n, most)
	}
	if full, ok := t.Full(); ok && !t.Dead() {
		return full.Slice(0, n)
	}
	rows := rerank.NewMatrix(n, t.Meta().Features)
	for i, at := 0, 0; at < n; i++ {
		if t.Alive(i) {
			t.Row32(rows.Row(at), i)
			at++
		}
	}
	return rows
}

// read returns a batch of queries at equal distances in the file, whose order may matter.
func (b *benchGPURoute) read(m *model.Model) ([]rerank.Query, error) {
	f, err := npy.Open(b.queries)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if f.Rows == 0 || f.Cols != m.Spec().QueryDim {
		return nil, usagef("--queries: %s has %d rows of %d numbers, want rows of %d", b.queries, f.Rows, f.Cols, m.Spec().QueryDim)
	}
	queries := make([]rerank.Query, b.batch)
	for i := range queries {
		queries[i] = rerank.Query{Vector: slices.Clone(f.Row(i * f.Rows / b.batch % f.Rows)), HasUserID: m.Spec().UserIDs}
	}
	return queries, nil
}
