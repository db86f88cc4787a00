package gpu

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/likenessdb/likeness/plugin/device"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
)

// knownRows is how many rows the launches of checkKnown score: more than a warp scores at a
// time, and not a multiple of that.
const knownRows = 67

// errWrongScores: the machine's scores of a model are not the CPU's.
var errWrongScores = errors.New("the device scores made-up rows of this model differently from the CPU")

// checkKnown scores made-up rows of a model by every kernel that searches will use, for a
// full batch of queries and for a single one, and compares the scores with the CPU's. It
// returns errWrongScores, or the machine's error, such as ErrRefused.
func (l *loaded) checkKnown(m Machine, batch int) (err error) {
	rows := madeUpRows(l.Model, knownRows)
	t := &table{model: l, loss: rerank.NewLoss(l.packing())}
	if t.onMachine, err = m.NewTable(l.onMachine, rows.Rows); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.onMachine.Free()) }()
	t.measureLoss(rows)
	if err := t.onMachine.Write(0, rows); err != nil {
		return err
	}
	if err := t.onMachine.Resize(rows.Rows, nil); err != nil {
		return err
	}
	known := make([]knownQuery, batch)
	for i := range known {
		if known[i], err = newKnownQuery(t, rows, uint64(i)); err != nil {
			return err
		}
	}
	ways := []Way{Exact}
	if t.canApproximate() {
		ways = append(ways, Approximate)
		if known[0].bounded {
			ways = append(ways, Bounded)
		}
	}
	for _, queries := range [][]knownQuery{known, known[:1]} {
		for _, way := range ways {
			for _, named := range []bool{false, true} {
				if err := scoreKnown(m, queries, way, named); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// knownQuery is a query with the CPU's scores of the made-up rows.
type knownQuery struct {
	job     Job
	bounded bool // job.Limits is valid
	scores  []float32
	// off is the most by which an exact score may differ from the CPU's.
	off float64
}

func newKnownQuery(t *table, rows rerank.Matrix, seed uint64) (k knownQuery, err error) {
	enc, err := t.model.Encode(madeUpQuery(t.model.Model, seed))
	if err != nil {
		return k, fmt.Errorf("encoding a made-up query: %w", err)
	}
	o := rerank.EncodedAbilitiesOf(enc).Operate
	if o == nil {
		return k, fmt.Errorf("%w: the model encodes queries that no device can score", device.ErrRequest)
	}
	k = knownQuery{job: Job{Table: t.onMachine, Query: o.Operands(), Keep: rows.Rows}, scores: make([]float32, rows.Rows)}
	k.off = t.model.bound.Exact(&k.job.Query, &t.loss) + float64(enc.Bound(nil, nil).Epsilon)
	k.job.Limits, k.bounded = t.model.bound.Limits(&k.job.Query, &t.loss)
	return k, enc.Score(k.scores, rerank.Items{Features: rows})
}

// scoreKnown scores the made-up rows for some queries, as a scan or as a rescoring of named
// rows. Rows are named in reverse, so that scores of an earlier launch are wrong where a
// kernel writes none.
func scoreKnown(m Machine, queries []knownQuery, way Way, named bool) error {
	jobs := make([]Job, len(queries))
	for i := range queries {
		jobs[i] = queries[i].job
		jobs[i].Way = way
		for row := jobs[i].Keep - 1; named && row >= 0; row-- {
			jobs[i].Rows = append(jobs[i].Rows, uint32(row))
		}
	}
	found, err := m.Run(jobs)
	if err != nil {
		return err
	}
	if len(found) != len(jobs) {
		return fmt.Errorf("%w: %d answers of %d jobs", device.ErrFailed, len(found), len(jobs))
	}
	for i := range found {
		if err := found[i].check(jobs[i].Keep, jobs[i].Keep, &rowSet{}); err != nil {
			return err
		}
		if err := queries[i].compare(&found[i], way); err != nil {
			return err
		}
	}
	return nil
}

// compare returns errWrongScores if a row is missing or its score lies outside the stated
// error, or if its upper bound lies below the CPU's score. It ignores the scores of
// Approximate, whose error has no bound.
func (k *knownQuery) compare(found *Survivors, way Way) error {
	if len(found.Rows) != len(k.scores) {
		return fmt.Errorf("%w: %d of %d rows came back", errWrongScores, len(found.Rows), len(k.scores))
	}
	for i, row := range found.Rows {
		want, have := float64(k.scores[row]), float64(found.Scores[i])
		low, high := want-k.off, want+k.off
		switch way {
		case Exact:
		case Bounded:
			high = math.Inf(1)
		case Approximate:
			low, high = math.Inf(-1), math.Inf(1)
		}
		if finite(k.scores[row]) && !(have >= low && have <= high && finite(found.Scores[i])) {
			return fmt.Errorf("%w: row %d of query vectors %v… has %s %v, on the CPU %v, which may differ by %v",
				errWrongScores, row, k.job.Query.Vectors.Data[:min(3, len(k.job.Query.Vectors.Data))], way, have, want, k.off)
		}
	}
	return nil
}

// madeUpRows returns feature rows of random numbers: components of norm 1, and normally
// distributed numbers elsewhere.
func madeUpRows(m *model.Model, n int) rerank.Matrix {
	s := m.Spec()
	rows := rerank.NewMatrix(n, s.Features)
	fillNormal(rows.Data, 1)
	for r := range n {
		for j := range max(1, s.PairsItem) {
			if s.Block > 0 {
				rerank.Normalise(rows.Row(r)[j*s.Block:][:s.Block])
			}
		}
	}
	return rows
}

func madeUpQuery(m *model.Model, seed uint64) rerank.Query {
	q := rerank.Query{Vector: make([]float32, m.Spec().QueryDim), UserID: int64(seed), HasUserID: true}
	fillNormal(q.Vector, 2+seed)
	return q
}

func fillNormal(dst []float32, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 17))
	for i := range dst {
		dst[i] = float32(rng.NormFloat64())
	}
}
