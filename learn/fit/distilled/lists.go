package distilled

import (
	"context"
	"math/rand/v2"
	"slices"

	"github.com/likenessdb/likeness/learn/fit/linalg"
	"github.com/likenessdb/likeness/learn/fit/teacher"
	"github.com/likenessdb/likeness/rerank"
)

const (
	// shortlist is how many items a probe finds for a training query if the collection is too large
	// to score all items. randomItems is how many random items are added to them.
	shortlist   = 768
	randomItems = 256
)

// isLarge reports whether the collection is so large that the similarity ranks only what a probe
// finds, not all items.
func (f *fitter) isLarge() bool { return f.report.Items > f.options.Softmax }

// makeFirstLists ranks, for each training query, random items and the items that the averaged probe
// finds, or the query vector itself if there is no such probe.
func (f *fitter) makeFirstLists(ctx context.Context, done func(int)) ([]teacher.Ranked, error) {
	l := &f.lessons
	u := rerank.NewMatrix(len(l.train), l.items.Cols)
	for i, q := range l.train {
		e, err := f.teacher.Encode(q)
		if err != nil {
			return nil, err
		}
		v, err := averagedProbe(e)
		switch {
		case err != nil:
			return nil, err
		case v != nil:
			copy(u.Row(i), v)
		case l.queries.Cols == l.items.Cols:
			copy(u.Row(i), l.queries.Row(int(q)))
		}
	}
	return f.rankFound(ctx, u, nil, done)
}

// renewLists ranks the items that a head finds, together with the items of the first lists. The
// lists depend on the head alone, so a checkpoint need not contain them.
func (f *fitter) renewLists(ctx context.Context, h *head) error {
	l := &f.lessons
	q, u := linalg.Gather(l.queries, l.train), rerank.NewMatrix(len(l.train), l.items.Cols)
	h.forward(u, q)
	lists, err := f.rankFound(ctx, u, f.firstLists, f.options.Progress.Begin("ranking what the probe finds", len(l.train)))
	if err == nil {
		l.lists = lists
	}
	return err
}

// rankFound ranks, for each training query, the items that its probe finds in the collection, the
// items of its list in lists, and random items. lists may be nil.
func (f *fitter) rankFound(ctx context.Context, u rerank.Matrix, lists []teacher.Ranked, done func(int)) ([]teacher.Ranked, error) {
	l := &f.lessons
	var out []teacher.Ranked
	block := min(u.Rows, max(8, (1<<24)/l.items.Rows))
	s := rerank.NewMatrix(block, l.items.Rows)
	for from := 0; from < u.Rows; from += block {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		to := min(from+block, u.Rows)
		s := s.Slice(0, to-from)
		linalg.Multiply(s, u.Slice(from, to), false, l.items, true)
		found := make([][]int32, to-from)
		linalg.Parallel(to-from, 2, func(a, b int) {
			for i := a; i < b; i++ {
				found[i] = teacher.BestRows(s.Row(i), shortlist)
				rng := rand.New(rand.NewPCG(f.options.Seed, uint64(from+i)))
				for range randomItems {
					found[i] = append(found[i], int32(rng.IntN(l.items.Rows)))
				}
				if lists != nil {
					found[i] = append(found[i], lists[from+i].Rows...)
				}
				slices.Sort(found[i])
				found[i] = slices.Compact(found[i])
			}
		})
		part, err := f.teacher.Rescore(ctx, l.train[from:to], found, f.options.List, done)
		if err != nil {
			return nil, err
		}
		out = append(out, part...)
	}
	return out, nil
}
