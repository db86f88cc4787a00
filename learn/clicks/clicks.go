// Package clicks learns from what people clicked in lists that somebody ranked. People
// look at the first places of a list more often than at the last, so clicks favour the
// items that the old ranking put there. The package estimates from answers how likely a
// person looks at each position, and weighs each click by the inverse of that chance.
// It also simulates people who click, by the models of the literature.
package clicks

import (
	"errors"
	"fmt"
	"math"
)

// ErrAnswers means that answers are not valid.
var ErrAnswers = errors.New("answers are not valid")

// MaxPosition is the deepest position that a list may show.
const MaxPosition = 1000

// Answer is a list of items that was shown for a query. Its slices have one element for
// each item.
type Answer struct {
	Query int32
	Items []int32
	// Positions are the places in the list, from 1, ascending and distinct. Places may be missing,
	// for example because their items no longer exist.
	Positions []int32
	// Weights say how much the choice of each item counts; 0 means that it was shown and not
	// chosen.
	Weights []float32
	// Time is when the list was shown, in Unix seconds; 0 if unknown.
	Time int64
}

// Check returns ErrAnswers if an answer is not valid for matrices with this many rows.
func Check(answers []Answer, queries, items int) error {
	for i, a := range answers {
		if len(a.Positions) != len(a.Items) || len(a.Weights) != len(a.Items) {
			return fmt.Errorf("%w: answer %d has %d items, %d positions and %d weights", ErrAnswers, i, len(a.Items), len(a.Positions), len(a.Weights))
		}
		if a.Query < 0 || int(a.Query) >= queries {
			return fmt.Errorf("%w: answer %d is for query row %d; there are rows 0 to %d", ErrAnswers, i, a.Query, queries-1)
		}
		last := int32(0)
		for n, x := range a.Items {
			w := float64(a.Weights[n])
			switch p := a.Positions[n]; {
			case x < 0 || int(x) >= items:
				return fmt.Errorf("%w: answer %d shows item row %d; there are rows 0 to %d", ErrAnswers, i, x, items-1)
			case p <= last || p > MaxPosition:
				return fmt.Errorf("%w: answer %d shows an item at position %d after position %d; positions ascend from 1 to %d", ErrAnswers, i, p, last, MaxPosition)
			case !(w >= 0) || math.IsInf(w, 0):
				return fmt.Errorf("%w: answer %d has weight %g; want 0 at least, and finite", ErrAnswers, i, w)
			}
			last = a.Positions[n]
		}
	}
	return nil
}
