package inner

import (
	"math"
	"sync"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
)

// screenTiles is how many tiles are multiplied in one call.
const screenTiles = 8

// halves represents U as the sum of two bfloat16 vectors, for Screen.
type halves struct {
	once    sync.Once
	weights kernel.WeightsBFloat16 // the two vectors, as rows
	rest    float64                // norm of the difference between U and the sum
}

func (p *Product) splitU() *halves {
	h := &p.halves
	h.once.Do(func() {
		m, rest := rerank.NewMatrix(2, len(p.U)), make([]float32, len(p.U))
		for i, v := range p.U {
			low := v - kernel.WidenBFloat16(kernel.RoundBFloat16(v)) // exact
			m.Row(0)[i], m.Row(1)[i] = v, low
			rest[i] = low - kernel.WidenBFloat16(kernel.RoundBFloat16(low))
		}
		h.weights, h.rest = kernel.PackBFloat16(m), rerank.Norm(rest)
	})
	return h
}

var _ rerank.Screener = (*Product)(nil)

// Screens implements rerank.Screener. There is one level, for bfloat16 rows, which are
// multiplied without unpacking.
func (p *Product) Screens(items rerank.Items) int {
	q := items.Packed
	if q == nil || q.Format != rerank.FormatBFloat16 || q.Block%2 != 0 {
		return 0
	}
	return 1
}

// screenErrors bounds how far the product that a screen computes can lie below the ⟨u, x⟩
// that Score computes.
type screenErrors struct {
	// rows is the error from packing the rows: ‖u‖·‖x − x̂‖.
	rows float64
	// query is the error from representing u by two bfloat16 vectors: ‖rest‖·‖x̂‖.
	query float64
	// arithmetic covers the roundings of both products, of their sum, of its scale and of
	// the bound, and the roundings of Score. Each is below γ·‖u‖·N.
	arithmetic float64
	// underflow covers subnormal numbers, which the products treat as zero.
	underflow float64
}

// screenErrors bounds the errors of a screen of rows with the given loss.
func (p *Product) screenErrors(loss rerank.Loss) screenErrors {
	h, norm, length := p.splitU(), rerank.Norm(p.U), float64(loss.Row.Norm)
	return screenErrors{
		rows:       norm * float64(loss.Row.Lost),
		query:      h.rest * length,
		arithmetic: 4 * kernel.Gamma(2*len(p.U)+4) * norm * length,
		underflow:  underflow * (1 + norm),
	}
}

// underflow exceeds 2⁻¹²⁶ times the number of operations of any product. An operation with
// a subnormal operand or result is off by less than 2⁻¹²⁶.
const underflow = 1e-30

// Screen implements rerank.Screener. The bound is the product plus |scale| times its
// greatest possible error.
func (p *Product) Screen(_ int, dst []float32, items rerank.Items, loss rerank.Loss, _ float32) error {
	if err := items.Check(len(dst), p.Spec); err != nil {
		return err
	}
	e := p.screenErrors(loss)
	off := math.Abs(float64(p.Scale)) * (e.rows + e.query + e.arithmetic + e.underflow)
	s := screen{p: p, items: items, off: float32(off * (1 + 1e-6))}
	if items.Starts == nil {
		s.rows(dst, 0)
		return nil
	}
	scoreBestRows(dst, items.Starts, s.rows)
	return nil
}

// screen holds the state of one call of Screen.
type screen struct {
	p     *Product
	items rerank.Items
	off   float32
	words []uint32 // gathered tiles
	out   [screenTiles * 4 * kernel.Lanes]float32
}

// rows bounds the scores of len(dst) rows, beginning with row `from` in the items' order.
func (s *screen) rows(dst []float32, from int) {
	q := s.items.Packed
	size := q.RowWords() * kernel.Lanes
	for at := 0; at < len(dst); {
		first := from + at
		lane := 0
		var words []uint32
		n := min(len(dst)-at, kernel.Lanes)
		if q.Tiled && s.items.Rows == nil { // read the tiles in place, from the first row's tile on
			lane = first % kernel.Lanes
			n = min(len(dst)-at, screenTiles*kernel.Lanes-lane)
			words = q.Words[first/kernel.Lanes*size:][:(lane+n+kernel.Lanes-1)/kernel.Lanes*size]
		} else {
			words = s.gather(first, n, size)
		}
		tiles := len(words) / size
		s.p.Kernels.MultiplyBFloat16(s.p.splitU().weights, words, &kernel.Product{
			Tiles: tiles, C: s.out[:], CTile: 4 * kernel.Lanes, BTile: size,
		})
		for i := range n {
			tile := s.out[(lane+i)/kernel.Lanes*4*kernel.Lanes:]
			l := (lane + i) % kernel.Lanes
			x := (tile[l] + tile[kernel.Lanes+l]) * s.p.Scale
			dst[at+i] = x + s.off + (x - x) // NaN if x is not finite
		}
		at += n
	}
}

// gather copies n rows, from row first on, into one tile.
func (s *screen) gather(first, n, size int) []uint32 {
	if s.words == nil {
		s.words = make([]uint32, size)
	}
	gatherRows(s.p.Kernels, s.words, s.items, first, n)
	return s.words
}
