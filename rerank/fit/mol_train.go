package fit

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/likenessdb/likeness/rerank"
)

// molRecipe is how one MoL is trained.
type molRecipe struct {
	key    string // of the run, for its checkpoint
	pull   float64
	rounds int // to take; 0: those that are judged best
	judged func(*molNet) (float64, error)
	pairs  []pair
	done   func(int)
}

// patience is the number of rounds without a better judgement before the end.
const patience = 6

// molTrainer takes the steps of one fit.
type molTrainer struct {
	work       *molWork
	net        *molNet
	recipe     molRecipe
	candidates *candidates
	adam       *adam
	source     *rand.PCG
	rng        *rand.Rand
	batch      int
	steps      int // a round
	unit       float64
	q, s       rerank.Matrix
	users      []int64
	starts     []int  // where the pairs of each query begin, and their end
	pairs      []pair // of the batch
	state      molRun
	last       *molRun // the state at the end of the last round, if it is to be kept
}

// molRun is what a trainer needs to go on, beside its data and options.
type molRun struct {
	Key     string
	Round   int
	Order   []int32 // of the queries
	Next    int     // of Order
	Random  []byte
	Step    int
	Arrays  [][]float32 // the parameters, then the moments of Adam; when saved
	Best    float64
	At      int         // the round of Best
	Kept    [][]float32 // its parameters
	History []MoLRound
}

// MoLRound is one round of a fit.
type MoLRound struct {
	Round int     `json:"round"`
	Loss  float64 `json:"loss"` // mean over its steps, with all its terms
	// MRR is MRR@10 of held-out queries after it, which may be some of them.
	MRR float64 `json:"mrr,omitempty"`
}

func (w *molWork) trainer(r molRecipe) *molTrainer {
	source := rand.NewPCG(w.options.Seed, 0xf18)
	t := &molTrainer{
		work: w, net: newMoLNet(w.options, w.problem, w.report.Guarded), recipe: r, source: source, rng: rand.New(source),
		starts: starts(r.pairs),
	}
	queries := len(t.starts) - 1
	t.batch = min(w.options.Batch, queries, max(minBatch, len(r.pairs)/roundSteps))
	for _, p := range r.pairs {
		t.unit += float64(p.weight) / float64(len(r.pairs))
	}
	t.steps = max(roundSteps, (min(len(r.pairs), roundPairs)+t.batch-1)/t.batch)
	t.candidates = newCandidates(w.problem.items, r.pairs, t.starts, t.batch, w.options.Softmax, w.options.Draws, t.rng)
	t.adam = newAdam(w.options.Rate, values(t.net.learned))
	t.state = molRun{Key: r.key, Next: queries, Order: make([]int32, queries), Best: -1}
	for i := range t.state.Order {
		t.state.Order[i] = int32(i)
	}
	return t
}

func values(parameters []*parameter) [][]float32 {
	var v [][]float32
	for _, p := range parameters {
		v = append(v, p.Data)
	}
	return v
}

func gradients(parameters []*parameter) [][]float32 {
	var v [][]float32
	for _, p := range parameters {
		v = append(v, p.grad.Data)
	}
	return v
}

// train takes the rounds of the recipe, or ends when the judgement has not
// improved for a while; the net is then that of the best round, the start if none
// was better. It returns the net with the context's error too.
func (w *molWork) train(ctx context.Context, r molRecipe) (*molTrainer, error) {
	t := w.trainer(r)
	if w.state.Run != nil && w.state.Run.Key == r.key {
		if err := t.restore(w.state.Run); err != nil {
			return nil, err
		}
		r.done(t.state.Round)
	}
	err := t.rounds(ctx)
	if isContext(err) && t.last != nil {
		_ = w.save(t.last, true) // the error of the context is the one to tell
	}
	if r.rounds == 0 {
		t.keep(t.state.Kept)
	}
	return t, err
}

func (t *molTrainer) rounds(ctx context.Context) error {
	stop := t.work.options.Rounds
	if t.recipe.rounds > 0 {
		stop = t.recipe.rounds
	}
	if t.state.Round == 0 {
		if err := t.judge(0); err != nil {
			return err
		}
	}
	for t.state.Round < stop {
		if t.recipe.rounds == 0 && t.state.Round-t.state.At >= patience {
			t.recipe.done(stop - t.state.Round)
			return nil
		}
		loss, err := t.round(ctx)
		if err != nil {
			return err
		}
		t.state.Round++
		t.recipe.done(1)
		if err := t.judge(loss); err != nil {
			return err
		}
		if t.work.options.Checkpoint != nil {
			t.last = t.snapshot()
			t.last.Arrays, t.last.Order = cloneAll(t.last.Arrays), slices.Clone(t.last.Order)
		}
		if err := t.work.save(t.last, false); err != nil {
			return err
		}
	}
	return nil
}

// judge notes a round, and keeps the parameters of the best.
func (t *molTrainer) judge(loss float64) error {
	s := &t.state
	r := MoLRound{Round: s.Round, Loss: loss}
	if t.recipe.judged != nil {
		v, err := t.recipe.judged(t.net)
		if err != nil {
			return err
		}
		r.MRR = v
		if s.Round > 0 {
			t.work.options.note("%s, round %d: loss %.3f, held-out MRR@%d %.4f", t.recipe.key, s.Round, loss, cutoff, v)
		}
		if v > s.Best {
			s.Best, s.At, s.Kept = v, s.Round, cloneAll(t.net.arrays())
		}
	} else if s.Round > 0 {
		t.work.options.note("%s, round %d: loss %.3f", t.recipe.key, s.Round, loss)
	}
	if s.Round > 0 {
		s.History = append(s.History, r)
	}
	return nil
}

func cloneAll(v [][]float32) [][]float32 {
	out := make([][]float32, len(v))
	for i := range v {
		out[i] = slices.Clone(v[i])
	}
	return out
}

// keep takes parameters over.
func (t *molTrainer) keep(arrays [][]float32) {
	for i, v := range t.net.arrays() {
		if i < len(arrays) {
			copy(v, arrays[i])
		}
	}
}

// arrays are all that the net learns.
func (n *molNet) arrays() [][]float32 {
	v := values(n.learned)
	for _, t := range n.users {
		v = append(v, t.Data)
	}
	return v
}

// everything is the parameters and the moments of Adam.
func (t *molTrainer) everything() [][]float32 {
	v := slices.Concat(t.net.arrays(), t.adam.first, t.adam.second)
	for _, table := range t.net.users {
		v = append(v, table.adam.first.Data, table.adam.second.Data)
	}
	return v
}

// snapshot is the state to save.
func (t *molTrainer) snapshot() *molRun {
	s := t.state
	s.Step, s.Arrays = t.adam.step, t.everything()
	s.Random, _ = t.source.MarshalBinary() // of a PCG it does not fail
	return &s
}

func (t *molTrainer) restore(s *molRun) error {
	all := t.everything()
	fits := len(s.Arrays) == len(all) && len(s.Order) == len(t.state.Order) && s.Round >= 0 && s.Next >= 0
	for i := range min(len(all), len(s.Arrays)) {
		fits = fits && len(all[i]) == len(s.Arrays[i])
	}
	if !fits || t.source.UnmarshalBinary(s.Random) != nil {
		return fmt.Errorf("%w: its arrays are not those of this model", ErrCheckpoint)
	}
	for i, v := range all {
		copy(v, s.Arrays[i])
	}
	t.adam.step = s.Step
	t.state = *s
	t.state.Arrays, t.state.Random = nil, nil
	return nil
}

// round takes the steps of one round and returns their mean loss. A round that
// the context ends leaves the parameters where they are.
func (t *molTrainer) round(ctx context.Context) (float64, error) {
	sum := 0.0
	for range t.steps {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		t.choose()
		rate := t.work.options.Rate * (1 - float64(t.adam.step)/float64(t.work.options.Rounds*t.steps))
		t.net.noise = noise{on: true, seed: t.work.options.Seed, step: uint64(t.adam.step)}
		sum += t.loss()
		t.adam.rate = rate
		t.adam.update(values(t.net.learned), gradients(t.net.learned))
		for _, table := range t.net.users {
			table.adam.update(table.Matrix, rate, t.adam.step)
		}
	}
	return sum / float64(t.steps), nil
}

// choose takes the next batch: queries in random order, each with one of its
// items, as the fit of a bilinear form does.
func (t *molTrainer) choose() {
	s := &t.state
	if s.Next+t.batch > len(s.Order) {
		t.rng.Shuffle(len(s.Order), func(i, j int) { s.Order[i], s.Order[j] = s.Order[j], s.Order[i] })
		s.Next = 0
	}
	t.pairs = t.pairs[:0]
	for _, q := range s.Order[s.Next : s.Next+t.batch] {
		from, to := t.starts[q], t.starts[q+1]
		if to-from > 1 {
			from += t.rng.IntN(to - from)
		}
		t.pairs = append(t.pairs, t.recipe.pairs[from])
	}
	s.Next += t.batch
}

// loss computes the loss of the batch and all gradients.
func (t *molTrainer) loss() float64 {
	t.candidates.draw(t.pairs)
	p := t.work.problem
	b := molBatch{x: t.candidates.vectors}
	t.q = grown(t.q, len(t.pairs), p.queries.Cols)
	t.users = t.users[:0]
	for i, pair := range t.pairs {
		copy(t.q.Row(i), p.queries.Row(int(pair.query)))
		if t.net.noise.on && t.work.options.Dropout > 0 {
			drop(t.q.Row(i), t.work.options.Dropout, t.net.noise.row(dropQuery, i))
		}
		if len(t.net.users) > 0 {
			t.users = append(t.users, p.users[pair.query])
		}
	}
	b.q, b.users = t.q, t.users
	t.s = grown(t.s, len(t.pairs), b.x.Rows)
	t.net.forward(t.s, b)
	loss := crossEntropy(t.s, t.pairs, t.candidates, p, 1/t.work.options.Temperature, t.unit)
	loss += t.net.backward(t.s, b)
	return loss + t.net.pull(t.recipe.pull)
}
