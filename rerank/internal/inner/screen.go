package inner

import (
	"fmt"
	"math"
	"sync"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
)

var (
	_ rerank.Screener = (*Product)(nil)
	_ rerank.Batcher  = (*Product)(nil)
	_ rerank.Batch    = together{}
)

// Screens implements rerank.Screener. Rows of bfloat16 or int8 are multiplied without unpacking:
// level 0 with the first part of U, level 1 with both.
func (p *Product) Screens(items rerank.Items) int {
	switch q := items.Packed; {
	case q == nil:
	case q.Format == rerank.FormatBFloat16 && q.Block%2 == 0:
		return maxParts
	case q.Format == rerank.FormatInt8 && q.Cols <= kernel.MaxInt8:
		return maxParts
	}
	return 0
}

// Screen implements rerank.Screener. The bound is the product plus |scale| times its
// greatest possible error.
func (p *Product) Screen(level int, dst []float32, items rerank.Items, loss rerank.Loss, _ float32) error {
	if err := items.Check(len(dst), p.Spec); err != nil {
		return err
	}
	one := [1]*Product{p}
	return screen(level, dst, one[:], items, loss)
}

// together is the queries of one similarity, which are screened in one pass. They are scored one
// after the other, so that each score is the same as alone.
type together struct {
	spec    rerank.Spec
	kernels *kernel.Set
}

// Batch implements rerank.Batcher.
func (p *Product) Batch() rerank.Batch { return together{p.Spec, p.Kernels} }

// ScoreBatch implements rerank.BatchScorer.
func (t together) ScoreBatch(dst []float32, queries []rerank.Encoded, items rerank.Items) error {
	products, err := t.check(len(dst), queries, items)
	if err != nil {
		return err
	}
	n := items.Len()
	for q, p := range products {
		if err := p.Score(dst[q*n:][:n], items); err != nil {
			return err
		}
	}
	return nil
}

// ScreenBatch implements rerank.BatchScreener.
func (t together) ScreenBatch(level int, dst []float32, queries []rerank.Encoded, items rerank.Items, loss rerank.Loss, reach []float32) error {
	products, err := t.check(len(dst), queries, items)
	if err != nil {
		return err
	}
	if len(reach) != len(queries) {
		return fmt.Errorf("%w: %d scores to reach for %d queries", rerank.ErrItems, len(reach), len(queries))
	}
	return screen(level, dst, products, items, loss)
}

func (t together) check(places int, queries []rerank.Encoded, items rerank.Items) ([]*Product, error) {
	products, err := Batch(queries, Same(t.spec))
	if err != nil {
		return nil, err
	}
	return products, rerank.CheckBatch(places, len(queries), items, t.spec)
}

// screen writes the bounds of all items, one query after the other.
func screen(level int, dst []float32, products []*Product, items rerank.Items, loss rerank.Loss) error {
	if len(products) == 0 || items.Len() == 0 {
		return nil
	}
	s := screenings.Get().(*screening)
	defer screenings.Put(s)
	n := items.Len()
	if items.Starts == nil {
		if err := s.begin(level, products, items, loss); err != nil {
			return err
		}
		s.rows(dst, n, 0, n)
		return nil
	}
	for q := range products {
		if err := s.begin(level, products[q:q+1], items, loss); err != nil {
			return err
		}
		scoreBestRows(dst[q*n:][:n], items.Starts, func(dst []float32, from int) { s.rows(dst, len(dst), from, len(dst)) })
	}
	return nil
}

// screenErrors bounds how far the product that a screen computes can lie below the ⟨u, x⟩
// that Score computes.
type screenErrors struct {
	// rows is the error from packing the rows: ‖u‖·‖x − x̂‖.
	rows float64
	// query is the error from representing u by vectors of the rows' format: ‖rest‖·‖x̂‖.
	query float64
	// arithmetic covers the roundings of the products, of their sum, of its scales and of
	// the bound, and the roundings of Score. Each is below γ·‖u‖·N.
	arithmetic float64
	// underflow covers subnormal numbers, which the products treat as zero.
	underflow float64
}

// screenErrors bounds the errors of a screen of rows with the given loss.
func (p *Product) screenErrors(level int, packing rerank.Packing, loss rerank.Loss) screenErrors {
	t, length := p.in(packing), float64(loss.Row.Norm)
	e := screenErrors{
		rows:       t.norm * float64(loss.Row.Lost),
		query:      t.rest[level] * length,
		arithmetic: 4 * kernel.Gamma(2*len(p.U)+4) * t.norm * length,
		underflow:  underflow * (1 + t.norm),
	}
	if t.norm*length*max(1, math.Abs(float64(p.Scale))) > math.MaxFloat32/4 { // Score may overflow where the screen does not
		e.arithmetic = math.Inf(1)
	}
	return e
}

// underflow exceeds 2⁻¹²⁶ times the number of operations of any product. An operation with
// a subnormal operand or result is off by less than 2⁻¹²⁶.
const underflow = 1e-30

// screening is the working memory of a screen. It is pooled, and keeps the panel of each level, since
// the same queries screen one piece of a table after another.
type screening struct {
	panels [maxParts]panel
	panel  *panel // of the level of this screen
	items  rerank.Items
	off    []float32 // of each query: what its bounds add to the product

	words  []uint32  // gathered tiles
	floats []float32 // products with bfloat16 rows
	ints   []int32   // products with int8 rows
	out    []float32 // bounds of some tiles, one query after the other
}

var screenings = sync.Pool{New: func() any { return new(screening) }}

// begin prepares for the bounds of some queries.
func (s *screening) begin(level int, products []*Product, items rerank.Items, loss rerank.Loss) error {
	s.items, s.off, s.panel = items, s.off[:0], &s.panels[level]
	if err := s.panel.pack(products, items.Packed.Packing, level+1); err != nil {
		return err
	}
	for _, p := range products {
		e := p.screenErrors(level, items.Packed.Packing, loss)
		off := math.Abs(float64(p.Scale)) * (e.rows + e.query + e.arithmetic + e.underflow)
		s.off = append(s.off, float32(off*(1+1e-6)))
	}
	return nil
}

// rows writes the bounds of n rows, beginning with row `from` in the items' order. Those of query q
// begin at dst[q·stride].
func (s *screening) rows(dst []float32, stride, from, n int) {
	size := s.items.Packed.RowWords() * kernel.Lanes
	for at := 0; at < n; {
		words, lane, count := s.tiles(from+at, n-at)
		s.bound(words, size)
		each := len(words) / size * kernel.Lanes
		for q := range s.off {
			copy(dst[q*stride+at:][:count], s.out[q*each+lane:])
		}
		at += count
	}
}

// width returns how many products a tile has: sixteen for each row of the panel.
func (s *screening) width() int {
	return kernel.Padded(len(s.off)*s.panel.parts) * kernel.Lanes
}

// productsAtOnce is about how many products are computed before they are added to the bounds. They
// stay in a first-level cache.
const productsAtOnce = 4096

// tiles returns the words of tiles that hold the rows from row `first` on, n at most; the lane of the
// first row; and the number of rows.
func (s *screening) tiles(first, n int) (words []uint32, lane, count int) {
	q, most := s.items.Packed, max(1, productsAtOnce/s.width())*kernel.Lanes
	size := q.RowWords() * kernel.Lanes
	if q.Tiled && s.items.Rows == nil { // read the tiles in place, from the first row's tile on
		lane = first % kernel.Lanes
		count = min(n, most-lane)
		return q.Words[first/kernel.Lanes*size:][:(lane+count+kernel.Lanes-1)/kernel.Lanes*size], lane, count
	}
	count = min(n, most)
	s.words = grow(s.words, (count+kernel.Lanes-1)/kernel.Lanes*size)
	for at := 0; at < count; at += kernel.Lanes {
		gatherRows(s.kernels(), s.words[at/kernel.Lanes*size:][:size], s.items, first+at, min(count-at, kernel.Lanes))
	}
	return s.words, 0, count
}

func (s *screening) kernels() *kernel.Set { return s.panel.products[0].Kernels }

// bound writes the bounds of all rows of some tiles of the given size to s.out. The bound of a row
// that is not finite is NaN.
func (s *screening) bound(words []uint32, size int) {
	tiles := len(words) / size
	each := tiles * kernel.Lanes
	s.out = grow(s.out, len(s.off)*each)
	for q, off := range s.off {
		fill(s.out[q*each:][:each], off)
	}
	if s.panel.packing.Format == rerank.FormatInt8 {
		s.addInt8(words, size, tiles)
	} else {
		s.addBFloat16(words, size, tiles)
	}
}

// fill sets every number of v to x. It copies what is set already, which is quicker than a loop.
func fill(v []float32, x float32) {
	v[0] = x
	for n := 1; n < len(v); n *= 2 {
		copy(v[n:], v[:n])
	}
}

func (s *screening) addBFloat16(words []uint32, size, tiles int) {
	k, width, parts := s.kernels(), s.width(), s.panel.parts
	s.floats = grow(s.floats, tiles*width)
	k.MultiplyBFloat16(s.panel.bfloat16, words, &kernel.Product{Tiles: tiles, C: s.floats, CTile: width, BTile: size})
	each := tiles * kernel.Lanes
	for row := range len(s.off) * parts {
		q := row / parts
		k.AddScaled(s.out[q*each:][:each], s.floats[row*kernel.Lanes:], width, s.panel.products[q].Scale)
	}
}

func (s *screening) addInt8(words []uint32, size, tiles int) {
	k, width, parts := s.kernels(), s.width(), s.panel.parts
	s.ints = grow(s.ints, tiles*width)
	each, rows := tiles*kernel.Lanes, len(s.off)*parts
	for b, weights := range s.panel.int8 {
		first, _ := s.panel.packing.Words(b)
		k.MultiplyInt8(weights, words[first*kernel.Lanes:], &kernel.ProductInt8{Tiles: tiles, C: s.ints, CTile: width, BTile: size})
		for row := range rows {
			q := row / parts
			factor := s.panel.products[q].in(s.panel.packing).factors[row%parts][b]
			k.AddInt8(s.out[q*each:][:each], s.ints[row*kernel.Lanes:], width, words[b*kernel.Lanes:], size, factor)
		}
	}
}
