package device

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/table"
)

// ReadModel decodes a native model file and checks that its digest is the version. It
// returns ErrRequest.
func ReadModel(v Version, file []byte) (*model.Model, error) {
	m, err := model.Read(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		return nil, fmt.Errorf("%w: model %s: %w", ErrRequest, v, err)
	}
	if m.Version != v.Version {
		return nil, fmt.Errorf("%w: model %s has the version %q by its digest", ErrRequest, v, m.Version)
	}
	return m, nil
}

// Versions returns the keys of a map, ordered by name and version.
func Versions[T any](loaded map[Version]T) []Version {
	return slices.SortedFunc(maps.Keys(loaded), func(a, b Version) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Version, b.Version))
	})
}

// Added checks a patch for a table of the given size and returns how many rows it adds. It
// returns ErrRequest for row numbers or rows that do not fit.
func (p *Patch) Added(rows, cols int) (int, error) {
	if len(p.Numbers) != p.Rows.Rows || p.Rows.Rows > 0 && p.Rows.Cols != cols || len(p.Rows.Data) != p.Rows.Rows*p.Rows.Cols {
		return 0, fmt.Errorf("%w: %d numbers, and %d rows of %d numbers; its own have %d", ErrRequest, len(p.Numbers), p.Rows.Rows, p.Rows.Cols, cols)
	}
	n := rows
	for i, row := range p.Numbers {
		switch {
		case int64(row) > int64(n):
			return 0, fmt.Errorf("%w: numbers[%d] is %d, and the row behind the last is %d", ErrRequest, i, row, n)
		case n == table.MaxRows:
			return 0, fmt.Errorf("%w: more than %d rows", ErrRequest, n)
		case int(row) == n:
			n++
		}
	}
	for i, row := range p.Removed {
		if int64(row) >= int64(n) {
			return 0, fmt.Errorf("%w: removed[%d] is row %d of %d", ErrRequest, i, row, n)
		}
	}
	return n - rows, nil
}

// Check verifies an ask against the state of a device: whether its model and its table are
// loaded, the model version `of` for which the table was loaded, and the most rows of one
// answer. It returns ErrNotLoaded or ErrRequest.
func (a *Ask) Check(model, table bool, of Version, maxK int) error {
	switch {
	case !model:
		return fmt.Errorf("%w: model %s", ErrNotLoaded, a.Model)
	case !table:
		return fmt.Errorf("%w: table %s", ErrNotLoaded, a.Table)
	case of != a.Model:
		return fmt.Errorf("%w: table %s is of model %s, not of %s", ErrRequest, a.Table, of, a.Model)
	case a.K < 1 || a.K > maxK:
		return fmt.Errorf("%w: k is %d, want 1 to %d", ErrRequest, a.K, maxK)
	}
	return nil
}
