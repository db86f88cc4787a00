// Package derive computes what tables and companions hold of a collection's rows, and
// says whether they hold it. The index builds with it, follow keeps in step with it, so
// that both derive the same.
package derive

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/likenessdb/likeness/rerank"
)

// ErrNoFields means that a similarity derives no fields: it searches the stored vectors.
var ErrNoFields = errors.New("the similarity derives no fields")

// EncodeRows computes the feature rows of base vectors, on every core.
func EncodeRows(ctx context.Context, s rerank.Similarity, base rerank.Matrix) (rerank.Matrix, error) {
	features := rerank.NewMatrix(base.Rows, s.Spec().Features)
	share := max(1, (base.Rows+runtime.GOMAXPROCS(0)-1)/runtime.GOMAXPROCS(0))
	g, _ := errgroup.WithContext(ctx)
	for from := 0; from < base.Rows; from += share {
		to := min(from+share, base.Rows)
		g.Go(func() error { return s.EncodeItems(features.Slice(from, to), base.Slice(from, to)) })
	}
	return features, g.Wait()
}

// Fields derives the vectors of a companion's fields from feature rows, one matrix
// a field. It returns ErrNoFields if d is nil.
func Fields(d rerank.Deriver, fields []rerank.Field, features rerank.Matrix) ([]rerank.Matrix, error) {
	if d == nil {
		return nil, ErrNoFields
	}
	derived := make([]rerank.Matrix, len(fields))
	for i, f := range fields {
		derived[i] = rerank.NewMatrix(features.Rows, f.Dim)
		if err := d.Derive(derived[i], f.Name, features); err != nil {
			return nil, fmt.Errorf("deriving field %q: %w", f.Name, err)
		}
	}
	return derived, nil
}
