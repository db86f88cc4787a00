package table_test

import (
	"errors"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/likenessdb/likeness/internal/powerloss"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/table"
)

// model is the expected content of a live table: the rows of every id.
type model map[rerank.ID][]float32

// liveCase is a kind of table that takes writes.
type liveCase struct {
	meta    table.Meta
	grouped bool
}

func liveCases() map[string]liveCase {
	cases := map[string]liveCase{}
	for _, f := range rerank.Formats() {
		m := meta
		m.Features, m.Block, m.Format = 7, 3, f
		cases[string(f)] = liveCase{meta: m}
	}
	grouped := meta
	grouped.Format, grouped.Full = rerank.FormatInt8, true
	cases["grouped, with full precision"] = liveCase{meta: grouped, grouped: true}
	return cases
}

// base writes the table's file with n items.
func (c liveCase) base(t testing.TB, rng *rand.Rand, n int) (string, model) {
	t.Helper()
	path, m := filepath.Join(t.TempDir(), "t.table"), model{}
	w, err := table.NewWriter(path, c.meta)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		id, rows := rerank.UintID(uint64(i)), c.rows(rng)
		if err := w.AppendGroup(id, rows); err != nil {
			t.Fatal(err)
		}
		m[id] = rows.Data
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path, m
}

func (c liveCase) rows(rng *rand.Rand) rerank.Matrix {
	n := 1
	if c.grouped {
		n += rng.IntN(3)
	}
	rows := rerank.NewMatrix(n, c.meta.Features)
	for i := range rows.Data {
		rows.Data[i] = float32(rng.NormFloat64())
	}
	return rows
}

// step makes a random write to both.
func (c liveCase) step(t testing.TB, rng *rand.Rand, l *table.Live, m model) {
	t.Helper()
	ids := make([]rerank.ID, 1+rng.IntN(5))
	for i := range ids {
		if ids[i] = rerank.UintID(uint64(rng.IntN(60))); rng.IntN(3) == 0 {
			ids[i] = rerank.TextID(string(rune('a' + rng.IntN(26))))
		}
	}
	if rng.IntN(3) == 0 {
		if err := l.Delete(ids); err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			delete(m, id)
		}
		return
	}
	all, starts := rerank.Matrix{Cols: c.meta.Features}, []int32{0}
	for _, id := range ids {
		rows := c.rows(rng)
		m[id] = rows.Data
		all.Data, all.Rows = append(all.Data, rows.Data...), all.Rows+rows.Rows
		starts = append(starts, int32(all.Rows))
	}
	if !c.grouped && rng.IntN(2) == 0 {
		starts = nil
	}
	if err := l.Upsert(ids, all, starts); err != nil {
		t.Fatal(err)
	}
}

// compare wants a snapshot to hold the model, within what its format loses.
func (c liveCase) compare(t testing.TB, snap *table.Table, m model) {
	t.Helper()
	if snap.Count() != len(m) {
		t.Fatalf("%d items are alive, want %d", snap.Count(), len(m))
	}
	lost, buf := float64(snap.Loss().Row.Lost), make([]float32, c.meta.Features)
	for id, want := range m {
		item, ok := snap.Find(id)
		if !ok || snap.ID(item) != id || !snap.Alive(item) {
			t.Fatalf("Find(%v) = %d, %v", id, item, ok)
		}
		from, to := snap.Rows(item)
		if (to-from)*c.meta.Features != len(want) {
			t.Fatalf("item %v has the rows %d to %d, want %d numbers", id, from, to, len(want))
		}
		for r := from; r < to; r++ {
			snap.Row32(buf, r)
			x := want[(r-from)*len(buf):][:len(buf)]
			if d := distance(x, buf); d > lost {
				t.Fatalf("item %v lost %v, the table says %v at most", id, d, lost)
			}
			if full, ok := snap.Full(); ok && !slices.Equal(full.Row(r), x) {
				t.Fatalf("item %v has %v in full precision, want %v", id, full.Row(r), x)
			}
		}
	}
	alive := 0
	for item := range snap.Len() {
		if snap.AliveMask(item/rerank.Lanes)>>(item%rerank.Lanes)&1 == 1 {
			alive++
		}
	}
	if alive != len(m) {
		t.Fatalf("the masks have %d items, want %d", alive, len(m))
	}
}

func distance(x, y []float32) float64 {
	d := make([]float32, len(x))
	for i := range x {
		d[i] = x[i] - y[i]
	}
	return rerank.Norm(d)
}

func openLive(t testing.TB, path string, o table.LiveOptions) *table.Live {
	t.Helper()
	l, err := table.OpenLive(path, table.Expect{ModelVersion: meta.ModelVersion}, o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestLiveAgainstModel makes random writes, compactions and restarts, and wants
// each snapshot to be what it was when it was taken.
func TestLiveAgainstModel(t *testing.T) {
	for name, c := range liveCases() {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(5, 6))
			path, m := c.base(t, rng, 40)
			o := table.LiveOptions{CompactShare: -1, CompactItems: 8, Unsynced: true}
			l := openLive(t, path, o)
			type held struct {
				snap *table.Table
				m    model
			}
			var all []held
			for range 400 {
				c.step(t, rng, l, m)
				switch rng.IntN(40) {
				case 0:
					if err := l.Compact(); err != nil {
						t.Fatal(err)
					}
				case 1:
					sequence := l.Stats().Sequence
					if err := l.Close(); err != nil {
						t.Fatal(err)
					}
					l = openLive(t, path, o)
					if got := l.Stats().Sequence; got != sequence {
						t.Fatalf("sequence %d became %d", sequence, got)
					}
				case 2, 3:
					all = append(all, held{l.Snapshot(), maps.Clone(m)})
				}
				snap := l.Snapshot()
				c.compare(t, snap, m)
				snap.Release()
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			for _, h := range all {
				c.compare(t, h.snap, h.m)
				h.snap.Release()
			}
			if l.Snapshot() != nil || !errors.Is(l.Delete([]rerank.ID{rerank.UintID(1)}), table.ErrClosed) {
				t.Error("a closed table is read and written")
			}
		})
	}
}

// TestLiveConcurrent writes until compactions have happened, while readers check all rows: a row's
// content tells which write it came from, and all ids of a write change together.
func TestLiveConcurrent(t *testing.T) {
	defer goleak.VerifyNone(t)
	c := liveCase{meta: meta}
	path, _ := c.base(t, rand.New(rand.NewPCG(1, 2)), 0)
	compacted := make(chan error, 1000)
	l := openLive(t, path, table.LiveOptions{CompactItems: 32, Unsynced: true, Compacted: func(err error) { compacted <- err }})
	ids := []rerank.ID{rerank.UintID(1), rerank.TextID("b"), rerank.UintID(1 << 60)}
	write := func(n int) error {
		rows := rerank.NewMatrix(len(ids), meta.Features)
		for i := range rows.Data {
			rows.Data[i] = float32(n)
		}
		return l.Upsert(ids, rows, nil)
	}
	if err := write(0); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() { read3(t, l, ids, done) })
	}
	for n, compactions := 1, 0; compactions < 5; n++ {
		if err := write(n); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-compacted:
			if compactions++; err != nil {
				t.Fatal(err)
			}
		default:
		}
	}
	close(done)
	readers.Wait()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func read3(t *testing.T, l *table.Live, ids []rerank.ID, done <-chan struct{}) {
	var scratch rerank.Items
	last := float32(-1)
	for {
		select {
		case <-done:
			return
		default:
		}
		snap := l.Snapshot()
		items, missing := snap.Lookup(ids, nil, nil)
		if len(missing) > 0 {
			t.Errorf("%d ids are missing", len(missing))
		}
		got := snap.Items(items, &scratch)
		first := got.Features.Row(int(got.Rows[0]))[0]
		for _, r := range got.Rows {
			for _, x := range got.Features.Row(int(r)) {
				if x != first {
					t.Errorf("a snapshot has rows of the writes %v and %v", first, x)
				}
			}
		}
		if first < last {
			t.Errorf("write %v was seen, then %v", last, first)
		}
		last = first
		snap.Release()
	}
}

func TestPending(t *testing.T) {
	c := liveCase{meta: meta}
	path, _ := c.base(t, rand.New(rand.NewPCG(1, 2)), 3)
	l := openLive(t, path, table.LiveOptions{})
	defer l.Close()
	l.Announce()
	l.Announce()
	l.Settle()
	if n := l.Pending(); n != 1 {
		t.Errorf("%d writes are pending, want 1", n)
	}
	if _, err := table.OpenLive(path, table.Expect{}, table.LiveOptions{}); !errors.Is(err, table.ErrTable) {
		t.Errorf("a second one: err = %v, want ErrTable", err)
	}
}

func TestLiveRefuses(t *testing.T) {
	c := liveCase{meta: meta}
	c.meta.Format = rerank.FormatFloat16
	path, m := c.base(t, rand.New(rand.NewPCG(1, 2)), 3)
	l := openLive(t, path, table.LiveOptions{})
	defer l.Close()
	big := rerank.NewMatrix(2, meta.Features)
	big.Data[5] = 70000
	two := []rerank.ID{rerank.UintID(1), rerank.UintID(9)}
	for name, err := range map[string]error{
		"too large":  l.Upsert(two, big, nil),
		"row length": l.Upsert(two, rerank.NewMatrix(2, 2), nil),
		"counts":     l.Upsert(two[:1], features(2), nil),
		"zero id":    l.Upsert([]rerank.ID{two[0], {}}, features(2), nil),
		"no rows":    l.Upsert(two, features(2), []int32{0, 2, 2}),
		"delete":     l.Delete([]rerank.ID{{}}),
	} {
		if !errors.Is(err, table.ErrTable) {
			t.Errorf("%s: err = %v, want ErrTable", name, err)
		}
	}
	snap := l.Snapshot()
	c.compare(t, snap, m)
	snap.Release()
	if err := l.Upsert(two[1:], features(1), nil); err != nil {
		t.Errorf("what was refused ends all writes: %v", err)
	}
	c.meta.Layout = table.LayoutTiles
	path, _ = c.base(t, rand.New(rand.NewPCG(1, 2)), 3)
	if _, err := table.OpenLive(path, table.Expect{}, table.LiveOptions{}); !errors.Is(err, table.ErrTable) {
		t.Errorf("tiles: err = %v, want ErrTable", err)
	}
}

// TestLiveReplaced: a table that was built anew is not overwritten by a
// compaction of the old, and does not take the old one's log.
func TestLiveReplaced(t *testing.T) {
	c, rng := liveCase{meta: meta}, rand.New(rand.NewPCG(7, 8))
	path, m := c.base(t, rng, 10)
	l := openLive(t, path, table.LiveOptions{})
	c.step(t, rng, l, m)
	other, want := c.base(t, rng, 20)
	if err := os.Rename(other, path); err != nil {
		t.Fatal(err)
	}
	if err := l.Compact(); !errors.Is(err, table.ErrTable) {
		t.Errorf("err = %v, want ErrTable", err)
	}
	c.step(t, rng, l, m)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = openLive(t, path, table.LiveOptions{})
	defer l.Close()
	snap := l.Snapshot()
	defer snap.Release()
	c.compare(t, snap, want)
}

// TestSnapshotDoesNotGrow: a snapshot finds no item that was added after it was taken,
// although both share one index of ids.
func TestSnapshotDoesNotGrow(t *testing.T) {
	c := liveCase{meta: meta}
	path, m := c.base(t, rand.New(rand.NewPCG(1, 2)), 3)
	l := openLive(t, path, table.LiveOptions{CompactShare: -1})
	defer l.Close()
	late := []rerank.ID{rerank.UintID(10), rerank.UintID(11)}
	if err := l.Upsert(late[:1], features(1), nil); err != nil {
		t.Fatal(err)
	}
	m[late[0]] = features(1).Data
	before := l.Snapshot()
	defer before.Release()
	if err := l.Upsert(late[1:], features(1), nil); err != nil {
		t.Fatal(err)
	}
	if item, ok := before.Find(late[1]); ok {
		t.Errorf("the snapshot finds an item that came after it, as number %d", item)
	}
	c.compare(t, before, m)
}

// TestCompactionIsShown: the first snapshot after a compaction shows the new file, which has no
// deleted items.
func TestCompactionIsShown(t *testing.T) {
	c := liveCase{meta: meta}
	path, m := c.base(t, rand.New(rand.NewPCG(1, 2)), 5)
	l := openLive(t, path, table.LiveOptions{CompactShare: -1})
	defer l.Close()
	if err := l.Delete([]rerank.ID{rerank.UintID(1), rerank.UintID(3)}); err != nil {
		t.Fatal(err)
	}
	delete(m, rerank.UintID(1))
	delete(m, rerank.UintID(3))
	if err := l.Compact(); err != nil {
		t.Fatal(err)
	}
	snap := l.Snapshot()
	defer snap.Release()
	if snap.Len() != len(m) {
		t.Errorf("a snapshot after a compaction has %d items, want the %d that are alive", snap.Len(), len(m))
	}
	c.compare(t, snap, m)
}

// TestWritesDuringCompaction makes a write while the new file is written, for every kind
// of table, and wants it in the table afterwards and after a restart.
func TestWritesDuringCompaction(t *testing.T) {
	for name, c := range liveCases() {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(3, 4))
			from, m := c.base(t, rng, 20)
			d := powerloss.New(t, filepath.Dir(from))
			l := openLive(t, filepath.Join(d.Root(), "t.table"), table.LiveOptions{CompactShare: -1, Disk: d})
			written := false
			d.Before(func(call string) {
				if written || !strings.HasPrefix(call, "write t.table.compact") {
					return
				}
				written = true // before the write, which calls this again
				c.upsert(t, l, m, rerank.UintID(3), c.rows(rng))
				c.upsert(t, l, m, rerank.UintID(99), c.rows(rng))
			})
			if err := l.Compact(); err != nil {
				t.Fatal(err)
			}
			if !written {
				t.Fatal("no write came while the new file was written")
			}
			snap := l.Snapshot()
			c.compare(t, snap, m)
			snap.Release()
			reopened(t, c, d, l, m)
		})
	}
}

// upsert writes one item to both.
func (c liveCase) upsert(t testing.TB, l *table.Live, m model, id rerank.ID, rows rerank.Matrix) {
	t.Helper()
	if err := l.Upsert([]rerank.ID{id}, rows, []int32{0, int32(rows.Rows)}); err != nil {
		t.Error(err) // in a goroutine of the table's, perhaps
	}
	m[id] = rows.Data
}

// TestCompactionIsDue: a compaction begins when a quarter of the items are new, replaced or
// deleted, unless the options say otherwise.
func TestCompactionIsDue(t *testing.T) {
	c := liveCases()["float32"]
	for name, tc := range map[string]struct {
		o       table.LiveOptions
		changes int // from which a compaction begins
	}{
		"by default": {table.LiveOptions{CompactItems: 1}, 25},
		"a tenth":    {table.LiveOptions{CompactItems: 1, CompactShare: 0.1}, 10},
		"few items":  {table.LiveOptions{CompactItems: 40}, 40},
		"never":      {table.LiveOptions{CompactItems: 1, CompactShare: -1}, 0},
	} {
		path, _ := c.base(t, rand.New(rand.NewPCG(1, 2)), 100)
		l := openLive(t, path, tc.o)
		for n := 1; n <= 60; n++ {
			if err := l.Delete([]rerank.ID{rerank.UintID(uint64(n))}); err != nil {
				t.Fatal(err)
			}
			if begun := l.Stats().Generation > 0; begun != (tc.changes > 0 && n >= tc.changes) {
				t.Fatalf("%s: after %d changes a compaction has begun: %t, want from %d on", name, n, begun, tc.changes)
			}
			if n == tc.changes {
				break
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFailedCompactionIsRetried: only after as many further changes as there were. What it wrote is removed.
func TestFailedCompactionIsRetried(t *testing.T) {
	c := liveCases()["float32"]
	path, _ := c.base(t, rand.New(rand.NewPCG(1, 2)), 100)
	outcomes := make(chan error, 100)
	l := openLive(t, path, table.LiveOptions{CompactItems: 1, Compacted: func(err error) { outcomes <- err }})
	defer l.Close()
	if err := os.Rename(path, path+".away"); err != nil { // another table could take its place
		t.Fatal(err)
	}
	generation := uint64(0)
	for n := 1; n <= 60; n++ {
		if err := l.Delete([]rerank.ID{rerank.UintID(uint64(n))}); err != nil {
			t.Fatal(err)
		}
		switch now := l.Stats().Generation; {
		case now == generation:
		case n != 25 && n != 50:
			t.Fatalf("a compaction began after %d changes, want after 25 and, since that fails, after 50", n)
		default:
			generation = now
			if err := <-outcomes; err == nil {
				t.Fatal("a table that was moved away was compacted")
			}
			if _, err := os.Stat(path + ".compact"); !errors.Is(err, os.ErrNotExist) {
				t.Fatalf("the new file stays on the disk: %v", err)
			}
		}
	}
	if generation != 2 {
		t.Errorf("%d compactions began, want 2", generation)
	}
}

// TestDamagedLogIsKept: a table whose log has a damaged header is refused, and the log stays
// for whoever can read it.
func TestDamagedLogIsKept(t *testing.T) {
	c := liveCases()["float32"]
	path, m := c.base(t, rand.New(rand.NewPCG(1, 2)), 3)
	l := openLive(t, path, table.LiveOptions{})
	c.upsert(t, l, m, rerank.UintID(9), c.rows(rand.New(rand.NewPCG(3, 4))))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	log := path + ".log.0"
	b := read(t, log)
	b[20] ^= 1
	save(t, log, b)
	files := openFiles(t)
	if l, err := table.OpenLive(path, table.Expect{}, table.LiveOptions{}); !errors.Is(err, table.ErrTable) {
		t.Errorf("a damaged log: %v, %v", l, err)
	}
	if !slices.Equal(read(t, log), b) {
		t.Error("the damaged log was changed")
	}
	if now := openFiles(t); now > files {
		t.Errorf("%d files are open after a table was refused, %d before", now, files)
	}
}

// openFiles counts the open files of the process, where the system lists them.
func openFiles(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return len(all)
}
