package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/learn/index"
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/follow"
	"github.com/likenessdb/likeness/sidecar/wiring"
)

// jobIndex is the environment variable with the number of a pod in an indexed Kubernetes job,
// counted from 0.
const jobIndex = "JOB_COMPLETION_INDEX"

// part parses --partition.
func (f *indexFlags) part() (p index.Part, err error) {
	if f.partition == "" {
		return p, nil
	}
	number, of, ok := strings.Cut(f.partition, "/")
	if p.Of, err = strconv.Atoi(of); !ok || err != nil {
		return p, usagef("--partition %q: write 2/4, or /4 in an indexed Kubernetes job", f.partition)
	}
	if number == "" {
		p.Number, err = strconv.Atoi(os.Getenv(jobIndex))
		p.Number++
	} else {
		p.Number, err = strconv.Atoi(number)
	}
	if err != nil {
		return p, usagef("--partition %q: %s is not a number", f.partition, jobIndex)
	}
	if f.merge > 0 {
		return p, usagef("--partition builds a part, --merge joins them; give one of them")
	}
	if p.Of < 1 || p.Check() != nil {
		return p, usagef("--partition: there is no part %s", p)
	}
	return p, nil
}

// partPath returns the path of one part of the output at path.
func partPath(path string, p index.Part) string {
	if p.Of == 0 {
		return path
	}
	return fmt.Sprintf("%s.%d-of-%d", path, p.Number, p.Of)
}

// mergeTable builds the table from its parts, and does not delete them.
func (f *indexFlags) mergeTable(t target) (_ *builtTable, err error) {
	if _, err := os.Stat(t.table); err == nil && !f.force {
		return nil, fmt.Errorf("%w: table %s; replace it with --force", index.ErrExists, t.table)
	}
	var parts []*table.Table
	defer func() {
		for _, p := range parts {
			err = errors.Join(err, p.Close())
		}
	}()
	for i := range f.merge {
		path := partPath(t.table, index.Part{Number: i + 1, Of: f.merge})
		part, err := table.Open(path, table.Expect{ModelVersion: t.model.Version, Collection: t.source.Collection})
		if err != nil {
			return nil, fmt.Errorf("part %d of %d: %w; build it with --partition %d/%d", i+1, f.merge, err, i+1, f.merge)
		}
		parts = append(parts, part)
	}
	meta, err := table.Merge(t.table, parts)
	if err != nil {
		return nil, err
	}
	rows := 0
	for _, p := range parts {
		rows += p.Meta().Rows
	}
	verified, err := index.VerifyTable(t.table, table.Expect{ModelVersion: t.model.Version, Collection: t.source.Collection}, rows)
	return &builtTable{Path: t.table, Result: index.Result{Rows: meta.Rows, Items: meta.Items, Verified: verified}}, err
}

// errDrift ends `index --verify` with exit code 1.
var errDrift = errors.New("table or companion differ from the collection; `likeness index --force` builds them again, and a sidecar with state_dir repairs them")

// verifyIndex compares what a route derives with its collection.
func (a *app) verifyIndex(ctx context.Context, f *indexFlags, src *source, out output) error {
	if f.route == "" {
		return usagef("--verify compares what a route of the configuration has; give --route")
	}
	drift, err := f.drift(ctx, src, newProgress(a.stderr))
	if err != nil {
		return err
	}
	err = a.print(out, drift, func(w io.Writer) error { return printDrift(w, drift) })
	return cmp.Or(err, driftError(&drift))
}

func printDrift(w io.Writer, d follow.Drift) error {
	_, err := fmt.Fprintf(w, "%d rows: %d missing, %d changed, %d surplus\n", d.Rows, d.Missing, d.Changed, d.Surplus)
	return err
}

func driftError(d *follow.Drift) error {
	if d != nil && d.Differing() > 0 {
		return errDrift
	}
	return nil
}

// checkVerifyAll refuses --verify-all with flags that change what is built of the route.
func (f *indexFlags) checkVerifyAll() error {
	if f.verifyAll && (f.route == "" || f.partition != "" || f.only != "" || f.table != "" || f.companion != "" || f.files != "") {
		return usagef("--verify-all compares all that a route of the configuration has; give --route, and leave out --partition, --only, --table, --companion and --files")
	}
	return nil
}

func (f *indexFlags) driftOf(ctx context.Context, src *source, p *progress) (*follow.Drift, error) {
	d, err := f.drift(ctx, src, p)
	return &d, err
}

func (f *indexFlags) drift(ctx context.Context, src *source, p *progress) (_ follow.Drift, err error) {
	c, err := config.Load(src.Source)
	if err != nil {
		return follow.Drift{}, err
	}
	r, err := routeOf(c, f.route, f.version)
	if err != nil {
		return follow.Drift{}, err
	}
	if drift, ok, err := f.rankedDrift(ctx, src, c, r, p); ok || err != nil {
		return drift, err
	}
	parts, err := wiring.Open(ctx, c, wiring.Part{Route: f.route, Version: f.version, Tables: wiring.TablesAsFiles})
	if err != nil {
		return follow.Drift{}, badRoute(err)
	}
	defer func() { err = errors.Join(err, parts.Close()) }()
	route := parts.Versions[f.route].Route
	if route.Owner == "" && route.Vectors == "" && !route.HasBehaviouralVectors() {
		return follow.Compare(ctx, route, p.begin)
	}
	t, err := f.routeTarget(ctx, c)
	if err != nil {
		return follow.Drift{}, err
	}
	defer func() { err = errors.Join(err, t.closeAll()) }()
	return f.groupDrift(ctx, t, p)
}

// groupDrift compares the table and companion of a route whose items have several rows.
func (f *indexFlags) groupDrift(ctx context.Context, t target, p *progress) (drift follow.Drift, err error) {
	add := func(d index.Difference) {
		drift.Rows, drift.Missing = drift.Rows+d.Rows, drift.Missing+d.Missing
		drift.Changed, drift.Surplus = drift.Changed+d.Changed, drift.Surplus+d.Surplus
	}
	if t.table != "" {
		d, err := index.CompareTable(ctx, index.TableJob{Source: t.source, Model: t.model, Vectors: t.vectors, Path: t.table, Progress: p.begin})
		if err != nil {
			return drift, fmt.Errorf("comparing the table: %w", err)
		}
		add(d)
	}
	if t.companion == "" {
		return drift, nil
	}
	job, err := f.companionJob(t, p)
	if err != nil {
		return drift, err
	}
	writer := adapters.AbilitiesOf(t.source.Store).Write
	if writer == nil {
		return drift, usagef("the store keeps no companions to compare")
	}
	job.Writer = writer
	if t.ranked != nil {
		t.ranked.base.Unknown = 0 // rows from which nothing is derived are not compared
	}
	d, err := index.CompareCompanion(ctx, job)
	if err != nil {
		return drift, fmt.Errorf("comparing the companion: %w", err)
	}
	if t.ranked != nil {
		n := t.ranked.base.Unknown
		d.Rows, d.Changed, d.Surplus = d.Rows+n, d.Changed+n, max(0, d.Surplus-n)
	}
	add(d)
	return drift, nil
}
