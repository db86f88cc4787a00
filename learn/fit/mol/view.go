package mol

import (
	"math"

	"github.com/likenessdb/likeness/learn/fit/judge"
	"github.com/likenessdb/likeness/learn/fit/linalg"
	"github.com/likenessdb/likeness/learn/fit/samples"
	"github.com/likenessdb/likeness/learn/fit/train"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/mol"
)

// The fewest queries that judge a round or a trial: a score with full gates is a hundred
// times dearer than an inner product.
const (
	leastJudges     = 1000
	leastFullJudges = 100
)

// thin returns a judge of a part of j's queries, so that judging a round or a trial costs at most as much as
// training one round.
func (f *fitter) thin(j *judge.Judge) *judge.Judge {
	least := leastJudges
	if f.options.Gates == GatesFull {
		least = leastFullJudges
	}
	return j.Within(f.roundScores()*float64(f.log.Items.Cols), least)
}

// roundScores returns how many scores a round of the fit computes.
func (f *fitter) roundScores() float64 {
	size, steps := train.BatchSize(f.options.Batch, len(f.split.Train), f.log.Counts.Pairs)
	candidates := f.log.Counts.LoggedItems
	if candidates > f.options.Softmax {
		candidates = size + f.options.Draws
	}
	return float64(size) * float64(steps) * float64(candidates)
}

// view is a net as it would be served, over all items of the log.
type view struct {
	log        *samples.Log
	gates      Gates
	similarity *mol.Similarity
	abilities  rerank.Abilities
	features   rerank.Matrix // feature rows of the items
}

// newView serves a net.
func (f *fitter) newView(n *net) (*view, error) {
	c := n.config()
	c.Normalise = false // the log has scaled the vectors
	s, err := mol.New(c, f.tensors(n, 1, 1))
	if err != nil {
		return nil, err
	}
	items := f.log.Items
	v := &view{
		log: f.log, gates: f.options.Gates, similarity: s, abilities: rerank.AbilitiesOf(s),
		features: rerank.NewMatrix(items.Rows, s.Spec().Features),
	}
	err = linalg.ParallelErr(items.Rows, 64, func(from, to int) error {
		return s.EncodeItems(v.features.Slice(from, to), items.Slice(from, to))
	})
	return v, err
}

// encodeQuery encodes query row q.
func (v *view) encodeQuery(q int32) (rerank.Encoded, error) {
	query := rerank.Query{Vector: v.log.Queries.Row(int(q))}
	if v.similarity.Spec().UserIDs {
		query.UserID, query.HasUserID = v.log.Users[q], true
	}
	return v.similarity.Encode(query)
}

// marks returns the judge's measure of each of its queries.
func (v *view) marks(j *judge.Judge) ([]float64, error) {
	hits, err := v.findHits(j)
	return j.MarksOf(hits), err
}

// findHits returns the hits of each query of a judge.
func (v *view) findHits(j *judge.Judge) ([]judge.Hits, error) {
	hits := make([]judge.Hits, len(j.Queries))
	err := linalg.ParallelErr(len(j.Queries), 8, func(from, to int) error {
		scores := make([]float32, v.features.Rows)
		for i := from; i < to; i++ {
			e, err := v.encodeQuery(j.Queries[i])
			if err != nil {
				return err
			}
			if err := e.Score(scores, rerank.Items{Features: v.features}); err != nil {
				return err
			}
			hits[i] = j.HitsOf(scores, j.Queries[i])
		}
		return nil
	})
	return hits, err
}

// measureGates reports the gates of the judge's queries, each with its first wanted item.
func (v *view) measureGates(j *judge.Judge) (GateUsage, error) {
	u := GateUsage{Queries: len(j.Queries)}
	for i, query := range j.Queries {
		e, err := v.encodeQuery(query)
		if err != nil {
			return u, err
		}
		explained, err := rerank.EncodedAbilitiesOf(e).Explain.Explain(rerank.Items{Features: v.features, Rows: j.FirstItems[i : i+1]})
		if err != nil {
			return u, err
		}
		gates := make([]float64, 0, len(explained[0].Terms))
		for _, term := range explained[0].Terms {
			gates = append(gates, float64(term.Gate))
		}
		u.add(gates)
	}
	u.MeanEntropy /= float64(max(1, u.Queries))
	u.Largest /= float64(max(1, u.Queries))
	for l := range u.Mass {
		u.Mass[l] /= float64(u.Queries)
	}
	u.Entropy = entropy(u.Mass)
	return u, nil
}

// add adds the gates of a query to the sums.
func (u *GateUsage) add(gates []float64) {
	if u.Mass == nil {
		u.Mass = make([]float64, len(gates))
	}
	top := 0.0
	for l, g := range gates {
		u.Mass[l] += g
		top = max(top, g)
	}
	u.Largest += top
	u.MeanEntropy += entropy(gates)
}

// entropy returns the entropy of probabilities in nats.
func entropy(p []float64) float64 {
	var h float64
	for _, v := range p {
		if v > 0 {
			h -= v * math.Log(v)
		}
	}
	return h
}
