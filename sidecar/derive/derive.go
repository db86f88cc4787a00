// Package derive computes the feature rows, fields and marks that tables and companions keep
// for a collection's rows, and compares payloads. `likeness index` and follow both use it, so that
// both derive the same data.
package derive

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/likenessdb/likeness/rerank"
)

// ErrNoFields means that a similarity derives no fields: it searches the stored vectors.
var ErrNoFields = errors.New("the similarity derives no fields")

// EncodeRows computes the feature rows of base vectors, on every core.
func EncodeRows(s rerank.Similarity, base rerank.Matrix) (rerank.Matrix, error) {
	features := rerank.NewMatrix(base.Rows, s.Spec().Features)
	return features, divide(base.Rows, func(from, to int) error {
		return s.EncodeItems(features.Slice(from, to), base.Slice(from, to))
	})
}

// divide divides n rows among the cores, and returns the first error of f.
func divide(n int, f func(from, to int) error) error {
	share := max(1, (n+runtime.GOMAXPROCS(0)-1)/runtime.GOMAXPROCS(0))
	var g errgroup.Group
	for from := 0; from < n; from += share {
		g.Go(func() error { return f(from, min(from+share, n)) })
	}
	return g.Wait()
}

// Fields derives the vectors of a companion's fields, one matrix a field with a row for each item. It
// returns ErrNoFields if d is nil. It uses every core.
func Fields(d rerank.Deriver, fields []rerank.Field, items rerank.Items) ([]rerank.Matrix, error) {
	if d == nil {
		return nil, ErrNoFields
	}
	derived := make([]rerank.Matrix, len(fields))
	for i, f := range fields {
		derived[i] = rerank.NewMatrix(items.Len(), f.Dim)
		err := divide(items.Len(), func(from, to int) error {
			return d.Derive(derived[i].Slice(from, to), f.Name, items.Slice(from, to))
		})
		if err != nil {
			return nil, fmt.Errorf("deriving field %q: %w", f.Name, err)
		}
	}
	return derived, nil
}
