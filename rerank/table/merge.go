package table

import (
	"errors"
	"fmt"
)

// Merge writes the items of all parts, in order, into one table at path, which appears in
// one step. It copies packed rows, so the result equals a table built in one go in that
// order. The parts must agree in model version, collection and format, and have LayoutRows.
// The table's Created is the oldest of the parts. Merge returns ErrTable if the parts do
// not agree or if two of them contain the same item.
func Merge(path string, parts []*Table) (Meta, error) {
	if len(parts) == 0 {
		return Meta{}, fmt.Errorf("%w: nothing to merge", ErrTable)
	}
	meta := parts[0].meta
	for i, p := range parts {
		same := p.meta
		same.Rows, same.Items, same.Created = meta.Rows, meta.Items, meta.Created
		switch {
		case same != meta:
			return Meta{}, fmt.Errorf("%w: part %d is of %+v, part 1 of %+v", ErrTable, i+1, same, meta)
		case p.meta.Layout != LayoutRows:
			return Meta{}, fmt.Errorf("%w: parts of layout %s are not merged; build them with %s", ErrTable, p.meta.Layout, LayoutRows)
		}
	}
	for _, p := range parts {
		meta.Created = min(meta.Created, p.meta.Created) // the table shows no write after this time
	}
	w, err := NewWriter(path, meta)
	if err != nil {
		return Meta{}, err
	}
	w.pack.loss = cloneLoss(parts[0].loss)
	for _, p := range parts[1:] {
		w.pack.loss.Merge(p.loss)
	}
	for _, p := range parts {
		for item := range p.Len() {
			if !p.Alive(item) {
				continue
			}
			if err := w.appendItem(p, item); err != nil {
				return Meta{}, errors.Join(err, w.Abort())
			}
		}
	}
	meta.Rows, meta.Items = w.Rows(), w.Items()
	return meta, w.Close()
}
