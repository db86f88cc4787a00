package trial

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/learn/dataset"
	"github.com/likenessdb/likeness/rerank"
)

// unitTolerance is how far the norm of a unit vector may be from 1, as routes check it.
const unitTolerance = 1e-4

// Bounds of the text that is kept of a row.
const (
	titleBytes = 300
	labelBytes = 200
)

// sampledTogether is how many neighbouring rows are read at each random place of a collection.
const sampledTogether = 50

// sample holds the rows that a trial reads: all rows of the collection, some from random places, or
// the first.
type sample struct {
	ids     []rerank.ID
	vectors rerank.Matrix
	labels  []string // of the label field; "" for a row without it
	missing adapters.Missing
	whole   bool               // every row of the collection was read
	logged  map[rerank.ID]bool // rows that were read because the log names them
	unit    bool               // every vector has norm 1
	least   float64
	most    float64
}

// Errors with which a scan is ended.
var (
	errEnough = errors.New("enough rows")
	errPlace  = errors.New("enough rows of one place")
)

// readSample looks at the payload of some rows, and then reads vectors and labels.
func (t *trial) readSample(ctx context.Context) error {
	if err := t.readFields(ctx); err != nil {
		return err
	}
	t.look.Title = t.Title
	unknown := t.Title != "" && nearestFields(t.Title, t.look.Fields) != ""
	if t.Title == "" || unknown {
		t.look.Title = pickTitle(t.look.Fields, t.Label)
	}
	if unknown {
		t.note("--title: no row looked at has a field %q; %s; examples show %q", t.Title, nearestFields(t.Title, t.look.Fields), t.look.Title)
	}
	logged, err := t.readLogged(ctx)
	if err != nil {
		return err
	}
	s := t.newSample(logged)
	want := t.Rows
	if t.look.Rows > 0 {
		want = int(min(t.look.Rows, int64(t.Rows)))
	}
	done := t.progress("reading "+t.Collection, want)
	request := adapters.ScanRequest{Collection: t.Collection, Vectors: []string{t.look.field.Name}}
	if t.Label != "" {
		request.Payload, request.PayloadFields = true, []string{topKey(t.Label)}
	}
	random, err := t.readPlaces(ctx, request, func(rows adapters.Rows) error {
		done(len(rows.IDs))
		return s.add(rows, t.Label, t.Rows)
	})
	if err == nil && (!random || len(s.ids)-len(s.logged) < (want-len(s.logged))/2) { // a few ranges of ids hold most rows
		random, s = false, t.newSample(logged)
		done = t.progress("reading the first rows of "+t.Collection, want)
		err = t.can.Scan.Scan(ctx, request, func(rows adapters.Rows, _ string) error {
			done(len(rows.IDs))
			return s.add(rows, t.Label, t.Rows)
		})
	}
	if err != nil && !errors.Is(err, errEnough) {
		return t.explain(ctx, err)
	}
	s.whole, t.look.Random = s.whole && !random, random
	s.finish(t.look.field.Dim)
	t.look.Read, t.look.WithoutVector, t.look.Logged = len(s.ids), s.missing.Rows, len(s.logged)
	if s.whole {
		t.look.Rows = int64(len(s.ids) + s.missing.Rows)
	}
	t.sample = s
	return t.checkSample()
}

// loggedTogether is how many rows that the log names are read in one call.
const loggedTogether = 1000

// readLogged reads the rows that the log names, Rows at most, which a part of the rows would
// mostly lack. It returns none if the trial reads all rows, or if the store cannot have such ids.
func (t *trial) readLogged(ctx context.Context) (adapters.Rows, error) {
	var rows adapters.Rows
	if t.Log.Pairs == "" || t.look.Rows <= int64(t.Rows) {
		return rows, nil
	}
	texts, err := dataset.LoggedItems(ctx, t.Log.Pairs)
	if errors.Is(err, dataset.ErrInput) {
		return rows, &RefusalError{err.Error(), err}
	}
	if err != nil {
		return rows, err
	}
	t.look.named = len(texts)
	rows.Vectors = []rerank.Matrix{{Cols: t.look.field.Dim}}
	var withoutVector adapters.Missing
	texts = texts[:min(len(texts), t.Rows)]
	done := t.progress("reading the rows of "+t.Log.Pairs, len(texts))
	for part := range slices.Chunk(texts, loggedTogether) {
		ids := make([]rerank.ID, len(part))
		for i, text := range part {
			ids[i] = adapters.ParseID(text, t.look.textIDs)
		}
		got, err := t.can.Fetch.Fetch(ctx, adapters.FetchRequest{Collection: t.Collection, IDs: ids, Vectors: []string{t.look.field.Name}})
		if errors.Is(err, adapters.ErrID) {
			return adapters.Rows{}, nil // ids of other rows, which the log is refused for
		}
		if err != nil {
			return rows, t.explain(ctx, err)
		}
		got = withoutVector.Drop(got)
		rows.IDs = append(rows.IDs, got.IDs...)
		rows.Vectors[0].Data = append(rows.Vectors[0].Data, got.Vectors[0].Data...)
		done(len(part))
	}
	rows.Vectors[0].Rows = len(rows.IDs)
	return rows, nil
}

// newSample begins a sample with the rows that the log names.
func (t *trial) newSample(logged adapters.Rows) *sample {
	s := &sample{whole: true, least: math.Inf(1), logged: map[rerank.ID]bool{}}
	for i, id := range logged.IDs {
		if !s.logged[id] && s.keep(id, logged.Vectors[0].Row(i)) {
			s.logged[id] = true
		}
	}
	return s
}

// readPlaces reads some neighbouring rows at each of many random places of a large collection. The same
// seed reads the same places. It reports false, having read nothing, if the collection is small or the
// store cannot divide its ids. It returns an error of add or of the store.
func (t *trial) readPlaces(ctx context.Context, request adapters.ScanRequest, add func(adapters.Rows) error) (random bool, err error) {
	if t.look.Rows <= int64(t.Rows) || t.can.Partition == nil {
		return false, nil
	}
	parts := 2 * (1 + t.Rows/sampledTogether) // some are empty
	cuts, err := t.can.Partition.Cut(ctx, t.Collection, parts)
	if err != nil {
		return false, nil //nolint:nilerr // the ids cannot be divided; the first rows say whether the store answers
	}
	request.Batch = sampledTogether
	for _, part := range rand.New(rand.NewPCG(t.Seed, 0)).Perm(parts) {
		request.Cursor, request.Until = "", ""
		if part > 0 {
			request.Cursor = cuts[part-1]
		}
		if part < len(cuts) {
			request.Until = cuts[part]
		}
		err := t.can.Scan.Scan(ctx, request, func(rows adapters.Rows, _ string) error {
			if err := add(rows); err != nil {
				return err
			}
			return errPlace
		})
		if err != nil && !errors.Is(err, errPlace) {
			return true, err
		}
	}
	return true, nil
}

// checkSample returns a *RefusalError if there is nothing to measure.
func (t *trial) checkSample() error {
	s := t.sample
	of := fmt.Sprintf("collection %q of %s", t.Collection, t.look.Server)
	switch {
	case len(s.ids) == 0 && s.missing.Rows == 0:
		return &RefusalError{of + " has no rows; there is nothing to try", nil}
	case len(s.ids) == 0:
		remedy := "write vectors"
		if others := slices.DeleteFunc(slices.Clone(t.look.Vectors), func(v Vector) bool { return v.Name == t.look.Vector.Name }); len(others) > 0 {
			remedy += ", or name another with --vector: " + listVectors(others)
		}
		return &RefusalError{fmt.Sprintf("none of the %d rows read of %s has %s: row %s lacks it; %s", s.missing.Rows, of, t.look.Vector.phrase(), s.missing.First, remedy), nil}
	case len(s.ids) < 2:
		return &RefusalError{fmt.Sprintf("%s has one row with a vector; likeness orders rows, so there have to be more", of), nil}
	}
	if s.unit {
		t.look.Vector.Norms = "unit vectors"
	} else {
		t.look.Vector.Norms = fmt.Sprintf("norms %.3g to %.3g", s.least, s.most)
	}
	return nil
}

// add keeps the rows that have a vector.
func (s *sample) add(rows adapters.Rows, label string, most int) error {
	rows = s.missing.Drop(rows)
	for i, id := range rows.IDs {
		if len(s.ids) >= most {
			s.whole = false
			return errEnough
		}
		if s.logged[id] || !s.keep(id, rows.Vectors[0].Row(i)) {
			continue
		}
		if label != "" {
			s.labels = append(s.labels, shorten(dataset.PayloadText(rows.Payloads[i], label), labelBytes))
		}
	}
	return nil
}

// keep adds a row. It reports false, having added nothing, if the vector is not finite.
func (s *sample) keep(id rerank.ID, vector []float32) bool {
	if rerank.CheckFinite("row", vector) != nil {
		return false
	}
	s.ids = append(s.ids, id)
	s.vectors.Data = append(s.vectors.Data, vector...)
	norm := rerank.Norm(vector)
	s.least, s.most = min(s.least, norm), max(s.most, norm)
	return true
}

func (s *sample) finish(dim int) {
	s.vectors.Rows, s.vectors.Cols = len(s.ids), dim
	s.unit = len(s.ids) > 0 && s.least > 1-unitTolerance && s.most < 1+unitTolerance
}

// shorten cuts a text to a number of bytes, at a rune.
func shorten(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
