package score

import (
	"context"
	"math"
	"slices"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/table"
)

// Found holds the results of a search so far.
type Found struct {
	// Hits are the best K candidates, best first. Index counts the candidates scored
	// before; after a scan it is the item's number in the table.
	Hits []rerank.Scored
	// Scored counts the candidates that were scored on this machine, Spared those
	// that a device scored alone, NotFinite those whose score is not finite.
	Scored, Spared, NotFinite int
	// Measured is set if a scan on a device rests on a measured error and no bound.
	Measured *rerank.Measured
	// Kept are the scored batches, if Query.Keep asks for them.
	Kept []Batch

	rounding rounding
}

// rounding is the state of a search over rows that a table's format rounded. Their
// scores are refined: candidates that rounding could have kept out of the first K
// are scored again in full precision, until full
// precision would choose the same first K.
type rounding struct {
	// max bounds how much rounding changes a score; 0: the rows are not rounded.
	max float32
	// spare are the best candidates behind the hits, and dropped is the best score of
	// the candidates that are in neither.
	spare   []rerank.Scored
	dropped float32
	// exact are the candidates that were scored in full precision.
	exact map[rerank.ID]bool
	// remaining bounds how far the hits' scores can still be off.
	remaining float32
}

// NewFound begins a search. rows is the table whose rows are scored, nil if their
// rows are computed; scan says that the table is scanned whole.
func NewFound(rows *table.Table, scan bool, q rerank.EncodedAbilities) Found {
	f := Found{rounding: rounding{dropped: float32(math.Inf(-1))}}
	if rows == nil || !rows.Rounded() {
		return f
	}
	if _, full := rows.Full(); full && scan {
		return f // a scan only rules items out by rounded rows; the others it scores in full precision
	}
	r := &f.rounding
	r.max, r.exact = float32(math.Inf(1)), map[rerank.ID]bool{}
	if q.Round != nil {
		r.max = q.Round.RoundingError(rows.Loss())
	}
	r.remaining = r.max
	return f
}

// RoundingError bounds how far the hits' scores can be off because the table's
// format rounds its rows.
func (f *Found) RoundingError() float32 { return f.rounding.remaining }

// Rounded reports whether scores were computed from rounded rows.
func (f *Found) Rounded() bool { return f.rounding.max > 0 }

// Finite returns the number of hits whose score is finite. The others rank last.
func (f *Found) Finite() int {
	n := len(f.Hits)
	for n > 0 && !rerank.IsFinite(f.Hits[n-1].Score) {
		n--
	}
	return n
}

// keep returns the number of candidates to keep for k hits.
func (r *rounding) keep(k int) int {
	if r.max == 0 {
		return k
	}
	return k + max(3*k, 64)
}

// setBest makes the hits, and the spare candidates behind them, of the best
// candidates, which are sorted; scored is the number that they were chosen from.
func (f *Found) setBest(best []rerank.Scored, scored, k int) {
	f.Scored = scored
	r := &f.rounding
	if r.max == 0 {
		f.Hits = best
		return
	}
	if scored > len(best) && len(best) > 0 {
		r.dropped = max(r.dropped, best[len(best)-1].Score)
	}
	k = min(k, len(best))
	f.Hits, r.spare = best[:k:k], best[k:]
}

// merge puts the scored batches among the best candidates.
func (f *Found) merge(batches []Batch, scores [][]float32, q Query) {
	r := &f.rounding
	top := rerank.NewTopK(r.keep(q.K))
	for _, h := range f.Hits {
		top.Push(h)
	}
	for _, h := range r.spare {
		top.Push(h)
	}
	scored := f.Scored
	for i, b := range batches {
		for j, id := range b.IDs {
			if !rerank.IsFinite(scores[i][j]) {
				f.NotFinite++
			}
			if r.max > 0 && !b.Rounded {
				r.exact[id] = true
			}
			top.Push(rerank.Scored{ID: id, Score: scores[i][j], Index: scored})
			scored++
		}
	}
	f.setBest(top.Sorted(), scored, q.K)
	if q.Keep {
		f.Kept = append(f.Kept, batches...)
	}
}

// refine scores in full precision what rounding leaves in doubt, until nothing is
// left. RoundingError stays above 0 if there is no full precision, or if a candidate
// that was not kept could belong to the hits.
func (s *Scorer) refine(ctx context.Context, q Query, f *Found) error {
	r := &f.rounding
	if r.max == 0 {
		return nil
	}
	r.remaining = r.max
	all := slices.Concat(f.Hits, r.spare)
	for {
		floor := r.floor(all, q.K)
		ids := r.contenders(all, floor)
		k := min(q.K, len(all))
		f.Hits, r.spare = all[:k:k], all[k:]
		if len(ids) == 0 {
			if !(r.dropped+r.max >= floor) {
				r.remaining = 0
			}
			return nil
		}
		exact, err := s.inFullPrecision(ctx, q, ids)
		if err != nil || len(exact) < len(ids) {
			return err
		}
		for i, h := range all {
			if score, ok := exact[h.ID]; ok {
				all[i].Score, r.exact[h.ID] = score, true
			}
		}
		slices.SortFunc(all, Compare)
	}
}

// Compare orders candidates best first, for slices.SortFunc.
func Compare(a, b rerank.Scored) int {
	switch {
	case rerank.Better(a, b):
		return -1
	case rerank.Better(b, a):
		return 1
	default:
		return 0
	}
}

// floor returns a score that at least k candidates are known to reach.
func (r *rounding) floor(all []rerank.Scored, k int) float32 {
	lows := make([]float32, 0, len(all))
	for _, h := range all {
		switch {
		case !rerank.IsFinite(h.Score):
		case r.exact[h.ID]:
			lows = append(lows, h.Score)
		default:
			lows = append(lows, h.Score-r.max)
		}
	}
	if len(lows) < k {
		return float32(math.Inf(-1))
	}
	slices.Sort(lows)
	return lows[len(lows)-k]
}

// contenders returns the candidates that may reach the floor and were not scored
// in full precision.
func (r *rounding) contenders(all []rerank.Scored, floor float32) []rerank.ID {
	var ids []rerank.ID
	for _, h := range all {
		if rerank.IsFinite(h.Score) && !r.exact[h.ID] && h.Score+r.max >= floor {
			ids = append(ids, h.ID)
		}
	}
	return ids
}
