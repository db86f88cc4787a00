package samples

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/likenessdb/likeness/learn/fit"
)

// Split divides the queries with pairs into those that a fit learns from and those
// that judge it. Straddling queries do neither; only the final fit of the whole log
// learns from them.
type Split struct{ Train, HeldOut, Straddling []int32 }

// All returns every query with pairs.
func (s Split) All() []int32 {
	return slices.Concat(s.Train, s.HeldOut, s.Straddling)
}

// Choose returns at most the given number of the rows, in random order.
func Choose(rows []int32, most int, rng *rand.Rand) []int32 {
	rows = slices.Clone(rows)
	rng.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
	return rows[:min(len(rows), most)]
}

// Split divides the queries with pairs and counts the sides. It returns fit.ErrData
// if a side is empty.
func (l *Log) Split(c fit.Common) (Split, error) {
	s := l.splitByQuery(c.HeldOut, c.Seed)
	if c.SplitBy == fit.ByTime {
		s = l.splitByTime(c.HeldOut)
	}
	l.Counts.HeldOutQueries, l.Counts.StraddlingQueries = len(s.HeldOut), len(s.Straddling)
	l.Counts.StraddlingPairs = len(l.Pairs(s.Straddling, nil))
	if len(s.HeldOut) == 0 || len(s.Train) == 0 {
		return s, fmt.Errorf("%w: of %d queries with pairs %d are left to learn from, %d to judge the fit and %d are on both sides; bring more queries or change the share held out (%g)",
			fit.ErrData, l.Counts.Queries, len(s.Train), len(s.HeldOut), len(s.Straddling), c.HeldOut)
	}
	return s, nil
}

// splitByQuery holds out about the given share of the queries with pairs. The vector
// of a query and the seed alone decide its side, so that equal vectors, which a log
// has of every repeated question, are never on both sides.
func (l *Log) splitByQuery(share float64, seed uint64) Split {
	var s Split
	for q, items := range l.Relevant {
		if len(items) == 0 {
			continue
		}
		hash := l.hashQuery(q, seed)
		if float64(binary.LittleEndian.Uint64(hash[:])>>11)/(1<<53) < share {
			s.HeldOut = append(s.HeldOut, int32(q))
		} else {
			s.Train = append(s.Train, int32(q))
		}
	}
	return s
}

// splitByTime holds out the latest queries with pairs: about the given share, and
// every query of the same second as the earliest of them. A query of the held-out
// period straddles if an equal vector was asked before the period.
func (l *Log) splitByTime(share float64) Split {
	var s Split
	var times []int64
	for q, items := range l.Relevant {
		if len(items) > 0 {
			times = append(times, l.Times[q])
		}
	}
	if len(times) == 0 {
		return s
	}
	slices.Sort(times)
	from := times[min(len(times)-1, int(math.Round(float64(len(times))*(1-share))))]
	askedBefore := map[[sha256.Size]byte]bool{}
	for q, items := range l.Relevant {
		if len(items) > 0 && l.Times[q] < from {
			s.Train = append(s.Train, int32(q))
			askedBefore[l.hashQuery(q, 0)] = true
		}
	}
	for q, items := range l.Relevant {
		switch {
		case len(items) == 0 || l.Times[q] < from:
		case askedBefore[l.hashQuery(q, 0)]:
			s.Straddling = append(s.Straddling, int32(q))
		default:
			s.HeldOut = append(s.HeldOut, int32(q))
		}
	}
	return s
}

// HoldOutItems draws up to the given number of disjoint random sets of logged items,
// each with about the given share of them, and marks the items of each set. It
// returns nil if a set would be empty or would leave fewer than two logged items.
func (l *Log) HoldOutItems(share float64, sets int, seed uint64) [][]bool {
	var logged []int32
	seen := make([]bool, l.Items.Rows)
	for _, items := range l.Relevant {
		for _, x := range items {
			if !seen[x] {
				seen[x] = true
				logged = append(logged, x)
			}
		}
	}
	slices.Sort(logged)
	rand.New(rand.NewPCG(seed, 0x17e6)).Shuffle(len(logged), func(i, j int) { logged[i], logged[j] = logged[j], logged[i] })
	size := int(math.Round(share * float64(len(logged))))
	if size < 1 || len(logged)-size < 2 {
		return nil
	}
	var marks [][]bool
	for f := range min(sets, len(logged)/size) {
		set := make([]bool, l.Items.Rows)
		for _, x := range logged[f*size : (f+1)*size] {
			set[x] = true
		}
		marks = append(marks, set)
	}
	return marks
}

// The held-out items that decide a setting, and the queries that choose them. Queries of one item
// win and lose together, so that many queries of a few items decide nothing.
const (
	decidingItems   = 200
	decidingQueries = 1000
)

// DecidingItemSets draws sets of items as HoldOutItems does, but no more than bring the items and
// queries that decide a setting, because each set costs a fit of every setting.
func (l *Log) DecidingItemSets(s Split, share float64, most int, seed uint64) [][]bool {
	sets := l.HoldOutItems(share, most, seed)
	items, queries := map[int32]bool{}, 0
	for i, set := range sets {
		for _, q := range l.UnseenQueries(s, set) {
			if at := slices.IndexFunc(l.Relevant[q], func(x int32) bool { return set[x] }); at >= 0 {
				items[l.Relevant[q][at]] = true
				queries++
			}
		}
		if len(items) >= decidingItems && queries >= decidingQueries {
			return sets[:i+1]
		}
	}
	return sets
}

// QueriesWithin returns the queries, among the given ones, that chose no item outside
// the set.
func (l *Log) QueriesWithin(set []bool, queries []int32) []int32 {
	var within []int32
	for _, q := range queries {
		if !slices.ContainsFunc(l.Relevant[q], func(x int32) bool { return !set[x] }) {
			within = append(within, q)
		}
	}
	return within
}

// UnseenQueries returns the queries none of whose pairs a fit has seen, if it learned
// from s.Train without the items of the set: the held-out queries, and the training
// queries that chose only items of the set.
func (l *Log) UnseenQueries(s Split, set []bool) []int32 {
	return slices.Concat(s.HeldOut, l.QueriesWithin(set, s.Train))
}
