package fit

import (
	"context"
	"math/rand/v2"
	"slices"

	"github.com/likenessdb/likeness/rerank"
)

const (
	// shortlist is the number of items that a probe brings for a lesson where the
	// collection is too large to score it whole, strays that of random ones beside.
	shortlist = 768
	strays    = 256
)

// large: the similarity ranks what a probe finds, and not all items.
func (w *distilWork) large() bool { return w.report.Items > w.options.Softmax }

// firstLists ranks what the averaged probe finds, or the query vector where there
// is none, and random items.
func (w *distilWork) firstLists(ctx context.Context, done func(int)) ([]ranked, error) {
	l := &w.lessons
	u := rerank.NewMatrix(len(l.train), l.items.Cols)
	for i, q := range l.train {
		e, err := w.teacher.encode(q)
		if err != nil {
			return nil, err
		}
		v, err := averaged(e)
		switch {
		case err != nil:
			return nil, err
		case v != nil:
			copy(u.Row(i), v)
		case l.queries.Cols == l.items.Cols:
			copy(u.Row(i), l.queries.Row(int(q)))
		}
	}
	return w.rankFound(ctx, u, nil, done)
}

// refresh ranks what the head finds now, beside what the first lists had. It
// depends on the head alone, so that a checkpoint need not have the lists.
func (w *distilWork) refresh(ctx context.Context, h *probeHead) error {
	l := &w.lessons
	q, u := rerank.NewMatrix(len(l.train), l.queries.Cols), rerank.NewMatrix(len(l.train), l.items.Cols)
	gather(q, l.queries, l.train)
	h.forward(u, q)
	lists, err := w.rankFound(ctx, u, w.first, w.options.Progress.begin("ranking what the probe finds", len(l.train)))
	if err == nil {
		l.lists = lists
	}
	return err
}

// rankFound ranks, by the similarity, the items that each probe finds, those of
// its list, and strays.
func (w *distilWork) rankFound(ctx context.Context, u rerank.Matrix, lists []ranked, done func(int)) ([]ranked, error) {
	l := &w.lessons
	var out []ranked
	block := min(u.Rows, max(8, (1<<24)/l.items.Rows))
	s := rerank.NewMatrix(block, l.items.Rows)
	for from := 0; from < u.Rows; from += block {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		to := min(from+block, u.Rows)
		s := s.Slice(0, to-from)
		multiply(s, u.Slice(from, to), false, l.items, true)
		found := make([][]int32, to-from)
		spread(to-from, 2, func(a, b int) {
			for i := a; i < b; i++ {
				found[i] = bestRows(s.Row(i), shortlist)
				rng := rand.New(rand.NewPCG(w.options.Seed, uint64(from+i)))
				for range strays {
					found[i] = append(found[i], int32(rng.IntN(l.items.Rows)))
				}
				if lists != nil {
					found[i] = append(found[i], lists[from+i].rows...)
				}
				slices.Sort(found[i])
				found[i] = slices.Compact(found[i])
			}
		})
		part, err := w.teacher.rescore(ctx, l.train[from:to], found, w.options.List, done)
		if err != nil {
			return nil, err
		}
		out = append(out, part...)
	}
	return out, nil
}
