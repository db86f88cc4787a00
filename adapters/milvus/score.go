package milvus

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
)

// scorer turns a field's scores into inner products with the probe p:
//
//	IP      ⟨p, x⟩ as it is
//	COSINE  cos·‖p‖ = ⟨p, x/‖x‖⟩
//	L2      ‖p‖·(2 − d)/2 of the squared distance d to p/‖p‖, for ‖x‖ = 1
//
// An L2 field is searched with p/‖p‖, as distances to a long p would drown the
// inner product in rounding.
func (f fieldSearch) scorer(p rerank.Probe) func(float32) float32 {
	norm := rerank.Norm(p.Vector)
	switch f.col.metric {
	case adapters.Cosine:
		return func(s float32) float32 { return float32(float64(s) * norm) }
	case adapters.L2:
		return func(s float32) float32 { return float32(norm * (2 - float64(s)) / 2) }
	default:
		return func(s float32) float32 { return s }
	}
}

// epsilon bounds the rounding error of a score by γ_n·‖p‖·‖x‖ (adapters.Epsilon32).
// For unit vectors ‖x‖ is 1, and also for a COSINE field, where both norms are
// computed in float32 and so double the number of roundings. For an inner-product
// field without UnitVectors, ‖x‖ is the greater of the estimate of greatestNorm and of
// |⟨p, x⟩|/‖p‖ over the scores. Without rows the result bounds the error of every
// score.
func (f fieldSearch) epsilon(p rerank.Probe, rows []row) float32 {
	norm := rerank.Norm(p.Vector)
	switch {
	case f.col.metric == adapters.L2:
		return f.epsilonL2(norm, rows)
	case f.col.metric == adapters.Cosine:
		return adapters.Epsilon32(2*len(p.Vector)+16, norm, 1)
	case f.request.UnitVectors:
		return adapters.Epsilon32(len(p.Vector), norm, 1)
	}
	longest := f.longest
	for _, r := range rows {
		if norm > 0 {
			longest = max(longest, math.Abs(float64(r.score))/norm)
		}
	}
	return adapters.Epsilon32(len(p.Vector), norm, longest)
}

// epsilonL2 is relative to the distance, whose terms all have one sign: ‖p‖·γ_n·d/2 of
// the farthest row, plus twice ‖p‖·γ_n for the deviation of unit vectors from norm 1.
func (f fieldSearch) epsilonL2(norm float64, rows []row) float32 {
	farthest := 4.0
	if len(rows) > 0 && norm > 0 {
		farthest = 2 - 2*float64(rows[len(rows)-1].score)/norm
	}
	return adapters.Epsilon32(f.col.dim, norm*(farthest/2+2), 1)
}

// The greatest norm of a field is estimated from normRows rows and cached.
const (
	normRows = 64
	normTTL  = time.Minute
)

// normsOf is the cache key of a norm: the vector field of a collection.
type normsOf struct{ collection, field string }

// forgetNorms makes the next searches of a collection estimate its norms again.
func (s *Store) forgetNorms(collection string) {
	s.norms.ForgetFunc(func(of normsOf) bool { return of.collection == collection })
}

// errNoRows means that there is no row whose norm could be measured.
var errNoRows = errors.New("no rows")

// greatestNorm estimates the greatest norm of a field's rows as twice the greatest
// norm of the first 64 rows. Milvus neither tells norms nor samples at random.
func (s *Store) greatestNorm(ctx context.Context, c *collection, col column) (float64, error) {
	greatest, _, err := s.norms.Load(normsOf{c.name, col.field}, func() (float64, error) { return s.measureNorms(ctx, c, col) })
	if errors.Is(err, errNoRows) {
		return 1, nil // not cached, since rows may be written soon
	}
	return greatest, err
}

// measureNorms returns twice the greatest norm of the first rows of a field, or errNoRows.
func (s *Store) measureNorms(ctx context.Context, c *collection, col column) (float64, error) {
	r := s.read(reading{c: c, columns: []column{col}})
	f, err := r.query(ctx, col.filter, normRows)
	if err != nil {
		return 0, err
	}
	rows, err := r.convertReply(f)
	if err != nil {
		return 0, err
	}
	if len(rows.IDs) == 0 {
		return 0, errNoRows
	}
	greatest := 0.0
	for i := range rows.IDs {
		greatest = max(greatest, 2*rerank.Norm(rows.Vectors[0].Row(i)))
	}
	return greatest, nil
}
