package routing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/experiment"
	"github.com/likenessdb/likeness/sidecar/search"
)

// ErrShort: the database returned too few of the hits to this caller.
var ErrShort = errors.New("hits are not there")

// ErrChanged: the collection changed between the ranking of a search and the database's answer for
// the hits, so that they belong to different states.
var ErrChanged = errors.New("hits have changed")

// Row is a hit as the database returned it.
type Row struct {
	IsThere bool
	// Vector is the vector that the route scores, or nil if it did not come with the row.
	Vector []float32
}

// Ranked is the ranking of a search: its best hits, more than the search asks for if some may be
// gone.
type Ranked struct {
	Hits          []search.Hit
	Limit, Offset int
	// More reports that a deeper ranking may find more hits, All that these are all hits.
	More, All bool
	Route     string
	Vector    string // field that the route scores, by the search's name for it
	// StoreScores reports that the answer keeps the store's scores, with which the search's
	// threshold is compared.
	StoreScores bool
	// Cut reports that a threshold may shorten the answer.
	Cut         bool
	Certificate rerank.Status
	AsOf        time.Time // with StatusSnapshot
	// Shown: the search that found the hits showed each of them, with its version, to this caller,
	// and the answer shows nothing more of them.
	Shown   bool
	Epsilon float32 // for certificates that prove something
	// Partial reports that the route's ranker scored only some of the items that it should score.
	Partial bool
	// WrongNorm reports that a row violated the route's unit_vectors.
	WrongNorm bool
	// Reembedded is the share of the candidates with a vector of the new model, on a route that embeds its
	// items again; otherwise nil.
	Reembedded *float64

	// score returns the similarities of vectors. It is nil if the hits' scores do not follow from
	// the vectors.
	score func(ctx context.Context, vectors rerank.Matrix) ([]float32, error)
	// version is the digest of the model that scored the hits, gap bounds what a missing hit could
	// gain, and page holds the hits that the answer shows.
	version string
	gap     float32
	page    []search.Hit
	// experiment is set if the route's experiment ranked the hits.
	experiment experiment.Kind
	arm        experiment.Arm
	// isLast: this was the last attempt, so that the search is not ranked again even if the collection has changed.
	isLast bool
}

// AllShown reports whether all rankings are Shown.
func AllShown(all []Ranked) bool {
	return !slices.ContainsFunc(all, func(r Ranked) bool { return !r.Shown })
}

// Page returns the hits of the requested page, among those that the database returns. A hit whose
// row has its vector gets the score of that vector. Page returns ErrShort if there are too few
// hits. If an exact ranking and the database's rows contradict each other, the collection changed
// in between: Page then returns ErrChanged or, if this is the last ranking, the rows as they are
// with an unknown certificate.
func (r *Ranked) Page(ctx context.Context, row func(rerank.ID) Row) ([]search.Hit, error) {
	here, rows, hasGone := make([]search.Hit, 0, len(r.Hits)), make([]Row, 0, len(r.Hits)), false
	for _, h := range r.Hits {
		if shown := row(h.ID); shown.IsThere {
			here, rows = append(here, h), append(rows, shown)
		} else if len(here) < r.Offset+r.Limit {
			hasGone = true
		}
	}
	if hasGone {
		// The database's own threshold may have removed the rows, so that ranking again would not
		// help.
		r.isLast = r.isLast || r.StoreScores && r.Cut
		if err := r.contradict(rerank.StatusExact); err != nil {
			return nil, err
		}
	}
	whole := r.All && (r.Cut || len(here) == len(r.Hits))
	if len(here) < r.Offset+r.Limit && !whole {
		return nil, ErrShort
	}
	from, to := min(r.Offset, len(here)), min(r.Offset+r.Limit, len(here))
	r.page = here[from:to]
	return here[from:to], r.scoreReturned(ctx, here[from:to], rows[from:to])
}

// contradict records that the database's rows contradict the ranking, which invalidates the
// certificates. It returns ErrChanged if the search is to be ranked again.
func (r *Ranked) contradict(certificates ...rerank.Status) error {
	switch {
	case r.Certificate == rerank.StatusExact && !r.isLast:
		return ErrChanged
	case slices.Contains(certificates, r.Certificate):
		r.Certificate = rerank.StatusUnknown
	}
	return nil
}

// scoreReturned rescores and reorders the hits of a page whose rows have their vectors. Scores that
// differ only by rounding stay.
func (r *Ranked) scoreReturned(ctx context.Context, page []search.Hit, rows []Row) error {
	if r.score == nil || r.StoreScores || len(rows) == 0 {
		return nil
	}
	vectors := rerank.NewMatrix(len(rows), len(rows[0].Vector))
	for i, row := range rows {
		if len(row.Vector) != vectors.Cols || vectors.Cols == 0 {
			return nil // the client did not request vectors
		}
		copy(vectors.Row(i), row.Vector)
	}
	scores, err := r.score(ctx, vectors)
	if err != nil || len(scores) != len(page) {
		return Degraded{Reason: confirmReason}
	}
	changed := false
	for i, h := range page {
		changed = changed || !isSameScore(h.Score, scores[i], r.Epsilon)
	}
	if !changed {
		return nil
	}
	if err := r.contradict(rerank.StatusExact, rerank.StatusSnapshot, rerank.StatusCalibrated); err != nil {
		return err
	}
	for i := range page {
		page[i].Score = scores[i]
	}
	slices.SortStableFunc(page, func(a, b search.Hit) int { return cmp.Compare(b.Score, a.Score) })
	return nil
}

// isSameScore reports whether two scores can belong to the same vector, if one is computed in
// float32 and the other is off by at most epsilon.
func isSameScore(a, b, epsilon float32) bool {
	return math.Abs(float64(a)-float64(b)) <= 2*float64(epsilon)+1e-5*max(math.Abs(float64(a)), math.Abs(float64(b)))+1e-6
}

// statusText returns the status text of a rescored or rewritten answer. It names the weakest
// certificate, and the oldest snapshot.
func statusText(how string, all []Ranked) string {
	weakest := all[0]
	for _, r := range all {
		if c := cmp.Compare(strength(r.Certificate), strength(weakest.Certificate)); c < 0 || c == 0 && r.AsOf.Before(weakest.AsOf) {
			weakest = r
		}
	}
	said := how + "; route=" + weakest.Route + "; certificate=" + string(weakest.Certificate)
	if weakest.Certificate == rerank.StatusSnapshot && !weakest.AsOf.IsZero() {
		said += "; as-of=" + weakest.AsOf.UTC().Format(time.RFC3339)
	}
	if slices.ContainsFunc(all, func(r Ranked) bool { return r.Partial }) {
		said += "; ranking=partial"
	}
	if slices.ContainsFunc(all, func(r Ranked) bool { return r.WrongNorm }) {
		said += "; norms=wrong"
	}
	if least := leastReembedded(all); least != nil {
		said += fmt.Sprintf("; reembedded=%.2f", math.Floor(100**least)/100) // 1.00 if no candidate lacks one
	}
	if i := slices.IndexFunc(all, func(r Ranked) bool { return r.experiment != "" }); i >= 0 {
		said += "; experiment=" + string(all[i].experiment)
	}
	return said
}

// leastReembedded returns the least share of candidates with a vector of the new model, or nil if no
// route embeds its items again.
func leastReembedded(all []Ranked) (least *float64) {
	for _, r := range all {
		if r.Reembedded != nil && (least == nil || *r.Reembedded < *least) {
			least = r.Reembedded
		}
	}
	return least
}

func strength(s rerank.Status) int {
	return slices.Index([]rerank.Status{rerank.StatusUnknown, rerank.StatusCalibrated, rerank.StatusSnapshot, rerank.StatusExact}, s)
}
