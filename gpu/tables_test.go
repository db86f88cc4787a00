package gpu

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/likenessdb/likeness/plugin/device"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/scan"
)

// ledger is a machine that notes what is allocated, written and freed.
type ledger struct {
	scripted
	mu      sync.Mutex
	said    []string
	tables  int
	created func() // called by NewTable and LoadModel
	refuses error  // returned by LoadModel
}

func (l *ledger) note(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.said = append(l.said, fmt.Sprintf(format, args...))
}

// take returns what was noted, and forgets it.
func (l *ledger) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	said := l.said
	l.said = nil
	return said
}

func (l *ledger) TableBytes(_ *Network, capacity int) int64 { return int64(capacity) }

func (l *ledger) ModelBytes(*Network) int64 { return 100 }

func (l *ledger) LoadModel(*Network) (Model, error) {
	if l.created != nil {
		l.created()
	}
	return &entered{ledger: l, name: "another model"}, l.refuses
}

func (l *ledger) NewTable(Model, int) (Table, error) {
	if l.created != nil {
		l.created()
	}
	l.tables++
	return &entered{ledger: l, name: fmt.Sprintf("table %d", l.tables)}, nil
}

// entered is a model or table of a ledger.
type entered struct {
	*ledger
	name string
	rows rerank.Matrix // of the last Write
}

// Run scores the rows that were written by inner products.
func (l *ledger) Run(jobs []Job) ([]Survivors, error) {
	out := make([]Survivors, len(jobs))
	for i, j := range jobs {
		rows := j.Table.(*entered).rows
		m := scripted{exact: make([]float32, rows.Rows)}
		for r := range m.exact {
			for c, x := range rows.Row(r) {
				m.exact[r] += x * j.Query.Vectors.Data[c]
			}
		}
		m.rough = m.exact
		one, err := m.Run(jobs[i : i+1])
		if err != nil {
			return nil, err
		}
		out[i] = one[0]
	}
	return out, nil
}

func (e *entered) Free() error { e.note("free %s", e.name); return nil }
func (e *entered) Write(first int, m rerank.Matrix) error {
	e.rows = m
	e.note("write %d to %d of %s", first, first+m.Rows, e.name)
	return nil
}

func (e *entered) Patch(numbers []uint32, m rerank.Matrix) error {
	e.note("patch %v with %v of %s", numbers, m.Data, e.name)
	return nil
}

func (e *entered) CopyFrom(from Table, rows int) error {
	e.note("copy %d of %s to %s", rows, from.(*entered).name, e.name)
	return nil
}

func (e *entered) Resize(rows int, alive []uint32) error {
	e.note("resize %s to %d, alive %x", e.name, rows, alive)
	return nil
}

var pair = device.Version{Name: "model", Version: "1"}

func at(version string) device.Version { return device.Version{Name: "t", Version: version} }

// bookkeeping is a device on a ledger, with a model of feature rows of two numbers.
func bookkeeping(t *testing.T) (*Device, *ledger) {
	t.Helper()
	l := &ledger{}
	d, err := New(func() (Machine, error) { return l, nil }, Options{Memory: 1 << 16})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	d.models[pair], d.used = &loaded{network: &Network{Features: 2}, onMachine: &entered{ledger: l, name: "model"}, bytes: 1}, 1
	return d, l
}

func chunks(rows ...[]float32) device.Rows {
	return func(yield func([]float32, error) bool) {
		for _, r := range rows {
			if !yield(r, nil) {
				return
			}
		}
	}
}

func expectLedger(t *testing.T, l *ledger, when string, want ...string) {
	t.Helper()
	if got := l.take(); !slices.Equal(got, want) {
		t.Errorf("%s: the machine did %q, want %q", when, got, want)
	}
}

// TestTablesAreLoadedWhole: rows are written as they come, and never more than were
// announced; what is refused leaves nothing behind.
func TestTablesAreLoadedWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, l := bookkeeping(t)
		head := device.TableHead{Table: at("1"), Model: pair, Rows: 3, Cols: 2}
		if err := d.LoadTable(t.Context(), head, chunks([]float32{1, 2, 3, 4}, []float32{5, 6})); err != nil {
			t.Fatal(err)
		}
		expectLedger(t, l, "three rows", "write 0 to 2 of table 1", "write 2 to 3 of table 1", "resize table 1 to 3, alive []")
		other := device.Version{Name: "other", Version: "1"}
		for name, c := range map[string]struct {
			change func(h *device.TableHead)
			rows   device.Rows
			want   error
		}{
			"a name that is taken":    {func(h *device.TableHead) { h.Table = at("1") }, chunks([]float32{1, 2, 3, 4, 5, 6}), device.ErrLoaded},
			"another model":           {func(h *device.TableHead) { h.Model = other }, chunks([]float32{1, 2, 3, 4, 5, 6}), device.ErrNotLoaded},
			"rows of another length":  {func(h *device.TableHead) { h.Cols = 3 }, chunks([]float32{1, 2, 3, 4, 5, 6, 7, 8, 9}), device.ErrRequest},
			"fewer rows":              {func(*device.TableHead) {}, chunks([]float32{1, 2, 3, 4}), device.ErrRequest},
			"more rows":               {func(*device.TableHead) {}, chunks([]float32{1, 2, 3, 4}, []float32{5, 6, 7, 8}), device.ErrRequest},
			"a negative number":       {func(h *device.TableHead) { h.Rows = -1 }, chunks(), device.ErrRequest},
			"more than there is room": {func(h *device.TableHead) { h.Rows = 1 << 17 }, chunks(), device.ErrMemory},
		} {
			head := device.TableHead{Table: other, Model: pair, Rows: 3, Cols: 2}
			c.change(&head)
			if err := d.LoadTable(t.Context(), head, c.rows); !errors.Is(err, c.want) {
				t.Errorf("%s: %v, want %v", name, err, c.want)
			}
			synctest.Wait()
			for _, said := range l.take() {
				if strings.HasPrefix(said, "write") && !strings.HasPrefix(said, "write 0 to 2 ") {
					t.Errorf("%s: the machine did %q", name, said)
				}
			}
			if used := d.used; used != 1025 || len(d.tables) != 1 || d.models[pair].tables != 1 {
				t.Errorf("%s: %d bytes are used by %d tables, %d of the model", name, used, len(d.tables), d.models[pair].tables)
			}
		}
		l.created = func() { // another call loads the same table meanwhile
			d.mu.Lock()
			defer d.mu.Unlock()
			d.tables[other] = d.tables[at("1")]
		}
		head.Table = other
		if err := d.LoadTable(t.Context(), head, chunks([]float32{1, 2, 3, 4, 5, 6})); !errors.Is(err, device.ErrLoaded) {
			t.Errorf("loaded twice at a time: %v", err)
		}
		synctest.Wait()
		if said := l.take(); d.used != 1025 || len(said) == 0 || said[len(said)-1] != fmt.Sprintf("free table %d", l.tables) {
			t.Errorf("loaded twice at a time: %d bytes are used, and the machine did %q", d.used, said)
		}
	})
}

// TestWhatIsUsedIsNotFreed: a table outlives its removal while a search uses it, and a
// model while it has tables; then both are freed and their memory counts as free.
func TestWhatIsUsedIsNotFreed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, l := bookkeeping(t)
		if err := d.LoadTable(t.Context(), device.TableHead{Table: at("1"), Model: pair, Rows: 1, Cols: 2}, chunks([]float32{1, 2})); err != nil {
			t.Fatal(err)
		}
		_, tb, err := d.enter(device.Ask{Model: pair, Table: at("1"), K: 1})
		if err != nil {
			t.Fatal(err)
		}
		l.take()
		unloaded := make(chan error)
		go func() { unloaded <- d.Unload(t.Context(), []device.Version{pair}, []device.Version{at("1")}) }()
		synctest.Wait()
		expectLedger(t, l, "in use")
		tb.leave()
		if err := <-unloaded; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		expectLedger(t, l, "left", "free table 1", "free model")
		if d.used != 0 {
			t.Errorf("%d bytes are used", d.used)
		}
		if _, _, err := d.enter(device.Ask{Model: pair, Table: at("1"), K: 1}); !errors.Is(err, device.ErrNotLoaded) {
			t.Errorf("a table that was unloaded: %v", err)
		}
	})
}

// TestPatches: a patch writes its rows, each number once, to the memory of the table or,
// where it has to grow, to a copy; it waits for the searches of the version before.
func TestPatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, l := bookkeeping(t)
		rows := make([]float32, 2*960)
		rows[0] = 1e6 // beyond float16
		if err := d.LoadTable(t.Context(), device.TableHead{Table: at("1"), Model: pair, Rows: 960, Cols: 2}, chunks(rows)); err != nil {
			t.Fatal(err)
		}
		_, used, err := d.enter(device.Ask{Model: pair, Table: at("1"), K: 1})
		if err != nil {
			t.Fatal(err)
		}
		l.take()
		ctx, cancel := context.WithCancel(t.Context())
		patched := make(chan error)
		patch := func(ctx context.Context, from, to string, numbers []uint32, removed ...uint32) {
			m := rerank.Matrix{Rows: len(numbers), Cols: 2}
			for i := range numbers {
				m.Data = append(m.Data, float32(i), float32(-i))
			}
			patched <- d.PatchTable(ctx, device.Patch{From: at(from), Version: to, Numbers: numbers, Rows: m, Removed: removed})
		}
		go patch(ctx, "1", "2", []uint32{7, 960, 7}, 3)
		synctest.Wait()
		expectLedger(t, l, "while a search uses the table")
		cancel() // and the patch is completed nevertheless
		used.leave()
		if err := <-patched; err != nil {
			t.Errorf("a patch whose caller is gone: %v", err)
		}
		synctest.Wait()
		alive := wordsOf(scan.NewBitmap(0).Grown(0, 961), 961)
		alive[0] &^= 1 << 3
		expectLedger(t, l, "a patch", "patch [960 7] with [1 -1 2 -2] of table 1", fmt.Sprintf("resize table 1 to 961, alive %x", alive))
		if tb := d.tables[at("2")]; tb == nil || d.tables[at("1")] != nil || tb.rows != 961 || !tb.overflow || tb.canApproximate() {
			t.Errorf("after a patch the device has %v", d.tables)
		}
		grow := make([]uint32, 70)
		for i := range grow {
			grow[i] = uint32(961 + i)
		}
		go patch(t.Context(), "2", "3", grow)
		if err := <-patched; err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		said := l.take()
		if len(said) != 4 || said[0] != "copy 961 of table 1 to table 2" || !slices.Contains(said, "free table 1") || d.used != 1+2048 || d.models[pair].tables != 1 {
			t.Errorf("a table that grows: the machine did %q; %d bytes are used, %d tables of the model", said, d.used, d.models[pair].tables)
		}
		go patch(t.Context(), "2", "4", []uint32{1})
		if err := <-patched; !errors.Is(err, device.ErrNotLoaded) {
			t.Errorf("a patch of a version that is gone: %v", err)
		}
	})
}

// TestRowsBeyondFloat16: one such row, in any chunk, keeps the table from being approximated.
func TestRowsBeyondFloat16(t *testing.T) {
	row := func(x float32) rerank.Matrix { return rerank.Matrix{Rows: 2, Cols: 2, Data: []float32{x, 1, 1, 1}} }
	for name, c := range map[string]struct {
		chunks []rerank.Matrix
		want   bool
	}{"none": {[]rerank.Matrix{row(1), row(2)}, false}, "in the first chunk": {[]rerank.Matrix{row(1e6), row(1)}, true}, "in the last": {[]rerank.Matrix{row(1), row(-1e6)}, true}} {
		tb := &table{model: &loaded{network: &Network{Features: 2}, onMachine: &scripted{}}}
		tb.loss = rerank.NewLoss(tb.model.packing())
		for _, m := range c.chunks {
			tb.measureLoss(m)
		}
		if tb.overflow != c.want || tb.canApproximate() == c.want {
			t.Errorf("%s: overflow %t, approximated %t", name, tb.overflow, tb.canApproximate())
		}
	}
}

// TestCheckOfSurvivors: each row of the table once, in any order, no more than were asked for.
func TestCheckOfSurvivors(t *testing.T) {
	var seen rowSet // one for all: nothing is left in it
	for name, c := range map[string]struct {
		rows   []uint32
		scores []float32
		keep   int
		ok     bool
	}{
		"three":        {[]uint32{3, 5, 4}, []float32{9, 8, 7}, 3, true},
		"a row twice":  {[]uint32{3, 5, 3}, []float32{9, 8, 7}, 3, false},
		"in any order": {[]uint32{3, 5, 4}, []float32{9, 7, 8}, 3, true},
		"too many":     {[]uint32{3, 5, 4}, []float32{9, 8, 7}, 2, false},
		"a row beyond": {[]uint32{3, 10, 4}, []float32{9, 8, 7}, 3, false},
		"a score less": {[]uint32{3, 5, 4}, []float32{9, 8}, 3, false},
	} {
		f := Survivors{Rows: c.rows, Scores: c.scores, Next: none32, Scored: 10}
		if err := f.check(c.keep, 10, &seen); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	tb := &table{rows: 3}
	for _, rows := range [][]uint32{{0, 1, 2, 2}, {3}} {
		if err := tb.checkRows(rows); !errors.Is(err, device.ErrRequest) {
			t.Errorf("rows %v of three: %v", rows, err)
		}
	}
	if err := tb.checkRows([]uint32{2, 0, 1}); err != nil {
		t.Error(err)
	}
}

// TestModelsThatAreNotLoaded keep no memory.
func TestModelsThatAreNotLoaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, err := model.New(model.Parameters{Kind: rerank.KindDot, Name: "dot", Config: json.RawMessage(`{"dim": 2}`)})
		if err != nil {
			t.Fatal(err)
		}
		var file bytes.Buffer
		if err := model.Encode(&file, m); err != nil {
			t.Fatal(err)
		}
		d, l := bookkeeping(t)
		v := device.Version{Name: "dot", Version: m.Version}
		l.refuses = device.ErrMemory
		if err := d.LoadModel(t.Context(), v, file.Bytes()); !errors.Is(err, device.ErrMemory) || d.used != 1 || d.models[v] != nil {
			t.Errorf("one that does not fit: %v, %d bytes are used", err, d.used)
		}
		l.refuses = nil
		other := &loaded{}
		l.created = func() { // another call loads the same model meanwhile
			d.mu.Lock()
			defer d.mu.Unlock()
			d.models[v] = other
		}
		if err := d.LoadModel(t.Context(), v, file.Bytes()); !errors.Is(err, device.ErrLoaded) || d.used != 1 || d.models[v] != other {
			t.Errorf("loaded twice at a time: %v, %d bytes are used", err, d.used)
		}
		synctest.Wait()
		expectLedger(t, l, "loaded twice at a time",
			"write 0 to 67 of table 1", "resize table 1 to 67, alive []", "free table 1", "free another model")
		l.created = nil
		delete(d.models, v)
		if err := d.LoadModel(t.Context(), v, file.Bytes()); err != nil || d.used != 101 {
			t.Errorf("%v, %d bytes are used", err, d.used)
		}
		if err := d.LoadModel(t.Context(), v, file.Bytes()); !errors.Is(err, device.ErrLoaded) || d.used != 101 {
			t.Errorf("one that is there: %v, %d bytes are used", err, d.used)
		}
	})
}
