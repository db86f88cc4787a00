package inner

import (
	"slices"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
)

// panel is the first parts of several queries, packed to be multiplied with rows of one packing. Part
// p of query q is row q·parts+p.
type panel struct {
	products []*Product
	packing  rerank.Packing
	parts    int // of each query

	bfloat16 kernel.WeightsBFloat16
	int8     []kernel.WeightsInt8 // one for each block of a row
}

// pack makes the panel of some queries, unless it is that already. It returns kernel.ErrTooLong for
// int8 rows of more numbers than one product can add.
func (p *panel) pack(products []*Product, packing rerank.Packing, parts int) error {
	if p.parts == parts && p.packing == packing && slices.Equal(p.products, products) {
		return nil
	}
	p.products, p.packing, p.parts = append(p.products[:0], products...), packing, parts
	if packing.Format == rerank.FormatInt8 {
		return p.packInt8()
	}
	m := rerank.NewMatrix(len(products)*parts, packing.Cols)
	for q, product := range products {
		for part, row := range product.in(packing).bfloat16[:parts] {
			copy(m.Row(q*parts+part), row)
		}
	}
	p.bfloat16 = kernel.PackBFloat16(m)
	return nil
}

func (p *panel) packInt8() error {
	p.int8 = p.int8[:0]
	var rows []int8
	for b := range p.packing.Blocks() {
		first, last := p.packing.Values(b)
		rows = rows[:0]
		for _, product := range p.products {
			for _, row := range product.in(p.packing).int8[:p.parts] {
				rows = append(rows, row[first:last]...)
			}
		}
		weights, err := kernel.PackInt8(len(p.products)*p.parts, last-first, rows)
		if err != nil {
			p.products = p.products[:0]
			return err
		}
		p.int8 = append(p.int8, weights)
	}
	return nil
}
