package trial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/learn/eval"
	"github.com/likenessdb/likeness/rerank"
)

// Database has the measurements of the database's own search.
type Database struct {
	Queries int `json:"queries"`
	K       int `json:"k"`
	// P50 and P95 are times of a search in milliseconds, one at a time.
	P50 float64 `json:"p50_ms"`
	P95 float64 `json:"p95_ms"`
	// Recall is the mean share of the exact first K that the index finds. If it was not measured,
	// NotMeasured says why.
	Recall      float64 `json:"recall"`
	NotMeasured string  `json:"recall_not_measured,omitempty"`
	// Exact says what the index was compared with.
	Exact string `json:"exact,omitempty"`
}

// A measurement makes at most probedQueries searches, one at a time, and begins none after probeTime.
const (
	probedQueries = 100
	probeTime     = 20 * time.Second
)

// measureDatabase searches for stored vectors, a random choice of the rows that were read, and
// compares the answers with exact ones.
func (t *trial) measureDatabase(ctx context.Context) error {
	d := &t.report.Database
	n := min(probedQueries, len(t.sample.ids))
	d.K = t.K
	done := t.progress("searching the database", n)
	exactBy := t.exactBy()
	var took []time.Duration
	var found float64
	order := rand.New(rand.NewPCG(1, 0)).Perm(n)
	for began := time.Now(); len(took) < n && time.Since(began) < probeTime; {
		query := t.sample.vectors.Row(order[len(took)] * len(t.sample.ids) / n)
		start := time.Now()
		list, err := t.search(ctx, query, t.K, false)
		if errors.Is(err, adapters.ErrMetric) {
			d.NotMeasured = "the scores of this metric give no inner products for vectors of these norms"
			return nil
		}
		if err != nil {
			return t.explain(ctx, err)
		}
		took = append(took, time.Since(start))
		done(1)
		if exactBy == nil {
			continue
		}
		share, err := exactBy(ctx, query, list)
		if err != nil {
			return t.explain(ctx, err)
		}
		found += share
	}
	done(n - len(took))
	d.Queries = len(took)
	d.Recall = found / float64(max(1, len(took)))
	d.P50, d.P95 = eval.Percentile(took, 0.5), eval.Percentile(took, 0.95)
	switch {
	case t.sample.whole:
		d.Exact = "a scan of all rows"
	case exactBy != nil:
		d.Exact = "the database's own exhaustive search"
	default:
		d.NotMeasured = fmt.Sprintf("%d of %d rows were read, and the database cannot search this index exhaustively; raise --rows", len(t.sample.ids), t.look.Rows)
	}
	return nil
}

// search asks the database as a client does without likeness.
func (t *trial) search(ctx context.Context, query []float32, k int, exact bool) (rerank.List, error) {
	lists, err := t.store.Search(ctx, adapters.SearchRequest{
		Collection: t.Collection, Vector: t.look.field.Name, Exact: exact, UnitVectors: t.sample.unit,
		Probes: []rerank.Probe{{Vector: query, Depth: k}},
	})
	if err != nil || len(lists) == 0 {
		return rerank.List{}, err
	}
	return lists[0], nil
}

// exactBy returns a function that gives the share of the exact first K in a list, or nil
// if there is nothing to compare it with.
func (t *trial) exactBy() func(context.Context, []float32, rerank.List) (float64, error) {
	switch {
	case t.sample.whole:
		row := make(map[rerank.ID]int, len(t.sample.ids))
		for i, id := range t.sample.ids {
			row[id] = i
		}
		return func(_ context.Context, query []float32, list rerank.List) (float64, error) {
			scores := t.sample.scores(query, t.look.field.Metric)
			found := 0
			least := kth(scores, t.K)
			for _, id := range list.IDs {
				if at, ok := row[id]; ok && scores[at] >= least {
					found++
				}
			}
			return float64(min(found, t.K)) / float64(min(t.K, len(scores))), nil
		}
	case canBeExact(t.look.field):
		return func(ctx context.Context, query []float32, list rerank.List) (float64, error) {
			exact, err := t.search(ctx, query, t.K, true)
			if err != nil || len(exact.IDs) == 0 {
				return 0, err
			}
			found := 0
			for _, id := range list.IDs {
				if slices.Contains(exact.IDs, id) {
					found++
				}
			}
			return float64(found) / float64(len(exact.IDs)), nil
		}
	}
	return nil
}

// roundingSlack is by how much two computations of one score may differ.
const roundingSlack = 1e-5

// scores compares a query with every row as the metric does: a greater score is nearer.
func (s *sample) scores(query []float32, metric adapters.Metric) []float64 {
	scores := make([]float64, len(s.ids))
	for r := range scores {
		row := s.vectors.Row(r)
		var dot, distance float64
		for i, q := range query {
			dot += float64(q) * float64(row[i])
			distance += (float64(q) - float64(row[i])) * (float64(q) - float64(row[i]))
		}
		switch metric {
		case adapters.Cosine:
			scores[r] = dot / max(rerank.Norm(row), 1e-30)
		case adapters.L2:
			scores[r] = -distance
		default:
			scores[r] = dot
		}
	}
	return scores
}

// kth returns the k-th greatest score, less what rounding may change.
func kth(scores []float64, k int) float64 {
	sorted := slices.Clone(scores)
	slices.SortFunc(sorted, func(a, b float64) int { return cmp.Compare(b, a) })
	v := sorted[min(k, len(sorted))-1]
	return v - roundingSlack*max(1, v, -v)
}
