package fit

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/likenessdb/likeness/rerank"
)

// ErrData: the vectors and the log do not fit each other, or are too few to fit
// and to judge a similarity.
var ErrData = errors.New("training data is not valid")

// Data is a collection and a log of what was chosen in it. It is only read.
type Data struct {
	Items, Queries rerank.Matrix
	// Relevant are the chosen item rows of each query row, ascending and distinct.
	Relevant [][]int32
	// Weights[q][i] is what the pair of q and Relevant[q][i] counts in losses and
	// in means over queries: above 0 and finite. Nil: all count 1.
	Weights [][]float32
	// Times is when each query row was asked, in Unix seconds; nil: not known.
	Times []int64
	// UserIDs is who asked each query row; nil: not known.
	UserIDs []int64
}

// Counts say what a fit rests on, and what it left out.
type Counts struct {
	Items int `json:"items"`
	// LoggedItems have at least one pair.
	LoggedItems int `json:"logged_items"`
	// Queries have at least one pair; Pairs are theirs.
	Queries int `json:"queries"`
	Pairs   int `json:"pairs"`
	// QueriesWithoutPairs are in the matrix but in no pair; they were left out.
	QueriesWithoutPairs int `json:"queries_without_pairs"`
	// ZeroQueries and ZeroItems are vectors of norm 0, which have no direction;
	// their pairs, ZeroPairs, were left out.
	ZeroQueries int `json:"zero_queries"`
	ZeroItems   int `json:"zero_items"`
	ZeroPairs   int `json:"zero_pairs"`
	// HeldOutQueries are those of Queries that only judge the fit; queries with
	// equal vectors are held out together.
	HeldOutQueries int `json:"held_out_queries"`
	// StraddlingQueries were asked in the time that is held out and, with an equal
	// vector, before it; they and their pairs judge nothing.
	StraddlingQueries int `json:"straddling_queries"`
	StraddlingPairs   int `json:"straddling_pairs"`
}

// pair is one chosen item of a query, and what it counts.
type pair struct {
	query, item int32
	weight      float32
}

// problem is the data as the fits use it.
type problem struct {
	items, queries rerank.Matrix // unit vectors, or divided by their root mean square norm
	relevant       [][]int32
	weights        [][]float32 // of the pairs; nil: 1 each
	times, users   []int64     // of the queries, or nil
	own            [][]int32   // items with the query's own vector; nil: there are none
	counts         Counts
	// raw: the rows are those of Data, of any length; nothing was copied.
	raw bool
}

// prepare checks the data and scales copies of the vectors. It returns ErrData.
func prepare(d Data, unit bool) (*problem, error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	p := &problem{counts: Counts{Items: d.Items.Rows}, times: d.Times, users: d.UserIDs}
	var err error
	var zeroItems, zeroQueries []bool
	if p.items, zeroItems, err = scaled("items", d.Items, unit); err != nil {
		return nil, err
	}
	if p.queries, zeroQueries, err = scaled("queries", d.Queries, unit); err != nil {
		return nil, err
	}
	p.relate(d, zeroQueries, zeroItems)
	if p.own = p.itemsLike(d.Items, d.Queries); unit {
		p.own = p.itemsLike(p.items, p.queries)
	}
	if p.counts.LoggedItems < 2 {
		return nil, fmt.Errorf("%w: the pairs name %d items; there is nothing to tell apart below two", ErrData, p.counts.LoggedItems)
	}
	return p, nil
}

// check returns ErrData for parts that do not fit each other.
func (d Data) check() error {
	rows := d.Queries.Rows
	switch {
	case len(d.Items.Data) != d.Items.Rows*d.Items.Cols || len(d.Queries.Data) != rows*d.Queries.Cols:
		return fmt.Errorf("%w: %d items of %d columns have %d numbers, %d queries of %d columns %d; every row needs the same length",
			ErrData, d.Items.Rows, d.Items.Cols, len(d.Items.Data), rows, d.Queries.Cols, len(d.Queries.Data))
	case d.Items.Cols != d.Queries.Cols:
		return fmt.Errorf("%w: queries have %d columns and items %d; a form that starts at the inner product needs both alike",
			ErrData, d.Queries.Cols, d.Items.Cols)
	case d.Items.Cols < 1 || d.Items.Rows < 2:
		return fmt.Errorf("%w: %d items of dimension %d; want two items at least", ErrData, d.Items.Rows, d.Items.Cols)
	case len(d.Relevant) != rows:
		return fmt.Errorf("%w: pairs of %d queries for a matrix of %d", ErrData, len(d.Relevant), rows)
	case d.Weights != nil && len(d.Weights) != rows:
		return fmt.Errorf("%w: weights of %d queries for a matrix of %d", ErrData, len(d.Weights), rows)
	case d.Times != nil && len(d.Times) != rows:
		return fmt.Errorf("%w: times of %d queries for a matrix of %d", ErrData, len(d.Times), rows)
	case d.UserIDs != nil && len(d.UserIDs) != rows:
		return fmt.Errorf("%w: user ids of %d queries for a matrix of %d", ErrData, len(d.UserIDs), rows)
	}
	for q := range d.Relevant {
		if err := d.checkPairs(q); err != nil {
			return err
		}
	}
	return nil
}

func (d Data) checkPairs(q int) error {
	items := d.Relevant[q]
	for i, x := range items {
		switch {
		case x < 0 || int(x) >= d.Items.Rows:
			return fmt.Errorf("%w: query %d is paired with item row %d; the collection has rows 0 to %d", ErrData, q, x, d.Items.Rows-1)
		case i > 0 && x <= items[i-1]:
			return fmt.Errorf("%w: the items of query %d are not ascending and distinct: %d comes after %d", ErrData, q, x, items[i-1])
		}
	}
	if d.Weights == nil {
		return nil
	}
	if len(d.Weights[q]) != len(items) {
		return fmt.Errorf("%w: query %d has %d weights for %d pairs", ErrData, q, len(d.Weights[q]), len(items))
	}
	for i, w := range d.Weights[q] {
		if !(w > 0) || math.IsInf(float64(w), 0) {
			return fmt.Errorf("%w: the pair of query %d and item %d has weight %g; a weight is above 0 and finite", ErrData, q, items[i], w)
		}
	}
	return nil
}

// scaled returns a copy whose rows have norm 1, or, where they may not be
// changed, all divided by one number; and which rows are zero.
func scaled(what string, m rerank.Matrix, unit bool) (rerank.Matrix, []bool, error) {
	out := rerank.Matrix{Rows: m.Rows, Cols: m.Cols, Data: slices.Clone(m.Data)}
	zero := make([]bool, m.Rows)
	var square float64
	for r := range m.Rows {
		row := out.Row(r)
		norm := rerank.Norm(row)
		if math.IsNaN(norm) || math.IsInf(norm, 0) {
			return out, nil, fmt.Errorf("%w: %w", ErrData, rerank.CheckFinite(fmt.Sprintf("%s[%d]", what, r), row))
		}
		zero[r] = norm == 0
		square += norm * norm
		if unit {
			rerank.Normalise(row)
		}
	}
	if mean := float32(math.Sqrt(square / float64(max(m.Rows, 1)))); !unit && mean > 0 {
		for i := range out.Data {
			out.Data[i] /= mean
		}
	}
	return out, zero, nil
}

// relate takes the pairs over, all but those of zero vectors.
func (p *problem) relate(d Data, zeroQueries, zeroItems []bool) {
	logged := make([]bool, p.items.Rows)
	p.relevant = make([][]int32, len(d.Relevant))
	if d.Weights != nil {
		p.weights = make([][]float32, len(d.Relevant))
	}
	for q, items := range d.Relevant {
		p.take(d, q, func(x int32) bool { return zeroQueries[q] || zeroItems[x] })
		for _, x := range p.relevant[q] {
			logged[x] = true
		}
		p.counts.Pairs += len(p.relevant[q])
		switch {
		case len(items) == 0:
			p.counts.QueriesWithoutPairs++
		case len(p.relevant[q]) > 0:
			p.counts.Queries++
		}
	}
	p.counts.ZeroItems, p.counts.ZeroQueries = count(zeroItems), count(zeroQueries)
	p.counts.LoggedItems = count(logged)
}

// take takes over the pairs of a query whose item does not vanish.
func (p *problem) take(d Data, q int, vanishes func(x int32) bool) {
	items := d.Relevant[q]
	if !slices.ContainsFunc(items, vanishes) { // as nearly always: no copy
		p.relevant[q] = items
		if p.weights != nil {
			p.weights[q] = d.Weights[q]
		}
		return
	}
	for i, x := range items {
		if vanishes(x) {
			p.counts.ZeroPairs++
			continue
		}
		p.relevant[q] = append(p.relevant[q], x)
		if p.weights != nil {
			p.weights[q] = append(p.weights[q], d.Weights[q][i])
		}
	}
}

// itemsLike finds the items that have a query's own vector, as where questions
// are asked of a collection of questions. Nobody looks for what he holds: such an
// item is no wrong answer, and finding it is no merit.
func (p *problem) itemsLike(vectors, queries rerank.Matrix) [][]int32 {
	rows := map[[sha256.Size]byte][]int32{}
	for x := range vectors.Rows {
		key := rowDigest(vectors.Row(x), 0)
		rows[key] = append(rows[key], int32(x))
	}
	own, any := make([][]int32, queries.Rows), false
	for q, items := range p.relevant {
		if len(items) > 0 {
			own[q] = rows[rowDigest(queries.Row(q), 0)]
			any = any || own[q] != nil
		}
	}
	if !any {
		return nil
	}
	return own
}

// queryDigest is the same for queries that the fit cannot tell apart.
func (p *problem) queryDigest(q int, seed uint64) [sha256.Size]byte {
	row := p.queries.Row(q)
	if p.raw {
		row = slices.Clone(row)
		rerank.Normalise(row)
	}
	return rowDigest(row, seed)
}

// rowDigest is the same for equal vectors.
func rowDigest(v []float32, seed uint64) [sha256.Size]byte {
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

// weight is that of a query's i-th pair.
func (p *problem) weight(q int32, i int) float32 {
	if p.weights == nil {
		return 1
	}
	return p.weights[q][i]
}

func count(set []bool) int {
	n := 0
	for _, in := range set {
		if in {
			n++
		}
	}
	return n
}

// byItem holds out disjoint random sets of logged items, each of about that
// share of them; fewer than two stay no set.
func (p *problem) byItem(share float64, folds int, seed uint64) [][]bool {
	var logged []int32
	seen := make([]bool, p.items.Rows)
	for _, items := range p.relevant {
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
	var sets [][]bool
	for f := range min(folds, len(logged)/size) {
		set := make([]bool, p.items.Rows)
		for _, x := range logged[f*size : (f+1)*size] {
			set[x] = true
		}
		sets = append(sets, set)
	}
	return sets
}

// pairs are the pairs of the queries, without those of the items left out.
func (p *problem) pairs(queries []int32, without []bool) []pair {
	var pairs []pair
	for _, q := range queries {
		for i, x := range p.relevant[q] {
			if without == nil || !without[x] {
				pairs = append(pairs, pair{q, x, p.weight(q, i)})
			}
		}
	}
	return pairs
}

// learnable are the pairs that a fit may learn from while the held-out queries
// judge it: those of the other queries, without those of the items left out and
// of items that are themselves the vector of a held-out query.
func (p *problem) learnable(s split, without []bool) []pair {
	if p.own == nil {
		return p.pairs(s.train, without)
	}
	hidden := make([]bool, p.items.Rows)
	copy(hidden, without)
	for _, q := range s.held {
		for _, x := range p.own[q] {
			hidden[x] = true
		}
	}
	if kept := p.pairs(s.train, hidden); len(kept) > 0 {
		return kept
	}
	return p.pairs(s.train, without) // all items are questions that are held out
}
