package dataset

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/likenessdb/likeness/rerank"
)

// seenItems holds the items that were seen before a query, from a file of its own or from rows of
// the log that are marked as seen.
type seenItems struct {
	byQuery [][]loggedItem // by query row, before rows are split by time
	timed   bool           // the file has times: an item was not seen by a query that came before
	unknown int
	rows    int
}

// readSeen reads a file of seen items.
func (l *pairLog) readSeen(ctx context.Context, s Sources) (digestedSource, error) {
	name := filepath.Base(s.Seen)
	done := s.Progress.begin("reading "+name, -1)
	digest, err := readLog(ctx, s.Seen, &Counts{}, func(e entry) error {
		if l.seen.rows > 0 && e.hasTime != l.seen.timed {
			return errors.New("some rows have a time and some have none; give all of them one, or none")
		}
		if l.seen.timed = e.hasTime; l.seen.rows%progressRows == progressRows-1 {
			done(progressRows)
		}
		return l.addSeen(e)
	})
	if ctx.Err() != nil {
		return digestedSource{}, ctx.Err()
	}
	if err == nil && 2*l.seen.unknown > l.seen.rows {
		err = fmt.Errorf("%d of %d rows have an unknown query or item; are the ids those of these vectors?", l.seen.unknown, l.seen.rows)
	}
	if err != nil {
		return digestedSource{}, fmt.Errorf("%w: seen: %s: %w", ErrInput, s.Seen, err)
	}
	return digestedSource{"seen", name, func() (string, error) { return digest, nil }}, nil
}

// addSeen records an item that was seen before a query.
func (l *pairLog) addSeen(e entry) error {
	l.seen.rows++
	query, err := l.findRow(l.queries, e.query, e.line, new(int))
	if err != nil {
		return err
	}
	item, err := l.findRow(l.items, e.item, e.line, new(int))
	switch {
	case err != nil:
		return err
	case query < 0 || item < 0:
		l.seen.unknown++
		return nil
	}
	if l.seen.byQuery == nil {
		l.seen.byQuery = make([][]loggedItem, len(l.byQuery))
	}
	l.seen.byQuery[query] = append(l.seen.byQuery[query], loggedItem{item: item, time: e.time})
	return nil
}

// fillSeen writes the seen items to the dataset, ascending and distinct for each query row. An item
// that was chosen for a query is not seen by it: the person was offered the item again.
func (l *pairLog) fillSeen(d *Dataset) {
	l.counts.UnknownSeen = l.seen.unknown
	if l.seen.byQuery == nil {
		return
	}
	d.Seen = make([][]int32, len(d.Relevant))
	for q := range d.Seen {
		origin := q
		if l.origins != nil {
			origin = int(l.origins[q])
		}
		var items []int32
		for _, s := range l.seen.byQuery[origin] {
			if l.seen.timed && d.Times != nil && s.time > d.Times[q] {
				continue
			}
			if _, chosen := slices.BinarySearchFunc(d.Relevant[q], s.item, cmp.Compare[int32]); !chosen {
				items = append(items, s.item)
			}
		}
		slices.Sort(items)
		d.Seen[q] = slices.Compact(items)
		l.counts.Seen += len(d.Seen[q])
	}
}

// ReadSeenIDs reads the ids of the items that were seen before each of the queries, from a file in
// the format of Sources.Seen. The file names queries by the given ids, or by row number if ids is
// nil. It may name any items. Times are ignored. ReadSeenIDs returns ErrInput or the context's
// error.
func ReadSeenIDs(ctx context.Context, path string, queries int, ids []rerank.ID) ([][]string, error) {
	index, err := newIDIndex(columnQuery, path, queries, ids)
	if err != nil {
		return nil, err
	}
	l := &pairLog{counts: &Counts{}}
	seen, rows, unknown := make([][]string, queries), 0, 0
	_, err = readLog(ctx, path, l.counts, func(e entry) error {
		rows++
		query, err := l.findRow(index, e.query, e.line, &unknown)
		switch {
		case err != nil:
			return err
		case e.item == "":
			return errors.New("item is empty")
		case query >= 0:
			seen[query] = append(seen[query], e.item)
		}
		return nil
	})
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err == nil && 2*unknown > rows {
		err = fmt.Errorf("%d of %d rows have an unknown query; are the ids those of these queries?", unknown, rows)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: seen: %s: %w", ErrInput, path, err)
	}
	return seen, nil
}
