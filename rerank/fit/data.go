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
}

// pair is one chosen item of a query.
type pair struct{ query, item int32 }

// problem is the data as the fits use it.
type problem struct {
	items, queries rerank.Matrix // unit vectors, or divided by their root mean square norm
	relevant       [][]int32
	counts         Counts
}

// prepare checks the data and scales copies of the vectors. It returns ErrData.
func prepare(d Data, unit bool) (*problem, error) {
	switch {
	case d.Items.Cols != d.Queries.Cols:
		return nil, fmt.Errorf("%w: queries have %d columns and items %d; a form that starts at the inner product needs both alike",
			ErrData, d.Queries.Cols, d.Items.Cols)
	case d.Items.Cols < 1 || d.Items.Rows < 2:
		return nil, fmt.Errorf("%w: %d items of dimension %d; want two items at least", ErrData, d.Items.Rows, d.Items.Cols)
	case len(d.Relevant) != d.Queries.Rows:
		return nil, fmt.Errorf("%w: pairs of %d queries for a matrix of %d", ErrData, len(d.Relevant), d.Queries.Rows)
	}
	p := &problem{counts: Counts{Items: d.Items.Rows}}
	var err error
	var zeroItems, zeroQueries []bool
	if p.items, zeroItems, err = scaled("items", d.Items, unit); err != nil {
		return nil, err
	}
	if p.queries, zeroQueries, err = scaled("queries", d.Queries, unit); err != nil {
		return nil, err
	}
	p.relate(d.Relevant, zeroQueries, zeroItems)
	if p.counts.LoggedItems < 2 {
		return nil, fmt.Errorf("%w: the pairs name %d items; there is nothing to tell apart below two", ErrData, p.counts.LoggedItems)
	}
	return p, nil
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

func (p *problem) relate(relevant [][]int32, zeroQueries, zeroItems []bool) {
	logged := make([]bool, p.items.Rows)
	p.relevant = make([][]int32, len(relevant))
	for q, items := range relevant {
		var kept []int32
		for _, x := range items {
			if zeroQueries[q] || zeroItems[x] {
				p.counts.ZeroPairs++
				continue
			}
			kept = append(kept, x)
			logged[x] = true
		}
		p.relevant[q] = kept
		p.counts.Pairs += len(kept)
		switch {
		case len(items) == 0:
			p.counts.QueriesWithoutPairs++
		case len(kept) > 0:
			p.counts.Queries++
		}
	}
	p.counts.ZeroItems, p.counts.ZeroQueries = count(zeroItems), count(zeroQueries)
	p.counts.LoggedItems = count(logged)
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

// split are the queries that a fit learns from and those that judge it.
type split struct{ train, held []int32 }

// byQuery holds out about that share of the queries with pairs. A query's side
// is decided by its vector and the seed alone: equal vectors, which a log has of
// every repeated question, are never on both sides. It returns ErrData.
func (p *problem) byQuery(share float64, seed uint64) (split, error) {
	var s split
	row := make([]byte, 8+4*p.queries.Cols)
	binary.LittleEndian.PutUint64(row, seed)
	for q, items := range p.relevant {
		if len(items) == 0 {
			continue
		}
		for i, v := range p.queries.Row(q) {
			binary.LittleEndian.PutUint32(row[8+4*i:], math.Float32bits(v))
		}
		digest := sha256.Sum256(row)
		if float64(binary.LittleEndian.Uint64(digest[:])>>11)/(1<<53) < share {
			s.held = append(s.held, int32(q))
		} else {
			s.train = append(s.train, int32(q))
		}
	}
	if len(s.held) == 0 || len(s.train) == 0 {
		return s, fmt.Errorf("%w: of %d queries with pairs %d are left to learn from and %d to judge the fit; bring more queries or change the share held out (%g)",
			ErrData, p.counts.Queries, len(s.train), len(s.held), share)
	}
	return s, nil
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
		for _, x := range p.relevant[q] {
			if without == nil || !without[x] {
				pairs = append(pairs, pair{q, x})
			}
		}
	}
	return pairs
}
