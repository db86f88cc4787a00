package eval

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/sidecar/route"
)

// bestRelevant says where a query's best-ranked relevant item stands among all items.
type bestRelevant struct {
	item int // the item's row
	rank int // the item's rank, from 1
	// margin is the item's score minus the best score of an item that is not relevant.
	margin float64
}

// exactScan holds an exact ranking of all items for every query.
type exactScan struct {
	rankings []Ranking
	placed   []bestRelevant
	samples  []scoreSample
	values   map[string][]float64 // each metric of each query, by name
}

// scoreSample holds the scores of some items for one query.
type scoreSample struct{ relevant, others []float32 }

// Sizes of the histogram and of its sample.
const (
	sampledQueries = 200
	sampledScores  = 500 // scores of items that are not relevant, for each query
)

// scanAll ranks all items for every query.
func (in *Input) scanAll(ctx context.Context, m route.Model, t *table.Table, rows []int, queries []rerank.Query) (*exactScan, error) {
	s := &exactScan{rankings: make([]Ranking, len(queries)), placed: make([]bestRelevant, len(queries)), samples: make([]scoreSample, len(queries))}
	every := max(1, len(queries)/sampledQueries)
	done := in.Progress.begin("ranking all items by "+m.Name, len(queries))
	buffers := make([][]float32, runtime.GOMAXPROCS(0))
	err := runParallel(ctx, len(queries), func(worker, i int) error {
		if buffers[worker] == nil {
			buffers[worker] = make([]float32, t.Len())
		}
		scores := buffers[worker]
		if err := scoreAll(m, t, queries[i], scores); err != nil {
			return fmt.Errorf("query row %d: %w", rows[i], err)
		}
		relevant := in.Pairs.relevant[rows[i]]
		s.rankings[i], s.placed[i] = rankItems(t, scores, relevant, in.seen(rows[i]), in.K)
		if i%every == 0 {
			s.samples[i] = sampleScores(scores, relevant)
		}
		done(1)
		return nil
	})
	if err != nil {
		return nil, err
	}
	s.values = measureQueries(s.rankings, rows, in.Pairs, in.K)
	return s, nil
}

func scoreAll(m route.Model, t *table.Table, q rerank.Query, scores []float32) error {
	encoded, err := m.Similarity.Encode(q)
	if err != nil {
		return err
	}
	for from := 0; from < t.Len(); from += blockRows {
		to := min(from+blockRows, t.Len())
		if err := encoded.Score(scores[from:to], t.Slice(from, to)); err != nil {
			return err
		}
	}
	return nil
}

// rankItems sorts the best k items and finds the place of the best relevant item, both among the
// items that were not seen.
func rankItems(t *table.Table, scores []float32, relevant, seen []int32, k int) (Ranking, bestRelevant) {
	at := func(row int) rerank.Scored { return rerank.Scored{ID: t.ID(row), Score: scores[row], Index: row} }
	best := at(int(relevant[0]))
	for _, row := range relevant[1:] {
		if s := at(int(row)); rerank.Better(s, best) {
			best = s
		}
	}
	top := rerank.NewTopK(k)
	p := bestRelevant{item: best.Index, rank: 1}
	other, least := float32(math.Inf(-1)), float32(math.Inf(-1))
	for row, score := range scores {
		if len(seen) > 0 && seen[0] == int32(row) {
			seen = seen[1:]
			continue
		}
		if score > other {
			if _, is := slices.BinarySearch(relevant, int32(row)); !is {
				other = score
			}
		}
		if score < least && score < best.Score { // false for NaN
			continue
		}
		s := at(row)
		top.Push(s)
		least = top.Threshold()
		if rerank.Better(s, best) {
			p.rank++
		}
	}
	p.margin = float64(best.Score) - float64(other)
	return top.Sorted(), p
}

func sampleScores(scores []float32, relevant []int32) scoreSample {
	var s scoreSample
	for _, row := range relevant[:min(len(relevant), sampledScores)] {
		s.relevant = append(s.relevant, scores[row])
	}
	every := max(1, len(scores)/sampledScores)
	for row := 0; row < len(scores); row += every {
		if _, is := slices.BinarySearch(relevant, int32(row)); !is {
			s.others = append(s.others, scores[row])
		}
	}
	return s
}

// Histogram counts the scores of a sample of the queries in bins of equal width.
type Histogram struct {
	From float64 `json:"from"`
	To   float64 `json:"to"`
	// Relevant and Others hold the share of the relevant and of the other items in
	// each bin.
	Relevant []float64 `json:"relevant"`
	Others   []float64 `json:"others"`
	Queries  int       `json:"queries"`
}

const bins = 32

func newHistogram(samples []scoreSample) *Histogram {
	h := &Histogram{From: math.Inf(1), To: math.Inf(-1), Relevant: make([]float64, bins), Others: make([]float64, bins)}
	for _, s := range samples {
		for _, part := range [][]float32{s.relevant, s.others} {
			for _, v := range part {
				if x := float64(v); !math.IsNaN(x) && !math.IsInf(x, 0) {
					h.From, h.To = min(h.From, x), max(h.To, x)
				}
			}
		}
		if s.relevant != nil {
			h.Queries++
		}
	}
	if !(h.To > h.From) {
		return nil
	}
	for _, s := range samples {
		h.addScores(h.Relevant, s.relevant)
		h.addScores(h.Others, s.others)
	}
	normaliseShares(h.Relevant)
	normaliseShares(h.Others)
	return h
}

func (h *Histogram) addScores(counts []float64, scores []float32) {
	for _, v := range scores {
		x := (float64(v) - h.From) / (h.To - h.From) * bins
		if !math.IsNaN(x) && !math.IsInf(x, 0) {
			counts[min(int(x), bins-1)]++
		}
	}
}

func normaliseShares(counts []float64) {
	var total float64
	for _, n := range counts {
		total += n
	}
	for i := range counts {
		counts[i] /= max(1, total)
	}
}

// GateUsage says how a Mixture-of-Logits weighs its pairs of components, over the
// first K items of a sample of the queries.
type GateUsage struct {
	PairsQuery int `json:"pairs_query"`
	PairsItem  int `json:"pairs_item"`
	// Mean is the mean gate of each pair (i, j), at index i·P_X + j. The means sum to
	// 1.
	Mean []float64 `json:"mean"`
	// Largest is the mean, over scores, of the greatest gate. Entropy is the entropy
	// of the mean gates in nats, at most log(P_Q·P_X).
	Largest float64 `json:"largest"`
	Entropy float64 `json:"entropy"`
	Queries int     `json:"queries"`
}

// measureGates averages the gates of the best items of some queries. It returns nil for a
// kind without gates.
func (in *Input) measureGates(m route.Model, t *table.Table, queries []rerank.Query, rankings []Ranking) (*GateUsage, error) {
	spec := m.Similarity.Spec()
	if spec.Kind != rerank.KindMoL || spec.PairsQuery*spec.PairsItem == 0 {
		return nil, nil //nolint:nilnil // no gates, and no failure
	}
	g := &GateUsage{PairsQuery: spec.PairsQuery, PairsItem: spec.PairsItem, Mean: make([]float64, spec.PairsQuery*spec.PairsItem)}
	n := 0.0
	for i := 0; i < len(queries); i += max(1, len(queries)/sampledQueries) {
		encoded, err := m.Similarity.Encode(queries[i])
		if err != nil {
			return nil, err
		}
		explainer := rerank.EncodedAbilitiesOf(encoded).Explain
		if explainer == nil {
			return nil, nil //nolint:nilnil // likewise
		}
		g.Queries++
		for _, hit := range rankings[i] {
			explained, err := explainer.Explain(t.Slice(hit.Index, hit.Index+1))
			if err != nil {
				return nil, err
			}
			g.addTerms(explained[0].Terms)
			n++
		}
	}
	g.average(n)
	return g, nil
}

// average divides the sums of the gates of n scores, and computes their entropy.
func (g *GateUsage) average(n float64) {
	g.Largest /= max(1, n)
	for i := range g.Mean {
		g.Mean[i] /= max(1, n)
		if p := g.Mean[i]; p > 0 {
			g.Entropy -= p * math.Log(p)
		}
	}
}

func (g *GateUsage) addTerms(terms []rerank.Term) {
	var largest float64
	for _, term := range terms {
		gate := float64(term.Gate)
		g.Mean[term.QueryComponent*g.PairsItem+term.ItemComponent] += gate
		largest = max(largest, gate)
	}
	g.Largest += largest
}

// Regression is a query that a model serves worse than the baseline.
type Regression struct {
	Query   int        `json:"query_row"`
	QueryID *rerank.ID `json:"query,omitempty"`
	// Item is the relevant item that the baseline ranked best, at RankBefore.
	// RankAfter is the rank of the best relevant item by the model, and Margin how far
	// its score lies behind the first item's. Instead is the item that the model ranks
	// first.
	Item       rerank.ID `json:"item"`
	RankBefore int       `json:"rank_before"`
	RankAfter  int       `json:"rank_after"`
	Margin     float64   `json:"margin"`
	Instead    rerank.ID `json:"instead"`
	// QueryTitle, ItemTitle and InsteadTitle say what the query and the rows are, if the
	// caller of Run filled them in.
	QueryTitle   string `json:"query_title,omitempty"`
	ItemTitle    string `json:"item_title,omitempty"`
	InsteadTitle string `json:"instead_title,omitempty"`
}

// QueryName returns the title of the query, or its id or row number.
func (x Regression) QueryName() string {
	switch {
	case x.QueryTitle != "":
		return x.QueryTitle
	case x.QueryID != nil:
		return x.QueryID.String()
	}
	return fmt.Sprintf("row %d", x.Query)
}

// ItemName returns the title of the relevant item, or its id.
func (x Regression) ItemName() string { return cmp.Or(x.ItemTitle, x.Item.String()) }

// InsteadName returns the title of the item that is first instead, or its id.
func (x Regression) InsteadName() string { return cmp.Or(x.InsteadTitle, x.Instead.String()) }

// RegressionItems returns the ids of the items that the regressions of a report name.
func (r *Report) RegressionItems() []rerank.ID {
	var ids []rerank.ID
	for _, m := range r.Models {
		for _, x := range m.Regressions {
			ids = append(ids, x.Item, x.Instead)
		}
	}
	return ids
}

// NameRegressions fills in the titles of the items in the regressions.
func (r *Report) NameRegressions(titles map[rerank.ID]string) {
	for _, m := range r.Models {
		for i := range m.Regressions {
			x := &m.Regressions[i]
			x.ItemTitle, x.InsteadTitle = titles[x.Item], titles[x.Instead]
		}
	}
}

const maxRegressions = 20

// findRegressions returns the queries that lose the most reciprocal rank, the worst first.
func (in *Input) findRegressions(t *table.Table, rows []int, before, after *exactScan) []Regression {
	lost := func(i int) float64 { return 1/float64(before.placed[i].rank) - 1/float64(after.placed[i].rank) }
	var worse []int
	for i := range rows {
		if lost(i) > 0 {
			worse = append(worse, i)
		}
	}
	slices.SortStableFunc(worse, func(a, b int) int {
		switch d := lost(b) - lost(a); {
		case d > 0:
			return 1
		case d < 0:
			return -1
		}
		return after.placed[b].rank - after.placed[a].rank
	})
	var found []Regression
	for _, i := range worse[:min(len(worse), maxRegressions)] {
		r := Regression{
			Query: rows[i], Item: t.ID(before.placed[i].item), RankBefore: before.placed[i].rank, RankAfter: after.placed[i].rank,
			Margin: after.placed[i].margin, Instead: after.rankings[i][0].ID,
		}
		if math.IsNaN(r.Margin) || math.IsInf(r.Margin, 0) {
			r.Margin = 0 // the item is not finite, and JSON has no infinities
		}
		if in.QueryIDs != nil {
			r.QueryID = &in.QueryIDs[rows[i]]
		}
		found = append(found, r)
	}
	return found
}
