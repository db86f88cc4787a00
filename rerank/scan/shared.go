package scan

import (
	"slices"
	"time"

	"github.com/likenessdb/likeness/internal/caught"
	"github.com/likenessdb/likeness/rerank"
)

// maxShared limits the queries of one call, and so the memory for their scores.
const maxShared = 64

// shared is the working memory of queries that share a chunk.
type shared struct {
	waiting, members []*job
	plans            []jobPlan
	queries          []rerank.Encoded
	reach, values    []float32
}

// jobPlan says how a worker processes a piece for a job: see job.plan.
type jobPlan struct {
	job       *job
	screen    int
	threshold float32
}

// scanChunk processes the worker's chunk for its jobs. Jobs that visit the same items with
// queries of one batch share the work.
func (w *worker) scanChunk() {
	sh := &w.shared
	sh.waiting = append(sh.waiting[:0], w.jobs...)
	for len(sh.waiting) > 0 {
		first := sh.waiting[0]
		sh.members = sh.members[:0]
		sh.waiting = slices.DeleteFunc(sh.waiting, func(j *job) bool {
			joins := j == first || first.batch != nil && j.batch == first.batch && j.q.Within == first.q.Within && len(sh.members) < maxShared
			if joins {
				sh.members = append(sh.members, j)
			}
			return joins
		})
		if len(sh.members) == 1 {
			w.scan(first, w.from, w.to)
		} else {
			w.scanTogether(w.from, w.to)
		}
	}
	clear(sh.members)
	clear(sh.plans)
	clear(sh.queries)
}

// scanTogether processes the items [from, to) for the members. It takes pieces short enough
// for every member's plan; in a piece, the members with the same plan share one call.
func (w *worker) scanTogether(from, to int) {
	sh := &w.shared
	for from < to {
		n := to - from
		sh.plans = sh.plans[:0]
		for _, j := range sh.members {
			screen, threshold, most := j.plan(n)
			sh.plans = append(sh.plans, jobPlan{j, screen, threshold})
			n = min(n, most)
		}
		slices.SortStableFunc(sh.plans, func(a, b jobPlan) int { return a.screen - b.screen })
		for rest := sh.plans; len(rest) > 0; {
			same := 1
			for same < len(rest) && rest[same].screen == rest[0].screen {
				same++
			}
			w.pieceTogether(rest[:same], from, from+n)
			rest = rest[same:]
		}
		from += n
	}
}

// pieceTogether processes the items [from, to), which begin at a tile, for jobs with the same
// plan. If the shared call fails, each job tries alone, so that it gets its own error.
func (w *worker) pieceTogether(plans []jobPlan, from, to int) {
	sh, first := &w.shared, plans[0].job
	list, whole := w.list(first, from, to)
	if len(list) == 0 {
		return
	}
	sh.queries, sh.reach = sh.queries[:0], sh.reach[:0]
	for _, p := range plans {
		sh.queries, sh.reach = append(sh.queries, p.job.q.Encoded), append(sh.reach, p.threshold)
	}
	if need := len(plans) * len(list); cap(sh.values) < need {
		sh.values = make([]float32, need)
	}
	values, screen := sh.values[:len(plans)*len(list)], plans[0].screen
	began := time.Now()
	err := caught.Call(func() error {
		if screen < 0 {
			return first.batch.ScoreBatch(values, sh.queries, w.exact(list, whole, from, to))
		}
		return first.batch.ScreenBatch(screen, values, sh.queries, w.rows(list, whole, from, to), w.s.loss, sh.reach)
	})
	each := time.Since(began) / time.Duration(len(plans))
	for i, p := range plans {
		own := values[i*len(list):][:len(list)]
		switch {
		case err != nil:
			w.attempt(p.job, func() error { return w.piece(p.job, from, to, p.screen, p.threshold) })
		case screen < 0:
			w.rank(p.job, list, own, p.threshold)
			p.job.count(-1, len(list), len(list), len(list), 0, each)
		default:
			w.attempt(p.job, func() error { return w.scoreRest(p.job, list, own, screen, p.threshold, each) })
		}
	}
}
