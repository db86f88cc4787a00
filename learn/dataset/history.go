package dataset

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"time"

	"github.com/likenessdb/likeness/rerank"
)

// History says which items each query is the mean of: the query of a recommender that has no
// query vectors. A search by item_ids makes the same mean.
type History struct {
	// Path is a file in the format of a log. Each line names an item that the query had before it
	// was asked, with a weight (1 if it is absent) and a time.
	Path string
	// HalfLife is the age at which an item counts half. If 0, all ages count the same.
	HalfLife time.Duration
	// Unit takes the mean of unit vectors, as a model that compares unit vectors does.
	Unit bool
	// Keep keeps the items of the history among the answers. If false, they are seen items, as a
	// search by item_ids leaves them out.
	Keep bool
}

// itemHistory holds the items that each query has before it is asked.
type itemHistory struct {
	History
	ids     []rerank.ID    // of the queries, in the order of the file
	rows    map[string]int // of the queries, by id
	byQuery [][]loggedItem
	timed   bool
	read    int // rows of the file
	unknown int // rows of unknown items
}

// readHistory reads the file and numbers its queries.
func (d *Dataset) readHistory(ctx context.Context, s Sources) (*itemHistory, error) {
	h := &itemHistory{History: s.History, rows: map[string]int{}}
	items, err := newIDIndex(columnItem, cmp.Or(s.ItemIDs, s.Items, "the collection"), d.ItemCount(), d.ItemIDs)
	if err != nil {
		return nil, err
	}
	name := filepath.Base(h.Path)
	done := s.Progress.begin("reading "+name, -1)
	l := &pairLog{counts: &Counts{}}
	digest, err := readLog(ctx, h.Path, l.counts, func(e entry) error {
		item, err := l.findRow(items, e.item, e.line, &h.unknown)
		if err != nil {
			return err
		}
		if h.read%progressRows == progressRows-1 {
			done(progressRows)
		}
		return h.add(e, item)
	})
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
	case h.read == 0:
		err = errors.New("there is no item in it")
	case 2*h.unknown > h.read:
		err = fmt.Errorf("%d of %d rows have an unknown item; are the ids those of these vectors?", h.unknown, h.read)
	case h.HalfLife != 0 && !h.timed:
		err = errors.New("a half-life needs the time of every item, and the file has none")
	}
	if err != nil {
		return nil, fmt.Errorf("%w: history: %s: %w", ErrInput, h.Path, err)
	}
	d.sources = append(d.sources, digestedSource{"history", name, func() (string, error) { return digest, nil }})
	d.Counts.UnknownHistory = h.unknown
	return h, nil
}

// add adds a row of the file. item is −1 if it is unknown.
func (h *itemHistory) add(e entry, item int32) error {
	weight := 1.0
	if e.hasWeight {
		weight = e.weight
	}
	switch {
	case h.read > 0 && e.hasTime != h.timed:
		return errors.New("some rows have a time and some have none; give all of them one, or none")
	case !(weight >= 0 && weight <= math.MaxFloat32):
		return fmt.Errorf("weight is %v; want 0 to %g", weight, math.MaxFloat32)
	case e.query == "":
		return errors.New("query is empty")
	}
	h.read, h.timed = h.read+1, e.hasTime
	row, known := h.rows[e.query]
	if !known {
		row = len(h.ids)
		h.rows[e.query], h.ids, h.byQuery = row, append(h.ids, rerank.TextID(e.query)), append(h.byQuery, nil)
	}
	if item >= 0 {
		h.byQuery[row] = append(h.byQuery[row], loggedItem{item: item, weight: float32(weight), time: e.time})
	}
	return nil
}

// fill makes the query vectors. origins holds the query of each row, nil if rows are queries. A
// row's vector is the mean of the items that its query had before the time of the row. Without
// times, items that were chosen for the row are left out: the answer must not be in the question.
// Rows that have no item keep no pairs.
func (h *itemHistory) fill(d *Dataset, origins []int32) error {
	spool := &vectorSpool{}
	d.closers = append(d.closers, spool)
	if !h.Keep && d.Relevant != nil && d.Seen == nil {
		d.Seen = make([][]int32, len(d.Relevant))
	}
	none := rerank.NewMatrix(1, d.Items.Cols)
	for q := range d.QueryCount() {
		query := q
		if origins != nil {
			query = int(origins[q])
		}
		items, now := h.before(d, q, query)
		vector, ok := h.mean(d.Items, items, now)
		if !ok {
			d.dropPairs(q)
			vector = none.Data
		}
		if err := spool.appendRows(rerank.Matrix{Rows: 1, Cols: len(vector), Data: vector}); err != nil {
			return err
		}
		if !h.Keep && d.Relevant != nil {
			d.addSeenItems(q, items)
		}
	}
	if d.Relevant != nil && d.Counts.Pairs == 0 {
		return fmt.Errorf("%w: history: %s: no query had an item before it chose one; bring older items, or, without times, other items than the pairs have", ErrInput, h.Path)
	}
	var err error
	d.Queries, err = spool.mapMatrix()
	return err
}

// before returns the items that a query had before a row, and the time from which their age
// counts.
func (h *itemHistory) before(d *Dataset, row, query int) (items []loggedItem, now int64) {
	now = math.MinInt64
	if d.Times != nil && h.timed {
		now = d.Times[row]
		for _, it := range h.byQuery[query] {
			if it.time < now {
				items = append(items, it)
			}
		}
		return items, now
	}
	for _, it := range h.byQuery[query] {
		if d.Relevant != nil {
			if _, chosen := slices.BinarySearch(d.Relevant[row], it.item); chosen {
				continue
			}
		}
		items, now = append(items, it), max(now, it.time)
	}
	return items, now
}

// mean returns the weighted mean of the items' vectors, or false if the mean is zero or there are
// no items.
func (h *itemHistory) mean(vectors rerank.Matrix, items []loggedItem, now int64) ([]float32, bool) {
	mean := rerank.Mean{Unit: h.Unit}
	for _, it := range items {
		weight := float64(it.weight)
		if h.HalfLife > 0 {
			weight *= math.Exp2(-float64(now-it.time) / h.HalfLife.Seconds())
		}
		if x := vectors.Row(int(it.item)); rerank.CheckFinite("vector", x) == nil {
			mean.Add(x, weight)
		}
	}
	vector, ok := mean.Vector()
	return vector, ok && rerank.Norm(vector) > 0
}

// dropPairs drops the pairs of a row that has no vector. It does not count a row that has no pairs.
func (d *Dataset) dropPairs(q int) {
	if d.Relevant == nil || len(d.Relevant[q]) > 0 {
		d.Counts.NoHistory++
	}
	if d.Relevant == nil {
		return
	}
	d.Counts.Pairs -= len(d.Relevant[q])
	d.Relevant[q], d.Asked[q] = nil, 0
	if d.Weights != nil {
		d.Weights[q] = nil
	}
	if d.Seen != nil {
		d.Counts.Seen -= len(d.Seen[q])
		d.Seen[q] = nil
	}
}

// addSeenItems adds items to those that were seen before a row, but for the chosen ones.
func (d *Dataset) addSeenItems(q int, items []loggedItem) {
	if len(d.Relevant[q]) == 0 {
		return
	}
	d.Counts.Seen -= len(d.Seen[q])
	for _, it := range items {
		if _, chosen := slices.BinarySearch(d.Relevant[q], it.item); !chosen {
			d.Seen[q] = append(d.Seen[q], it.item)
		}
	}
	slices.Sort(d.Seen[q])
	d.Seen[q] = slices.Compact(d.Seen[q])
	d.Counts.Seen += len(d.Seen[q])
}
