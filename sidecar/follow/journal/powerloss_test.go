package journal_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"sync"
	"testing"

	"github.com/likenessdb/likeness/internal/powerloss"
	"github.com/likenessdb/likeness/sidecar/follow/journal"
)

// ledger records the promises of a journal.
type ledger struct {
	mu           sync.Mutex
	acknowledged map[uint64]journal.Write // and not done
	last         uint64                   // the greatest number that was issued
}

func newLedger() *ledger { return &ledger{acknowledged: map[uint64]journal.Write{}} }

func (l *ledger) append(t testing.TB, j *journal.Journal, w journal.Write) uint64 {
	t.Helper()
	seq := add(t, j, w)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acknowledged[seq], l.last = w, max(l.last, seq)
	return seq
}

func (l *ledger) done(j *journal.Journal, seq uint64) {
	l.mu.Lock()
	delete(l.acknowledged, seq)
	l.mu.Unlock()
	j.Done(seq)
}

// check loses power and opens the remaining files: every acknowledged write that is not done is
// there unchanged, and no number is issued twice. The goroutine of a journal may call it.
func (l *ledger) check(t testing.TB, d *powerloss.Disk, rng *rand.Rand, loss powerloss.Loss, at string) {
	t.Helper()
	l.mu.Lock()
	left := d.Lose(t, rng, loss)
	want, last := maps.Clone(l.acknowledged), l.last
	l.mu.Unlock()
	j, entries, err := journal.Open(filepath.Join(left.Root(), "journal"), journal.Options{Disk: left})
	if j == nil || err != nil && !errors.Is(err, journal.ErrDamaged) {
		t.Errorf("at %s, loss %d: %v", at, loss, err)
		return
	}
	for _, e := range entries {
		if w, ok := want[e.Seq]; ok && !reflect.DeepEqual(e.Write, w) {
			t.Errorf("at %s, loss %d: write %d is %+v, want %+v", at, loss, e.Seq, e.Write, w)
		}
		delete(want, e.Seq)
	}
	if len(want) > 0 {
		t.Errorf("at %s, loss %d: writes were acknowledged and are lost: %v (%v)", at, loss, want, err)
	}
	if seq, err := j.Append(t.Context(), numbered(1)); err != nil || seq <= last {
		t.Errorf("at %s, loss %d: number %d is given, %d was given before; %v", at, loss, seq, last, err)
	}
	if err := j.Close(); err != nil {
		t.Error(err)
	}
}

// TestPowerLoss loses power before every call to the disk: at the beginning of a journal,
// at changes of segments, while the oldest segment is carried over, and after a restart.
func TestPowerLoss(t *testing.T) {
	for _, loss := range powerloss.Losses() {
		t.Run(fmt.Sprint("loss ", loss), func(t *testing.T) {
			d, rng, l := powerloss.New(t), rand.New(rand.NewPCG(uint64(loss), 5)), newLedger()
			o := journal.Options{Segment: 300, Limit: 4 << 10, Disk: d}
			checks := 0
			d.Before(func(call string) {
				if checks++; !t.Failed() && (checks%3 == 0 || checks < 60) { // a part of the many similar calls
					l.check(t, d, rng, loss, call)
				}
			})
			dir := filepath.Join(d.Root(), "journal")
			j, _ := open(t, dir, o)
			first := l.append(t, j, numbered(0)) // it is not done for long, and is carried over
			for n := 0; n < 60 && !t.Failed(); n++ {
				seq := l.append(t, j, numbered(n))
				l.check(t, d, rng, loss, fmt.Sprint("write ", n, ", acknowledged"))
				if n%3 > 0 {
					l.done(j, seq)
				}
				if n == 30 {
					closed(t, j)
					j, _ = open(t, dir, o)
				}
			}
			l.done(j, first)
			closed(t, j)
			if checks < 100 && !t.Failed() {
				t.Errorf("%d calls to the disk", checks)
			}
		})
	}
}

// TestDonePowerLoss: writes that were done before a Close do not come back, and the next number
// does not depend on a write that is still in a file.
func TestDonePowerLoss(t *testing.T) {
	d, rng := powerloss.New(t), rand.New(rand.NewPCG(1, 6))
	dir, o := filepath.Join(d.Root(), "journal"), journal.Options{Disk: d}
	j, _ := open(t, dir, o)
	l := newLedger()
	for n := range 4 {
		l.done(j, l.append(t, j, numbered(n)))
	}
	closed(t, j)
	for _, loss := range powerloss.Losses() {
		l.check(t, d, rng, loss, "closed")
		left := d.Lose(t, rng, loss)
		again, entries := open(t, filepath.Join(left.Root(), "journal"), journal.Options{Disk: left})
		if len(entries) > 0 {
			t.Errorf("loss %d: %d writes that were done before the journal was closed are back", loss, len(entries))
		}
		closed(t, again)
	}
	j, _ = open(t, dir, o) // begins a segment and removes the one before
	for range 3 {
		for _, loss := range powerloss.Losses() {
			l.check(t, d, rng, loss, "opened again")
		}
	}
	closed(t, j)
}
