package table_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"

	"github.com/likenessdb/likeness/internal/powerloss"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/table"
)

// history contains the state of a live table after each write.
type history struct {
	mu           sync.Mutex
	states       []model // behind each number of writes
	acknowledged int     // writes
}

// next adds the state behind a write that begins.
func (h *history) next(ids []rerank.ID, rows rerank.Matrix) {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := maps.Clone(h.states[len(h.states)-1])
	if m == nil {
		m = model{}
	}
	for i, id := range ids {
		if delete(m, id); rows.Rows > 0 {
			m[id] = rows.Row(i)
		}
	}
	h.states = append(h.states, m)
}

// acknowledge notes that all writes so far are durable.
func (h *history) acknowledge() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.acknowledged = len(h.states) - 1
}

// check loses power and opens what is left: it has every write that was acknowledged,
// and of the others whole ones alone.
func (h *history) check(t *testing.T, c liveCase, d *powerloss.Disk, rng *rand.Rand, loss powerloss.Loss, at string) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	left := d.Lose(t, rng, loss)
	l, err := table.OpenLive(filepath.Join(left.Root(), "t.table"), table.Expect{ModelVersion: meta.ModelVersion}, table.LiveOptions{Disk: left})
	if err != nil {
		t.Errorf("at %s, loss %d, with %d writes acknowledged: %v", at, loss, h.acknowledged, err)
		return
	}
	defer l.Close()
	n := int(l.Stats().Sequence)
	if n < h.acknowledged || n >= len(h.states) {
		t.Errorf("at %s, loss %d: the table has %d writes, %d were acknowledged and %d begun", at, loss, n, h.acknowledged, len(h.states)-1)
		return
	}
	snap := l.Snapshot()
	defer snap.Release()
	c.compare(t, snap, h.states[n])
}

// TestPowerLoss loses power before every call to the disk: while a log is begun, written
// and compacted, and after a restart.
func TestPowerLoss(t *testing.T) {
	for _, loss := range powerloss.Losses() {
		t.Run(fmt.Sprint("loss ", loss), func(t *testing.T) { losePower(t, loss, false) })
	}
}

// TestPowerLossUnsynced: a table that leaves it to the system when a write reaches the
// disk can be opened after a loss of power, and has at least what was compacted.
func TestPowerLossUnsynced(t *testing.T) {
	for _, loss := range powerloss.Losses() {
		t.Run(fmt.Sprint("loss ", loss), func(t *testing.T) { losePower(t, loss, true) })
	}
}

func losePower(t *testing.T, loss powerloss.Loss, unsynced bool) {
	t.Helper()
	c := liveCase{meta: meta}
	rng := rand.New(rand.NewPCG(uint64(loss), 4))
	from, m := c.base(t, rng, 20)
	d, h := powerloss.New(t, filepath.Dir(from)), &history{states: []model{m}}
	calls := 0
	d.Before(func(call string) {
		calls++
		if !t.Failed() {
			h.check(t, c, d, rng, loss, call)
		}
	})
	path, o := filepath.Join(d.Root(), "t.table"), table.LiveOptions{CompactShare: -1, Unsynced: unsynced, Disk: d}
	l := openLive(t, path, o)
	for n := 0; n < 11 && !t.Failed(); n++ {
		ids, rows := crashWrite(n)
		h.next(ids, rows)
		var err error
		if rows.Rows == 0 {
			err = l.Delete(ids)
		} else {
			err = l.Upsert(ids, rows, nil)
		}
		if err == nil && !unsynced {
			h.acknowledge()
		}
		h.check(t, c, d, rng, loss, fmt.Sprint("write ", n, ", acknowledged"))
		switch {
		case n%5 == 4:
			if err = l.Compact(); err == nil {
				h.acknowledge()
			}
			h.check(t, c, d, rng, loss, "the end of a compaction")
		case n%5 == 2:
			err = l.Close()
			h.check(t, c, d, rng, loss, "the end of the table")
			l = openLive(t, path, o)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if calls < 40 && !t.Failed() {
		t.Errorf("%d calls to the disk", calls)
	}
}
