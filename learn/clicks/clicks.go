// Package clicks learns from what people clicked in lists that somebody ranked. People
// look at the first places of a list more often than at the last, so clicks favour the
// items that the old ranking put there. The package estimates from answers how likely a
// person looks at each position, and weighs each click by the inverse of that chance.
// It also simulates people who click, by the models of the literature.
package clicks

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
