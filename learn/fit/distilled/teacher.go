package distilled

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/linalg"
	"github.com/likenessdb/likeness/learn/fit/train"
	"github.com/likenessdb/likeness/rerank"
)

// teacher is the similarity whose ranking a probe learns to reproduce.
type teacher struct {
	similarity rerank.Similarity
	abilities  rerank.Abilities
	spec       rerank.Spec
	base       rerank.Matrix // the stored vectors of the items
	features   rerank.Matrix // their feature rows
	queries    rerank.Matrix // the query vectors, unscaled
	users      []int64       // the user of each query; nil if the log names no users
}

// ranked holds the best items of a query by the similarity, best first.
type ranked struct {
	rows   []int32
	scores []float32
}

// newTeacher encodes the items. It returns fit.ErrData.
func newTeacher(m rerank.Similarity, d fit.Data) (*teacher, error) {
	t := &teacher{similarity: m, abilities: rerank.AbilitiesOf(m), spec: m.Spec(), base: d.Items, queries: d.Queries, users: d.UserIDs}
	t.features = rerank.NewMatrix(d.Items.Rows, t.spec.Features)
	if err := m.EncodeItems(t.features, d.Items); err != nil {
		return nil, fmt.Errorf("%w: items: %w", fit.ErrData, err)
	}
	return t, nil
}

// fingerprint returns a hash of some item encodings and scores. It differs between similarities
// that encode or score differently.
func (t *teacher) fingerprint(queries []int32) (string, error) {
	encoded, err := t.encodeAll(queries[:min(len(queries), 4)])
	if err != nil {
		return "", err
	}
	scores := rerank.NewMatrix(len(encoded), t.base.Rows)
	if err := t.score(scores.Data, encoded); err != nil {
		return "", err
	}
	h := train.NewHasher()
	h.AddMatrix(t.features)
	h.AddMatrix(scores)
	return hex.EncodeToString(h.Sum()), nil
}

// encodeQuery encodes a query row. It returns fit.ErrData.
func (t *teacher) encodeQuery(query int32) (rerank.Encoded, error) {
	q := rerank.Query{Vector: t.queries.Row(int(query))}
	if t.users != nil {
		q.UserID, q.HasUserID = t.users[query], true
	}
	e, err := t.similarity.Encode(q)
	if err != nil {
		return nil, fmt.Errorf("%w: query %d: %w", fit.ErrData, query, err)
	}
	return e, nil
}

const (
	// scoreBatch is the number of queries that are scored together, scoreBlock the
	// number after which the context is checked.
	scoreBlock = 64
	scoreBatch = 8
)

// rankAll ranks all items for each of the queries and keeps the best n. It returns
// fit.ErrData or the context's error.
func (t *teacher) rankAll(ctx context.Context, queries []int32, n int, done func(int)) ([]ranked, error) {
	return t.eachBatch(ctx, queries, done, func(out []ranked, encoded []rerank.Encoded, from int) error {
		rows := t.base.Rows
		scores := make([]float32, len(encoded)*rows)
		if err := t.score(scores, encoded); err != nil {
			return err
		}
		for i := range encoded {
			own := scores[i*rows : (i+1)*rows]
			best := bestRows(own, n)
			out[i] = ranked{rows: best, scores: selectScores(own, best)}
		}
		return nil
	})
}

// score writes the scores of all items, for one query after the other.
func (t *teacher) score(dst []float32, queries []rerank.Encoded) error {
	items := rerank.Items{Features: t.features}
	if t.abilities.ScoreBatch != nil {
		return t.abilities.ScoreBatch.ScoreBatch(dst, queries, items)
	}
	for i, e := range queries {
		if err := e.Score(dst[i*t.base.Rows:(i+1)*t.base.Rows], items); err != nil {
			return err
		}
	}
	return nil
}

// rescore ranks the given items of each query, and keeps the best n.
func (t *teacher) rescore(ctx context.Context, queries []int32, lists [][]int32, n int, done func(int)) ([]ranked, error) {
	return t.eachBatch(ctx, queries, done, func(out []ranked, encoded []rerank.Encoded, from int) error {
		for i, e := range encoded {
			list := lists[from+i]
			scores := make([]float32, len(list))
			if err := e.Score(scores, rerank.Items{Features: t.features, Rows: list}); err != nil {
				return err
			}
			best := bestRows(scores, n)
			out[i] = ranked{rows: make([]int32, len(best)), scores: selectScores(scores, best)}
			for k, at := range best {
				out[i].rows[k] = list[at]
			}
		}
		return nil
	})
}

// eachBatch calls f for batches of the queries, on every core. from is the number of the batch's
// first query; f writes the lists to out.
func (t *teacher) eachBatch(ctx context.Context, queries []int32, done func(int), f func(out []ranked, encoded []rerank.Encoded, from int) error) ([]ranked, error) {
	out := make([]ranked, len(queries))
	for block := 0; block < len(queries); block += scoreBlock {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		end := min(block+scoreBlock, len(queries))
		errs := make([]error, (end-block+scoreBatch-1)/scoreBatch)
		linalg.Parallel(len(errs), 1, func(a, b int) {
			for i := a; i < b; i++ {
				from := block + i*scoreBatch
				to := min(from+scoreBatch, end)
				encoded, err := t.encodeAll(queries[from:to])
				if err == nil {
					err = f(out[from:to], encoded, from)
				}
				errs[i] = err
			}
		})
		if err := errors.Join(errs...); err != nil {
			return nil, err
		}
		for i := block; i < end; i++ {
			if len(out[i].rows) == 0 {
				return nil, fmt.Errorf("%w: query %d has no item with a finite score", fit.ErrData, queries[i])
			}
		}
		done(end - block)
	}
	return out, nil
}

func (t *teacher) encodeAll(queries []int32) ([]rerank.Encoded, error) {
	encoded := make([]rerank.Encoded, len(queries))
	for i, q := range queries {
		var err error
		if encoded[i], err = t.encodeQuery(q); err != nil {
			return nil, err
		}
	}
	return encoded, nil
}

// bestRows returns the places of the n greatest scores, greatest first, equal ones in
// their order. NaN and −Inf are left out.
func bestRows(scores []float32, n int) []int32 {
	order := func(a, b int32) int {
		return cmp.Or(cmp.Compare(scores[b], scores[a]), cmp.Compare(a, b))
	}
	room := max(2*n, 64)
	rows, floor := make([]int32, 0, room), float32(math.Inf(-1))
	for x, v := range scores {
		if !(v > floor) {
			continue
		}
		rows = append(rows, int32(x))
		if len(rows) == room {
			slices.SortFunc(rows, order)
			rows = rows[:n]
			floor = scores[rows[n-1]]
		}
	}
	slices.SortFunc(rows, order)
	return slices.Clip(rows[:min(n, len(rows))])
}

// selectScores returns the scores of the given rows.
func selectScores(scores []float32, rows []int32) []float32 {
	out := make([]float32, len(rows))
	for i, x := range rows {
		out[i] = scores[x]
	}
	return out
}

// findTemperature returns the temperature at which the softmax of the lists has the given
// perplexity, as a geometric mean: as if that many items shared the weight. It makes the training
// independent of the similarity's scale.
func findTemperature(lists []ranked, perplexity float64) float64 {
	entropy := func(t float64) float64 {
		var sum float64
		for _, l := range lists {
			sum += l.entropy(t)
		}
		return sum / float64(len(lists))
	}
	low, high := 1e-9, 1.0
	for range 60 {
		if entropy(high) >= math.Log(perplexity) {
			break
		}
		low, high = high, high*2
	}
	for range 60 {
		if mid := math.Sqrt(low * high); entropy(mid) < math.Log(perplexity) {
			low = mid
		} else {
			high = mid
		}
	}
	return high
}

// weights writes the softmax of the scores at a temperature.
func (r ranked) weights(dst []float32, temperature float64) {
	var sum float64
	for i, s := range r.scores {
		w := math.Exp(float64(s-r.scores[0]) / temperature)
		dst[i] = float32(w)
		sum += w
	}
	for i := range dst[:len(r.scores)] {
		dst[i] = float32(float64(dst[i]) / sum)
	}
}

// entropy returns the entropy of the softmax of the scores at a temperature, in nats.
func (r ranked) entropy(temperature float64) float64 {
	var sum, first float64
	for _, s := range r.scores {
		d := float64(s-r.scores[0]) / temperature
		w := math.Exp(d)
		sum, first = sum+w, first+w*d
	}
	return math.Log(sum) - first/sum
}
