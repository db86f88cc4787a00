package score

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/table"
)

// Found holds the candidates that a search has scored so far.
type Found struct {
	// Hits are the best K candidates, best first. Index is how many candidates were scored before;
	// after a scan, it is the item's number in the table.
	Hits []rerank.Scored
	// Scored counts the candidates that this machine scored, Spared those that only a device
	// scored, and NotFinite those whose score is not finite.
	Scored, Spared, NotFinite int
	// Measured is set if a scan on a device rests on a measured error instead of a bound.
	Measured *rerank.Measured
	// Time is how long scoring has taken.
	Time time.Duration
	// Kept holds the scored batches, if Query.Keep asks for them.
	Kept []Batch

	rounding rounding
}

// rounding tracks how far rounding can have moved a search's scores: the rounding of rows by the
// table's format, and the rounding of Score. Candidates that rounding may have kept out of the
// first K are scored again in float64, from rows in full precision, until the first K and their
// order are certain.
type rounding struct {
	// wide: candidates in doubt are scored again in float64. Otherwise the scores stay as Score
	// rounded them.
	wide bool
	// rows bounds how far the table's format moves a score; 0 if it rounded no row.
	rows float32
	// spare holds the best candidates behind the hits. dropped is the best score of the candidates that are in
	// neither list.
	spare   []rerank.Scored
	dropped float32
	// exact holds the candidates that were scored in float64, with an error of at most wideError.
	exact     map[rerank.ID]bool
	wideError float64
	// lacksRows: some candidate in doubt has no row in full precision.
	lacksRows bool
	// settled: the hits are the best of all candidates, and each was scored in float64.
	settled bool
	// max bounds the error of scores that were computed in float32. remaining bounds the error of the hits' scores
	// by the table's format, without the rounding of Score.
	max, remaining float32
}

// NewFound begins a search. rows is the table whose rows are scored, or nil if rows are computed.
// scan says that the whole table is scanned, proof that the answer must be proved.
func NewFound(rows *table.Table, scan, proof bool, q rerank.EncodedAbilities) Found {
	f := Found{rounding: rounding{wide: scan || proof, dropped: float32(math.Inf(-1)), exact: map[rerank.ID]bool{}}}
	if rows == nil || !rows.Rounded() {
		return f
	}
	if _, full := rows.Full(); full && scan {
		return f // a scan uses rounded rows only to rule items out, and scores the others in full precision
	}
	r := &f.rounding
	r.wide, r.rows = true, float32(math.Inf(1))
	if q.Round != nil {
		r.rows = q.Round.RoundingError(rows.Loss())
	}
	r.remaining = r.rows
	return f
}

// RoundingError bounds how far off the hits' scores can be. If they are Refined, it covers all
// rounding, otherwise all but Score's own.
func (f *Found) RoundingError() float32 {
	if !f.Refined() {
		return f.rounding.remaining
	}
	var worst float32
	for _, h := range f.Hits[:f.Finite()] {
		worst = max(worst, f.rounding.error(h))
	}
	return worst
}

// Refined reports whether the hits were scored in float64 and no other candidate can be among them.
func (f *Found) Refined() bool { return f.rounding.settled }

// Rounded reports whether scores were computed from rows that a table's format rounded.
func (f *Found) Rounded() bool { return f.rounding.rows > 0 }

// Closest returns the least difference between two neighbours among the first k hits.
func (f *Found) Closest(k int) float32 {
	least := float32(math.Inf(1))
	for i := 1; i < min(k, f.Finite()); i++ {
		least = min(least, f.Hits[i-1].Score-f.Hits[i].Score)
	}
	return least
}

// Outside bounds φ of the candidates after the first k hits. off bounds how far off the scores are
// that were not computed in float64.
func (f *Found) Outside(k int, off float32) float32 {
	r, most := &f.rounding, f.rounding.dropped+off
	for _, h := range slices.Concat(f.Hits[min(k, len(f.Hits)):], r.spare) {
		switch {
		case !rerank.IsFinite(h.Score):
		case r.exact[h.ID]:
			most = max(most, h.Score+r.error(h))
		default:
			most = max(most, h.Score+off)
		}
	}
	return most
}

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
	switch {
	case r.rows > 0:
		return k + max(3*k, 64)
	case r.wide:
		return k + max(k/2, 16)
	default:
		return k + 1
	}
}

// setBest sets the hits, and the spare candidates after them, from the best candidates, which are
// sorted. scored is how many candidates they were chosen from.
func (f *Found) setBest(best []rerank.Scored, scored, k int) {
	f.Scored = scored
	r := &f.rounding
	if scored > len(best) && len(best) > 0 {
		r.dropped = max(r.dropped, best[len(best)-1].Score)
	}
	k = min(k, len(best))
	f.Hits, r.spare = best[:k:k], best[k:]
}

// merge adds scored batches to the best candidates.
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
			top.Push(rerank.Scored{ID: id, Score: scores[i][j], Index: scored})
			scored++
		}
	}
	f.setBest(top.Sorted(), scored, q.K)
	if q.Keep {
		f.Kept = append(f.Kept, batches...)
	}
}

// refine scores in float64 the candidates whose place rounding leaves in doubt, until no doubt is
// left. The hits stay unsettled if rows in full precision are missing, or if a candidate that was
// not kept could be among them. batches holds the rows of the new candidates.
func (s *Scorer) refine(ctx context.Context, q Query, f *Found, batches []Batch) error {
	r := &f.rounding
	if !r.wide {
		return nil
	}
	r.settled, r.lacksRows, r.remaining = false, false, r.rows
	if q.Settle {
		r.remaining = float32(math.Inf(1))
	}
	if r.max = r.rows + q.Encoded.Bound(nil, nil).Epsilon; math.IsNaN(float64(r.max)) {
		r.max = float32(math.Inf(1))
	}
	all := slices.Concat(f.Hits, r.spare)
	for {
		floor := r.floor(all, q.K)
		ids := r.contenders(all, floor)
		k := min(q.K, len(all))
		f.Hits, r.spare = all[:k:k], all[k:]
		if len(ids) == 0 {
			r.settled = !(r.dropped+r.max >= floor)
			return nil
		}
		exact, err := s.inFullPrecision(ctx, q, ids, batches, f)
		if err != nil || len(exact) < len(ids) {
			r.lacksRows = true
			return err
		}
		for i, h := range all {
			if score, ok := exact[h.ID]; ok {
				all[i].Score, r.exact[h.ID] = float32(score), true
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

// error bounds how far off a candidate's score is.
func (r *rounding) error(h rerank.Scored) float32 {
	if !r.exact[h.ID] {
		return r.max
	}
	return float32((r.wideError + math.Abs(float64(h.Score))*0x1p-24 + math.SmallestNonzeroFloat32) * (1 + 1e-6))
}

// floor returns a score that at least k candidates are certain to reach.
func (r *rounding) floor(all []rerank.Scored, k int) float32 {
	lows := make([]float32, 0, len(all))
	for _, h := range all {
		if rerank.IsFinite(h.Score) {
			lows = append(lows, h.Score-r.error(h))
		}
	}
	if len(lows) < k {
		return float32(math.Inf(-1))
	}
	slices.Sort(lows)
	return lows[len(lows)-k]
}

// contenders returns the candidates that may reach the floor and were not scored in float64 yet.
func (r *rounding) contenders(all []rerank.Scored, floor float32) []rerank.ID {
	var ids []rerank.ID
	for _, h := range all {
		if rerank.IsFinite(h.Score) && !r.exact[h.ID] && !(h.Score+r.max < floor) {
			ids = append(ids, h.ID)
		}
	}
	return ids
}
