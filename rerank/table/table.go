// Package table holds the resident item features: one feature row for every row
// of a collection, in a file that is mapped read-only.
package table

import (
	"errors"

	"github.com/likenessdb/likeness/rerank"
)

// ErrTable: the file is not a table, is damaged, or belongs to another model or collection.
var ErrTable = errors.New("table is not valid")

// Meta is what a table says of itself.
type Meta struct {
	Model        string `json:"model"`         // name of the model
	ModelVersion string `json:"model_version"` // digest of the model file
	Collection   string `json:"collection"`
	Kind         string `json:"kind"`
	Features     int    `json:"features"` // length of a feature row
	Rows         int    `json:"rows"`
	Items        int    `json:"items"` // = Rows, less where an item owns several rows
	Created      string `json:"created"`
}

// Table is a resident table. It is read-only and safe for concurrent use.
type Table struct {
	meta     Meta
	features rerank.Matrix
	ids      []rerank.ID       // ids[i] is the id of item i
	index    map[rerank.ID]int // id → item
	starts   []int32           // nil: item i is row i; else rows starts[i]:starts[i+1]
}

// Meta returns what the table says of itself.
func (t *Table) Meta() Meta { return t.meta }

// Len is the number of items.
func (t *Table) Len() int { return len(t.ids) }

// ID returns the id of item i.
func (t *Table) ID(i int) rerank.ID { return t.ids[i] }

// Find returns the number of an item.
func (t *Table) Find(id rerank.ID) (item int, ok bool) {
	i, ok := t.index[id]
	return i, ok
}

// Features is the feature matrix; it aliases the mapped file.
func (t *Table) Features() rerank.Matrix { return t.features }

// All returns every item for Score.
func (t *Table) All() rerank.Items { return rerank.Items{Features: t.features, Starts: t.starts} }
