package adapters

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/likenessdb/likeness/rerank"
)

// HasVectors reports whether row i has a vector in every field that was read. A store
// gives a row without one NaN in each place of it.
func HasVectors(rows Rows, i int) bool {
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

// Pick returns copies of the rows at the given places.
func (r Rows) Pick(at []int) Rows {
	out := Rows{IDs: pick(r.IDs, at), Owners: pick(r.Owners, at), Payloads: pick[json.RawMessage](r.Payloads, at)}
	for _, m := range r.Vectors {
		part := rerank.NewMatrix(len(at), m.Cols)
		for to, from := range at {
			copy(part.Row(to), m.Row(from))
		}
		out.Vectors = append(out.Vectors, part)
	}
	return out
}

// pick returns the elements at the given places; nil stays nil.
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

// Missing counts the rows of a collection that have no vector in the field that is
// read, as Qdrant permits of named vectors and Milvus of nullable ones.
type Missing struct {
	Rows  int
	First rerank.ID // in the order of the scan; the zero id where there is no such row
}

// String says how many rows are missing, as the end of a sentence; it is empty without any.
func (m Missing) String() string {
	if m.Rows == 0 {
		return ""
	}
	return fmt.Sprintf("; %d rows have no such vector, the first is %s", m.Rows, m.First)
}

// Drop returns the rows that have all of their vectors, and counts the others. An
// adapter gives a row without a vector NaN in each place of it.
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
