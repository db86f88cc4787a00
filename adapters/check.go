package adapters

import (
	"fmt"
	"math"

	"github.com/likenessdb/likeness/rerank"
)

// Check names what is wrong with a request before any call to the store: a vector that is
// not finite, with its position, or a depth below one (rerank.ErrQuery); more rows or
// probes than the limits allow (*LimitError; a limit of 0 sets no limit); vectors or
// payloads asked of more than one probe (ErrUnsupported).
func (r SearchRequest) Check(l Limits) error {
	if l.MaxProbes > 0 && len(r.Probes) > l.MaxProbes {
		return &LimitError{Limit: "max_probes", Value: int64(len(r.Probes)), Max: int64(l.MaxProbes),
			Remedy: "choose a strategy with fewer probes, or raise the limit in the store's configuration"}
	}
	if r.WithVectors && len(r.Probes) > 1 {
		return fmt.Errorf("%w: vectors were asked with %d probes; ask them with one, or fetch them by id", ErrUnsupported, len(r.Probes))
	}
	if r.Payload && len(r.Probes) > 1 {
		return fmt.Errorf("%w: payloads were asked with %d probes; ask them with one, or fetch them by id", ErrUnsupported, len(r.Probes))
	}
	for i, p := range r.Probes {
		if err := rerank.CheckFinite(fmt.Sprintf("probes[%d].vector", i), p.Vector); err != nil {
			return err
		}
		if p.Depth < 1 {
			return fmt.Errorf("%w: probes[%d] asks for %d rows; ask for at least 1", rerank.ErrQuery, i, p.Depth)
		}
		if l.MaxDepth > 0 && p.Depth > l.MaxDepth {
			return &LimitError{Limit: "max_depth", Value: int64(p.Depth), Max: int64(l.MaxDepth),
				Remedy: "ask for fewer rows, or raise the limit in the store's configuration"}
		}
	}
	return nil
}

// FieldOf returns the name of the vector field that a probe searches.
func (r SearchRequest) FieldOf(p rerank.Probe) string {
	if p.Field != "" {
		return p.Field
	}
	return r.Vector
}

// Epsilon32 bounds the rounding error of an inner product that was accumulated in float32
// with at most the given roundings of each product, as many as there are elements if they
// were added in any order: γ_n ‖p‖ max‖x‖ with n = roundings + 4 and γ_n = n·u/(1 − n·u),
// u = 2⁻²⁴ (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1). The additional 4 covers vectors normalised in float32 and one last
// operation on the score.
func Epsilon32(roundings int, probeNorm, maxNorm float64) float32 {
	const u = 1.0 / (1 << 24)
	n := float64(roundings+4) * u
	return float32(n / (1 - n) * probeNorm * maxNorm)
}

// tinyFloat16 is half the smallest number above 0 of float16: the largest error of rounding
// to it below 2⁻¹⁴.
const tinyFloat16 = 1.0 / (1 << 25)

// Epsilon16 is like Epsilon32 for a store that keeps a field in float16: it bounds the additional
// difference between the inner product of a query with a vector and the score. With u = 2⁻¹¹ the
// store rounds
//
//   - the query once, and once the vector that it has normalised for a cosine field;
//   - a product once, and its sums dim/32 times, where the processor multiplies float16: Qdrant
//     keeps 32 sums side by side in float16 on ARM, while SSE and AVX multiply and add in float32.
//
// Each rounding multiplies a term by 1 + δ, |δ| ≤ u, or moves it by tinyFloat16 where it is
// below 2⁻¹⁴. With n = 3 + dim/32 the terms differ by γ_n = n·u/(1 − n·u) in sum, as in
// Epsilon32. The moves of the query's elements add at most tiny·Σ|x_i| ≤ tiny·√dim‖x‖, those of
// the vector's tiny·√dim‖q‖, and those of products and sums 2·tiny·dim; later roundings make
// each at most 1/(1 − n·u) times as large.
func Epsilon16(dim int, queryNorm, maxNorm float64) float32 {
	const u = 1.0 / (1 << 11)
	n := float64(3+dim/32) * u
	if n >= 1 {
		return float32(math.Inf(1))
	}
	d := float64(dim)
	return float32((n*queryNorm*maxNorm + tinyFloat16*(math.Sqrt(d)*(queryNorm+maxNorm)+2*d)) / (1 - n))
}
