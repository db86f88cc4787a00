package search

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/likenessdb/likeness/internal/caught"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/experiment"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search/certify"
)

// MaxTried is the last rank that an experiment answers.
const MaxTried = 100

// Trial is a running experiment of a route. Some searches are answered by two versions, the version in
// service and a candidate. It is read-only.
type Trial struct {
	// Name stands for the experiment when requests are assigned, Version for the candidate in answers.
	Name, Version string
	Kind          experiment.Kind
	// Share is the share of the users, or of the queries of unknown users, that take part.
	Share float64
	// Session is how long one user's answers, or the answers to one query, count as one.
	Session time.Duration
	// Patience is how long after its beginning an answer waits for the candidate, if the version in
	// service has answered before.
	Patience  time.Duration
	Candidate *Standby
	// Attempted is called with the outcome of each search of the candidate. It must not block.
	Attempted func(Attempt)
}

// Attempt is a search of a candidate.
type Attempt struct {
	// Slow: the candidate did not answer within Trial.Patience, or not by the request's AnswerBy, by
	// which the version in service did.
	Slow     bool
	Degraded bool
	// Empty: the candidate found nothing, and the version in service did.
	Empty bool
	Err   error
}

// SetTrial begins an experiment of a route, or, with nil, ends it. Searches that have begun go on as
// they began.
func (e *Engine) SetTrial(route string, t *Trial) {
	if at := e.trials[route]; at != nil {
		at.Store(t)
	}
}

// Trying reports whether an experiment of some route runs.
func (e *Engine) Trying() bool {
	for _, at := range e.trials {
		if at.Load() != nil {
			return true
		}
	}
	return false
}

// Tries reports whether the experiment of the request's route would answer it, if it were Tried.
func (e *Engine) Tries(r Request) bool {
	t := e.trialOf(r)
	return t != nil && t.assign(r, time.Now()).Takes
}

// trialOf returns the experiment that may take a request, or nil. A request that says how it wants to
// be searched, or that wants a proof, is answered by the version in service.
func (e *Engine) trialOf(r Request) *Trial {
	at := e.trials[r.Route]
	if at == nil {
		return nil
	}
	t := at.Load()
	if t == nil || r.K > MaxTried || r.RequireExact || r.MaxGap != nil || r.Explain ||
		r.Strategy != "" || r.Depth != 0 || r.AverageDepth != 0 || r.Weights != "" || r.Head != "" ||
		r.Calls != nil || r.Rounds != 0 || r.Mix != nil {
		return nil
	}
	return t
}

// assign says what the experiment does with a request at a time.
func (t *Trial) assign(r Request, now time.Time) experiment.Assignment {
	q := r.Query
	query := make([]byte, 0, 4*(len(q.Vector)+len(q.Vectors.Data))+len(q.Text))
	for _, numbers := range [][]float32{q.Vector, q.Vectors.Data} {
		for _, x := range numbers {
			query = binary.LittleEndian.AppendUint32(query, math.Float32bits(x))
		}
	}
	query = append(query, q.Text...)
	asked := experiment.Asked{Unit: cmp.Or(r.User, string(query)), Query: string(query) + r.Filter, Session: now.UnixNano() / int64(t.Session)}
	return experiment.Assign(t.Name, asked, t.Share)
}

// trialFor returns the experiment that answers a request, or nil.
func (e *Engine) trialFor(r Request) *Trial {
	if !r.Shown && !r.Tried {
		return nil
	}
	return e.trialOf(r)
}

// searchTrial answers a request by the version in service or, if the experiment takes the request, by
// both versions.
func (e *Engine) searchTrial(ctx context.Context, version *route.Version, t *Trial, r Request) (a Answer, err error) {
	as := t.assign(r, time.Now())
	if as.Takes && (t.Kind == experiment.Interleaving || as.Arm == experiment.Candidate) && t.Candidate.Version.Hold() {
		a, err = e.compare(ctx, version, t, as, r)
	} else {
		a, err = e.searchVersion(ctx, version, r)
	}
	if as.Takes && t.Kind == experiment.Dividing && err == nil {
		a = t.assigned(a, as.Arm)
	}
	return a, err
}

// tried is the candidate's answer or error, and the time that it took.
type tried struct {
	answer Answer
	err    error
	took   time.Duration
}

// compare searches both versions at once. The answer is the version in service's unless the candidate
// answers well and in time. compare releases the candidate's version.
func (e *Engine) compare(ctx context.Context, version *route.Version, t *Trial, as experiment.Assignment, r Request) (Answer, error) {
	began := time.Now()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan tried, 1)
	second := r // the caller may reuse the vectors while a late candidate still reads them
	second.Query.Vector, second.Query.Vectors.Data = slices.Clone(r.Query.Vector), slices.Clone(r.Query.Vectors.Data)
	go func() {
		defer t.Candidate.Version.Release()
		var got tried
		got.err = caught.Call(func() (err error) {
			got.answer, err = e.searchVersion(ctx, t.Candidate.Version, second)
			return err
		})
		got.took = time.Since(began)
		done <- got
	}()
	a, err := e.searchVersion(ctx, version, r)
	if err != nil || a.Degraded != nil { // there is no sound answer to compare the candidate with
		return a, err
	}
	end := began.Add(t.Patience) // a later answer of the candidate counts as slow
	until := end
	if by := r.AnswerBy; !by.IsZero() && by.Before(end) {
		if until = by; time.Now().Before(by) {
			end = by
		}
	}
	got, ok := await(ctx, done, time.Until(until))
	attempt := Attempt{Slow: !ok || got.took > t.Patience, Err: got.err, Degraded: got.answer.Degraded != nil}
	attempt.Empty = ok && got.err == nil && len(got.answer.Hits) == 0 && len(a.Hits) > 0
	if ctx.Err() == nil && (ok || !time.Now().Before(end)) { // if the caller waits less than Patience, a missing answer proves nothing
		t.Attempted(attempt)
	}
	if !ok || attempt.Err != nil || attempt.Degraded || attempt.Empty {
		return a, nil
	}
	if t.Kind == experiment.Dividing {
		if got.answer.Certificate.Status == rerank.StatusCalibrated { // audits check the version in service only
			got.answer.Certificate = certify.Unproved(got.answer.Certificate)
		}
		return got.answer, nil
	}
	a = interleave(a, got.answer, r.K, as.Seed)
	a.Experiment = t.Kind
	a.Plan = fmt.Sprintf("experiment: interleaved with version %s; nothing is proved of the whole list", t.Version)
	return a, nil
}

// assigned marks an answer as one of an arm of an experiment that divides requests. That is the arm that
// the request was assigned to, even where the candidate failed and the version in service answered: if
// such answers were left out, or counted for the other arm, the arms would get different requests, and
// a candidate that fails on difficult queries would seem better.
func (t *Trial) assigned(a Answer, arm experiment.Arm) Answer {
	for i := range a.Hits {
		a.Hits[i].Arm = arm
	}
	a.Experiment, a.Arm = t.Kind, arm
	a.Plan = fmt.Sprintf("experiment: %s of the version in service and version %s", arm, t.Version)
	return a
}

// await waits for the candidate's answer for the given time, but for at most half of the time that the
// caller has left.
func await(ctx context.Context, done <-chan tried, within time.Duration) (got tried, ok bool) {
	if deadline, has := ctx.Deadline(); has {
		within = min(within, time.Until(deadline)/2)
	}
	timer := time.NewTimer(max(within, 0))
	defer timer.Stop()
	select {
	case got = <-done:
		return got, true
	default:
	}
	select {
	case got = <-done:
		return got, true
	case <-timer.C:
	case <-ctx.Done():
	}
	return got, false
}

// interleave returns the answer of the version in service with the hits of both versions. The
// certificate proves nothing, because it would speak of one similarity, and the list mixes two.
func interleave(control, candidate Answer, k int, seed uint64) Answer {
	a := control
	a.Hits = nil
	hits := map[experiment.Arm]map[rerank.ID]Hit{}
	lists := map[experiment.Arm][]rerank.ID{}
	for arm, from := range map[experiment.Arm]Answer{experiment.Control: control, experiment.Candidate: candidate} {
		hits[arm], lists[arm] = make(map[rerank.ID]Hit, len(from.Hits)), from.ids()
		for _, h := range from.Hits {
			hits[arm][h.ID] = h
		}
	}
	for _, p := range experiment.Interleave(lists[experiment.Control], lists[experiment.Candidate], k, seed) {
		h := hits[p.Arm][p.ID]
		h.Arm = p.Arm
		a.Hits = append(a.Hits, h)
	}
	a.Certificate = certify.Unproved(control.Certificate)
	a.HasVersions = control.HasVersions && candidate.HasVersions
	a.NotFinite, a.NotIndexed = control.NotFinite+candidate.NotFinite, control.NotIndexed+candidate.NotIndexed
	return a
}
