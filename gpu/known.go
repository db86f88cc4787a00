package gpu

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/likenessdb/likeness/plugin/device"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
)

// knownRows is how many rows the launches of checkKnown score: more than a warp scores at a
// time, and not a multiple of that.
const knownRows = 67

// errWrongScores: the machine's scores of a model are not the CPU's.
var errWrongScores = errors.New("the device scores rows of this model differently from the CPU")

// checkKnown scores made-up rows of a model by every kernel that searches will use, for a
// full batch of queries and for a single one, and compares the scores with the CPU's. It
// returns errWrongScores, or the machine's error, such as ErrRefused.
func (l *loaded) checkKnown(m Machine, batch int) (err error) {
	queries := make([]rerank.Query, batch)
	for i := range queries {
		queries[i] = madeUpQuery(l.Model, uint64(i))
	}
	t, known, err := l.loadKnown(m, madeUpRows(l.Model, knownRows), queries)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.onMachine.Free()) }()
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
				if _, err := scoreKnown(m, queries, way, named); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// loadKnown loads rows as a table of their own, which the caller must free, and scores them
// on the CPU.
func (l *loaded) loadKnown(m Machine, rows rerank.Matrix, queries []rerank.Query) (t *table, known []knownQuery, err error) {
	t = &table{model: l, loss: rerank.NewLoss(l.packing())}
	if t.onMachine, err = m.NewTable(l.onMachine, rows.Rows); err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.onMachine.Free())
		}
	}()
	t.measureLoss(rows)
	if err := t.onMachine.Write(0, rows); err != nil {
		return t, nil, err
	}
	if err := t.onMachine.Resize(rows.Rows, nil); err != nil {
		return t, nil, err
	}
	known = make([]knownQuery, len(queries))
	for i, q := range queries {
		if known[i], err = newKnownQuery(t, rows, q); err != nil {
			return t, nil, err
		}
	}
	return t, known, nil
}

// knownQuery is a query with the CPU's scores of the made-up rows.
type knownQuery struct {
	job     Job
	bounded bool // job.Limits is valid
	scores  []float32
	// off is the most by which an exact score may differ from the CPU's.
	off float64
}

func newKnownQuery(t *table, rows rerank.Matrix, q rerank.Query) (k knownQuery, err error) {
	enc, err := t.model.Encode(q)
	if err != nil {
		return k, fmt.Errorf("encoding a query: %w", err)
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
func scoreKnown(m Machine, queries []knownQuery, way Way, named bool) ([]Survivors, error) {
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
		return nil, err
	}
	if len(found) != len(jobs) {
		return nil, fmt.Errorf("%w: %d answers of %d jobs", device.ErrFailed, len(found), len(jobs))
	}
	for i := range found {
		if err := found[i].check(jobs[i].Keep, jobs[i].Keep, &rowSet{}); err != nil {
			return nil, err
		}
		if err := queries[i].compare(&found[i], way); err != nil {
			return nil, err
		}
	}
	return found, nil
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

// Bounds is the comparison of upper bounds, as the machine computes them, with the CPU's
// scores.
type Bounds struct {
	// Pairs counts the pairs of query and row. It is 0 if the machine computes no bounds.
	Pairs int
	// Room is the greatest share that the error of an approximate score has of the room
	// which its bound leaves for it. Below 1 the bound holds.
	Room float64
}

// boundsPiece is how many rows CheckBounds compares at a time.
const boundsPiece = 4096

// CheckBounds compares the upper bound of every row with the CPU's score of it. The model
// must stay loaded meanwhile. It returns an error if a bound is too low.
func (d *Device) CheckBounds(ctx context.Context, v device.Version, rows rerank.Matrix, queries []rerank.Query) (b Bounds, err error) {
	d.mu.Lock()
	l := d.models[v]
	d.mu.Unlock()
	if l == nil {
		return b, fmt.Errorf("%w: model %s", device.ErrNotLoaded, v)
	}
	for from := 0; from < rows.Rows; from += boundsPiece {
		part := rows.Slice(from, min(from+boundsPiece, rows.Rows))
		for some := range slices.Chunk(queries, d.facts.MaxBatch) {
			if err := d.owner.do(ctx, func(m Machine) error { return l.addBounds(m, part, some, &b) }); err != nil {
				return b, asDeviceError(err)
			}
		}
	}
	return b, nil
}

// addBounds adds the comparison of some rows and queries to b.
func (l *loaded) addBounds(m Machine, rows rerank.Matrix, queries []rerank.Query, b *Bounds) (err error) {
	t, known, err := l.loadKnown(m, rows, queries)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.onMachine.Free()) }()
	if !t.canApproximate() || !known[0].bounded {
		return nil
	}
	rough, err := scoreKnown(m, known, Approximate, false)
	if err != nil {
		return err
	}
	upper, err := scoreKnown(m, known, Bounded, false) // compares
	if err != nil {
		return err
	}
	approximate := make([]float32, rows.Rows)
	for q := range known {
		for i, row := range rough[q].Rows {
			approximate[row] = rough[q].Scores[i]
		}
		for i, row := range upper[q].Rows {
			if want := known[q].scores[row]; finite(want) {
				b.Pairs++
				room := float64(upper[q].Scores[i]) - float64(approximate[row]) + known[q].off
				b.Room = max(b.Room, (float64(want)-float64(approximate[row]))/room)
			}
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
