package table

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/likenessdb/likeness/internal/adversary"
	"github.com/likenessdb/likeness/rerank"
)

// parts are the items of a table in three parts, which ways to make a table treat
// differently. One row loses more than all others, another is longer.
type parts struct {
	ids  [3][]rerank.ID
	rows [3]rerank.Matrix
}

func makeParts(rng *rand.Rand, m Meta, lossy, long int) parts {
	var p parts
	packing := m.packing()
	u := make([]float32, m.Features)
	for i := range u {
		u[i] = 1
	}
	for part := range p.rows {
		const n = 21
		p.rows[part] = rerank.NewMatrix(n, m.Features)
		for i := range n {
			copy(p.rows[part].Row(i), adversary.ExactlyPacked(rng, packing, 1))
			p.ids[part] = append(p.ids[part], rerank.UintID(uint64(1000*part+7*i)))
		}
		if part == lossy {
			copy(p.rows[part].Row(5), adversary.RoundedDown(rng, packing, u, 1))
		}
		if part == long {
			copy(p.rows[part].Row(9), adversary.ExactlyPacked(rng, packing, 4))
		}
	}
	return p
}

func (p *parts) append(t *testing.T, w *Writer, part ...int) {
	t.Helper()
	for _, i := range part {
		check(t, w.Append(p.ids[i], p.rows[i]))
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (p *parts) file(t *testing.T, m Meta, part ...int) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "t.table")
	w, err := NewWriter(path, m)
	check(t, err)
	p.append(t, w, part...)
	check(t, w.Close())
	return path
}

func opened(t *testing.T, path string) *Table {
	t.Helper()
	tab, err := Open(path, Expect{})
	check(t, err)
	t.Cleanup(func() { check(t, tab.Close()) })
	return tab
}

func openedLive(t *testing.T, path string) *Live {
	t.Helper()
	l, err := OpenLive(path, Expect{}, LiveOptions{Unsynced: true, CompactShare: -1})
	check(t, err)
	t.Cleanup(func() { check(t, l.Close()) })
	return l
}

func shown(t *testing.T, l *Live) *Table {
	t.Helper()
	s := l.Snapshot()
	t.Cleanup(s.Release)
	return s
}

// TestEveryTableKnowsItsLoss: however a table was created, Loss bounds the loss of packing in all
// parts of its rows. A bound without it would leave items out.
func TestEveryTableKnowsItsLoss(t *testing.T) {
	type way func(t *testing.T, m Meta, p parts) *Table
	ways := map[string]way{
		"in memory": func(t *testing.T, m Meta, p parts) *Table {
			all, ids := rerank.NewMatrix(0, m.Features), []rerank.ID(nil)
			for i := range p.rows {
				all.Rows += p.rows[i].Rows
				all.Data, ids = append(all.Data, p.rows[i].Data...), append(ids, p.ids[i]...)
			}
			tab, err := FromMemory(m, ids, all, nil)
			check(t, err)
			return tab
		},
		"file": func(t *testing.T, m Meta, p parts) *Table { return opened(t, p.file(t, m, 0, 1, 2)) },
		"resumed": func(t *testing.T, m Meta, p parts) *Table {
			path := filepath.Join(t.TempDir(), "t.table")
			w, err := NewWriter(path, m)
			check(t, err)
			p.append(t, w, 0)
			check(t, w.Checkpoint("here"))
			p.append(t, w, 1)
			check(t, w.Abort())
			w, _, err = Resume(path, m)
			check(t, err)
			p.append(t, w, 1, 2)
			check(t, w.Close())
			return opened(t, path)
		},
	}
	// Tables of tiles are not merged, and take no writes.
	ofRows := map[string]way{
		"merged": func(t *testing.T, m Meta, p parts) *Table {
			path := filepath.Join(t.TempDir(), "merged.table")
			_, err := Merge(path, []*Table{opened(t, p.file(t, m, 0)), opened(t, p.file(t, m, 1)), opened(t, p.file(t, m, 2))})
			check(t, err)
			return opened(t, path)
		},
	}
	live := map[string]func(t *testing.T, l *Live, p parts){
		"live": func(t *testing.T, l *Live, p parts) {
			check(t, l.Upsert(p.ids[1], p.rows[1], nil))
			check(t, l.Upsert(p.ids[2], p.rows[2], nil))
		},
		"compacted": func(t *testing.T, l *Live, p parts) {
			check(t, l.Upsert(p.ids[1], p.rows[1], nil))
			check(t, l.Upsert(p.ids[2], p.rows[2], nil))
			check(t, l.Compact())
		},
		"written while it was compacted": func(t *testing.T, l *Live, p parts) {
			check(t, l.Upsert(p.ids[1], p.rows[1], nil))
			l.mu.Lock()
			cut, err := l.rotate()
			l.mu.Unlock()
			check(t, err)
			check(t, l.Upsert(p.ids[2], p.rows[2], nil))
			check(t, l.compact(cut))
		},
		"compacted twice": func(t *testing.T, l *Live, p parts) {
			check(t, l.Upsert(p.ids[1], p.rows[1], nil))
			check(t, l.Compact())
			check(t, l.Upsert(p.ids[2], p.rows[2], nil))
			check(t, l.Compact())
		},
	}
	for name, write := range live {
		for _, reopen := range []bool{false, true} {
			ofRows[fmt.Sprintf("%s, opened again %t", name, reopen)] = func(t *testing.T, m Meta, p parts) *Table {
				path := p.file(t, m, 0)
				l := openedLive(t, path)
				write(t, l, p)
				if reopen {
					check(t, l.Close())
					l = openedLive(t, path)
				}
				return shown(t, l)
			}
		}
	}
	rng := rand.New(rand.NewPCG(3, 3))
	try := func(name string, create way, layouts []Layout) {
		for _, format := range rerank.Formats() {
			for _, layout := range layouts {
				for lossy := range 3 {
					m := Meta{Model: "m", ModelVersion: "v", Collection: "c", Kind: "dot", Features: 12, Block: 4, Format: format, Layout: layout}
					t.Run(fmt.Sprintf("%s, %s %s, part %d", name, format, layout, lossy), func(t *testing.T) {
						p := makeParts(rng, m, lossy, (lossy+1)%3)
						knowsLoss(t, create(t, m, p), p)
					})
				}
			}
		}
	}
	for name, create := range ways {
		try(name, create, []Layout{LayoutRows, LayoutTiles})
	}
	for name, create := range ofRows {
		try(name, create, []Layout{LayoutRows})
	}
}

func knowsLoss(t *testing.T, tab *Table, p parts) {
	t.Helper()
	want, back := rerank.NewLoss(tab.meta.packing()), make([]float32, tab.meta.Features)
	for part, rows := range p.rows {
		for i := range rows.Rows {
			item, ok := tab.Find(p.ids[part][i])
			if !ok {
				t.Fatalf("item %s is missing", p.ids[part][i])
			}
			tab.Row32(back, item)
			want.Add(tab.meta.packing(), rows.Row(i), back)
		}
	}
	have := tab.Loss()
	for i, w := range append([]rerank.Extent{want.Row}, want.Blocks...) {
		if h := append([]rerank.Extent{have.Row}, have.Blocks...)[i]; h != w {
			t.Errorf("extent %d is %+v, the rows' is %+v", i, h, w)
		}
	}
	if lost := want.Row.Lost > 0; tab.Rounded() != lost {
		t.Errorf("rounded: %t, the rows lost %v", tab.Rounded(), want.Row.Lost)
	}
}

// TestWritesEndAfterOneThatIsNotShown: a write that is in the log and cannot be shown ends the
// writes of the table, so that no later one is shown without it.
func TestWritesEndAfterOneThatIsNotShown(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	m := Meta{Model: "m", ModelVersion: "1", Collection: "c", Kind: "dot", Features: 4, Format: rerank.FormatFloat32, Layout: LayoutRows}
	p := makeParts(rng, m, 0, 1)
	l := openedLive(t, p.file(t, m, 0))
	check(t, l.w.b.file.Close()) // so that there is no further memory for rows
	var ids []rerank.ID
	features := rerank.NewMatrix(2*l.w.arena.capacity, m.Features)
	for i := range features.Rows {
		ids = append(ids, rerank.UintID(uint64(1000+i)))
	}
	if err := l.Upsert(ids, features, nil); !errors.Is(err, ErrClosed) {
		t.Fatalf("more rows than there is memory for: %v", err)
	}
	if err := l.Delete(p.ids[0][:1]); !errors.Is(err, ErrClosed) {
		t.Errorf("the next write: %v, want ErrClosed", err)
	}
}

// TestSameNumbers: items keep their numbers from snapshot to snapshot, until a compaction.
func TestSameNumbers(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	m := Meta{Model: "m", ModelVersion: "1", Collection: "c", Kind: "dot", Features: 4, Format: rerank.FormatFloat32, Layout: LayoutRows}
	p := makeParts(rng, m, 0, 1)
	l, other := openedLive(t, p.file(t, m, 0)), openedLive(t, p.file(t, m, 0))
	first := shown(t, l)
	check(t, l.Upsert(p.ids[1], p.rows[1], nil))
	written := shown(t, l)
	check(t, l.Compact())
	compacted := shown(t, l)
	for name, c := range map[string]struct {
		a, b *Table
		want bool
	}{
		"one snapshot": {first, first, true}, "before and after a write": {first, written, true}, "before and after a compaction": {written, compacted, false},
		"two tables": {first, shown(t, other), false}, "none": {first, nil, false},
	} {
		if got := c.a.SameNumbers(c.b); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}
