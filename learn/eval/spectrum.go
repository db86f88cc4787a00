package eval

import (
	"cmp"
	"encoding/json"
	"errors"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/bilinear"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// TraitsOf reads the facts in a model file that its similarity does not tell. If
// spectrum is set and the model is a square bilinear form, it also computes the
// spectrum of W − I.
func TraitsOf(m *model.Model, spectrum bool) (Traits, error) {
	p := m.Parameters()
	t := Traits{Parameters: m.Describe().Parameters}
	if p.Kind != rerank.KindBilinear {
		return t, nil
	}
	var c bilinear.Config
	if err := json.Unmarshal(p.Config, &c); err != nil {
		return t, err
	}
	t.Form = c.Form
	if !spectrum || c.QueryDim != c.ItemDim {
		return t, nil
	}
	var err error
	t.Spectrum, err = spectrumOf(c.Form, p.Tensors, c.QueryDim)
	return t, err
}

// spectrumOf returns the singular values of W − I, the greatest first. For I + PQᵀ it
// leaves out the zeros beyond the rank.
func spectrumOf(form bilinear.Form, t tensor.Set, n int) ([]float64, error) {
	switch form {
	case bilinear.Diagonal:
		values := make([]float64, n)
		for i, w := range t["w"].Data {
			values[i] = math.Abs(float64(w) - 1)
		}
		slices.SortFunc(values, func(a, b float64) int { return cmp.Compare(b, a) })
		return values, nil
	case bilinear.IdentityLowRank:
		p, q := toDense(t["P"]), toDense(t["Q"])
		// PQᵀ = U(R_p R_qᵀ)Vᵀ with P = U R_p and Q = V R_q: r × r instead of n × n.
		var qrP, qrQ mat.QR
		qrP.Factorize(p) //nolint:misspell // gonum's name
		qrQ.Factorize(q) //nolint:misspell // likewise
		var rp, rq, core mat.Dense
		qrP.RTo(&rp)
		qrQ.RTo(&rq)
		_, r := p.Dims()
		core.Mul(rp.Slice(0, r, 0, r), rq.Slice(0, r, 0, r).T())
		return singularValues(&core)
	case bilinear.LowRank:
		var w mat.Dense
		w.Mul(toDense(t["P"]), toDense(t["Q"]).T())
		return singularValues(subtractIdentity(&w, n))
	default:
		return singularValues(subtractIdentity(toDense(t["W"]), n))
	}
}

func toDense(t tensor.Tensor) *mat.Dense {
	d := mat.NewDense(t.Shape[0], t.Shape[1], nil)
	for i := range t.Shape[0] {
		for j := range t.Shape[1] {
			d.Set(i, j, float64(t.Data[i*t.Shape[1]+j]))
		}
	}
	return d
}

func subtractIdentity(w *mat.Dense, n int) *mat.Dense {
	for i := range n {
		w.Set(i, i, w.At(i, i)-1)
	}
	return w
}

func singularValues(m *mat.Dense) ([]float64, error) {
	var svd mat.SVD
	if !svd.Factorize(m, mat.SVDNone) { //nolint:misspell // gonum's name
		return nil, errors.New("the singular values of W − I do not converge")
	}
	return svd.Values(nil), nil
}
