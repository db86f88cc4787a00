package bilinear

import (
	"errors"
	"math"
	"slices"
	"sort"

	"gonum.org/v1/gonum/mat"

	"github.com/likenessdb/likeness/learn/fit/judge"
	"github.com/likenessdb/likeness/rerank"
)

// Spectrum says how much of W − I a low rank keeps, or how much of W, if the fit started at
// the least-squares map.
type Spectrum struct {
	// Of names the matrix: W − I or W.
	Of string `json:"of"`
	// Singular holds its singular values, the greatest first.
	Singular []float64 `json:"singular_values"`
	// Ranks describes, for some ranks, the sum of I and the leading components of W − I, or the
	// leading components of W.
	Ranks []RankQuality `json:"ranks"`
	// Suggested is a low rank that keeps the share Quality of the full form's measure on the
	// held-out queries, found as suggestRank says.
	Suggested int     `json:"suggested_rank"`
	Quality   float64 `json:"quality_asked"`
	// EnergyRank is the least rank that keeps the share Energy of Σσ².
	EnergyRank int     `json:"energy_rank"`
	Energy     float64 `json:"energy_asked"`
}

// RankQuality says what a rank keeps. For every q and x,
// |φ − φ_r| ≤ ‖q‖‖x‖·Bound, Bound = σ_{r+1} (Eckart and Young).
type RankQuality struct {
	Rank   int     `json:"rank"`
	Energy float64 `json:"energy"` // share of Σσ²
	Bound  float64 `json:"bound"`
	// Value is the measure on the held-out queries, for a fit that had not seen them.
	Value float64 `json:"value"`
}

// decomposition is the singular value decomposition of W − I, or of W.
type decomposition struct {
	u, v     mat.Dense
	sigma    []float64
	identity bool // of W − I
}

// decompose decomposes w − I if identity is set, otherwise w.
func decompose(w rerank.Matrix, identity bool) (*decomposition, error) {
	difference := mat.NewDense(w.Rows, w.Cols, nil)
	for r := range w.Rows {
		for c, v := range w.Row(r) {
			difference.Set(r, c, float64(v))
		}
		if identity {
			difference.Set(r, r, difference.At(r, r)-1)
		}
	}
	var svd mat.SVD
	if !svd.Factorize(difference, mat.SVDThin) { //nolint:misspell // gonum's name
		return nil, errors.New("the singular values of W do not converge")
	}
	d := &decomposition{sigma: svd.Values(nil), identity: identity}
	svd.UTo(&d.u)
	svd.VTo(&d.v)
	return d, nil
}

// name names the matrix that was decomposed.
func (d *decomposition) name() string {
	if d.identity {
		return "W − I"
	}
	return "W"
}

// cut returns I + PQᵀ of that rank, or PQᵀ: P = U√Σ, Q = V√Σ.
func (d *decomposition) cut(rank int) *lowRankForm {
	left, _ := d.u.Dims()
	right, _ := d.v.Dims()
	p, q := rerank.NewMatrix(left, rank), rerank.NewMatrix(right, rank)
	for k := range min(rank, len(d.sigma)) {
		root := math.Sqrt(d.sigma[k])
		for i := range left {
			p.Data[i*rank+k] = float32(d.u.At(i, k) * root)
		}
		for i := range right {
			q.Data[i*rank+k] = float32(d.v.At(i, k) * root)
		}
	}
	return newLowRank(p, q, d.identity)
}

// rankOfEnergy returns the least rank that keeps the share of the energy Σσ².
func (d *decomposition) rankOfEnergy(share float64) int {
	total := d.energy(len(d.sigma))
	for r := 1; r < len(d.sigma); r++ {
		if d.energy(r) >= share*total {
			return r
		}
	}
	return len(d.sigma)
}

// energy returns Σσ² of the leading components.
func (d *decomposition) energy(rank int) float64 {
	var sum float64
	for _, s := range d.sigma[:rank] {
		sum += s * s
	}
	return sum
}

// bound returns the greatest singular value beyond the rank.
func (d *decomposition) bound(rank int) float64 {
	if rank < len(d.sigma) {
		return d.sigma[rank]
	}
	return 0
}

// suggestRank returns the first power of 2 that is enough as a rank, or a rank below it
// that is enough too. The quality need not rise with the rank: a search by halves over
// all ranks can miss low ranks that are better than high ones.
func suggestRank(n int, enough func(rank int) bool) int {
	below := 0
	for rank := 1; rank < n; rank *= 2 {
		if enough(rank) {
			return below + 1 + sort.Search(rank-below-1, func(i int) bool { return enough(below + 1 + i) })
		}
		below = rank
	}
	return below + 1 + sort.Search(n-below-1, func(i int) bool { return enough(below + 1 + i) })
}

// describeSpectrum describes the spectrum of final. It measures the quality of a rank
// by the same rank of judged, which has not seen the judge's queries; full is the
// quality of judged uncut.
func describeSpectrum(final, judged *decomposition, j *judge.Judge, o Options, full float64) *Spectrum {
	s := &Spectrum{Of: final.name(), Singular: final.sigma, Quality: o.Quality, EnergyRank: final.rankOfEnergy(o.Energy), Energy: o.Energy}
	known := map[int]float64{}
	quality := func(rank int) float64 {
		if _, done := known[rank]; !done {
			known[rank] = j.Mean(j.Marks(judged.cut(rank).probe))
		}
		return known[rank]
	}
	s.Suggested = suggestRank(len(final.sigma), func(rank int) bool { return quality(rank) >= o.Quality*full })
	ranks := []int{8, 16, 32, 64, 128, s.Suggested, s.EnergyRank}
	if o.Reduce > 0 {
		ranks = append(ranks, o.Reduce)
	}
	slices.Sort(ranks)
	total := final.energy(len(final.sigma))
	for _, r := range slices.Compact(ranks) {
		if r > len(final.sigma) {
			break
		}
		q := RankQuality{Rank: r, Energy: 1, Bound: final.bound(r), Value: quality(r)}
		if total > 0 {
			q.Energy = final.energy(r) / total
		}
		s.Ranks = append(s.Ranks, q)
	}
	return s
}
