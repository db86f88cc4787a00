package pipeline

import (
	"context"
	"math"
	"slices"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/table"
)

// resident is the table as one search sees it.
type resident struct {
	Table *table.Table
	// behind: writes were seen, or missed, that the table or the companion does not
	// show yet, so that nothing can be proved of what they say.
	behind bool
	// doubt, if not nil, stands for writes on their way that make the table behind
	// unless the database refuses them.
	doubt Doubt
}

// resident takes the table as it is now; the caller calls its Release, which a
// nil table permits.
func (o *opened) resident() resident {
	r := resident{Table: o.Table, behind: o.switched}
	if o.Freshness != nil { // first: what was applied since is in the snapshot
		var fresh bool
		fresh, r.doubt = o.Freshness.Look()
		r.behind = r.behind || !fresh
	}
	if o.Live == nil {
		return r
	}
	r.behind = r.behind || o.Live.Pending() > 0
	if t := o.Live.Snapshot(); t != nil {
		r.Table = t
	} else {
		r.behind = true // it was closed: the server is stopping
	}
	return r
}

// settleDoubt finds out whether writes that were on their way when the search began
// made the table or the companion behind. It waits only where the answer depends on it.
func (s *search) settleDoubt(ctx context.Context) {
	if s.doubt != nil && !s.behind && s.readsDerived() {
		s.behind = !s.doubt.Cleared(ctx)
		s.doubt = nil
	}
}

// release gives the table back.
func (r resident) release() {
	if r.Table != nil {
		r.Table.Release()
	}
}

// rough is a search over rows that a format rounded. Its scores are refined: the
// candidates that rounding could have kept out of the first K are scored again in
// full precision, until the first K are those of full precision.
type rough struct {
	// by bounds what rounding changes a score by; 0: the rows are exact.
	by float32
	// spare are the best candidates behind the hits, dropped the most that one scored
	// which is in neither.
	spare   []rerank.Scored
	dropped float32
	// exact are the candidates whose score is that of full precision.
	exact map[rerank.ID]bool
	// off is what the hits can still be off by.
	off float32
}

// roughness is what the table's rows do to the scores of a query.
func (s *search) roughness() rough {
	r := rough{dropped: float32(math.Inf(-1))}
	reads := s.Placement == PlacementTable || s.r.Strategy == rerank.Scan
	if s.Table == nil || !reads || !s.Table.Rounded() {
		return r
	}
	if _, full := s.Table.Full(); full && s.r.Strategy == rerank.Scan {
		return r // rounded rows only rule items out; what is left is scored in full precision
	}
	r.by, r.exact = float32(math.Inf(1)), map[rerank.ID]bool{}
	if rounder, ok := s.enc.(rerank.Rounder); ok {
		r.by = rounder.RoundingError(s.Table.Loss())
	}
	r.off = r.by
	return r
}

// keep is the number of candidates to keep for k hits.
func (r *rough) keep(k int) int {
	if r.by == 0 {
		return k
	}
	return k + max(3*k, 64)
}

// split makes the hits and the spare of the best candidates, sorted; scored is
// the number they were chosen from.
func (s *search) split(best []rerank.Scored, scored int) {
	s.scored = scored
	if s.rough.by == 0 {
		s.hits = best
		return
	}
	if scored > len(best) && len(best) > 0 {
		s.rough.dropped = max(s.rough.dropped, best[len(best)-1].Score)
	}
	k := min(s.r.K, len(best))
	s.hits, s.rough.spare = best[:k:k], best[k:]
}

// refine scores contenders again until none is left. It leaves in off what the
// hits can be off by if there is no full precision, or if what was not kept could
// be among them.
func (s *search) refine(ctx context.Context) error {
	r := &s.rough
	if r.by == 0 {
		return nil
	}
	r.off = r.by
	all := slices.Concat(s.hits, r.spare)
	for {
		floor := r.floor(all, s.r.K)
		ids := r.contenders(all, floor)
		k := min(s.r.K, len(all))
		s.hits, r.spare = all[:k:k], all[k:]
		if len(ids) == 0 {
			if !(r.dropped+r.by >= floor) {
				r.off = 0
			}
			return nil
		}
		exact, err := s.exactly(ctx, ids)
		if err != nil || len(exact) < len(ids) {
			return err
		}
		for i, h := range all {
			if score, ok := exact[h.ID]; ok {
				all[i].Score, r.exact[h.ID] = score, true
			}
		}
		slices.SortFunc(all, compare)
	}
}

func compare(a, b rerank.Scored) int {
	switch {
	case rerank.Better(a, b):
		return -1
	case rerank.Better(b, a):
		return 1
	default:
		return 0
	}
}

// floor is a score that k items are known to reach.
func (r *rough) floor(all []rerank.Scored, k int) float32 {
	lows := make([]float32, 0, len(all))
	for _, h := range all {
		switch {
		case !finite(h.Score):
		case r.exact[h.ID]:
			lows = append(lows, h.Score)
		default:
			lows = append(lows, h.Score-r.by)
		}
	}
	if len(lows) < k {
		return float32(math.Inf(-1))
	}
	slices.Sort(lows)
	return lows[len(lows)-k]
}

// contenders are the candidates that may reach the floor and are not exact.
func (r *rough) contenders(all []rerank.Scored, floor float32) []rerank.ID {
	var ids []rerank.ID
	for _, h := range all {
		if finite(h.Score) && !r.exact[h.ID] && h.Score+r.by >= floor {
			ids = append(ids, h.ID)
		}
	}
	return ids
}

// exactly scores items in full precision: by the table's own where it keeps it,
// or, if the search asks for a proof, by the stored vectors. It returns fewer
// scores than ids where there is neither.
func (s *search) exactly(ctx context.Context, ids []rerank.ID) (map[rerank.ID]float32, error) {
	var b batch
	items, missing := s.Table.Lookup(ids, nil, nil)
	full, ok := s.Table.FullItems(items, &rerank.Items{})
	_, fetches := s.Store.(adapters.Fetcher)
	switch {
	case ok && len(missing) == 0:
		b = batch{ids: ids, items: full}
	case s.r.MaxGap != nil && fetches:
		src := source{opened: s.opened, tracer: s.tracer, resident: s.resident}
		var err error
		b, err = src.fromStored(ctx, ids)
		s.answer.Timings.Retrieve += src.fetching
		if err != nil {
			return nil, s.featuresFailed(ctx, err)
		}
	default:
		return nil, nil
	}
	scores, _, err := s.explained(ctx, b, s.enc, false)
	if err != nil && ctx.Err() != nil {
		return nil, timedOut(ctx, err)
	}
	if err != nil {
		return nil, &failure{ReasonScoring, err}
	}
	exact := make(map[rerank.ID]float32, len(scores))
	for i, id := range b.ids {
		exact[id] = scores[i]
	}
	return exact, nil
}

// roughly widens a bound by what the hits can be off by. Only a similarity that
// is one inner product has a bound of use; nothing is proved of another's rounded
// scores, nor of a table or companion that lags behind the writes that were seen.
func (s *search) roughly(b rerank.Bound) rerank.Bound {
	b.Epsilon += s.rough.off
	if s.lags() || s.rough.off > 0 && !s.spec.SingleInnerProduct {
		b.Epsilon = float32(math.Inf(1))
	}
	return b
}

// lags: the answer is made of something derived that does not show every write.
func (s *search) lags() bool { return s.behind && s.readsDerived() }

// readsDerived: the table or the companion has a part in the answer.
func (s *search) readsDerived() bool {
	return s.Placement != PlacementStored || s.r.Strategy == rerank.Scan || s.derivedProbes()
}
