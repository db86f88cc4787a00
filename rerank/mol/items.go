package mol

import (
	"fmt"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/companion"
	"github.com/likenessdb/likeness/rerank/kernel"
)

// Names of the derived fields. The components themselves are c0, c1, ….
const (
	// FieldMean is Σ_j g_j / P_X.
	FieldMean = "mean"
	// FieldConcat holds all components, concatenated.
	FieldConcat = "concat"
	// FieldGate holds the item's part of the gates.
	FieldGate = "gate"
)

// blockRows is how many items are encoded at a time; it bounds the scratch memory.
const blockRows = 32

// EncodeItems implements rerank.Similarity.
func (s *Similarity) EncodeItems(dst, base rerank.Matrix) error {
	if err := s.spec.CheckEncode(dst, base); err != nil {
		return err
	}
	sc := s.borrow()
	defer s.scratch.Put(sc)
	for from := 0; from < base.Rows; from += blockRows {
		to := min(from+blockRows, base.Rows)
		s.encodeBlock(dst.Slice(from, to), base.Slice(from, to), sc)
	}
	return nil
}

func (s *Similarity) encodeBlock(dst, base rerank.Matrix, sc *scratch) {
	c := &s.c
	if c.ComponentsGiven {
		copy(dst.Data, base.Data)
	} else {
		if c.Normalise {
			base = unitRows(base, grow(&sc.base, blockRows*base.Cols))
		}
		hidden := grow(&sc.hidden, blockRows*max(s.item.hidden(), s.byItem.hidden()))
		s.item.apply(s.kernels, dst.Data, dst.Cols, base, hidden)
		if s.byItem.exists() {
			s.byItem.apply(s.kernels, dst.Data[c.PairsItem*c.Dim:], dst.Cols, base, hidden)
		}
	}
	if !c.hasUnitComponents() {
		return
	}
	for r := range dst.Rows {
		s.c.normalise(dst.Row(r)[:c.PairsItem*c.Dim])
	}
}

// unitRows copies the rows of m into scratch and divides each row by its norm.
func unitRows(m rerank.Matrix, scratch []float32) rerank.Matrix {
	u := rerank.Matrix{Rows: m.Rows, Cols: m.Cols, Data: scratch[:len(m.Data)]}
	copy(u.Data, m.Data)
	for r := range u.Rows {
		rerank.Normalise(u.Row(r))
	}
	return u
}

// normalise divides each component by max(‖·‖, eps).
func (c *Config) normalise(components []float32) {
	d := c.Dim
	for i := 0; i < len(components); i += d {
		kernel.Normalise(components[i:i+d], float32(c.Eps))
	}
}

// Fields implements rerank.Deriver. If the query alone decides the gates, all strategies
// search concat. Otherwise per_embedding searches the components, and average searches the
// mean, or concat if the gates weigh the pairs; companion searches learned vectors, if the model has
// a learned companion.
func (s *Similarity) Fields() []rerank.Field {
	c := &s.c
	first := []rerank.Strategy{rerank.PerEmbedding, rerank.Average, rerank.Combined}
	concat := rerank.Field{Name: FieldConcat, Dim: c.PairsItem * c.Dim, Strategies: first}
	if s.queryOnly() {
		concat.Feature = true
		return []rerank.Field{concat}
	}
	var fields []rerank.Field
	for j := range c.PairsItem {
		fields = append(fields, rerank.Field{
			Name: component(j), Dim: c.Dim, Feature: true, Strategies: []rerank.Strategy{rerank.PerEmbedding, rerank.Combined},
		})
	}
	if s.byItem.exists() {
		fields = append(fields, rerank.Field{Name: FieldGate, Dim: c.pairs(), Feature: true})
	}
	averaged := []rerank.Strategy{rerank.Average, rerank.Combined}
	concat.Strategies, concat.Weights = averaged, rerank.GateWeights
	fields = append(fields, rerank.Field{Name: FieldMean, Dim: c.Dim, Strategies: averaged, Weights: rerank.UniformWeights}, concat)
	if s.learned != nil {
		fields = append(fields, rerank.Field{Name: companion.Field, Dim: s.learned.Dim(), Strategies: []rerank.Strategy{rerank.Companion}})
	}
	return fields
}

// component returns the name of the field for g_j.
func component(j int) string { return fmt.Sprintf("c%d", j) }

// Derive implements rerank.Deriver. It returns rerank.ErrItems. The learned vectors take the scores of
// all anchors.
func (s *Similarity) Derive(dst rerank.Matrix, field string, items rerank.Items) error {
	c, features := &s.c, items.Features
	from, dim := -1, 0
	for _, f := range s.Fields() {
		if f.Name == field {
			from, dim = s.c.offset(field), f.Dim
		}
	}
	switch {
	case from < 0:
		return fmt.Errorf("%w: the model derives no field %q", rerank.ErrItems, field)
	case dst.Rows != features.Rows || dst.Cols != dim || features.Cols != s.spec.Features:
		return fmt.Errorf("%w: field %s: %d rows of %d from %d rows of %d, want rows of %d from rows of %d", rerank.ErrItems,
			field, dst.Rows, dst.Cols, features.Rows, features.Cols, dim, s.spec.Features)
	}
	if field == companion.Field {
		solver, err := s.solver()
		if err != nil {
			return err
		}
		return solver.Solve(dst, items)
	}
	for r := range dst.Rows {
		if field == FieldMean {
			meanOf(dst.Row(r), features.Row(r)[:c.PairsItem*c.Dim])
		} else {
			copy(dst.Row(r), features.Row(r)[from:from+dim])
		}
	}
	return nil
}

// offset returns the column of the feature row at which a field starts.
func (c *Config) offset(field string) int {
	for j := range c.PairsItem {
		if field == component(j) {
			return j * c.Dim
		}
	}
	if field == FieldGate {
		return c.PairsItem * c.Dim
	}
	return 0
}

// meanOf writes the mean of the components to dst.
func meanOf(dst, components []float32) {
	clear(dst)
	for i, v := range components {
		dst[i%len(dst)] += v
	}
	n := float32(len(components) / len(dst))
	for i := range dst {
		dst[i] /= n
	}
}

// Features implements rerank.Deriver. It returns rerank.ErrItems.
func (s *Similarity) Features(dst rerank.Matrix, fields []rerank.Matrix) error {
	width := 0
	for i, f := range fields {
		if f.Rows != dst.Rows {
			return fmt.Errorf("%w: field %d has %d rows, want %d", rerank.ErrItems, i, f.Rows, dst.Rows)
		}
		width += f.Cols
	}
	if width != s.spec.Features || dst.Cols != width {
		return fmt.Errorf("%w: fields of %d numbers for rows of %d, want %d", rerank.ErrItems, width, dst.Cols, s.spec.Features)
	}
	for r := range dst.Rows {
		row := dst.Row(r)[:0]
		for _, f := range fields {
			row = append(row, f.Row(r)...)
		}
	}
	return nil
}
