package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/learn/index"
	"github.com/likenessdb/likeness/learn/relevance"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/rbe"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/follow"
)

// ranked holds the ranker of a build and the base vectors that it computes.
type ranked struct {
	*openRanker

	base *relevance.Base
}

// indexAsked reports the ranker's calls for a build.
type indexAsked struct {
	relevance.Estimate
	// Asked counts the calls of this run, including the measurement's.
	Asked int64  `json:"asked"`
	Cache string `json:"cache"`
}

// questions returns the support queries if a ranker must score the model's items: the
// ranker of the flags, or else the route's. It returns none if the items' vectors are
// stored.
func (f *indexFlags) questions(t *target) ([]rerank.Query, error) {
	named := f.ask.given()
	if f.stored || !named && t.ranker == "" {
		return nil, nil
	}
	m, ok := t.model.Similarity.(*rbe.Similarity)
	switch {
	case ok && len(m.Questions()) > 0:
		if !named {
			f.ask.ranker = t.ranker
		}
		return m.Questions(), nil
	case !named: // a ranker that only the route names orders candidates; features do not depend on it
		return nil, nil
	case !ok:
		return nil, usagef("model %s is of kind %s, whose items no ranker is asked for", t.model.Name, t.model.Similarity.Spec().Kind)
	default:
		return nil, usagef("model %s does not know its support queries, and no ranker can be asked for them; fit it with --queries", t.model.Name)
	}
}

// throughRanker makes a ranker compute the source's base vectors, if the model is
// relevance-based. With keptOnly it only uses stored scores.
func (f *indexFlags) throughRanker(ctx context.Context, src *source, t *target, p *progress, keptOnly bool) error {
	questions, err := f.questions(t)
	if err != nil || len(questions) == 0 {
		return err
	}
	load := func() (*config.Config, error) { return config.Load(src.Source) }
	a, err := f.ask.open(ctx, load, partPath(t.modelPath+".scores", t.source.Part), keptOnly, p.w)
	if err != nil {
		return err
	}
	t.ranked = &ranked{openRanker: a, base: &relevance.Base{Asker: a.Asker, Questions: questions}}
	t.source.Base = t.ranked.base
	if d := a.Description(); t.fittedTo != "" && t.fittedTo != rankerName(d.Name, d.Version) && !f.anyVersion {
		return usagef("model %s was fitted to ranker %q, and this is %q; fit it again, or give --any-version", t.model.Name, t.fittedTo, rankerName(d.Name, d.Version))
	}
	return nil
}

// estimateAsked counts and measures the calls that a build will make, and refuses more than
// --max-calls. It returns nil if no ranker is asked.
func (f *indexFlags) estimateAsked(ctx context.Context, t *target, p *progress) (*indexAsked, error) {
	if t.ranked == nil {
		return nil, nil //nolint:nilnil // no ranker is asked
	}
	base := t.ranked.base
	r := &indexAsked{Cache: t.ranked.dir, Estimate: base.Estimate()}
	var first relevance.Items
	done := p.begin("counting what is to be asked", -1)
	err := t.source.Read(ctx, func(rows adapters.Rows) error {
		items, err := base.Count(&r.Estimate, rows)
		if first.Len() == 0 {
			first = items
		}
		done(len(rows.IDs))
		return err
	})
	if err == nil {
		err = f.ask.permit(r.Estimate)
	}
	if err != nil || r.Calls == 0 {
		return r, err
	}
	err = base.Measure(ctx, &r.Estimate, first)
	if r.Asked = base.Asked(); err != nil || f.ask.estimate {
		return r, err
	}
	p.note(estimateText(r.Estimate))
	base.Tell(p.begin("asking the ranker", int(max(0, r.Calls-r.Asked))))
	return r, nil
}

// rowProgress returns nil if a ranker is asked, because the progress then shows its calls, which
// take longer.
func (t *target) rowProgress(p *progress) index.Progress {
	if t.ranked != nil {
		return nil
	}
	return p.begin
}

// withStoredScores adds the location of stored scores to err, if a ranker is asked.
func (t *target) withStoredScores(err error) error {
	if t.ranked == nil {
		return err
	}
	return t.ranked.withStoredScores(err)
}

// countAsked stores the final number of calls in r, and adds the location of stored scores to err.
func (t *target) countAsked(r *indexAsked, err error) error {
	if r != nil {
		r.Asked = t.ranked.Asked()
	}
	return t.withStoredScores(err)
}

// rankedDrift compares a route's rows with the ranker's stored scores and, with
// --verify-all, asks the ranker for the scores that are not stored. Without
// --verify-all, a row without a stored score counts as changed or new. ok is false if
// the route does not use a ranker for its items.
func (f *indexFlags) rankedDrift(ctx context.Context, src *source, c *config.Config, r config.Route, p *progress) (drift follow.Drift, ok bool, err error) {
	if r.RankerName == "" && !f.ask.given() {
		return drift, false, nil
	}
	t, err := f.routeTarget(ctx, c)
	if err != nil {
		return drift, false, err
	}
	defer func() { err = errors.Join(err, t.closeAll()) }()
	if err := f.throughRanker(ctx, src, &t, p, !f.verifyAll); err != nil || t.ranked == nil {
		return drift, false, err
	}
	drift, err = f.groupDrift(ctx, t, p)
	if n := t.ranked.base.Unknown; n > 0 {
		p.note(fmt.Sprintf("%d rows have no scores in %s: they are new or were written since, or it is another folder; --verify-all asks the ranker for them", n, t.ranked.dir))
	}
	return drift, true, t.ranked.withStoredScores(err)
}
