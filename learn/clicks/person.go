package clicks

import (
	"math"
	"math/rand/v2"
)

// Browsing says how a simulated person reads a list.
type Browsing string

// How a simulated person reads a list.
const (
	// ByPosition means that a person looks at each position with a chance of its own, whatever
	// else was clicked (the position-based model, Richardson et al. 2007).
	ByPosition Browsing = "position"
	// Cascade means that a person reads from the top and leaves with the first click (Craswell
	// et al. 2008), or earlier.
	Cascade Browsing = "cascade"
)

// Person is a simulated reader of a list, for tests, examples and measurements.
type Person struct {
	Browsing Browsing
	// Severity is η. The person looks at position k with chance 1/k^η. In a cascade, that is the chance
	// to read as far as k if nothing is clicked.
	Severity float64
	// Noise is the chance that the person clicks an irrelevant item that was looked at. Relevant
	// items that were looked at are always clicked.
	Noise float64
}

// Propensity returns the chance that the person looks at a position, counted from 1.
func (p Person) Propensity(position int) float64 {
	return math.Pow(float64(position), -p.Severity)
}

// Read marks the items of a list that the person clicks. relevant says which items are
// relevant, in the order of the list.
func (p Person) Read(relevant []bool, rng *rand.Rand) []bool {
	clicked := make([]bool, len(relevant))
	before := 1.0
	for i, r := range relevant {
		looks := p.Propensity(i + 1)
		if p.Browsing == Cascade { // whoever reads from the top goes on with the ratio of two chances
			if rng.Float64()*before >= looks {
				return clicked
			}
			before = looks
		} else if rng.Float64() >= looks {
			continue
		}
		clicked[i] = r || rng.Float64() < p.Noise
		if clicked[i] && p.Browsing == Cascade {
			return clicked
		}
	}
	return clicked
}

// Answer shows a list of items for a query to the person. isRelevant is asked once for each item, in
// the order of the list.
func (p Person) Answer(query int32, list []int32, isRelevant func(item int32) bool, rng *rand.Rand) Answer {
	a := Answer{Query: query, Items: list, Positions: make([]int32, len(list)), Weights: make([]float32, len(list))}
	relevant := make([]bool, len(list))
	for i, item := range list {
		a.Positions[i], relevant[i] = int32(i+1), isRelevant(item)
	}
	for i, clicked := range p.Read(relevant, rng) {
		if clicked {
			a.Weights[i] = 1
		}
	}
	return a
}
