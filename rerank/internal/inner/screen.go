package inner

import (
	"math"
	"sync"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
)

// screenTiles is the number of tiles that are multiplied in one call.
const screenTiles = 8

// halves is U as a sum of two vectors of bfloat16, for Screen.
type halves struct {
	once    sync.Once
	weights kernel.WeightsBFloat16 // a row each
	rest    float64                // norm of what both leave out
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

// Screens implements rerank.Screener: rows of bfloat16 are multiplied as they are.
func (p *Product) Screens(items rerank.Items) int {
	q := items.Packed
	if q == nil || q.Format != rerank.FormatBFloat16 || q.Block%2 != 0 {
		return 0
	}
	return 1
}

// screenErrors bounds how far the product of a screen can lie below ⟨u, x⟩ as Score
// computes it.
type screenErrors struct {
	// rows is what packing took of the rows: ‖u‖·‖x − x̂‖.
	rows float64
	// query is what two vectors of bfloat16 leave out of u: ‖rest‖·‖x̂‖.
	query float64
	// arithmetic is for the roundings of both products, of their sum, its scale and
	// the bound, and for those of Score: each is below γ·‖u‖·N.
	arithmetic float64
	// underflow is for numbers below float32's normal ones, which the products take for zero.
	underflow float64
}

// screenErrors bounds the errors of the screen of rows with that loss.
func (p *Product) screenErrors(loss rerank.Loss) screenErrors {
	h, norm, length := p.splitU(), rerank.Norm(p.U), float64(loss.Row.Norm)
	return screenErrors{
		rows:       norm * float64(loss.Row.Lost),
		query:      h.rest * length,
		arithmetic: 4 * kernel.Gamma(2*len(p.U)+4) * norm * length,
		underflow:  underflow * (1 + norm),
	}
}

// underflow is above 2⁻¹²⁶ times the number of operations of any product: each is
// off by less where its operands or its result are below float32's normal numbers.
const underflow = 1e-30

// Screen implements rerank.Screener: the product, and above it |scale| times what
// the product can be off.
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

// screen is one call of Screen.
type screen struct {
	p     *Product
	items rerank.Items
	off   float32
	words []uint32 // gathered tiles
	out   [screenTiles * 4 * kernel.Lanes]float32
}

// rows bounds rows from one on, in the items' order.
func (s *screen) rows(dst []float32, from int) {
	q := s.items.Packed
	size := q.RowWords() * kernel.Lanes
	for at := 0; at < len(dst); {
		first := from + at
		lane := 0
		var words []uint32
		n := min(len(dst)-at, kernel.Lanes)
		if q.Tiled && s.items.Rows == nil { // as they lie, from the tile of the first on
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
			dst[at+i] = x + s.off + (x - x) // not a number, if x is not finite
		}
		at += n
	}
}

// gather puts some rows into a tile.
func (s *screen) gather(first, n, size int) []uint32 {
	if s.words == nil {
		s.words = make([]uint32, size)
	}
	gatherRows(s.p.Kernels, s.words, s.items, first, n)
	return s.words
}
