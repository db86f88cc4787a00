package experiment_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/likenessdb/likeness/sidecar/experiment"
)

// ranked returns n random ids below most.
func ranked(rng *rand.Rand, n, most int) []int { return rng.Perm(most)[:n] }

// TestInterleave: no item twice, each pick the best that its arm had left, the arms at most one
// pick apart, and longer lists continue shorter ones.
func TestInterleave(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for seed := range uint64(300) {
		a, b := ranked(rng, 100, 130), ranked(rng, 100, 130)
		got := experiment.Interleave(a, b, 100, seed)
		if len(got) != 100 {
			t.Fatalf("%d places, want 100", len(got))
		}
		if odd := experiment.Interleave(a, b, 7, seed); !slices.Equal(odd, got[:7]) {
			t.Fatalf("%d places, want the first 7", len(odd))
		}
		var taken []int
		picks := map[experiment.Arm]int{}
		for i, p := range got {
			list := a
			if p.Arm == experiment.Candidate {
				list = b
			}
			best := list[slices.IndexFunc(list, func(x int) bool { return !slices.Contains(taken, x) })]
			if p.ID != best {
				t.Fatalf("seed %d, place %d: %v picks %d, its best is %d", seed, i, p.Arm, p.ID, best)
			}
			taken = append(taken, p.ID)
			if picks[p.Arm]++; i%2 == 1 && picks[experiment.Control] != picks[experiment.Candidate] {
				t.Fatalf("seed %d: after %d places the arms have %v", seed, i+1, picks)
			}
		}
		first, second := experiment.Interleave(a, b, 10, seed), experiment.Interleave(a, b, 20, seed)[10:]
		if !slices.Equal(slices.Concat(first, second), got[:20]) {
			t.Fatalf("seed %d: the second page does not continue the first", seed)
		}
	}
	if got := experiment.Interleave([]int{1, 2}, []int{2}, 5, 3); len(got) != 2 {
		t.Errorf("lists of two items make %v", got)
	}
	if got := experiment.Interleave(nil, []int{7, 8}, 5, 3); len(got) != 2 || got[1] != (experiment.Placed[int]{ID: 8, Arm: experiment.Candidate}) {
		t.Errorf("a candidate alone makes %v", got)
	}
}

// TestInterleaveIsFair: of two lists, each has its first item on top half of the time, and equal lists
// give equal credit.
func TestInterleaveIsFair(t *testing.T) {
	const runs = 4000
	var top, credit float64
	for seed := range uint64(runs) {
		got := experiment.Interleave([]int{1, 2, 3}, []int{4, 5, 6}, 6, experiment.Key("fair", fmt.Sprint(seed)))
		if got[0].Arm == experiment.Candidate {
			top++
		}
		var s experiment.Session
		s.Add(experiment.Interleave([]int{1, 2, 3}, []int{1, 2, 3}, 3, seed)[0].Arm, 5)
		credit += s.Preference()
	}
	if !(math.Abs(top/runs-0.5) <= 0.04) || !(math.Abs(credit/runs) <= 0.08) {
		t.Errorf("the candidate is on top in %.3f of the lists, and gains %.3f from equal lists", top/runs, credit/runs)
	}
}

// TestAssign: shares are kept, and who took part still does when the share grows; arms and seeds are
// as good as coins, and are drawn again in every session.
func TestAssign(t *testing.T) {
	const users = 4000
	taken, both, candidate, otherArm, otherSeed := 0, 0, 0, 0, 0
	for user := range users {
		asked := experiment.Asked{Unit: fmt.Sprint("user ", user), Query: "q", Session: 7}
		small, large := experiment.Assign("v2", asked, 0.2), experiment.Assign("v2", asked, 0.5)
		if small.Takes {
			taken++
			if small != large {
				t.Fatalf("%s took part as %+v, and at a larger share as %+v", asked.Unit, small, large)
			}
		}
		if large.Takes && experiment.Assign("v3", asked, 0.5).Takes {
			both++
		}
		asked.Query = "another"
		another := experiment.Assign("v2", asked, 0.5)
		if another.Takes != large.Takes || another.Arm != large.Arm || large.Takes && another.Seed == large.Seed {
			t.Fatalf("another query of %s: %+v, want the arm of %+v and another seed", asked.Unit, another, large)
		}
		asked.Session = 8
		later := experiment.Assign("v2", asked, 0.5)
		if later.Takes != large.Takes {
			t.Fatalf("%s takes part in one session only", asked.Unit)
		}
		if !large.Takes {
			continue
		}
		if large.Arm == experiment.Candidate {
			candidate++
		}
		if later.Arm != large.Arm {
			otherArm++
		}
		if later.Seed&1 != another.Seed&1 {
			otherSeed++
		}
	}
	for name, share := range map[string]float64{
		"take part": float64(taken) / users / 0.2, "take part in two": float64(both) / users / 0.25, "get the candidate": float64(candidate) / users / 0.25,
		"change the arm": float64(otherArm) / users / 0.25, "change the coin": float64(otherSeed) / users / 0.25,
	} {
		if share < 0.9 || share > 1.1 {
			t.Errorf("%.3f of those who should %s", share, name)
		}
	}
	if experiment.Key("a", "bc") == experiment.Key("ab", "c") {
		t.Error("two names and their join have one key")
	}
}

func TestSession(t *testing.T) {
	var s experiment.Session
	s.Add(experiment.Candidate, 1)
	s.Add(experiment.Neither, 9)
	if s.Preference() != 1 {
		t.Errorf("preference %g of %+v", s.Preference(), s)
	}
	s.Add(experiment.Control, 1)
	if s.Preference() != 0 {
		t.Errorf("preference %g of %+v", s.Preference(), s)
	}
	s.Add(experiment.Control, 5)
	if s.Preference() != -1 {
		t.Errorf("preference %g of %+v", s.Preference(), s)
	}
}

// run adds preferences, of which the given share is for the candidate, until a decision or the limit.
func run(t *testing.T, rng *rand.Rand, preference, decisive, alpha float64, limit int) *experiment.Test {
	t.Helper()
	test, err := experiment.NewTest(alpha)
	if err != nil {
		t.Fatal(err)
	}
	for range limit {
		d := 0.0
		if rng.Float64() < decisive {
			d = 1
			if rng.Float64() >= preference {
				d = -1
			}
		}
		decision, err := test.Add(d)
		if err != nil {
			t.Fatal(err)
		}
		if decision != experiment.Undecided {
			break
		}
	}
	return test
}

// TestNoDifference: watched after every event, nobody is declared better or worse in more than α of
// the runs.
func TestNoDifference(t *testing.T) {
	runs, limit := 200, 3000
	if os.Getenv("LIKENESS_SOAK") != "" {
		runs, limit = 2000, 10_000
	}
	const alpha = 0.1
	rng := rand.New(rand.NewPCG(3, 4))
	wrong := 0
	for range runs {
		if run(t, rng, 0.5, 0.8, alpha, limit).Decided != experiment.Undecided {
			wrong++
		}
	}
	t.Logf("%d of %d runs of %d sessions were decided wrongly, at alpha %g", wrong, runs, limit, alpha)
	if float64(wrong) > alpha*float64(runs) {
		t.Errorf("%d of %d runs were decided wrongly; want %g of them at most", wrong, runs, alpha)
	}
}

// TestPlanHolds: a true difference is found within the sample that the plan promises.
func TestPlanHolds(t *testing.T) {
	runs, preference := 100, 0.6
	if os.Getenv("LIKENESS_SOAK") != "" {
		runs, preference = 2000, 0.52
	}
	q := experiment.Question{Preference: preference, Decisive: 0.5, Alpha: 0.05, Power: 0.9, Impressions: 2, PerDay: 1000, Share: 0.2}
	p, err := experiment.NewPlan(q)
	if err != nil {
		t.Fatal(err)
	}
	if p.Impressions != 2*p.Sessions || !(math.Abs(p.Days-float64(p.Impressions)/200) <= 1e-9) || !(math.Abs(float64(p.Sessions)/float64(p.Preferences)-2) <= 0.01) {
		t.Errorf("the plan is %+v", p)
	}
	rng := rand.New(rand.NewPCG(5, 6))
	right, wrong, used := 0, 0, 0
	for range runs {
		test := run(t, rng, preference, q.Decisive, q.Alpha, p.Sessions)
		switch test.Decided {
		case experiment.Better:
			right++
			used += test.DecidedAt
		case experiment.Worse:
			wrong++
		case experiment.Undecided:
		}
	}
	t.Logf("%g: %d of %d runs decided within %d sessions, after %d on the mean; %d wrongly", preference, right, runs, p.Sessions, used/max(1, right), wrong)
	if float64(right) < q.Power*float64(runs) || float64(wrong) > q.Alpha*float64(runs) {
		t.Errorf("%d of %d runs decided within %d sessions, %d wrongly; want %g and %g", right, runs, p.Sessions, wrong, q.Power, q.Alpha)
	}
}

// TestPlanIsTheLeast: within the plan, the best bet's fortune, less what mixing bets costs, reaches the 2/α of a
// test of two directions with the chance that was asked for; with one preference less it does not.
func TestPlanIsTheLeast(t *testing.T) {
	const difference, alpha, z = 0.2, 0.05, 1.2815515655446004 // 0.9 of a normal distribution lies below z
	p, err := experiment.NewPlan(experiment.Question{Preference: (1 + difference) / 2, Decisive: 1, Alpha: alpha, Power: 0.9, Impressions: 1, Share: 1})
	if err != nil {
		t.Fatal(err)
	}
	fortune := func(n int) float64 {
		return float64(n)*difference*difference/2 - z*difference*math.Sqrt(float64(n)) - 1.5
	}
	if enough := math.Log(2 / alpha); fortune(p.Preferences) < enough || fortune(p.Preferences-1) >= enough {
		t.Errorf("%d preferences make a fortune of %.3f, one less %.3f; want %.3f", p.Preferences, fortune(p.Preferences), fortune(p.Preferences-1), enough)
	}
}

// TestDecisionsStay: evidence that comes after a decision does not take it back.
func TestDecisionsStay(t *testing.T) {
	test, _ := experiment.NewTest(0.05)
	for _, d := range []float64{1, -1} {
		for range 2000 {
			if _, err := test.Add(d); err != nil {
				t.Fatal(err)
			}
		}
		if test.Decided != experiment.Better || test.DecidedAt > 100 {
			t.Errorf("after %d sessions: %s, decided at %d", test.Units, test.Decided, test.DecidedAt)
		}
	}
}

// TestInterval: the interval holds the mean at all times together, and shrinks.
func TestInterval(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	const runs, mean = 100, 0.1
	missed := 0
	for range runs {
		test, _ := experiment.NewTest(0.1)
		for range 1500 {
			d := 1.0
			if rng.Float64() >= (1+mean)/2 {
				d = -1
			}
			if _, err := test.Add(d); err != nil {
				t.Fatal(err)
			}
			if low, high := test.Interval(); low > mean || high < mean {
				missed++
				break
			}
		}
		if low, high := test.Interval(); test.Units == 1500 && high-low > 0.25 {
			t.Fatalf("after %d sessions the interval is %.3f to %.3f", test.Units, low, high)
		}
	}
	if missed > runs/10 {
		t.Errorf("%d of %d intervals missed the mean at some time", missed, runs)
	}
}

func TestRefused(t *testing.T) {
	if _, err := experiment.NewTest(0); !errors.Is(err, experiment.ErrSetting) {
		t.Error(err)
	}
	test, _ := experiment.NewTest(0.05)
	for _, d := range []float64{1.5, math.NaN()} {
		if _, err := test.Add(d); !errors.Is(err, experiment.ErrSetting) || test.Units != 0 {
			t.Error(err)
		}
	}
	good := experiment.Question{Preference: 0.6, Decisive: 0.5, Alpha: 0.05, Power: 0.9, Impressions: 1, Share: 1}
	for name, spoil := range map[string]func(*experiment.Question){
		"preference":  func(q *experiment.Question) { q.Preference = 0.5 },
		"decisive":    func(q *experiment.Question) { q.Decisive = 0 },
		"share":       func(q *experiment.Question) { q.Share = 1.1 },
		"alpha":       func(q *experiment.Question) { q.Alpha = math.NaN() },
		"power":       func(q *experiment.Question) { q.Power = 1 },
		"impressions": func(q *experiment.Question) { q.Impressions = 0 },
		"per day":     func(q *experiment.Question) { q.PerDay = math.Inf(1) },
		"measured":    func(q *experiment.Question) { q.Measured = -1 },
		"chance":      func(q *experiment.Question) { q.Measured = 40 },
		"endless":     func(q *experiment.Question) { q.Preference = 0.50001 },
	} {
		q := good
		spoil(&q)
		if _, err := experiment.NewPlan(q); !errors.Is(err, experiment.ErrSetting) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestGuards: a limit that is exceeded beyond chance stops, one bad answer does not, and no limit
// never does.
func TestGuards(t *testing.T) {
	g := experiment.Guards{LatencyP99: 30 * time.Millisecond, Degraded: 0.01, Empty: 0.05, Errors: 0.001}
	for _, c := range []struct {
		o    experiment.Observed
		want int
	}{
		{experiment.Observed{}, 0},
		{experiment.Observed{Answers: 10, Slow: 1, Degraded: 1, Empty: 1, Errors: 1}, 0},
		{experiment.Observed{Answers: 10_000, Slow: 100, Degraded: 100, Empty: 500, Errors: 10}, 0},
		{experiment.Observed{Answers: 10_000, Slow: 200}, 1},
		{experiment.Observed{Answers: 10_000, Empty: 575}, 0}, // so many or more have a chance of 3e-4; this number alone has 5e-5
		{experiment.Observed{Answers: 10_000, Empty: 600}, 1},
		{experiment.Observed{Answers: 50, Errors: 50, Degraded: 50}, 2},
		{experiment.Observed{Answers: 1000, Empty: 100}, 1},
	} {
		if got := g.Check(c.o); len(got) != c.want {
			t.Errorf("%+v: reasons %q, want %d", c.o, got, c.want)
		}
	}
	if got := (experiment.Guards{}).Check(experiment.Observed{Answers: 10, Slow: 10, Degraded: 10, Empty: 10, Errors: 10}); got != nil {
		t.Errorf("without limits: %q", got)
	}
}

// TestRamp: the share grows with evidence, beyond a quarter only with proof; a breach and harm stop.
func TestRamp(t *testing.T) {
	r := experiment.NewRamp(0.01)
	var path []float64
	step := func(n int, d experiment.Decision, promote experiment.Promote) {
		r = r.Next(experiment.Evidence{Decision: d, Answers: n}, promote)
		if len(path) == 0 || path[len(path)-1] != r.Share {
			path = append(path, r.Share)
		}
	}
	for n := 0; n < 5000; n += 100 {
		step(n, experiment.Undecided, experiment.Auto)
	}
	if !slices.Equal(path, []float64{0.01, 0.05, 0.25}) || r.Stage != experiment.Running {
		t.Errorf("undecided, the shares are %v, %s", path, r.Stage)
	}
	second := experiment.NewRamp(0.01).Next(experiment.Evidence{Decision: experiment.Undecided, Answers: 10_000}, experiment.Auto)
	if again := second.Next(experiment.Evidence{Decision: experiment.Undecided, Answers: 10_499}, experiment.Auto); second.Share != 0.05 || again.Share != 0.05 {
		t.Errorf("499 answers after a share of %g, it is %g", second.Share, again.Share)
	}
	if asked := r.Next(experiment.Evidence{Decision: experiment.Undecided, Answers: 1e6}, experiment.Ask); !reflect.DeepEqual(asked, r) {
		t.Errorf("a share grew without being asked: %+v", asked)
	}
	if whole := experiment.NewRamp(1).Next(experiment.Evidence{Decision: experiment.Undecided, Answers: 1e6}, experiment.Auto); whole.Stage != experiment.Running {
		t.Errorf("a candidate that is not better is %s", whole.Stage)
	}
	waiting := r.Next(experiment.Evidence{Decision: experiment.Better, Answers: 5000}, experiment.Ask)
	if waiting.Stage != experiment.Waiting || waiting.Share != 0.25 || waiting.Next(experiment.Evidence{Decision: experiment.Better, Answers: 9000}, experiment.Ask).Stage != experiment.Waiting {
		t.Errorf("asked, the ramp is %+v", waiting)
	}
	for n := 5000; n < 8000; n += 100 {
		step(n, experiment.Better, experiment.Auto)
	}
	if !slices.Equal(path, []float64{0.01, 0.05, 0.25, 0.5, 1}) || r.Stage != experiment.Promoted {
		t.Errorf("better, the shares are %v, %s", path, r.Stage)
	}
	for name, e := range map[string]experiment.Evidence{
		"breach": {Decision: experiment.Better, Answers: 10, Breaches: []string{"errors"}},
		"harm":   {Decision: experiment.Worse, Answers: 10},
	} {
		for _, from := range []experiment.Ramp{experiment.NewRamp(0.01), waiting} {
			got := from.Next(e, experiment.Auto)
			if got.Stage != experiment.Stopped || got.Share != 0 || len(got.Why) == 0 || got.Next(experiment.Evidence{Decision: experiment.Better, Answers: 1e6}, experiment.Auto).Stage != experiment.Stopped {
				t.Errorf("%s: %+v", name, got)
			}
		}
	}
}

// TestEvidenceDecides: a test decides with the unit at which its evidence reaches 1, and a copy of it stays as it is.
func TestEvidenceDecides(t *testing.T) {
	for _, difference := range []float64{1, -1} {
		e, err := experiment.NewTest(0.05)
		if err != nil {
			t.Fatal(err)
		}
		start := e.Clone()
		for e.Decided == experiment.Undecided {
			if before := e.Evidence(); before >= 1 {
				t.Fatalf("undecided after %d units, with evidence %g", e.Units, before)
			}
			if _, err := e.Add(difference); err != nil {
				t.Fatal(err)
			}
		}
		if got := e.Evidence(); got < 1 {
			t.Errorf("%s after %d units, with evidence %g", e.Decided, e.Units, got)
		}
		if got := start.Evidence(); got != 0.05/2 {
			t.Errorf("a copy of the start has evidence %g, want that of no unit", got)
		}
	}
}
