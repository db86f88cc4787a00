package fit

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/likenessdb/likeness/rerank"
)

// headState is a head under way, as a checkpoint has it.
type headState struct {
	Report HeadReport
	Round  int // the next
	Since  int // rounds since the best
	Params [][]float32
	Best   [][]float32
	First  [][]float32 // Adam's moments
	Second [][]float32
	Steps  int
	// Found are the parameters that found the lists of lessons; nil: the first.
	Found [][]float32
}

// distilState is the checkpoint of Distil. What the similarity taught is not in
// it: that is found again in the same way.
type distilState struct{ Heads []headState }

// fitHeads fits the heads that are asked for. When the context ends after a
// round, the head has the best of its parameters and the error is the context's.
func (w *distilWork) fitHeads(ctx context.Context) error {
	var state distilState
	if err := w.keeper.load(&state); err != nil {
		return err
	}
	start, name, err := w.start()
	if err != nil {
		return err
	}
	for i, kind := range headOrder(w.options.Heads) {
		if i == len(state.Heads) {
			state.Heads = append(state.Heads, headState{Report: HeadReport{Head: kind, Start: name, Of: w.options.Rounds}})
		}
		if err := w.fitHead(ctx, kind, start, &state, i); err != nil {
			return err
		}
	}
	return nil
}

// headOrder is the linear head first, each once.
func headOrder(heads []string) []string {
	heads = slices.Clone(heads)
	slices.Sort(heads)
	return slices.Compact(heads)
}

// start returns the W that the heads begin with.
func (w *distilWork) start() (rerank.Matrix, string, error) {
	exact, ok, err := w.teacher.exactStart(w.lessons.train, w.spec.Normalise)
	if err != nil || ok {
		w.exact = ok
		return exact, startExact, err
	}
	return w.lessons.chooseStart(w.teacher, w.options)
}

func (w *distilWork) fitHead(ctx context.Context, kind string, start rerank.Matrix, all *distilState, at int) error {
	o, s := w.options, &all.Heads[at]
	hidden := 0
	if kind == HeadResidual && !w.exact {
		hidden = o.Hidden
	}
	h := newProbeHead(start, hidden, o.Seed)
	s.Report.Parameters = h.size()
	if w.exact {
		w.keep(kind, h, s)
		return nil
	}
	h.optimiser(o.Rate)
	d := newDistiller(&w.lessons, h, o)
	switch {
	case s.Round == 0:
		s.Report.Recall, s.Best = w.examiner.recall(h), h.copyOut()
	case s.Params != nil:
		h.restore(s)
	}
	if err := w.relist(ctx, d, s); err != nil {
		return err
	}
	done := o.Progress.begin("fitting the "+kind+" probe", o.Rounds)
	done(s.Round)
	err := w.rounds(ctx, d, all, s, done)
	if s.Round > 0 || err == nil {
		h.copyIn(s.Best)
		w.keep(kind, h, s)
		s.Params, s.First, s.Second = nil, nil, nil
	}
	return err
}

// relist finds the lists of a head's lessons again as they were.
func (w *distilWork) relist(ctx context.Context, d *distiller, s *headState) error {
	if !w.large() {
		return nil
	}
	w.lessons.lists = w.first
	if s.Found != nil {
		now := d.head.copyOut()
		d.head.copyIn(s.Found)
		err := w.refresh(ctx, d.head)
		d.head.copyIn(now)
		if err != nil {
			return err
		}
	}
	d.pool = newPool(d.items, d.lists, d.batch, w.options.Softmax, w.options.Draws)
	return nil
}

// renews: the head finds the items of its lessons anew, after rounds 1, 2, 4, 8.
func (w *distilWork) renews(s *headState) bool {
	return w.large() && s.Round&(s.Round-1) == 0 && s.Round < w.options.Rounds
}

// probePatience is the number of rounds without a better judgement before the end.
const probePatience = 3

// rounds trains until the end, or the context's.
func (w *distilWork) rounds(ctx context.Context, d *distiller, all *distilState, s *headState, done func(int)) error {
	o := w.options
	for s.Round < o.Rounds && s.Since < probePatience {
		loss, err := d.round(ctx, o.Seed, s.Round, o.Rounds)
		if err != nil {
			return err
		}
		s.Round++
		s.Report.Loss = loss
		recall := w.examiner.recall(d.head)
		o.note("%s probe, round %d: divergence %.3f, held-out recall@%d %.4f", s.Report.Head, s.Round, loss, w.report.K, recall)
		if s.Since++; recall > s.Report.Recall {
			s.Report.Recall, s.Report.Rounds, s.Since, s.Best = recall, s.Round, 0, d.head.copyOut()
		}
		done(1)
		renew := w.renews(s)
		if renew {
			s.Found = d.head.copyOut()
		}
		if err := w.keeper.save(func() any { d.head.save(s); return all }, ctx.Err() != nil); err != nil {
			return err
		}
		if renew {
			if err := w.relist(ctx, d, s); err != nil {
				return err
			}
		}
	}
	done(o.Rounds - s.Round)
	return nil
}

func (w *distilWork) keep(kind string, h *probeHead, s *headState) {
	if w.exact {
		s.Report.Recall = w.examiner.recall(h)
	}
	w.heads[kind] = h
	w.report.Heads = append(w.report.Heads, s.Report)
}

// copyOut and copyIn are the parameters.
func (h *probeHead) copyOut() [][]float32 {
	var out [][]float32
	for _, l := range h.layers() {
		out = append(out, slices.Clone(l.value.Data))
	}
	return out
}

func (h *probeHead) copyIn(params [][]float32) {
	for i, l := range h.layers() {
		copy(l.value.Data, params[i])
	}
}

func (h *probeHead) size() int {
	n := 0
	for _, l := range h.layers() {
		n += len(l.value.Data)
	}
	return n
}

// save and restore move what training changes to a state and back.
func (h *probeHead) save(s *headState) {
	s.Params, s.First, s.Second = h.copyOut(), nil, nil
	for _, a := range h.rates {
		s.First, s.Second, s.Steps = append(s.First, a.first...), append(s.Second, a.second...), a.step
	}
}

func (h *probeHead) restore(s *headState) {
	h.copyIn(s.Params)
	for i, a := range h.rates {
		copy(a.first[0], s.First[i])
		copy(a.second[0], s.Second[i])
		a.step = s.Steps
	}
}

// sample is the mean loss of a batch that the seed chooses.
func (d *distiller) sample(seed uint64) float64 {
	rng := rand.New(rand.NewPCG(seed, 0x5a3))
	loss := d.forward(rng.Perm(len(d.train))[:d.batch], rng)
	if math.IsNaN(loss) {
		return math.Inf(1)
	}
	return loss
}
