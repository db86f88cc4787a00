// Package train runs the trials of a fit. A trial trains one model, in rounds of
// steps over batches, and is judged after each round; a fit compares trials with
// different settings and then trains the model that it returns.
//
// Trials is the loop that every kind of fit shares. A kind brings a Learner, which
// holds the parameters and takes the steps, and a Plan, which says how the trial is
// judged and when it ends. Trials keeps the best parameters, remembers
// finished and interrupted trials in the checkpoint, and reports the rounds. The
// package also has the parts that learners are made of: batches, sampled candidates,
// the cross-entropy, and optimisers.
package train

import (
	"context"
	"errors"
	"fmt"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/linalg"
)

// Trials runs the trials of one fit, one after the other. A trial that finished
// before the fit was interrupted is not run again. Trials is not safe for concurrent
// use.
type Trials struct {
	keeper *keeper
	state  trialsState
}

// trialsState is the content of a checkpoint.
type trialsState struct {
	Outcomes map[string][]byte    // of finished trials, by name, as encodeState has them
	Trained  map[string]*Snapshot // finished trials whose parameters are needed again
	Running  *Snapshot            // the trial under way, after its last round
}

func (s *trialsState) isEmpty() bool {
	return len(s.Outcomes) == 0 && len(s.Trained) == 0 && s.Running == nil
}

// OpenTrials prepares the trials of one fit of the named kind, and resumes them from the
// checkpoint if it holds a state of the same kind, data and options. options holds every
// other setting that decides the outcome; it is hashed as JSON. Without a checkpoint the
// trials start from the beginning. OpenTrials returns fit.ErrCheckpoint or the error of the
// checkpoint.
func OpenTrials(checkpoint fit.Checkpoint, kind string, d fit.Data, options any) (*Trials, error) {
	k, err := newKeeper(checkpoint, kind, d, options)
	if err != nil {
		return nil, err
	}
	return loadTrials(k)
}

// loadTrials reads the saved state of a fit. It returns fit.ErrCheckpoint or the error of
// the checkpoint.
func loadTrials(k *keeper) (*Trials, error) {
	t := &Trials{keeper: k}
	if err := k.load(&t.state); err != nil {
		return nil, err
	}
	if t.state.Outcomes == nil {
		t.state.Outcomes = map[string][]byte{}
	}
	if t.state.Trained == nil {
		t.state.Trained = map[string]*Snapshot{}
	}
	return t, nil
}

// Try returns the outcome of the named trial. It calls run unless the outcome is
// remembered.
func Try[Outcome any](t *Trials, name string, run func() (Outcome, error)) (Outcome, error) {
	var outcome Outcome
	if text, done := t.state.Outcomes[name]; done {
		return outcome, decodeState(text, &outcome)
	}
	outcome, err := run()
	if err != nil {
		return outcome, t.saveIfInterrupted(err)
	}
	if !t.keeper.isEnabled() {
		return outcome, nil
	}
	text, err := encodeState(outcome)
	if err != nil {
		return outcome, err
	}
	t.state.Outcomes[name] = text
	return outcome, t.keeper.saveSoon(&t.state)
}

// saveIfInterrupted saves all that is known if err says that the context ended. It
// returns err and the error of the checkpoint.
func (t *Trials) saveIfInterrupted(err error) error {
	if !IsInterruption(err) || t.state.isEmpty() {
		return err
	}
	return errors.Join(err, t.keeper.save(&t.state))
}

// IsInterruption reports whether err says that a context ended.
func IsInterruption(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// Learner is a model under training.
type Learner interface {
	// Parameters returns the arrays that training changes, always in the same order.
	Parameters() [][]float32
	// TakeRound takes the steps of one round, which counts from 0, and returns their
	// mean loss. If the context ends it returns the context's error after any number
	// of steps.
	TakeRound(ctx context.Context, round int) (meanLoss float64, err error)
	// Position returns what TakeRound needs, beside the parameters, to go on after the
	// last round. It may share memory with the learner.
	Position() Position
	// Resume continues from a position, after the caller has restored the parameters.
	// It returns fit.ErrCheckpoint if the position belongs to another learner.
	Resume(p Position) error
}

// Position is the state of a learner between two rounds, beside its parameters.
type Position struct {
	Moments [][]float32 // running means of the optimiser
	Steps   int         // steps that the optimiser took
	Batches BatchPosition
	Other   [][]float32 // of the learner's own
}

// clone returns a copy that shares no memory.
func (p Position) clone() Position {
	p.Moments, p.Other = linalg.CloneArrays(p.Moments), linalg.CloneArrays(p.Other)
	p.Batches.Order = append([]int32(nil), p.Batches.Order...)
	return p
}

// RestoreArrays copies each source array to the array of dst at the same place. It
// returns fit.ErrCheckpoint if the shapes differ.
func RestoreArrays(dst, source [][]float32) error {
	fits := len(dst) == len(source)
	for i := range min(len(dst), len(source)) {
		fits = fits && len(dst[i]) == len(source[i])
	}
	if !fits {
		return fmt.Errorf("%w: its arrays are not those of this model", fit.ErrCheckpoint)
	}
	linalg.CopyArrays(dst, source)
	return nil
}

// Plan says how a trial is judged and when it ends.
type Plan struct {
	// Name names the trial in the checkpoint.
	Name string
	// Rounds is the number of rounds to take, at most.
	Rounds int
	// Judge rates the parameters after the given number of rounds; a higher rating is better. If
	// nil, nothing is rated.
	Judge func(rounds int) (float64, error)
	// Patience, if above 0, ends the trial after that many rounds without a better rating, and
	// leaves the best-rated parameters in the learner. If 0, the trial takes all rounds and leaves
	// the last parameters.
	Patience int
	// PreferLater takes the later of two rounds with the same rating, once a round was
	// better than the start.
	PreferLater bool
	// KeepTrained remembers the trained parameters, for a fit that needs them after it
	// was interrupted in a later trial.
	KeepTrained bool
	// Done is called with the number of rounds taken, Note with the state after each round. Either
	// may be nil.
	Done func(rounds int)
	Note func(s *Snapshot)
}

func (p Plan) addDone(rounds int) {
	if p.Done != nil {
		p.Done(rounds)
	}
}

// Round is one round of a trial.
type Round struct {
	Number   int     // counts from 1
	MeanLoss float64 // of its steps
	Rating   float64 // by Plan.Judge
}

// Snapshot is the state of a trial after a round.
type Snapshot struct {
	Trial string
	Round int // rounds taken
	// Best is the best rating so far, BestRound the number of rounds that had it; 0
	// is the start.
	Best           float64
	BestRound      int
	BestParameters [][]float32
	// TakenRounds is, when the trial has ended, the number of rounds behind the
	// parameters that it left in the learner.
	TakenRounds int
	History     []Round

	Parameters [][]float32
	Position   Position
}

// LastRound returns the last round of the history.
func (s *Snapshot) LastRound() Round { return s.History[len(s.History)-1] }

// Train trains a learner as planned, and goes on where an interrupted run of the
// same trial stopped. If the context ends, Train returns the state after the last
// complete round together with the context's error; with Plan.Patience the learner
// then has the best parameters so far.
func (t *Trials) Train(ctx context.Context, l Learner, p Plan) (*Snapshot, error) {
	if trained := t.state.Trained[p.Name]; trained != nil {
		p.addDone(p.Rounds)
		return trained, RestoreArrays(l.Parameters(), trained.Parameters)
	}
	s, err := t.beginTrial(l, p)
	if err != nil {
		return nil, err
	}
	err = t.takeRounds(ctx, l, p, s)
	s.TakenRounds = s.Round
	if p.Patience > 0 {
		s.TakenRounds = s.BestRound
		linalg.CopyArrays(l.Parameters(), s.BestParameters)
	}
	if err != nil {
		return s, t.saveIfInterrupted(err)
	}
	t.state.Running = nil
	if !p.KeepTrained || !t.keeper.isEnabled() {
		return s, nil
	}
	trained := *s
	trained.Parameters, trained.BestParameters, trained.Position = linalg.CloneArrays(l.Parameters()), nil, Position{}
	t.state.Trained[p.Name] = &trained
	return s, t.keeper.save(&t.state)
}

// beginTrial returns the state of the trial where it was interrupted, or at its start.
func (t *Trials) beginTrial(l Learner, p Plan) (*Snapshot, error) {
	if r := t.state.Running; r != nil && r.Trial == p.Name {
		if err := RestoreArrays(l.Parameters(), r.Parameters); err != nil {
			return nil, err
		}
		p.addDone(r.Round)
		s := *r
		return &s, l.Resume(r.Position)
	}
	s := &Snapshot{Trial: p.Name}
	if p.Judge == nil {
		return s, nil
	}
	rating, err := p.Judge(0)
	s.Best, s.BestParameters = rating, linalg.CloneArrays(l.Parameters())
	return s, err
}

// takeRounds takes rounds until the plan says that the trial ends.
func (t *Trials) takeRounds(ctx context.Context, l Learner, p Plan, s *Snapshot) error {
	for s.Round < p.Rounds && (p.Patience == 0 || s.Round-s.BestRound < p.Patience) {
		loss, err := l.TakeRound(ctx, s.Round)
		if err != nil {
			return err
		}
		s.Round++
		round := Round{Number: s.Round, MeanLoss: loss}
		if p.Judge != nil {
			if round.Rating, err = p.Judge(s.Round); err != nil {
				return err
			}
			if round.Rating > s.Best || p.PreferLater && round.Rating == s.Best && s.BestRound > 0 {
				s.Best, s.BestRound, s.BestParameters = round.Rating, s.Round, linalg.CloneArrays(l.Parameters())
			}
		}
		s.History = append(s.History, round)
		if p.Note != nil {
			p.Note(s)
		}
		p.addDone(1)
		if err := t.rememberRound(l, s); err != nil {
			return err
		}
	}
	p.addDone(p.Rounds - s.Round)
	return nil
}

// rememberRound puts a copy of the state after a round into the checkpoint.
func (t *Trials) rememberRound(l Learner, s *Snapshot) error {
	if !t.keeper.isEnabled() {
		return nil
	}
	running := *s
	running.Parameters, running.Position = linalg.CloneArrays(l.Parameters()), l.Position().clone()
	t.state.Running = &running
	return t.keeper.saveSoon(&t.state)
}

// FindWeakest returns the first of n settings, ordered from weak to strong, that is
// admissible, or the last if none is. It bisects: every setting stronger than an
// admissible one must be admissible too. It has asked about the setting that it
// returns.
func FindWeakest(n int, isAdmissible func(i int) (bool, error)) (int, error) {
	from, to := 0, n-1
	for from < to {
		middle := (from + to) / 2
		admissible, err := isAdmissible(middle)
		switch {
		case err != nil:
			return 0, err
		case admissible:
			to = middle
		default:
			from = middle + 1
		}
	}
	_, err := isAdmissible(from)
	return from, err
}
