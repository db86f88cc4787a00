package table

import (
	"errors"
	"fmt"
)

// Merge writes the items of parts, one after the other, into a table at path,
// which appears in one step. Rows are copied as they are packed, so that the
// table is the one that one build in that order had made. The parts are of one
// model version and collection, of one format and of LayoutRows; the table is as
// old as the oldest. It returns
// ErrTable where they are not, and for an item that two of them have.
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
		meta.Created = min(meta.Created, p.meta.Created) // it shows no write that came later
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
