package train

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/learn/clicks"
	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/fittest"
)

// counter is a Learner whose only parameter counts its rounds.
type counter struct {
	rounds  []float32
	moments []float32 // equal to rounds, as an optimiser's moments belong to its parameters
	taken   int       // by this run
	// resumed means that it went on from a position.
	resumed bool
}

func newCounter() *counter { return &counter{rounds: []float32{0}, moments: []float32{0}} }

func (c *counter) Parameters() [][]float32 { return [][]float32{c.rounds} }

func (c *counter) TakeRound(ctx context.Context, round int) (float64, error) {
	if err := ctx.Err(); err != nil {
		c.rounds[0], c.moments[0] = -1, -1 // a round that is interrupted may have taken steps
		return 0, err
	}
	c.taken++
	c.rounds[0]++
	c.moments[0]++
	return float64(round), nil
}

func (c *counter) Position() Position {
	return Position{Steps: int(c.rounds[0]), Moments: [][]float32{c.moments}, Other: [][]float32{c.rounds}}
}

func (c *counter) Resume(p Position) error {
	c.resumed = true
	if p.Steps != int(c.rounds[0]) || p.Moments[0][0] != c.rounds[0] || p.Other[0][0] != c.rounds[0] {
		return fit.ErrCheckpoint
	}
	copy(c.moments, p.Moments[0])
	return nil
}

// rate rates the state after each number of rounds by a list.
func rate(ratings ...float64) func(int) (float64, error) {
	return func(rounds int) (float64, error) { return ratings[rounds], nil }
}

func newTrials(t *testing.T, c fit.Checkpoint) *Trials {
	t.Helper()
	k, err := newKeeper(c, "test", fit.Data{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	trials, err := loadTrials(k)
	if err != nil {
		t.Fatal(err)
	}
	return trials
}

func TestTrainKeepsTheRoundThatThePlanSays(t *testing.T) {
	for name, tc := range map[string]struct {
		plan        Plan
		kept, taken int
	}{
		"no judge: the last":               {Plan{Rounds: 3}, 3, 3},
		"no patience: the last":            {Plan{Rounds: 3, Judge: rate(1, 3, 2, 1)}, 3, 3},
		"the best":                         {Plan{Rounds: 4, Patience: 4, Judge: rate(1, 2, 4, 3, 3)}, 2, 4},
		"patience ends it":                 {Plan{Rounds: 9, Patience: 2, Judge: rate(1, 3, 2, 2)}, 1, 3},
		"nothing beats the start":          {Plan{Rounds: 9, Patience: 2, Judge: rate(5, 5, 4)}, 0, 2},
		"the first of equal ones":          {Plan{Rounds: 3, Patience: 3, Judge: rate(1, 2, 2, 2)}, 1, 3},
		"the later of equal ones":          {Plan{Rounds: 3, Patience: 3, PreferLater: true, Judge: rate(1, 2, 2, 2)}, 3, 3},
		"the start before later equal one": {Plan{Rounds: 2, Patience: 3, PreferLater: true, Judge: rate(2, 2, 2)}, 0, 2},
	} {
		l := newCounter()
		s, err := newTrials(t, nil).Train(t.Context(), l, tc.plan)
		if err != nil || s.TakenRounds != tc.kept || l.rounds[0] != float32(tc.kept) || s.Round != tc.taken || len(s.History) != tc.taken {
			t.Errorf("%s: kept %d (parameter %v) of %d rounds, %v; want %d of %d", name, s.TakenRounds, l.rounds, s.Round, err, tc.kept, tc.taken)
		}
	}
}

// A trial goes on after its last complete round, and one that was finished and kept is
// not trained again.
func TestTrialsResume(t *testing.T) {
	checkpoint := &fittest.Checkpoint{}
	finished := Plan{Name: "finished", Rounds: 2, KeepTrained: true}
	ctx, cancel := context.WithCancel(t.Context())
	running := Plan{Name: "running", Rounds: 5, Patience: 5, Judge: rate(1, 2, 3, 1, 1, 4), Note: func(s *Snapshot) {
		if s.Round == 3 {
			cancel()
		}
	}}
	first := newTrials(t, checkpoint)
	if _, err := first.Train(ctx, newCounter(), finished); err != nil {
		t.Fatal(err)
	}
	if n, err := Try(first, "outcome", func() (int, error) { return 7, nil }); n != 7 || err != nil {
		t.Fatal(n, err)
	}
	interrupted := newCounter()
	s, err := first.Train(ctx, interrupted, running)
	if !errors.Is(err, context.Canceled) || s.Round != 3 || s.TakenRounds != 2 || interrupted.rounds[0] != 2 {
		t.Fatalf("interrupted: %+v, parameter %v, %v", s, interrupted.rounds, err)
	}

	again := newTrials(t, checkpoint)
	if n, err := Try(again, "outcome", func() (int, error) { return 0, errors.New("run again") }); n != 7 || err != nil {
		t.Errorf("the outcome became %d, %v", n, err)
	}
	kept, resumed := newCounter(), newCounter()
	if _, err := again.Train(t.Context(), kept, finished); err != nil || kept.taken != 0 || kept.rounds[0] != 2 {
		t.Errorf("the finished trial took %d rounds again, its parameter is %v, %v", kept.taken, kept.rounds, err)
	}
	running.Note = nil
	s, err = again.Train(t.Context(), resumed, running)
	if err != nil || !resumed.resumed || resumed.taken != 2 || s.TakenRounds != 5 || resumed.rounds[0] != 5 || len(s.History) != 5 {
		t.Errorf("resumed: took %d rounds, %+v, parameter %v, %v", resumed.taken, s, resumed.rounds, err)
	}
}

// TestTrainEndsWithAnError: a trial whose judge or round fails says so, and its rating is not taken.
func TestTrainEndsWithAnError(t *testing.T) {
	broken := errors.New("broken")
	for failing := range 3 {
		judge := func(rounds int) (float64, error) {
			if rounds == failing {
				return 9, broken
			}
			return 1, nil
		}
		if _, err := newTrials(t, nil).Train(t.Context(), newCounter(), Plan{Rounds: 3, Patience: 3, Judge: judge}); !errors.Is(err, broken) {
			t.Errorf("the judge fails after %d rounds: %v", failing, err)
		}
	}
	trials := newTrials(t, &fittest.Checkpoint{})
	if _, err := Try(trials, "a", func() (chan int, error) { return nil, nil }); err == nil {
		t.Error("an outcome that cannot be kept is taken")
	}
}

// TestTrialsOfOneName: a trial that ended does not go on. If it is needed again, it has the parameters that it ended with, whatever
// became of the learner.
func TestTrialsOfOneName(t *testing.T) {
	trials := newTrials(t, &fittest.Checkpoint{})
	for run := range 3 {
		l := newCounter()
		if _, err := trials.Train(t.Context(), l, Plan{Name: "kept", Rounds: 2, KeepTrained: true}); err != nil || l.rounds[0] != 2 || (l.taken == 0) != (run > 0) {
			t.Errorf("run %d: %d rounds were taken, the parameter is %v; %v", run, l.taken, l.rounds, err)
		}
		l.rounds[0] = 99
	}
	for range 2 {
		l := newCounter()
		if _, err := trials.Train(t.Context(), l, Plan{Name: "a", Rounds: 2}); err != nil || l.taken != 2 {
			t.Errorf("%d rounds were taken, want 2; %v", l.taken, err)
		}
	}
}

// TestTrainReportsEveryRound: the progress of a trial ends at its rounds, also where the
// trial ends early or goes on after an interruption.
func TestTrainReportsEveryRound(t *testing.T) {
	checkpoint, done := &fittest.Checkpoint{}, 0
	plan := Plan{Name: "a", Rounds: 9, Patience: 2, Judge: rate(1, 3, 2, 2), KeepTrained: true, Done: func(n int) { done += n }}
	for _, run := range []string{"trained", "remembered"} {
		done = 0
		if _, err := newTrials(t, checkpoint).Train(t.Context(), newCounter(), plan); err != nil || done != 9 {
			t.Errorf("%s: %d rounds were reported, want 9; %v", run, done, err)
		}
	}
}

// TestCheckpointIsWritten: at most once in saveInterval, and not for a trial that failed.
func TestCheckpointIsWritten(t *testing.T) {
	checkpoint := &fittest.Checkpoint{}
	k, err := newKeeper(checkpoint, "test", fit.Data{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	saved := func(state int) []byte {
		checkpoint.State = nil
		if err := k.saveSoon(state); err != nil {
			t.Fatal(err)
		}
		return checkpoint.State
	}
	if saved(1) != nil {
		t.Error("a state was saved right after the fit began")
	}
	k.lastSave = k.lastSave.Add(-2 * saveInterval)
	if saved(2) == nil || saved(3) != nil {
		t.Error("of two states that come together, want the first one saved")
	}

	trials := newTrials(t, checkpoint)
	if _, err := Try(trials, "a", func() (int, error) { return 1, nil }); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	if _, err := Try(trials, "b", func() (int, error) { return 0, broken }); !errors.Is(err, broken) || checkpoint.State != nil {
		t.Errorf("after a failed trial: %v, and %d bytes were saved", err, len(checkpoint.State))
	}
	if _, err := Try(trials, "b", func() (int, error) { return 0, context.Canceled }); !errors.Is(err, context.Canceled) || checkpoint.State == nil {
		t.Errorf("after an interrupted trial: %v, and %d bytes were saved", err, len(checkpoint.State))
	}
}

// TestACheckpointNeedsNoMemory of vectors that are mapped from files, after it has hashed them.
func TestACheckpointNeedsNoMemory(t *testing.T) {
	forgotten := 0
	if _, err := newKeeper(&fittest.Checkpoint{}, "test", fit.Data{Forget: func() { forgotten++ }}, nil); err != nil || forgotten != 2 {
		t.Errorf("the memory of items and queries is let go of %d times, %v", forgotten, err)
	}
}

// TestCheckpointsOfOtherFits: a fit resumes its own state, and no state that other data or
// options led to, or that is damaged.
func TestCheckpointsOfOtherFits(t *testing.T) {
	data := func() fit.Data {
		return fit.Data{
			Items: fittest.NormalMatrix(rand.New(rand.NewPCG(1, 1)), 3, 2), Queries: fittest.NormalMatrix(rand.New(rand.NewPCG(1, 2)), 2, 2),
			Relevant: [][]int32{{0, 1}, {2}}, Weights: [][]float32{{1, 2}, {3}}, Times: []int64{5, 6}, UserIDs: []int64{7, 8},
			Seen: [][]int32{{2}, {0, 1}}, Looks: [][]clicks.Look{{{Item: 0, Times: 1}}, {{Item: 1, Times: 2}, {Item: 2, Times: 3}}},
			Asked: []float64{4, 5}, Inverse: []float64{1, 2},
		}
	}
	resume := func(state []byte, kind string, d fit.Data, options any) (*Trials, error) {
		k, err := newKeeper(&fittest.Checkpoint{State: state}, kind, d, options)
		if err != nil {
			t.Fatal(err)
		}
		return loadTrials(k)
	}
	k, err := newKeeper(&fittest.Checkpoint{}, "kind", data(), "options")
	if err != nil {
		t.Fatal(err)
	}
	trials, err := loadTrials(k)
	if err == nil {
		_, err = trials.Train(t.Context(), newCounter(), Plan{Name: "a", Rounds: 1, KeepTrained: true})
	}
	if err != nil {
		t.Fatal(err)
	}
	state := func() []byte { return slices.Clone(k.checkpoint.(*fittest.Checkpoint).State) }
	if _, err := resume(state(), "kind", data(), "options"); err != nil {
		t.Fatalf("its own state: %v", err)
	}
	refused := func(name string, err error) {
		t.Helper()
		if !errors.Is(err, fit.ErrCheckpoint) {
			t.Errorf("%s: %v, want ErrCheckpoint", name, err)
		}
	}
	for name, change := range map[string]func(d *fit.Data){
		"items":           func(d *fit.Data) { d.Items.Data[0]++ },
		"queries":         func(d *fit.Data) { d.Queries.Data[0]++ },
		"pairs":           func(d *fit.Data) { d.Relevant[1] = []int32{1} },
		"pair boundaries": func(d *fit.Data) { d.Relevant, d.Weights = [][]int32{{0}, {1, 2}}, [][]float32{{1}, {2, 3}} },
		"weights":         func(d *fit.Data) { d.Weights[0][1] = 5 },
		"no weights":      func(d *fit.Data) { d.Weights = nil },
		"times":           func(d *fit.Data) { d.Times[1] = 9 },
		"users":           func(d *fit.Data) { d.UserIDs[1] = 9 },
		"seen items":      func(d *fit.Data) { d.Seen[1] = []int32{1} },
		"looked-at items": func(d *fit.Data) { d.Looks[1][0].Item = 0 },
		"looks":           func(d *fit.Data) { d.Looks[0][0].Times = 2 },
		"traffic":         func(d *fit.Data) { d.Asked[0] = 9 },
		"propensities":    func(d *fit.Data) { d.Inverse[0] = 9 },
	} {
		d := data()
		change(&d)
		_, err := resume(state(), "kind", d, "options")
		refused("other "+name, err)
	}
	traffic, propensities := data(), data() // the same numbers, with another meaning
	traffic.Inverse, propensities.Inverse, propensities.Asked = nil, traffic.Asked, nil
	one, err := newKeeper(&fittest.Checkpoint{}, "kind", traffic, nil)
	if err != nil {
		t.Fatal(err)
	}
	if other, err := newKeeper(&fittest.Checkpoint{}, "kind", propensities, nil); err != nil || one.owner == other.owner {
		t.Errorf("traffic and inverse propensities of the same numbers have one state, %v", err)
	}
	if _, err := newKeeper(&fittest.Checkpoint{}, "kind", data(), func() {}); err == nil {
		t.Error("options that cannot be compared are taken")
	}
	_, err = resume(state(), "kind", data(), "others")
	refused("other options", err)
	_, err = resume(state(), "other", data(), "options")
	refused("another kind", err)
	_, err = resume(state()[:40], "kind", data(), "options")
	refused("a short state", err)
	damaged := state()
	damaged[len(damaged)-1]++
	_, err = resume(damaged, "kind", data(), "options")
	refused("a damaged state", err)
}

func TestFindWeakest(t *testing.T) {
	for _, n := range []int{1, 2, 5, 8} {
		for first := range n + 1 { // n: none is admissible
			asked := map[int]bool{}
			got, err := FindWeakest(n, func(i int) (bool, error) {
				asked[i] = true
				return i >= first, nil
			})
			if want := min(first, n-1); err != nil || got != want || !asked[got] {
				t.Errorf("%d settings, admissible from %d: %d (asked: %t), %v", n, first, got, asked[got], err)
			}
		}
	}
	broken := errors.New("broken")
	if _, err := FindWeakest(3, func(int) (bool, error) { return false, broken }); !errors.Is(err, broken) {
		t.Error(err)
	}
}

// fullDisk is a checkpoint that cannot be written.
type fullDisk struct{ fittest.Checkpoint }

var errFull = errors.New("no space left")

func (*fullDisk) Save([]byte) error { return errFull }

// TestACheckpointThatIsNotWritten: an interrupted fit says so, because it cannot go on from there.
func TestACheckpointThatIsNotWritten(t *testing.T) {
	k, err := newKeeper(&fullDisk{}, "x", fit.Data{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	trials, err := loadTrials(k)
	if err != nil {
		t.Fatal(err)
	}
	if err := trials.saveIfInterrupted(context.Canceled); err != context.Canceled { //nolint:errorlint // nothing was known that could be lost
		t.Errorf("before the first trial: %v", err)
	}
	trials.state.Outcomes["a trial"] = []byte("x")
	if err := trials.saveIfInterrupted(context.Canceled); !errors.Is(err, context.Canceled) || !errors.Is(err, errFull) {
		t.Errorf("an interrupted fit: %v", err)
	}
	if err := trials.saveIfInterrupted(errFull); errors.Is(err, context.Canceled) || !errors.Is(err, errFull) {
		t.Errorf("a fit that failed: %v", err)
	}
}
