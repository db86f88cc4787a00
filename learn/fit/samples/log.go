// Package samples prepares a log for a fit: it scales the vectors, lists the pairs of
// a query and a chosen item, and decides which queries and items are held out.
package samples

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/likenessdb/likeness/learn/clicks"
	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/rerank"
)

// Pair is an item that was chosen for a query, both as row numbers, and the weight
// of that choice.
type Pair struct {
	Query, Item int32
	Weight      float32
}

// Log is a log of chosen items, prepared for a fit. It is only read.
type Log struct {
	// Items and Queries hold vectors as rows, scaled to norm 1, or by one factor to a root mean square norm of 1.
	// If Unscaled is set, rows are as they were given.
	Items, Queries rerank.Matrix
	Relevant       [][]int32   // chosen items of each query, ascending
	Weights        [][]float32 // weights of these pairs; if nil, every weight is 1
	Times, Users   []int64     // of each query; nil if unknown
	Asked          []float64   // how often each query was asked; nil if unknown
	// Twins[q] holds the items whose vector equals the vector of query q, as where the
	// collection is one of questions. Nobody searches for the question that he has:
	// a twin is no wrong answer, and to find it is no merit. Twins is nil if no query
	// has one.
	Twins [][]int32
	// Seen[q] holds the items that were seen before query q, ascending; nil if none are known.
	// They are left out of answers to q.
	Seen [][]int32
	// Looks and Inverse are copied from fit.Data; nil if unknown.
	Looks   [][]clicks.Look
	Inverse []float64
	Counts  fit.Counts
	// Unscaled means that Items and Queries are the matrices of fit.Data themselves,
	// with rows of any norm.
	Unscaled bool
}

// Prepare checks the data and scales copies of its vectors: to norm 1 if unit is
// set, otherwise by one factor a matrix. It returns fit.ErrData.
func Prepare(d fit.Data, unit bool) (*Log, error) {
	if err := d.Check(); err != nil {
		return nil, err
	}
	l := &Log{Counts: fit.Counts{Items: d.Items.Rows}, Times: d.Times, Users: d.UserIDs, Seen: d.Seen, Asked: d.Asked, Looks: d.Looks, Inverse: d.Inverse}
	var err error
	var zeroItems, zeroQueries []bool
	if l.Items, zeroItems, err = Scale("items", d.Items, unit, d.Forget); err != nil {
		return nil, err
	}
	if l.Queries, zeroQueries, err = Scale("queries", d.Queries, unit, d.Forget); err != nil {
		return nil, err
	}
	l.addPairs(d, zeroQueries, zeroItems)
	if unit {
		l.Twins = l.findTwins(l.Items, l.Queries)
	} else {
		l.Twins = l.findTwins(d.Items, d.Queries)
		if d.Forget != nil {
			d.Forget()
		}
	}
	return l, l.checkLoggedItems()
}

// PrepareUnscaled checks the data and keeps its vectors as they are, without a copy.
// It finds no twins; see FindTwins. It returns fit.ErrData.
func PrepareUnscaled(d fit.Data) (*Log, error) {
	if err := d.Check(); err != nil {
		return nil, err
	}
	l := &Log{Items: d.Items, Queries: d.Queries, Counts: fit.Counts{Items: d.Items.Rows}, Times: d.Times, Seen: d.Seen, Asked: d.Asked, Looks: d.Looks, Inverse: d.Inverse, Unscaled: true}
	zeroItems, err := findZeroRows("items", d.Items)
	if err != nil {
		return nil, err
	}
	zeroQueries, err := findZeroRows("queries", d.Queries)
	if err != nil {
		return nil, err
	}
	l.addPairs(d, zeroQueries, zeroItems)
	return l, l.checkLoggedItems()
}

func (l *Log) checkLoggedItems() error {
	if l.Counts.LoggedItems < 2 {
		return fmt.Errorf("%w: the pairs name %d items; there is nothing to tell apart below two", fit.ErrData, l.Counts.LoggedItems)
	}
	return nil
}

// Scale returns m, scaled. If unit is set, its rows have norm 1; otherwise all rows
// are divided by their root mean square norm. isZero marks rows of norm 0. Error
// messages call the matrix by name. Scale returns fit.ErrData for a row that is not
// finite. Rows of norm 1 are m itself; others are a copy, which needs the memory of m no more: Scale
// calls forget while it copies; see fit.Data.
func Scale(name string, m rerank.Matrix, unit bool, forget func()) (scaled rerank.Matrix, isZero []bool, err error) {
	if unit && hasUnitRows(m) {
		return m, make([]bool, m.Rows), nil
	}
	scaled, isZero = rerank.NewMatrix(m.Rows, m.Cols), make([]bool, m.Rows)
	var squares float64
	err = fit.VisitRows(m, forget, func(r int, row []float32) error {
		norm, err := rowNorm(name, r, row)
		if err != nil {
			return err
		}
		isZero[r] = norm == 0
		squares += norm * norm
		own := scaled.Row(r)
		copy(own, row)
		if unit {
			rerank.Normalise(own)
		}
		return nil
	})
	if err != nil {
		return scaled, nil, err
	}
	if size := float32(math.Sqrt(squares / float64(max(m.Rows, 1)))); !unit && size > 0 {
		for i := range scaled.Data {
			scaled.Data[i] /= size
		}
	}
	return scaled, isZero, nil
}

// hasUnitRows reports whether every row has norm 1, up to rounding.
func hasUnitRows(m rerank.Matrix) bool {
	for r := range m.Rows {
		if !(math.Abs(rerank.Norm(m.Row(r))-1) < 1e-6) {
			return false
		}
	}
	return true
}

// RootMeanSquareNorm returns the root mean square of the norms of the rows, by which
// Scale divides vectors that are not normalised. It returns 1 if all rows are zero.
func RootMeanSquareNorm(m rerank.Matrix) float32 {
	var squares float64
	for r := range m.Rows {
		norm := rerank.Norm(m.Row(r))
		squares += norm * norm
	}
	if size := float32(math.Sqrt(squares / float64(max(m.Rows, 1)))); size > 0 {
		return size
	}
	return 1
}

// findZeroRows marks the rows of norm 0. It returns fit.ErrData for a row that is
// not finite.
func findZeroRows(name string, m rerank.Matrix) ([]bool, error) {
	isZero := make([]bool, m.Rows)
	for r := range m.Rows {
		norm, err := rowNorm(name, r, m.Row(r))
		if err != nil {
			return nil, err
		}
		isZero[r] = norm == 0
	}
	return isZero, nil
}

// rowNorm returns the norm of row r, or fit.ErrData if the row is not finite.
func rowNorm(name string, r int, row []float32) (float64, error) {
	norm := rerank.Norm(row)
	if math.IsNaN(norm) || math.IsInf(norm, 0) {
		return 0, fmt.Errorf("%w: %w", fit.ErrData, rerank.CheckFinite(fmt.Sprintf("%s[%d]", name, r), row))
	}
	return norm, nil
}

// addPairs takes the pairs of d, without pairs of zero vectors, and counts them.
func (l *Log) addPairs(d fit.Data, zeroQueries, zeroItems []bool) {
	logged := make([]bool, l.Items.Rows)
	l.Relevant = make([][]int32, len(d.Relevant))
	if d.Weights != nil {
		l.Weights = make([][]float32, len(d.Relevant))
	}
	for q, items := range d.Relevant {
		l.addPairsOf(d, q, func(x int32) bool { return zeroQueries[q] || zeroItems[x] })
		for _, x := range l.Relevant[q] {
			logged[x] = true
		}
		l.Counts.Pairs += len(l.Relevant[q])
		switch {
		case len(items) == 0:
			l.Counts.QueriesWithoutPairs++
		case len(l.Relevant[q]) > 0:
			l.Counts.Queries++
		}
	}
	l.Counts.ZeroItems, l.Counts.ZeroQueries = countTrue(zeroItems), countTrue(zeroQueries)
	l.Counts.LoggedItems = countTrue(logged)
}

// addPairsOf takes the pairs of query q, except those that leaveOut names.
func (l *Log) addPairsOf(d fit.Data, q int, leaveOut func(item int32) bool) {
	items := d.Relevant[q]
	if !slices.ContainsFunc(items, leaveOut) { // the usual case needs no copy
		l.Relevant[q] = items
		if l.Weights != nil {
			l.Weights[q] = d.Weights[q]
		}
		return
	}
	for i, x := range items {
		if leaveOut(x) {
			l.Counts.ZeroPairs++
			continue
		}
		l.Relevant[q] = append(l.Relevant[q], x)
		if l.Weights != nil {
			l.Weights[q] = append(l.Weights[q], d.Weights[q][i])
		}
	}
}

func countTrue(set []bool) int {
	n := 0
	for _, in := range set {
		if in {
			n++
		}
	}
	return n
}

// findTwins finds the twins of all queries with pairs; see Log.Twins.
func (l *Log) findTwins(items, queries rerank.Matrix) [][]int32 {
	rows := map[[sha256.Size]byte][]int32{}
	for x := range items.Rows {
		key := hashRow(items.Row(x), 0)
		rows[key] = append(rows[key], int32(x))
	}
	twins, found := make([][]int32, queries.Rows), false
	for q, relevant := range l.Relevant {
		if len(relevant) > 0 {
			twins[q] = rows[hashRow(queries.Row(q), 0)]
			found = found || twins[q] != nil
		}
	}
	if !found {
		return nil
	}
	return twins
}

// FindTwins sets the twins of the given queries alone, by the directions of the
// vectors. It needs memory for these queries and none for the items.
func (l *Log) FindTwins(queries []int32) {
	unit := make([]float32, l.Items.Cols)
	asked := map[[sha256.Size]byte][]int32{}
	for _, q := range queries {
		key := l.hashQuery(int(q), 0)
		asked[key] = append(asked[key], q)
	}
	l.Twins = nil
	for x := range l.Items.Rows {
		copy(unit, l.Items.Row(x))
		rerank.Normalise(unit)
		for _, q := range asked[hashRow(unit, 0)] {
			if l.Twins == nil {
				l.Twins = make([][]int32, l.Queries.Rows)
			}
			if !slices.Contains(l.Twins[q], int32(x)) {
				l.Twins[q] = append(l.Twins[q], int32(x))
			}
		}
	}
}

// IsTwin reports whether item x has the vector of query q.
func (l *Log) IsTwin(q, x int32) bool {
	return l.Twins != nil && slices.Contains(l.Twins[q], x)
}

// IsSeen reports whether item x was seen before query q.
func (l *Log) IsSeen(q, x int32) bool {
	if l.Seen == nil {
		return false
	}
	_, seen := slices.BinarySearch(l.Seen[q], x)
	return seen
}

// IsShown reports whether item x was shown for query q, or nothing is known about that.
func (l *Log) IsShown(q, x int32) bool {
	if l.Looks == nil {
		return true
	}
	_, shown := slices.BinarySearchFunc(l.Looks[q], x, func(l clicks.Look, x int32) int { return cmp.Compare(l.Item, x) })
	return shown
}

// hashQuery returns the same hash for queries that a fit cannot tell apart.
func (l *Log) hashQuery(q int, seed uint64) [sha256.Size]byte {
	row := l.Queries.Row(q)
	if l.Unscaled {
		row = slices.Clone(row)
		rerank.Normalise(row)
	}
	return hashRow(row, seed)
}

// hashRow returns the same hash for equal vectors; 0 and −0 are equal.
func hashRow(v []float32, seed uint64) [sha256.Size]byte {
	row := make([]byte, 8, 8+4*len(v))
	binary.LittleEndian.PutUint64(row, seed)
	for _, x := range v {
		if x == 0 {
			x = 0 // and not −0
		}
		row = binary.LittleEndian.AppendUint32(row, math.Float32bits(x))
	}
	return sha256.Sum256(row)
}

// Weight returns the weight of query q's i-th pair.
func (l *Log) Weight(q int32, i int) float32 {
	if l.Weights == nil {
		return 1
	}
	return l.Weights[q][i]
}

// JudgingWeight returns the weight of query q's i-th pair where it judges a fit.
func (l *Log) JudgingWeight(q int32, i int) float64 {
	w := float64(l.Weight(q, i))
	if l.Inverse != nil {
		w *= l.Inverse[q]
	}
	return w
}

// Pairs lists the pairs of the queries, without the items that withheld marks.
// withheld may be nil.
func (l *Log) Pairs(queries []int32, withheld []bool) []Pair {
	var pairs []Pair
	for _, q := range queries {
		for i, x := range l.Relevant[q] {
			if withheld == nil || !withheld[x] {
				pairs = append(pairs, Pair{q, x, l.Weight(q, i)})
			}
		}
	}
	return pairs
}

// TrainingPairs lists the pairs that a fit may learn from while the held-out queries
// judge it: the pairs of the other queries, without the items that withheld marks
// and without twins of held-out queries.
func (l *Log) TrainingPairs(s Split, withheld []bool) []Pair {
	if l.Twins == nil {
		return l.Pairs(s.Train, withheld)
	}
	hidden := make([]bool, l.Items.Rows)
	copy(hidden, withheld)
	for _, q := range s.HeldOut {
		for _, x := range l.Twins[q] {
			hidden[x] = true
		}
	}
	if pairs := l.Pairs(s.Train, hidden); len(pairs) > 0 {
		return pairs
	}
	return l.Pairs(s.Train, withheld) // every item is a twin of a held-out query
}

// DrawPairs returns at most the given number of pairs of each query, in their order.
// pairs lists the pairs query by query. If most is 0, DrawPairs returns all pairs.
func DrawPairs(pairs []Pair, most int, seed uint64) []Pair {
	if most == 0 {
		return pairs
	}
	rng := rand.New(rand.NewPCG(seed, 0xd4a5))
	var drawn []Pair
	starts := PairStarts(pairs)
	for q, from := range starts[:len(starts)-1] {
		own := pairs[from:starts[q+1]]
		left := most
		for i, p := range own {
			if rng.IntN(len(own)-i) < left { // each pair with the same chance
				drawn = append(drawn, p)
				left--
			}
		}
	}
	return drawn
}

// PairStarts returns where the pairs of each query begin in pairs, which lists them
// query by query, and at last where all end.
func PairStarts(pairs []Pair) []int {
	var starts []int
	for i, p := range pairs {
		if i == 0 || p.Query != pairs[i-1].Query {
			starts = append(starts, i)
		}
	}
	return append(starts, len(pairs))
}
