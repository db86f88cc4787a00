package adapters

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/likenessdb/likeness/rerank"
)

// HasVectors reports whether row i has a vector in every field that was read. A store
// represents a missing vector by NaN in each element, or, in a field of several vectors a row, by
// none.
func HasVectors(rows Rows, i int) bool {
	if rows.Starts != nil {
		return rows.Starts[i] < rows.Starts[i+1]
	}
	for _, m := range rows.Vectors {
		if v := m.Row(i); len(v) > 0 && allNaN(v) {
			return false
		}
	}
	return true
}

func allNaN(v []float32) bool {
	for _, x := range v {
		if !math.IsNaN(float64(x)) {
			return false
		}
	}
	return true
}

// Pick returns copies of the rows at the given indexes.
func (r Rows) Pick(at []int) Rows {
	out := Rows{IDs: pick(r.IDs, at), Owners: pick(r.Owners, at), Payloads: pick[json.RawMessage](r.Payloads, at)}
	if r.Starts != nil {
		out.Starts = []int32{0}
		all := rerank.Matrix{Cols: r.Vectors[0].Cols}
		for _, i := range at {
			own := r.Vectors[0].Slice(int(r.Starts[i]), int(r.Starts[i+1]))
			all.Data, all.Rows = append(all.Data, own.Data...), all.Rows+own.Rows
			out.Starts = append(out.Starts, int32(all.Rows))
		}
		out.Vectors = []rerank.Matrix{all}
		return out
	}
	for _, m := range r.Vectors {
		part := rerank.NewMatrix(len(at), m.Cols)
		for to, from := range at {
			copy(part.Row(to), m.Row(from))
		}
		out.Vectors = append(out.Vectors, part)
	}
	return out
}

// pick returns the elements at the given indexes. nil stays nil.
func pick[T any](all []T, at []int) []T {
	if all == nil {
		return nil
	}
	out := make([]T, 0, len(at))
	for _, i := range at {
		out = append(out, all[i])
	}
	return out
}

// Missing counts the rows of a collection without a vector in the field that is read.
// Qdrant permits such rows for named vectors, Milvus for nullable ones.
type Missing struct {
	Rows  int
	First rerank.ID // id of the first such row in the order of the scan, or the zero id
}

// String returns the number of missing rows as the end of a sentence, or "" if no row is
// missing.
func (m Missing) String() string {
	if m.Rows == 0 {
		return ""
	}
	return fmt.Sprintf("; %d rows have no such vector, the first is %s", m.Rows, m.First)
}

// Drop returns the rows that have all of their vectors, and counts the others.
func (m *Missing) Drop(rows Rows) Rows {
	var at []int
	for i, id := range rows.IDs {
		if HasVectors(rows, i) {
			at = append(at, i)
			continue
		}
		if m.Rows++; m.Rows == 1 {
			m.First = id
		}
	}
	if len(at) == len(rows.IDs) {
		return rows
	}
	return rows.Pick(at)
}
