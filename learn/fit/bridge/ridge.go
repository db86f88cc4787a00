package bridge

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/linalg"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/mol"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// moments holds the sums over texts from which a ridge regression of new vectors y on old vectors x is
// solved.
type moments struct {
	n    float64
	x, y []float64 // Σx, Σy
	xx   []float64 // Σxxᵀ, row by row
	xy   []float64 // Σxyᵀ, row by row
	yy   float64   // Σ‖y‖²
}

// momentBlock is the number of rows whose moments are summed in float32.
const momentBlock = 1024

// addUp returns the moments of the texts.
func addUp(old, changed rerank.Matrix) *moments {
	m := &moments{
		n: float64(old.Rows), x: make([]float64, old.Cols), y: make([]float64, changed.Cols),
		xx: make([]float64, old.Cols*old.Cols), xy: make([]float64, old.Cols*changed.Cols),
	}
	xx, xy := rerank.NewMatrix(old.Cols, old.Cols), rerank.NewMatrix(old.Cols, changed.Cols)
	for from := 0; from < old.Rows; from += momentBlock {
		to := min(from+momentBlock, old.Rows)
		x, y := old.Slice(from, to), changed.Slice(from, to)
		linalg.Multiply(xx, x, true, x, false)
		linalg.Multiply(xy, x, true, y, false)
		addWide(m.xx, xx.Data)
		addWide(m.xy, xy.Data)
		for r := range x.Rows {
			addWide(m.x, x.Row(r))
			addWide(m.y, y.Row(r))
		}
		m.yy += linalg.Dot(y.Data, y.Data)
	}
	return m
}

func addWide(dst []float64, v []float32) {
	for i, x := range v {
		dst[i] += float64(x)
	}
}

// centred returns the mean products of the vectors without their means.
func (m *moments) centred() (xx *mat.SymDense, xy *mat.Dense, yy float64) {
	dx, dy := len(m.x), len(m.y)
	xx, xy = mat.NewSymDense(dx, nil), mat.NewDense(dx, dy, nil)
	for i := range dx {
		for j := i; j < dx; j++ {
			xx.SetSym(i, j, (m.xx[i*dx+j]-m.x[i]*m.x[j]/m.n)/m.n)
		}
		for j := range dy {
			xy.Set(i, j, (m.xy[i*dy+j]-m.x[i]*m.y[j]/m.n)/m.n)
		}
	}
	yy = m.yy
	for _, v := range m.y {
		yy -= v * v / m.n
	}
	return xx, xy, yy / m.n
}

// affine is a map of old vectors to new ones: x becomes Aᵀx + b.
type affine struct {
	a     *mat.Dense // a row for each number of an old vector
	b     []float64
	ridge float64
	// covariance is the covariance of the old vectors, plus the ridge.
	covariance mat.Cholesky
}

// solve fits the map with the ridge of the least error by generalised cross-validation (Golub, Heath
// and Wahba 1979). With the eigenvectors V and the eigenvalues l of the old vectors' covariance, the
// map of every ridge is a sum over them.
func (m *moments) solve() (*affine, error) {
	xx, xy, yy := m.centred()
	var eigen mat.EigenSym
	if !eigen.Factorize(xx, true) { //nolint:misspell // gonum's name
		return nil, fmt.Errorf("%w: the covariance of the old vectors has no eigenvalues; are all of them finite?", fit.ErrData)
	}
	var v, z mat.Dense
	eigen.VectorsTo(&v)
	z.Mul(v.T(), xy)
	values := eigen.Values(nil)
	top := values[len(values)-1]
	if !(top > 0) {
		return nil, fmt.Errorf("%w: all old vectors are equal", fit.ErrData)
	}
	energy := make([]float64, len(values))
	for i := range values {
		values[i] = max(values[i], 0)
		for _, x := range z.RawRowView(i) {
			energy[i] += x * x
		}
	}
	ridge, least := 0.0, math.Inf(1)
	for exponent := -7.0; exponent <= 1; exponent += 0.25 {
		at := top * math.Pow(10, exponent)
		if e := m.crossValidated(values, energy, yy, at); e < least {
			ridge, least = at, e
		}
	}
	return m.affineAt(xx, xy, ridge)
}

// crossValidated returns the generalised cross-validation error of a ridge.
func (m *moments) crossValidated(values, energy []float64, yy, ridge float64) float64 {
	residual, freedom := yy, 1.0
	for i, l := range values {
		residual -= energy[i] * (l + 2*ridge) / ((l + ridge) * (l + ridge))
		freedom += l / (l + ridge)
	}
	left := 1 - freedom/m.n
	if left <= 0 {
		return math.Inf(1)
	}
	return max(residual, 0) / (left * left)
}

// affineAt fits the map with a known ridge.
func (m *moments) affineAt(xx *mat.SymDense, xy *mat.Dense, ridge float64) (*affine, error) {
	dx := len(m.x)
	left := mat.NewSymDense(dx, nil)
	left.CopySym(xx)
	for i := range dx {
		left.SetSym(i, i, left.At(i, i)+ridge)
	}
	f := &affine{a: &mat.Dense{}, b: make([]float64, len(m.y)), ridge: ridge}
	if !f.covariance.Factorize(left) || f.covariance.SolveTo(f.a, xy) != nil { //nolint:misspell // gonum's name
		return nil, fmt.Errorf("%w: the regression of new vectors on old ones has no solution with a ridge of %g; bring more texts", fit.ErrData, ridge)
	}
	for j := range f.b {
		f.b[j] = m.y[j] / m.n
		for i := range dx {
			f.b[j] -= f.a.At(i, j) * m.x[i] / m.n
		}
	}
	return f, nil
}

// mapUnseen maps each old vector by a map that has seen neither its text nor the texts of the rows without,
// which are ascending. One map of the texts of all other rows is enough: where a text's error by this map is
// e, its error by the same regression without the text is e/(1−h) (Allen 1974). The leverage h says how far the
// text draws the map to itself.
func mapUnseen(old, changed rerank.Matrix, without []int32, ridge float64) (rerank.Matrix, error) {
	var seen []int32
	for r := range int32(old.Rows) {
		if _, left := slices.BinarySearch(without, r); !left {
			seen = append(seen, r)
		}
	}
	x, y := linalg.Gather(old, seen), linalg.Gather(changed, seen)
	m := addUp(x, y)
	xx, xy, _ := m.centred()
	f, err := m.affineAt(xx, xy, ridge)
	if err != nil {
		return rerank.Matrix{}, err
	}
	leverages, err := m.leverages(x, &f.covariance)
	if err != nil {
		return rerank.Matrix{}, err
	}
	mapped := rerank.NewMatrix(changed.Rows, changed.Cols)
	f.apply(mapped, old)
	for i, h := range leverages {
		row := mapped.Row(int(seen[i]))
		for j, v := range y.Row(i) {
			row[j] -= float32(h / (1 - h) * float64(v-row[j]))
		}
	}
	return mapped, nil
}

// mostLeverage keeps the rounding errors of a text that is all alone in its direction finite.
const mostLeverage = 1 - 1e-6

// leverages returns the leverage of each text: 1/n + xᵀC⁻¹x/n for a centred vector x and the covariance C.
func (m *moments) leverages(old rerank.Matrix, covariance *mat.Cholesky) ([]float64, error) {
	var u mat.TriDense // C = UᵀU, so that xᵀC⁻¹x is the square of the norm of xᵀU⁻¹
	covariance.UTo(&u)
	if err := u.InverseTri(&u); err != nil {
		return nil, fmt.Errorf("%w: the covariance of the old vectors has no inverse: %w", fit.ErrData, err)
	}
	inverse := linalg.Narrow(mat.DenseCopyOf(&u))
	leverages := make([]float64, 0, old.Rows)
	for from := 0; from < old.Rows; from += momentBlock {
		x := old.Slice(from, min(from+momentBlock, old.Rows))
		centred, z := rerank.NewMatrix(x.Rows, x.Cols), rerank.NewMatrix(x.Rows, x.Cols)
		for r := range x.Rows {
			for j, v := range x.Row(r) {
				centred.Row(r)[j] = float32(float64(v) - m.x[j]/m.n)
			}
		}
		linalg.Multiply(z, centred, false, inverse, false)
		for r := range z.Rows {
			leverages = append(leverages, min(mostLeverage, (1+linalg.Dot(z.Row(r), z.Row(r)))/m.n))
		}
	}
	return leverages, nil
}

// apply writes Aᵀx + b for every row x of old to dst.
func (f *affine) apply(dst, old rerank.Matrix) {
	linalg.Multiply(dst, old, false, linalg.Narrow(f.a), false)
	for r := range dst.Rows {
		row := dst.Row(r)
		for j, b := range f.b {
			row[j] += float32(b)
		}
	}
}

// model returns the map as a Mixture-of-Logits with one component on each side: the query's
// vector, and Aᵀx + b for an item. The gate has only one logit to weigh, so its tensors are zero.
func (f *affine) model(normalise bool) (mol.Config, tensor.Set) {
	oldDim, newDim := f.a.Dims()
	const query, item, gate = "_query_embeddings_fn._query_emb_proj_module.1", "_item_embeddings_fn._item_emb_proj_module.1", "_gating_fn._query_only_partial_module"
	identity, bias := rerank.NewMatrix(newDim, newDim), make([]float32, newDim)
	for i, b := range f.b {
		identity.Row(i)[i], bias[i] = 1, float32(b)
	}
	zeros := func(shape ...int) tensor.Tensor {
		size := 1
		for _, n := range shape {
			size *= n
		}
		return tensor.Tensor{Shape: shape, Data: make([]float32, size)}
	}
	c := mol.Config{
		QueryDim: newDim, ItemDim: oldDim, Dim: newDim, PairsQuery: 1, PairsItem: 1, Temperature: 1,
		L2Norm: normalise, Normalise: normalise, GatingQueryHidden: 1, Combination: mol.None,
	}
	return c, tensor.Set{
		query + ".weight":  {Shape: []int{newDim, newDim}, Data: identity.Data},
		query + ".bias":    zeros(newDim),
		item + ".weight":   {Shape: []int{newDim, oldDim}, Data: linalg.Narrow(mat.DenseCopyOf(f.a.T())).Data},
		item + ".bias":     {Shape: []int{newDim}, Data: bias},
		gate + ".0.weight": zeros(1, newDim),
		gate + ".0.bias":   zeros(1),
		gate + ".2.weight": zeros(1, 1),
	}
}
