package dataset

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// check rejects a log without usable pairs, and weights whose sum overflows.
func (l *pairLog) check() error {
	pairs := 0
	for q, all := range l.byQuery {
		pairs += len(all)
		var sum float64
		for _, p := range all {
			sum += float64(p.weight)
		}
		if sum > math.MaxFloat32 {
			return fmt.Errorf("the weights of query row %d add up to more than %g", q, math.MaxFloat32)
		}
	}
	c := l.counts
	switch {
	case pairs > 0:
		if err := l.checkUnknown(l.items, c.UnknownItems); err != nil {
			return err
		}
		return l.checkUnknown(l.queries, c.UnknownQueries)
	case c.Rows == 0:
		return errors.New("there is no pair in it")
	}
	text := fmt.Sprintf("no pair is left of %d rows: %d have an unknown query, %d an unknown item, %d weight 0",
		c.Rows, c.UnknownQueries, c.UnknownItems, c.ZeroWeights)
	if l.seen.rows > 0 {
		text += fmt.Sprintf(", %d are of seen items", l.seen.rows)
	}
	if l.firstUnknown != "" {
		text += "; the first unknown is " + l.firstUnknown + l.queries.example() + l.items.example() + "; are the ids those of these vectors?"
		return fmt.Errorf("%w: %s", ErrUnknown, text)
	}
	return errors.New(text)
}

// checkUnknown rejects a log most of whose rows have an unknown id in a column.
func (l *pairLog) checkUnknown(x idIndex, unknown int) error {
	if float64(unknown) <= mostUnknown*float64(l.counts.Rows) {
		return nil
	}
	return fmt.Errorf("%w: %d of %d rows have an unknown %s, as %s, while the %s have ids as %s; are the ids those of these vectors?",
		ErrUnknown, unknown, l.counts.Rows, x.column, strings.Join(l.unknown[x.column], ", "), pluralOf(x.column), x.known)
}

// countSeveralTimes counts the queries whose pairs have different times.
func (l *pairLog) countSeveralTimes() int {
	for _, pairs := range l.byQuery {
		if slices.ContainsFunc(pairs, func(p loggedItem) bool { return p.time != pairs[0].time }) {
			l.counts.SeveralTimes++
		}
	}
	return l.counts.SeveralTimes
}

// splitByTime makes a separate query row for each query and time.
func (l *pairLog) splitByTime(d *Dataset) error {
	s := &vectorSpool{}
	d.closers = append(d.closers, s)
	old := *d
	d.QueryIDs, d.UserIDs = nil, nil
	var byQuery [][]loggedItem
	for q, pairs := range l.byQuery {
		slices.SortStableFunc(pairs, func(a, b loggedItem) int { return cmp.Compare(a.time, b.time) })
		for first := true; first || len(pairs) > 0; first = false {
			n := 0
			for n < len(pairs) && pairs[n].time == pairs[0].time {
				n++
			}
			byQuery, pairs = append(byQuery, pairs[:n:n]), pairs[n:]
			l.origins = append(l.origins, int32(q))
			if old.Queries.Data == nil { // made of histories, later
				d.Queries.Rows = len(byQuery)
			} else if err := s.appendRows(old.Queries.Slice(q, q+1)); err != nil {
				return err
			}
			if old.QueryIDs != nil {
				d.QueryIDs = append(d.QueryIDs, old.QueryIDs[q])
			}
			if old.UserIDs != nil {
				d.UserIDs = append(d.UserIDs, old.UserIDs[q])
			}
		}
	}
	l.byQuery = byQuery
	if old.Queries.Data == nil {
		return nil
	}
	var err error
	d.Queries, err = s.mapMatrix()
	return err
}

// fillDataset writes the sorted pairs to the dataset.
func (l *pairLog) fillDataset(d *Dataset) {
	d.Relevant, d.Asked = make([][]int32, len(l.byQuery)), make([]float64, len(l.byQuery))
	if l.weighted {
		d.Weights = make([][]float32, len(l.byQuery))
	}
	if l.timed {
		d.Times = make([]int64, len(l.byQuery))
	}
	for q, pairs := range l.byQuery {
		if l.timed && len(pairs) > 0 {
			d.Times[q] = slices.MaxFunc(pairs, func(a, b loggedItem) int { return cmp.Compare(a.time, b.time) }).time
		}
		merged := l.mergePairs(pairs)
		for _, p := range merged {
			d.Asked[q] = max(d.Asked[q], float64(p.weight))
		}
		l.counts.Pairs += len(merged)
		d.Relevant[q] = make([]int32, len(merged))
		for i, p := range merged {
			d.Relevant[q][i] = p.item
			if l.weighted {
				d.Weights[q] = append(d.Weights[q], p.weight)
			}
		}
	}
}

// mergePairs sorts the pairs of a query and adds the weights of equal pairs, in the order
// of the log.
func (l *pairLog) mergePairs(pairs []loggedItem) []loggedItem {
	slices.SortStableFunc(pairs, func(a, b loggedItem) int { return cmp.Compare(a.item, b.item) })
	merged := pairs[:0]
	for _, p := range pairs {
		if n := len(merged); n > 0 && merged[n-1].item == p.item {
			merged[n-1].weight += p.weight
			l.counts.DuplicatePairs++
			continue
		}
		merged = append(merged, p)
	}
	return merged
}
