package index

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/maxsim"
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/sidecar/derive"
	"github.com/likenessdb/likeness/sidecar/route"
)

// TableJob describes a table to build.
type TableJob struct {
	Source Source
	Model  route.Model
	// Vectors holds the model's behavioural vectors, or nil.
	Vectors *maxsim.Vectors
	Path    string
	// Format, Layout and Full have the meaning of the same fields of table.Meta.
	Format rerank.Format
	Layout table.Layout
	Full   bool
	// Force replaces an existing table and discards the progress of an interrupted
	// build.
	Force    bool
	Progress Progress
}

// BuildTable streams a collection into a table at job.Path, which appears atomically
// at the end. It resumes an interrupted build of the same model version and
// collection. It returns ErrExists if the table exists and Force is not set,
// ErrSource, table.ErrTable, or the store's error. At the end BuildTable reads the
// table back and compares its rows with the store's count. If they differ, the table
// stays in place and the error is ErrVerify.
func BuildTable(ctx context.Context, job TableJob) (Result, error) {
	if err := errors.Join(job.refuseExisting(), checkVectors(job.Model, job.Vectors)); err != nil {
		return Result{}, err
	}
	d, err := job.Source.describe(ctx, job.Model.Similarity.Spec())
	if err != nil {
		return Result{}, err
	}
	before, err := countRows(ctx, job.Source.Store, job.Source.Collection)
	if err != nil {
		return Result{}, err
	}
	w, cursor, err := job.writer()
	if err != nil {
		return Result{}, err
	}
	b := &tableBuild{TableJob: job, writer: w, saved: time.Now(), result: Result{Resumed: w.Items()}}
	if err := b.appendCollection(ctx, cursor, int(d.Rows)); err != nil {
		return Result{}, b.giveUp(err)
	}
	b.result.Items = w.Items()
	if err := w.Close(); err != nil {
		return b.result, err
	}
	b.result.Verified, err = b.verify(ctx, before)
	return b.result, err
}

func (job TableJob) refuseExisting() error {
	_, err := os.Stat(job.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && job.Force:
		return nil
	case err == nil:
		return fmt.Errorf("%w: table %s; replace it with --force", ErrExists, job.Path)
	default:
		return err
	}
}

func (job TableJob) writer() (w *table.Writer, cursor string, err error) {
	meta := table.Meta{
		Model: job.Model.Name, ModelVersion: job.Model.Version, Collection: job.Source.Collection,
		Kind: string(job.Model.Similarity.Spec().Kind), Features: job.Model.Similarity.Spec().Features,
		Format: job.Format, Layout: job.Layout, Full: job.Full, Block: job.Model.Similarity.Spec().Block,
	}
	if !job.Force {
		w, cursor, err = table.Resume(job.Path, meta)
		if err == nil || !errors.Is(err, fs.ErrNotExist) {
			return w, cursor, err
		}
	}
	w, err = table.NewWriter(job.Path, meta)
	return w, "", err
}

// tableBuild is the state of a running build.
type tableBuild struct {
	TableJob
	writer *table.Writer
	cursor string // scan position after the last appended batch; empty if there is nothing new to save
	saved  time.Time
	result Result
}

func (b *tableBuild) appendCollection(ctx context.Context, cursor string, rows int) error {
	if s := b.Model.Similarity.Spec(); s.GroupedRows && b.Vectors == nil && (s.Kind != rerank.KindLate || b.Source.Owner != "") {
		return b.fillGroups(ctx, cursor)
	}
	within, err := b.Source.findBounds(ctx)
	if err != nil {
		return err
	}
	done := b.Progress.begin("indexing "+b.Source.Collection, rows)
	done(b.result.Resumed)
	request := b.Source.request()
	request.Cursor = cursor
	return b.Source.scan(ctx, within, request, func(rows adapters.Rows, cursor string) error {
		read := len(rows.IDs)
		rows = b.result.dropMissing(rows)
		if len(rows.IDs) == 0 {
			done(read)
			return b.saveIfDue(cursor)
		}
		base, err := b.Source.baseVectors(ctx, rows)
		if err != nil {
			return err
		}
		starts := rows.Starts
		if b.Vectors != nil {
			base, starts = b.Vectors.Behind(base, rows.IDs)
		}
		features, err := derive.EncodeRows(b.Model.Similarity, base)
		if err != nil {
			return err
		}
		b.cursor = "" // no checkpoint is possible inside a batch
		if err := b.appendItems(rows.IDs, features, starts); err != nil {
			return err
		}
		b.result.Rows += features.Rows
		b.result.noteNotFinite(features, itemOf(rows.IDs, starts))
		done(read)
		return b.saveIfDue(cursor)
	})
}

// fillGroups appends all rows of an item at once. Because an item's rows can lie
// anywhere in the collection, it first lists the items, without vectors.
func (b *tableBuild) fillGroups(ctx context.Context, cursor string) error {
	fetcher := adapters.AbilitiesOf(b.Source.Store).Fetch
	if fetcher == nil || b.Source.Owner == "" {
		return fmt.Errorf("%w: model %s groups rows by item; the route needs an owner field, and a store that fetches by it", ErrSource, b.Model.Name)
	}
	owners, err := b.listOwners(ctx)
	if err != nil {
		return err
	}
	from := 0
	if cursor != "" {
		if from, err = strconv.Atoi(cursor); err != nil || from < 0 || from > len(owners) {
			return fmt.Errorf("%w: the checkpoint stopped at item %s of %d; build again with --force", ErrSource, cursor, len(owners))
		}
	}
	done := b.Progress.begin("indexing "+b.Source.Collection, len(owners))
	done(from)
	const batch = 256
	for ; from < len(owners); from += batch {
		ids := owners[from:min(from+batch, len(owners))]
		if err := b.appendGroups(ctx, fetcher, ids); err != nil {
			return err
		}
		done(len(ids))
		if err := b.saveIfDue(strconv.Itoa(from + len(ids))); err != nil {
			return err
		}
	}
	return nil
}

// listOwners lists the items in the order in which the scan first meets them.
func (b *tableBuild) listOwners(ctx context.Context) ([]rerank.ID, error) {
	if err := b.Source.Part.Check(); err != nil {
		return nil, err
	}
	var owners []rerank.ID
	seen := map[rerank.ID]bool{}
	done := b.Progress.begin("listing the items of "+b.Source.Collection, -1)
	request := adapters.ScanRequest{Collection: b.Source.Collection, Owner: b.Source.Owner, Batch: b.Source.Batch}
	err := b.Source.scan(ctx, bounds{}, request, func(rows adapters.Rows, _ string) error {
		for i, owner := range rows.Owners {
			if owner.IsZero() {
				return fmt.Errorf("%w: row %s of collection %q has no %q", ErrSource, rows.IDs[i], b.Source.Collection, b.Source.Owner)
			}
			if !seen[owner] && b.Source.Part.hasID(owner) {
				seen[owner] = true
				owners = append(owners, owner)
			}
		}
		done(len(rows.IDs))
		return nil
	})
	return owners, err
}

func (b *tableBuild) appendGroups(ctx context.Context, fetcher adapters.Fetcher, owners []rerank.ID) error {
	rows, err := fetcher.Fetch(ctx, adapters.FetchRequest{
		Collection: b.Source.Collection, IDs: owners, Vectors: []string{b.Source.Vector}, Owner: b.Source.Owner,
	})
	if err != nil {
		return err
	}
	if rows = b.result.dropMissing(rows); len(rows.IDs) == 0 {
		return nil // the rows of these items have no vectors, or were deleted after the listing
	}
	features, err := derive.EncodeRows(b.Model.Similarity, rows.Vectors[0])
	if err != nil {
		return err
	}
	b.result.noteNotFinite(features, itemOf(rows.IDs, nil))
	b.result.Rows += features.Rows
	b.cursor = ""
	for from := 0; from < len(rows.Owners); {
		to := from + 1
		for to < len(rows.Owners) && rows.Owners[to] == rows.Owners[from] {
			to++
		}
		if err := b.writer.AppendGroup(rows.Owners[from], features.Slice(from, to)); err != nil {
			return err
		}
		from = to
	}
	return nil
}

// itemOf returns a function that maps a feature row to its item. starts holds the
// first row of each item, or is nil if every item has one row.
func itemOf(ids []rerank.ID, starts []int32) func(row int) rerank.ID {
	return func(row int) rerank.ID {
		if starts == nil {
			return ids[row]
		}
		i, found := slices.BinarySearch(starts, int32(row))
		if !found {
			i--
		}
		return ids[i]
	}
}

// saveIfDue writes a checkpoint if the next checkpoint is due.
func (b *tableBuild) saveIfDue(cursor string) error {
	b.cursor = cursor
	if !b.Source.isDue(b.saved) {
		return nil
	}
	b.saved = time.Now()
	return b.writer.Checkpoint(cursor)
}

// giveUp writes a last checkpoint for the next run and returns err.
func (b *tableBuild) giveUp(err error) error {
	if b.cursor != "" {
		err = errors.Join(err, b.writer.Checkpoint(b.cursor))
	}
	return errors.Join(err, b.writer.Abort())
}
