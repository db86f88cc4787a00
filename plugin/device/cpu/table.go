package cpu

import (
	"context"
	"fmt"
	"math"
	"sync"

	"github.com/likenessdb/likeness/plugin/device"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/scan"
	rows "github.com/likenessdb/likeness/rerank/table"
)

// table is one version of a table. It is read-only, apart from the unused memory behind its
// rows.
type table struct {
	model    device.Version
	spec     rerank.Spec
	rows     rerank.Matrix
	alive    *scan.Bitmap  // rows that a scan may return; nil: all
	scanner  *scan.Scanner // scans the first `sealed` rows
	sealed   int           // number of rows that the scanner covers
	patching *sync.Mutex   // shared by all versions of the table
	// tail is the number of rows in use in the shared memory. A patch can append in place
	// only to the version that ends there.
	tail *int
}

// sealAt limits how many rows may follow the scanner's rows before a new scanner is made:
// 1/sealAt of all rows.
const sealAt = 16

func newTable(v device.Version, m *model.Model, all rerank.Matrix) (*table, error) {
	t := &table{model: v, spec: m.Spec(), rows: all, patching: new(sync.Mutex), tail: new(int)}
	*t.tail = all.Rows
	return t, t.seal()
}

// seal makes a scanner of all rows.
func (t *table) seal() error {
	ids := make([]rerank.ID, t.rows.Rows)
	for i := range ids {
		ids[i] = rerank.UintID(uint64(i))
	}
	meta := rows.Meta{Kind: string(t.spec.Kind), Block: t.spec.Block}
	resident, err := rows.FromMemory(meta, ids, t.rows, nil)
	if err != nil {
		return fmt.Errorf("%w: %w", device.ErrRequest, err)
	}
	t.scanner, t.sealed = scan.New(resident, t.spec), t.rows.Rows
	return nil
}

// patched returns the table after a verified patch. Rows appended in place are invisible to
// older versions. If a row is replaced, all rows are copied to new memory.
func (t *table) patched(p device.Patch, added int) (*table, error) {
	next := *t
	old, cols := t.rows.Rows, t.rows.Cols
	replaces := len(p.Numbers) > added
	data := t.rows.Data[: old*cols : old*cols]
	if !replaces && *t.tail == old {
		data = t.rows.Data // its spare capacity may be used
	} else {
		next.tail = new(int)
	}
	data = append(data, make([]float32, added*cols)...)
	if replaces && added == 0 {
		data = append([]float32(nil), data...)
	}
	next.rows = rerank.Matrix{Rows: old + added, Cols: cols, Data: data}
	*next.tail = next.rows.Rows
	for i, row := range p.Numbers {
		copy(next.rows.Row(int(row)), p.Rows.Row(i))
	}
	next.updateAlive(p, old)
	if tail := next.rows.Rows - next.sealed; replaces || tail > 1024 && tail > next.rows.Rows/sealAt {
		return &next, next.seal()
	}
	return &next, nil
}

// updateAlive sets which rows a scan returns.
func (t *table) updateAlive(p device.Patch, old int) {
	if t.alive == nil && len(p.Removed) == 0 {
		return
	}
	n := t.rows.Rows
	if t.alive == nil {
		t.alive = scan.NewBitmap(0).Grown(0, n)
	} else {
		t.alive = t.alive.Grown(old, n)
	}
	for _, row := range p.Numbers {
		t.alive.Add(int32(row))
	}
	for _, row := range p.Removed {
		t.alive.Remove(int(row))
	}
}

// rescore ranks the given rows.
func (t *table) rescore(ctx context.Context, enc rerank.Encoded, numbers []uint32, k int) (device.Best, error) {
	if len(numbers) > t.rows.Rows {
		return device.Best{}, fmt.Errorf("%w: %d rows of a table of %d; name each once", device.ErrRequest, len(numbers), t.rows.Rows)
	}
	list := make([]int32, len(numbers))
	for i, row := range numbers {
		if int64(row) >= int64(t.rows.Rows) {
			return device.Best{}, fmt.Errorf("%w: rows[%d] is row %d of %d", device.ErrRequest, i, row, t.rows.Rows)
		}
		list[i] = int32(row)
	}
	r := newRanking(k)
	if err := r.score(ctx, enc, t.rows, list); err != nil {
		return device.Best{}, err
	}
	return r.best(enc), nil
}

// scan ranks all rows, or the rows of a bitmap.
func (t *table) scan(ctx context.Context, enc rerank.Encoded, bitmap []byte, k int) (device.Best, error) {
	within := t.alive
	if len(bitmap) > 0 {
		wanted, err := scan.ParseBitmap(bitmap, t.rows.Rows)
		if err != nil {
			return device.Best{}, fmt.Errorf("%w: %w", device.ErrRequest, err)
		}
		if within = wanted; t.alive != nil {
			within = t.alive.And(wanted)
		}
	}
	found, err := t.scanner.Scan(ctx, scan.Query{Encoded: enc, K: k + 1, Within: within}, nil)
	if err != nil {
		return device.Best{}, err
	}
	r := newRanking(k)
	r.scored, r.notFinite = found.Scored, found.NotFinite
	for _, row := range found.Top {
		r.top.Push(row)
	}
	var rest []int32
	for i := t.sealed; i < t.rows.Rows; i++ {
		if within == nil || within.Has(i) {
			rest = append(rest, int32(i))
		}
	}
	if err := r.score(ctx, enc, t.rows, rest); err != nil {
		return device.Best{}, err
	}
	return r.best(enc), nil
}

// ranking collects the best k rows and the next one.
type ranking struct {
	k                 int
	top               *rerank.TopK
	scored, notFinite int
}

func newRanking(k int) *ranking { return &ranking{k: k, top: rerank.NewTopK(k + 1)} }

// piece is how many rows are scored between two checks of the context.
const piece = 4096

func (r *ranking) score(ctx context.Context, enc rerank.Encoded, all rerank.Matrix, list []int32) error {
	scores := make([]float32, min(len(list), piece))
	for len(list) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := min(len(list), piece)
		if err := enc.Score(scores[:n], rerank.Items{Features: all, Rows: list[:n]}); err != nil {
			return err
		}
		for i, x := range scores[:n] {
			if x-x != 0 {
				r.notFinite++
			}
			r.top.Push(rerank.Scored{ID: rerank.UintID(uint64(list[i])), Score: x, Index: int(list[i])})
		}
		r.scored += n
		list = list[n:]
	}
	return nil
}

// best returns the answer. It must be called after scoring: unless rows have norm 1, the
// kernel's error grows with the longest row that was scored.
func (r *ranking) best(enc rerank.Encoded) device.Best {
	b := device.Best{Scored: r.scored, NotFinite: r.notFinite, Next: float32(math.Inf(-1))}
	for i, row := range r.top.Sorted() {
		if i == r.k {
			if row.Score-row.Score == 0 {
				b.Next = row.Score
			}
			break
		}
		b.Rows, b.Scores = append(b.Rows, uint32(row.Index)), append(b.Scores, row.Score)
	}
	b.Epsilon = enc.Bound(nil, nil).Epsilon
	if b.Epsilon-b.Epsilon != 0 {
		b.Epsilon = math.MaxFloat32 // rows are not finite, so there is no bound
	}
	return b
}
