package follow

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestDoubts: a search depends on the writes that were in flight when it began, and on no others.
func TestDoubts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &doubts{}
		mustLook := func() *round {
			t.Helper()
			r, ok := d.lastRound()
			if !ok {
				t.Fatal("a write is late")
			}
			return r
		}
		if mustLook() != nil || !d.none() {
			t.Fatal("a doubt without a write")
		}
		first, second := d.begin(), d.begin()
		met := mustLook()
		third := d.begin()
		later := mustLook()
		if met == nil || later == met || mustLook() != later {
			t.Fatalf("rounds %p and %p", met, later)
		}
		second(false)
		third(false)
		cleared := make(chan bool, 2)
		go func() { cleared <- met.Cleared(t.Context()) }()
		go func() { cleared <- later.Cleared(t.Context()) }()
		synctest.Wait()
		if len(cleared) > 0 {
			t.Fatal("cleared before the first write ended")
		}
		first(false)
		first(true) // a second end changes nothing
		if one, other := <-cleared, <-cleared; !one || !other || mustLook() != nil || !d.none() {
			t.Fatal("refused writes left a trace")
		}

		first = d.begin()
		met = mustLook()
		second = d.begin()
		later = mustLook()
		first(true)
		second(false)
		if met.Cleared(t.Context()) || later.Cleared(t.Context()) || mustLook() != nil {
			t.Fatal("a write that was carried out was cleared")
		}

		unmet := d.begin()
		unmet(true) // before any search: the caller has recorded it as pending
		again := d.begin()
		met = mustLook()
		again(false)
		if !met.Cleared(t.Context()) {
			t.Fatal("a search was told of a write that ended before it looked")
		}
	})
}

// TestLateDoubts: a write that has been in flight for long counts as carried out, until the
// database refuses it.
func TestLateDoubts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &doubts{}
		end := d.begin()
		met, _ := d.lastRound()
		began := time.Now()
		if met.Cleared(t.Context()) || time.Since(began) > patience {
			t.Fatalf("cleared, or waited %s", time.Since(began))
		}
		synctest.Wait()
		if _, ok := d.lastRound(); ok || d.none() {
			t.Fatal("a late write is not seen")
		}
		end(false)
		if r, ok := d.lastRound(); !ok || r != nil || !d.none() {
			t.Fatal("a late write that was refused left a trace")
		}
		end = d.begin()
		met, _ = d.lastRound()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if began = time.Now(); met.Cleared(ctx) || time.Since(began) != 5*time.Millisecond {
			t.Fatalf("a search with 20 ms left waited %s", time.Since(began))
		}
		end(false)
	})
}

// TestAskedTooLate: a search that asks when its write is late already learns nothing good of it.
func TestAskedTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &doubts{}
		end := d.begin()
		defer end(false)
		met, _ := d.lastRound()
		<-time.After(2 * patience)
		if synctest.Wait(); met.Cleared(t.Context()) {
			t.Error("a write that the database has not answered counts as refused")
		}
	})
}
