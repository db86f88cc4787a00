package fit

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/rbe"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// Loss is what perceptrons are trained for (RBE, appendix C).
type Loss string

// The losses.
const (
	// LossSoftmax is the cross-entropy of softmax(R̃/τ) to softmax(R/τ).
	LossSoftmax Loss = "softmax"
	// LossListwise maximises Σ softmax(R̃)·(2·[R ≥ its quantile 1 − K/M] − 1). As printed
	// the indicator is of R̃, and the sign is not told; both are put right.
	LossListwise Loss = "listwise"
)

// RBEOptions are those of a fit of relevance-based embeddings. Defaults are those
// of DefaultRBEOptions.
type RBEOptions struct {
	// Supports is the number of support items: calls of the ranker for every query.
	Supports int
	Select   Selection
	// SupportQueries is the number of support queries, which every item is scored for;
	// 0: all that are not held out.
	SupportQueries int
	// Lambda regularises the pseudo-inverse; 0 is the plain one.
	Lambda float64
	// Hidden and Out are the widths of the perceptrons; Hidden 0 leaves them out.
	Hidden, Out int
	Loss        Loss
	// Top is K of the listwise loss.
	Top    int
	Rate   float64
	Batch  int
	Rounds int // passes over the queries, at most
	// Draws is the number of items, beside the best of each query, that a step sees.
	Draws int
	// HeldOut is the share of the queries that judge the fit; 0: nothing does.
	HeldOut float64
	Seed    uint64
	// Compare judges every selection by CUR, beside the one that was asked for.
	Compare bool
	// Judged are the hit rates to report.
	Judged []HitPair

	Progress   Progress     `json:"-"`
	Note       func(string) `json:"-"`
	Checkpoint Checkpoint   `json:"-"`
}

// DefaultRBEOptions are the paper's, but for the loss.
func DefaultRBEOptions() RBEOptions {
	return RBEOptions{
		Supports: 100, Select: SelectL2Greedy, Loss: LossSoftmax, Top: 100, Rate: 1e-3, Batch: 64, Rounds: 20, Draws: 2048,
		HeldOut: 0.3, Seed: 1, Judged: []HitPair{{1, 1}, {10, 10}, {100, 10}, {100, 100}},
	}
}

// Check says whether a fit of so many items and queries can be begun: it returns
// ErrData or ErrOption.
func (o RBEOptions) Check(items, queries int) error {
	switch {
	case items < 2 || queries < 3:
		return fmt.Errorf("%w: a matrix of %d items by %d queries; want two items and three queries at least", ErrData, items, queries)
	case o.Supports < 1 || o.SupportQueries < 0 || o.Supports > maxSupports:
		return fmt.Errorf("%w: %d support items and %d support queries; want 1 to %d, and 0 or more", ErrOption, o.Supports, o.SupportQueries, maxSupports)
	case !slices.Contains(Selections(), o.Select):
		return notOneOf("selection", o.Select, Selections())
	case o.Loss != LossSoftmax && o.Loss != LossListwise:
		return notOneOf("loss", o.Loss, []Loss{LossSoftmax, LossListwise})
	case !(o.Lambda >= 0) || math.IsInf(o.Lambda, 0):
		return fmt.Errorf("%w: lambda is %g, want 0 or more", ErrOption, o.Lambda)
	case !isShare(o.HeldOut) && o.HeldOut != 0:
		return fmt.Errorf("%w: the share of queries held out is %g, want 0 or more and less than 1", ErrOption, o.HeldOut)
	case o.HeldOut == 0 && (o.Compare || o.Hidden > 0):
		return fmt.Errorf("%w: no queries are held out, and neither selections nor perceptrons can be judged; hold some out", ErrOption)
	case o.Hidden < 0 || o.Hidden > maxHidden || o.Hidden > 0 && (o.Out < 1 || o.Out > maxHidden):
		return fmt.Errorf("%w: perceptrons of %d hidden numbers and %d outputs; want 0, or 1 to %d of both", ErrOption, o.Hidden, o.Out, maxHidden)
	case !(o.Rate > 0) || o.Batch < 1 || o.Rounds < 1 || o.Draws < 1 || o.Top < 1:
		return fmt.Errorf("%w: rate %g, batch %d, rounds %d, draws %d, top %d; want positive numbers", ErrOption, o.Rate, o.Batch, o.Rounds, o.Draws, o.Top)
	}
	w := &rbeWork{options: o}
	w.part(queries)
	if len(w.held) == 0 && o.HeldOut > 0 || len(w.known) < 2 {
		return fmt.Errorf("%w: of %d queries %d are left to learn from and %d to judge; bring more, or change the share held out (%g)",
			ErrData, queries, len(w.known), len(w.held), o.HeldOut)
	}
	return nil
}

func (o RBEOptions) check(scores rerank.Matrix) error {
	if len(scores.Data) != scores.Rows*scores.Cols {
		return fmt.Errorf("%w: %d numbers are no matrix of %d items by %d queries", ErrData, len(scores.Data), scores.Rows, scores.Cols)
	}
	if err := o.Check(scores.Rows, scores.Cols); err != nil {
		return err
	}
	for r := range scores.Rows {
		if err := rerank.CheckFinite(fmt.Sprintf("scores[%d]", r), scores.Row(r)); err != nil {
			return fmt.Errorf("%w: %w", ErrData, err)
		}
	}
	return nil
}

// maxSupports is far more than a ranker can be asked for a query.
const maxSupports = 1 << 14

// FittedRBE is the outcome of a fit of relevance-based embeddings. Items and
// queries are row and column numbers of the scores.
type FittedRBE struct {
	SupportItems, SupportQueries []int
	Hidden, Out                  int
	Tensors                      tensor.Set
	Report                       RBEReport
}

// Config is the model's, given the ids of items and queries.
func (f *FittedRBE) Config(item, query func(int) rerank.ID) rbe.Config {
	c := rbe.Config{Hidden: f.Hidden, Out: f.Out}
	for _, x := range f.SupportItems {
		c.SupportItems = append(c.SupportItems, item(x))
	}
	for _, q := range f.SupportQueries {
		c.SupportQueries = append(c.SupportQueries, query(q))
	}
	return c
}

// RBEReport says what a fit of relevance-based embeddings did, and what it is worth.
type RBEReport struct {
	Items          int       `json:"items"`
	Queries        int       `json:"queries"`
	HeldOutQueries int       `json:"held_out_queries"`
	SupportItems   int       `json:"support_items"`
	SupportQueries int       `json:"support_queries"`
	Select         Selection `json:"select"`
	Lambda         float64   `json:"lambda"`
	Seed           uint64    `json:"seed"`
	// ZeroItems have no score but 0; they are approximated by 0 and survive.
	ZeroItems int `json:"zero_items"`
	// CUR is the approximation without perceptrons, Chosen the one that was written.
	CUR    RBEQuality `json:"cur"`
	Chosen RBEQuality `json:"chosen"`
	// Rounds of the perceptrons that were best; 0: CUR was, or there are none.
	Rounds  int        `json:"rounds"`
	History []RBERound `json:"history,omitempty"`
	// Compared are the selections with CUR, where that was asked.
	Compared []RBECompared `json:"compared,omitempty"`
	Warnings []string      `json:"warnings,omitempty"`
}

// RBEQuality is on the held-out queries.
type RBEQuality struct {
	HitRates []HitRate `json:"hit_rates"`
	// Error is the root mean square error of the scores.
	Error float64 `json:"error"`
}

// RBERound is a pass over the queries; Hit is HitRate(10) of queries that are
// neither learned from nor held out.
type RBERound struct {
	Round int     `json:"round"`
	Loss  float64 `json:"loss"`
	Hit   float64 `json:"hit_rate"`
}

// RBECompared is a selection.
type RBECompared struct {
	Select Selection `json:"select"`
	RBEQuality
}

// Scores builds the matrix of scores, items by queries, from a ranker: score
// writes R of all items for a query to dst. It is called once a query, one after
// the other; it returns score's error, or the context's.
func Scores(ctx context.Context, items, queries int, score func(ctx context.Context, query int, dst []float32) error, p Progress) (rerank.Matrix, error) {
	m, column := rerank.NewMatrix(items, queries), make([]float32, items)
	done := p.begin("scoring all items for every query", queries)
	for q := range queries {
		if err := ctx.Err(); err != nil {
			return m, err
		}
		if err := score(ctx, q, column); err != nil {
			return m, fmt.Errorf("scoring query %d: %w", q, err)
		}
		for x, v := range column {
			m.Row(x)[q] = v
		}
		done(1)
	}
	return m, nil
}

// RBE fits relevance-based embeddings to scores R, items by queries. It chooses
// support items by the queries that are not held out, makes P = pinv(R(S_I, S_Q)),
// trains perceptrons if asked, and judges on the held-out queries. With perceptrons
// it keeps the round that was best on a tenth of the other queries, or CUR. It
// returns ErrData, ErrOption, ErrCheckpoint, the error of the Checkpoint or that of
// the context.
func RBE(ctx context.Context, scores rerank.Matrix, o RBEOptions) (*FittedRBE, error) {
	if err := o.check(scores); err != nil {
		return nil, err
	}
	w := &rbeWork{scores: scores, options: o}
	w.part(scores.Cols)
	return w.run(ctx)
}

// rbeWork is one run of RBE.
type rbeWork struct {
	scores  rerank.Matrix
	options RBEOptions
	held    []int // queries that judge
	known   []int // the others, of which the support queries are
	truth   rerank.Matrix
	report  RBEReport
}

// Asked are the queries, of so many, whose scores of all items a fit reads: the
// support queries and those that judge, and all with perceptrons. They are
// ascending; the columns of the others may hold anything finite.
func (o RBEOptions) Asked(queries int) []int {
	w := &rbeWork{options: o}
	w.part(queries)
	asked := slices.Concat(w.held, w.known)
	if o.Hidden == 0 {
		asked = slices.Concat(w.held, w.supports())
	}
	slices.Sort(asked)
	return asked
}

// part divides the queries.
func (w *rbeWork) part(queries int) {
	rng := rand.New(rand.NewPCG(w.options.Seed, 0x9be))
	order := rng.Perm(queries)
	n := int(math.Round(w.options.HeldOut * float64(len(order))))
	w.held, w.known = order[:n], order[n:]
	slices.Sort(w.held)
	slices.Sort(w.known)
}

// supports are the support queries: all that are known, or a sample.
func (w *rbeWork) supports() []int {
	n := w.options.SupportQueries
	if n == 0 || n >= len(w.known) {
		return w.known
	}
	rng := rand.New(rand.NewPCG(w.options.Seed, 0x50))
	var sample []int
	for _, i := range rng.Perm(len(w.known))[:n] {
		sample = append(sample, w.known[i])
	}
	slices.Sort(sample)
	return sample
}

func (w *rbeWork) run(ctx context.Context) (*FittedRBE, error) {
	o := w.options
	f := &FittedRBE{SupportQueries: w.supports()}
	base := columnsOf(w.scores, f.SupportQueries)
	w.truth = transposed(columnsOf(w.scores, w.held))
	w.report = RBEReport{
		Items: w.scores.Rows, Queries: w.scores.Cols, HeldOutQueries: len(w.held), SupportQueries: len(f.SupportQueries),
		Select: o.Select, Lambda: o.Lambda, Seed: o.Seed,
	}
	for r := range base.Rows {
		if rerank.Norm(base.Row(r)) == 0 {
			w.report.ZeroItems++
		}
	}
	err := w.compare(ctx, base, f)
	if err == nil && f.SupportItems == nil {
		f.SupportItems, err = Select(ctx, base, o.Supports, o.Select, o.Seed, o.Progress)
	}
	if err != nil {
		return nil, err
	}
	if w.report.SupportItems = len(f.SupportItems); len(f.SupportItems) == 0 {
		return nil, fmt.Errorf("%w: every score is 0; there is nothing to approximate", ErrData)
	}
	if n := len(f.SupportItems); n < min(o.Supports, w.scores.Rows) {
		w.report.Warnings = append(w.report.Warnings, fmt.Sprintf("%d support items of %d: the other items' scores follow from theirs", n, o.Supports))
	}
	projection, err := pseudoInverse(rowsOf(base, f.SupportItems), o.Lambda)
	if err != nil {
		return nil, err
	}
	f.Tensors = tensor.Set{"projection": {Shape: []int{projection.Rows, projection.Cols}, Data: projection.Data}}
	items := rerank.NewMatrix(base.Rows, projection.Rows) // t of all items
	multiply(items, base, false, projection, true)
	if len(w.held) > 0 {
		w.report.CUR = w.judge(w.asked(f.SupportItems, w.held), items)
	}
	w.report.Chosen = w.report.CUR
	if o.Hidden > 0 {
		if err := w.train(ctx, f, items); err != nil {
			return nil, err
		}
	}
	f.Report = w.report
	return f, nil
}

// asked are R(S_I, q) of queries, one a row.
func (w *rbeWork) asked(supports, queries []int) rerank.Matrix {
	return transposed(columnsOf(rowsOf(w.scores, supports), queries))
}

// judge approximates the scores of the held-out queries and compares.
func (w *rbeWork) judge(queries, items rerank.Matrix) RBEQuality {
	approximate := rerank.NewMatrix(queries.Rows, items.Rows)
	multiply(approximate, queries, false, items, true)
	return RBEQuality{HitRates: hitRates(approximate, w.truth, w.options.Judged), Error: errorOf(approximate, w.truth)}
}

// compare judges every selection by CUR, where that is asked, and keeps what the
// one that was asked for chose.
func (w *rbeWork) compare(ctx context.Context, base rerank.Matrix, f *FittedRBE) error {
	if !w.options.Compare {
		return nil
	}
	for _, how := range Selections() {
		supports, err := Select(ctx, base, w.options.Supports, how, w.options.Seed, w.options.Progress)
		if err != nil {
			return err
		}
		if len(supports) == 0 {
			continue
		}
		if how == w.options.Select {
			f.SupportItems = supports
		}
		projection, err := pseudoInverse(rowsOf(base, supports), w.options.Lambda)
		if err != nil {
			return err
		}
		items := rerank.NewMatrix(base.Rows, projection.Rows)
		multiply(items, base, false, projection, true)
		c := RBECompared{Select: how, RBEQuality: w.judge(w.asked(supports, w.held), items)}
		w.report.Compared = append(w.report.Compared, c)
		w.note("%s: error %.4g, hit rates %s", how, c.Error, ratesText(c.HitRates))
	}
	return nil
}

func (w *rbeWork) note(format string, args ...any) {
	Common{Note: w.options.Note}.note(format, args...)
}

func ratesText(rates []HitRate) string {
	texts := make([]string, len(rates))
	for i, r := range rates {
		texts[i] = fmt.Sprintf("(%d,%d) %.4f", r.P, r.T, r.Mean)
	}
	return strings.Join(texts, " ")
}

// Base are the scores of all items for the support queries: the base vectors of a
// model's items.
func Base(scores rerank.Matrix, supportQueries []int) rerank.Matrix {
	return columnsOf(scores, supportQueries)
}

func transposed(m rerank.Matrix) rerank.Matrix {
	out := rerank.NewMatrix(m.Cols, m.Rows)
	for r := range m.Rows {
		for c, v := range m.Row(r) {
			out.Row(c)[r] = v
		}
	}
	return out
}
