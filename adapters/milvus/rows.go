package milvus

import (
	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
)

// concatRows concatenates rows of one shape. Either may be empty.
func concatRows(a, b adapters.Rows) adapters.Rows {
	if len(b.IDs) == 0 {
		return a
	}
	if len(a.IDs) == 0 {
		return b
	}
	a.IDs = append(a.IDs, b.IDs...)
	for i := range a.Vectors {
		a.Vectors[i].Data = append(a.Vectors[i].Data, b.Vectors[i].Data...)
		a.Vectors[i].Rows += b.Vectors[i].Rows
	}
	a.Owners = append(a.Owners, b.Owners...)
	a.Payloads = append(a.Payloads, b.Payloads...)
	return a
}

// pickRows returns the rows at the given positions.
func pickRows(rows adapters.Rows, positions []int) adapters.Rows {
	out := adapters.Rows{IDs: make([]rerank.ID, len(positions))}
	for i, p := range positions {
		out.IDs[i] = rows.IDs[p]
		if rows.Owners != nil {
			out.Owners = append(out.Owners, rows.Owners[p])
		}
		if rows.Payloads != nil {
			out.Payloads = append(out.Payloads, rows.Payloads[p])
		}
	}
	for _, m := range rows.Vectors {
		moved := rerank.NewMatrix(len(positions), m.Cols)
		for i, p := range positions {
			copy(moved.Row(i), m.Row(p))
		}
		out.Vectors = append(out.Vectors, moved)
	}
	return out
}
