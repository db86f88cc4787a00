package search_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/embedded"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/experiment"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

// slowSimilarity encodes no query before until is closed, if it is set.
type slowSimilarity struct {
	*toy
	until *atomic.Pointer[chan struct{}]
}

func (s slowSimilarity) Encode(q rerank.Query) (rerank.Encoded, error) {
	if until := s.until.Load(); until != nil {
		<-*until
	}
	return s.toy.Encode(q)
}

// tryCandidate makes an engine whose route "r" is exact, and an experiment with a candidate.
func tryCandidate(t *testing.T, kind experiment.Kind, candidate rerank.Similarity, change ...func(*route.Route)) (e *search.Engine, trial search.Trial, attempts *[]search.Attempt) {
	t.Helper()
	w := newWorld(t, &toy{dim: 6, blocks: 1}, random(1, 90, 6))
	e, err := search.New([]*route.Route{w.route(route.PlacementTable)}, search.Options{})
	must(t, err)
	must(t, e.Open(t.Context()))
	other := w.route(route.PlacementStored, change...)
	other.Model = route.Model{Name: "candidate", Version: "candidate", Similarity: candidate}
	standby, err := e.Prepare(t.Context(), other)
	must(t, err)
	attempts = &[]search.Attempt{}
	return e, search.Trial{
		Name: "r/v2", Version: "v2", Kind: kind, Share: 1, Session: time.Hour, Patience: time.Minute, Candidate: standby,
		Attempted: func(a search.Attempt) { *attempts = append(*attempts, a) },
	}, attempts
}

func trialRequest() search.Request {
	return search.Request{Route: "r", Query: rerank.Query{Vector: []float32{1, 0, 0.5, 0, 2, 0}}, K: 5, Tried: true}
}

// TestTrialTakes: the experiment takes requests that somebody sees, at its share of the users, and none
// that say how they want to be searched.
func TestTrialTakes(t *testing.T) {
	e, trial, attempts := tryCandidate(t, experiment.Interleaving, &toy{dim: 6, blocks: 2})
	trial.Share = 0.5
	e.SetTrial("r", &trial)
	taken := 0
	for user := range 40 {
		r := trialRequest()
		r.User = fmt.Sprint(user)
		a, err := e.Search(t.Context(), r)
		must(t, err)
		if (a.Experiment != "") != e.Tries(r) {
			t.Errorf("user %d: the answer is of %q, and Tries says %t", user, a.Experiment, e.Tries(r))
		}
		if a.Experiment != "" {
			taken++
		}
	}
	if taken < 10 || taken > 30 || len(*attempts) != taken {
		t.Errorf("%d of 40 users take part; %d attempts", taken, len(*attempts))
	}
	trial.Share = 1
	one, gap := 1, float32(0)
	for name, change := range map[string]func(*search.Request){
		"unseen": func(r *search.Request) { r.Tried = false }, "deep": func(r *search.Request) { r.K = search.MaxTried + 1 },
		"exact": func(r *search.Request) { r.RequireExact = true }, "gap": func(r *search.Request) { r.MaxGap = &gap }, "explained": func(r *search.Request) { r.Explain = true },
		"strategy": func(r *search.Request) { r.Strategy = rerank.Average }, "depth": func(r *search.Request) { r.Depth = 30 }, "calls": func(r *search.Request) { r.Rounds = one },
	} {
		r := trialRequest()
		change(&r)
		if a, _ := e.Search(t.Context(), r); a.Experiment != "" {
			t.Errorf("%s: the answer is of an experiment", name)
		}
	}
	r := trialRequest()
	r.Tried, r.Shown = false, true
	if a, err := e.Search(t.Context(), r); err != nil || a.Experiment != experiment.Interleaving {
		t.Errorf("a request that is shown: %+v, %v", a, err)
	}
	e.SetTrial("r", nil)
	if a, err := e.Search(t.Context(), trialRequest()); err != nil || a.Experiment != "" || e.Tries(trialRequest()) {
		t.Errorf("after its end: %+v, %v", a, err)
	}
}

// TestTrialProvesNothing: an interleaved answer has the picks of both versions, each with its own
// score, and no proof; a divided one is one version's.
func TestTrialProvesNothing(t *testing.T) {
	e, trial, attempts := tryCandidate(t, experiment.Interleaving, &toy{dim: 6, blocks: 2})
	plain, err := e.Search(t.Context(), trialRequest())
	must(t, err)
	if plain.Certificate.Status != rerank.StatusExact {
		t.Fatalf("the version in service answers %s", plain.Certificate.Status)
	}
	candidate, err := trial.Candidate.Search(t.Context(), trialRequest())
	must(t, err)
	e.SetTrial("r", &trial)
	a, err := e.Search(t.Context(), trialRequest())
	must(t, err)
	if a.Certificate.Status != rerank.StatusUnknown || a.Version != plain.Version || len(a.Hits) != 5 {
		t.Errorf("%+v", a)
	}
	for _, h := range a.Hits {
		from := map[experiment.Arm]search.Answer{experiment.Control: plain, experiment.Candidate: candidate}[h.Arm]
		if !slices.ContainsFunc(from.Hits, func(x search.Hit) bool { return x.ID == h.ID && x.Score == h.Score }) {
			t.Errorf("%s, with %v, is no pick of %s", h.ID, h.Score, h.Arm)
		}
	}
	trial.Kind = experiment.Dividing
	e.SetTrial("r", &trial)
	arms := map[experiment.Arm]int{}
	for user := range 20 {
		r := trialRequest()
		r.User = fmt.Sprint(user)
		a, err := e.Search(t.Context(), r)
		must(t, err)
		arm, want := a.Hits[0].Arm, plain
		if arm == experiment.Candidate {
			want = candidate
		}
		arms[arm]++
		if a.Version != want.Version || a.Hits[0].ID != want.Hits[0].ID || a.Certificate.Status != want.Certificate.Status {
			t.Errorf("%s: %+v, want %+v", arm, a, want)
		}
	}
	if arms[experiment.Control] == 0 || arms[experiment.Candidate] == 0 || len(*attempts) != 1+arms[experiment.Candidate] {
		t.Errorf("%v, %d attempts", arms, len(*attempts))
	}
}

// TestACandidatePromisesNothing: audits are of the version in service, so that a candidate's answer carries no calibration.
func TestACandidatePromisesNothing(t *testing.T) {
	given := promised()
	e, trial, _ := tryCandidate(t, experiment.Dividing, &toy{dim: 6, blocks: 2}, func(r *route.Route) { r.Strategy, r.Promise = rerank.PerEmbedding, given })
	alone, err := trial.Candidate.Search(t.Context(), trialRequest())
	must(t, err)
	if alone.Certificate.Status != rerank.StatusCalibrated {
		t.Fatalf("the candidate alone answers %+v", alone.Certificate)
	}
	e.SetTrial("r", &trial)
	seen := map[experiment.Arm]rerank.Status{}
	for user := range 20 {
		r := trialRequest()
		r.User = fmt.Sprint(user)
		a, err := e.Search(t.Context(), r)
		must(t, err)
		seen[a.Arm] = a.Certificate.Status
	}
	if want := (map[experiment.Arm]rerank.Status{experiment.Control: rerank.StatusExact, experiment.Candidate: rerank.StatusUnknown}); !reflect.DeepEqual(seen, want) {
		t.Errorf("the arms answer %v, want %v", seen, want)
	}
}

// failsOn fails on queries whose first element is negative.
type failsOn struct{ *toy }

func (f failsOn) Encode(q rerank.Query) (rerank.Encoded, error) {
	if q.Vector[0] < 0 {
		return nil, errors.New("out of registers")
	}
	return f.toy.Encode(q)
}

// TestTrialByIntention: where requests are divided, every answer counts for the arm that its request was
// assigned to, and a candidate that is as good, but fails on difficult queries, seems neither better nor
// worse by that, in more experiments than alpha.
func TestTrialByIntention(t *testing.T) {
	e, trial, _ := tryCandidate(t, experiment.Dividing, failsOn{&toy{dim: 6, blocks: 1}}, func(r *route.Route) { r.Failure = route.FailClosed })
	trial.Attempted = func(search.Attempt) {}
	const experiments, alpha = 40, 0.05
	wrong := 0
	for n := range experiments {
		trial.Name = fmt.Sprint("experiment ", n)
		e.SetTrial("r", &trial)
		test, err := experiment.NewTest(alpha)
		must(t, err)
		rng := rand.New(rand.NewPCG(uint64(n), 7))
		var waiting [3][]float64
		for user := range 200 {
			r := trialRequest()
			r.User, r.K = fmt.Sprint(user), 1
			clicks := 0.8
			if user%2 == 0 { // a difficult query: the candidate fails, and people seldom click
				r.Query.Vector, clicks = []float32{-1, 0, 0.5, 0, 2, 0}, 0.1
			}
			a, err := e.Search(t.Context(), r)
			must(t, err)
			if a.Experiment == "" || a.Arm == experiment.Neither || a.Hits[0].Arm != a.Arm {
				t.Fatalf("user %d is in no arm: %+v", user, a)
			}
			worth := 0.0
			if rng.Float64() < clicks {
				worth = 1
			}
			waiting[a.Arm] = append(waiting[a.Arm], worth)
			if c, b := waiting[experiment.Control], waiting[experiment.Candidate]; len(c) > 0 && len(b) > 0 {
				_, err := test.Add(b[0] - c[0])
				must(t, err)
				waiting[experiment.Control], waiting[experiment.Candidate] = c[1:], b[1:]
			}
		}
		if test.Units < 70 {
			t.Fatalf("%d pairs", test.Units)
		}
		if test.Decided != experiment.Undecided {
			wrong++
		}
	}
	if wrong > experiments*alpha {
		t.Errorf("%d of %d experiments without a difference were decided", wrong, experiments)
	}
}

// awaitEnd waits until the last search of a candidate has let go of it.
func awaitEnd(t *testing.T, ended <-chan struct{}) {
	t.Helper()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Fatal("a search of the candidate still holds it")
	}
}

// TestTrialInTime: an answer that the caller needs by a time waits for no candidate after it, and a
// candidate that the version in service outran counts as slow.
func TestTrialInTime(t *testing.T) {
	until, may := new(atomic.Pointer[chan struct{}]), make(chan struct{})
	e, trial, attempts := tryCandidate(t, experiment.Interleaving, slowSimilarity{&toy{dim: 6, blocks: 2}, until})
	want, err := e.Search(t.Context(), trialRequest())
	must(t, err)
	until.Store(&may)
	e.SetTrial("r", &trial)
	r := trialRequest()
	for i, by := range []time.Time{time.Now().Add(-time.Second), time.Now().Add(300 * time.Millisecond)} {
		r.AnswerBy = by
		a, err := e.Search(t.Context(), r)
		must(t, err)
		if a.Experiment != "" || !reflect.DeepEqual(a.Hits, want.Hits) {
			t.Errorf("%+v, want %+v", a, want)
		}
		if len(*attempts) != i || i == 1 && !(*attempts)[0].Slow { // nobody is in time for what is over
			t.Errorf("by %s: %+v", by, *attempts)
		}
	}
	e.SetTrial("r", nil)
	ended := trial.Candidate.Discard()
	close(may)
	awaitEnd(t, ended)
	until.Store(nil)
}

// TestATrialOfABrokenVersion: the error of the version in service is the caller's, whatever the candidate found.
func TestATrialOfABrokenVersion(t *testing.T) {
	control := &toy{dim: 6, blocks: 1}
	w := newWorld(t, control, random(1, 90, 6))
	e, err := search.New([]*route.Route{w.route(route.PlacementStored, func(r *route.Route) { r.Failure = route.FailClosed })}, search.Options{})
	must(t, err)
	must(t, e.Open(t.Context()))
	other := w.route(route.PlacementStored)
	other.Model = route.Model{Name: "candidate", Version: "candidate", Similarity: &toy{dim: 6, blocks: 2}}
	standby, err := e.Prepare(t.Context(), other)
	must(t, err)
	control.broken = errors.New("out of registers")
	e.SetTrial("r", &search.Trial{
		Name: "r/v2", Kind: experiment.Interleaving, Share: 1, Session: time.Hour, Patience: time.Minute, Candidate: standby,
		Attempted: func(a search.Attempt) { t.Errorf("the candidate was compared: %+v", a) },
	})
	if a, err := e.Search(t.Context(), trialRequest()); !errors.Is(err, control.broken) {
		t.Errorf("%+v, %v", a, err)
	}
	e.SetTrial("r", nil)
	awaitEnd(t, standby.Discard())
}

// TestTrialNeverHurts: where the candidate fails, degrades, finds nothing or is late, the answer is the version in
// service's, and what happened is counted.
func TestTrialNeverHurts(t *testing.T) {
	broken := errors.New("out of registers")
	until, may := new(atomic.Pointer[chan struct{}]), make(chan struct{})
	for name, c := range map[string]struct {
		candidate rerank.Similarity
		patience  time.Duration
		change    func(*route.Route)
		want      search.Attempt
	}{
		"failed":   {&toy{dim: 6, blocks: 2, broken: broken}, time.Minute, func(r *route.Route) { r.Failure = route.FailClosed }, search.Attempt{Err: broken}},
		"degraded": {&toy{dim: 6, blocks: 2, broken: broken}, time.Minute, func(*route.Route) {}, search.Attempt{Degraded: true}},
		"empty": {&toy{dim: 6, blocks: 2}, time.Minute, func(r *route.Route) {
			r.Collection = "nothing"
			must(t, r.Store.(*embedded.Store).Load(r.Collection, embedded.Collection{Fields: []embedded.Field{{
				VectorField: adapters.VectorField{Metric: adapters.InnerProduct}, Vectors: rerank.NewMatrix(0, 6),
			}}}))
		}, search.Attempt{Empty: true}},
		"late": {slowSimilarity{&toy{dim: 6, blocks: 2}, until}, time.Millisecond, func(*route.Route) {}, search.Attempt{Slow: true}},
	} {
		t.Run(name, func(t *testing.T) {
			e, trial, attempts := tryCandidate(t, experiment.Interleaving, c.candidate, c.change)
			want, err := e.Search(t.Context(), trialRequest())
			must(t, err)
			trial.Patience = c.patience
			until.Store(&may)
			e.SetTrial("r", &trial)
			a, err := e.Search(t.Context(), trialRequest())
			must(t, err)
			if a.Experiment != "" || !reflect.DeepEqual(a.Hits, want.Hits) || a.Certificate.Status != want.Certificate.Status {
				t.Errorf("%+v, want %+v", a, want)
			}
			if got := *attempts; len(got) != 1 || got[0].Slow != c.want.Slow || got[0].Degraded != c.want.Degraded || got[0].Empty != c.want.Empty || !errors.Is(got[0].Err, c.want.Err) {
				t.Errorf("%+v, want %+v", got, c.want)
			}
			e.SetTrial("r", nil)
			ended := trial.Candidate.Discard()
			if name == "late" {
				close(may)
			}
			awaitEnd(t, ended) // the candidate's searches let go of it
			until.Store(nil)
		})
	}
}
