package index

import (
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/maxsim"
	"github.com/likenessdb/likeness/sidecar/route"
)

// checkVectors returns ErrSource if a model with behavioural vectors comes without
// them, or another model comes with some.
func checkVectors(m route.Model, v *maxsim.Vectors) error {
	want := ""
	if owner := rerank.AbilitiesOf(m.Similarity).Vectors; owner != nil {
		want = owner.VectorsDigest()
	}
	switch {
	case want != "" && v == nil:
		return fmt.Errorf("%w: model %s has behavioural vectors, which are not given", ErrSource, m.Name)
	case want == "" && v != nil:
		return fmt.Errorf("%w: model %s has no behavioural vectors", ErrSource, m.Name)
	case v != nil && v.Digest != want:
		return fmt.Errorf("%w: the behavioural vectors are of version %.16s, model %s is of %.16s", ErrSource, v.Digest, m.Name, want)
	}
	return nil
}

// rowSpace is the UUID name space of the ids of behavioural vectors' rows.
var rowSpace = uuid.MustParse("6d2b1a54-6f6e-4d4f-9f0e-7f1d2c5a9be1")

// rowID returns the id of an item's n-th row in a companion. It is the same in every
// build.
func rowID(item rerank.ID, n int) rerank.ID {
	text, _ := json.Marshal([]any{item, n}) // an id is a number or a string, which JSON always has
	return rerank.TextID(uuid.NewSHA1(rowSpace, text).String())
}

// expandVectors makes one row for each behavioural vector of the given items. The
// row's owner is the item, and the row carries the item's payload, so that a filter
// selects all rows of an item or none.
func expandVectors(rows adapters.Rows, v *maxsim.Vectors) adapters.Rows {
	all, starts := v.Behind(rows.Vectors[0], rows.IDs)
	out := adapters.Rows{Vectors: []rerank.Matrix{all}}
	for i, item := range rows.IDs {
		for n := range starts[i+1] - starts[i] {
			out.IDs, out.Owners = append(out.IDs, rowID(item, int(n))), append(out.Owners, item)
			if rows.Payloads != nil {
				out.Payloads = append(out.Payloads, rows.Payloads[i])
			}
		}
	}
	return out
}

// appendItems appends items to the table, each with its own feature row and the rows
// of its behavioural vectors.
func (b *tableBuild) appendItems(ids []rerank.ID, features rerank.Matrix, starts []int32) error {
	if starts == nil {
		return b.writer.Append(ids, features)
	}
	for i, id := range ids {
		if err := b.writer.AppendGroup(id, features.Slice(int(starts[i]), int(starts[i+1]))); err != nil {
			return err
		}
	}
	return nil
}
