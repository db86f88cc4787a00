package chaos_test

import (
	"context"
	"sync"
	"testing"
	"time"
)

// sample is the resource usage of a sidecar at one time.
type sample struct {
	at         time.Time
	rss        float64 // bytes
	live       float64 // bytes of the heap in use, right after a collection
	goroutines float64
	zombies    int
}

// usage is the resource usage of the sidecar that is never killed, and the greatest number of
// zombies of any sidecar.
type usage struct {
	samples []sample
	idle    float64 // goroutines before the load
}

// watch reads the metrics repeatedly until stop, which returns the samples.
func (w *world) watch(ctx context.Context, every time.Duration) (stop func() usage) {
	u := usage{}
	if m, err := w.two.metrics(ctx); err == nil {
		u.idle = m["go_goroutines"]
	}
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		tick := time.NewTicker(min(max(every, 250*time.Millisecond), 10*time.Second))
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			m, err := w.two.metrics(ctx)
			if err != nil || m["go_goroutines"] == 0 {
				continue
			}
			if live, err := w.two.live(ctx); err == nil {
				_, zombies := w.two.children()
				u.samples = append(u.samples, sample{time.Now(), m["process_resident_memory_bytes"], live, m["go_goroutines"], len(zombies)})
			}
		}
	})
	return func() usage {
		cancel()
		done.Wait()
		return u
	}
}

func resident(s sample) float64 { return s.rss }

func live(s sample) float64 { return s.live }

// slope returns the growth by least squares, in MiB an hour, over the second half of the run.
// Resident memory also grows until the heap has found its size, and is not given back. The heap in
// use after a collection grows only if memory leaks.
func (u usage) slope(of func(sample) float64) float64 {
	s := u.samples[len(u.samples)/2:]
	if len(s) < 2 {
		return 0
	}
	var n, sx, sy, sxx, sxy float64
	for _, one := range s {
		x, y := one.at.Sub(s[0].at).Hours(), of(one)/(1<<20)
		n, sx, sy, sxx, sxy = n+1, sx+x, sy+y, sxx+x*x, sxy+x*y
	}
	return (n*sxy - sx*sy) / (n*sxx - sx*sx)
}

// settled returns the goroutines of a sidecar without load: the least number seen within some
// seconds.
func (w *world) settled(t *testing.T, s *sidecar, atMost float64) float64 {
	t.Helper()
	ctx := within(t, 20*time.Second)
	least := -1.0
	for ctx.Err() == nil {
		if m, err := s.metrics(ctx); err == nil && (least < 0 || m["go_goroutines"] < least) {
			if least = m["go_goroutines"]; least <= atMost {
				break
			}
		}
		rest(ctx, 250*time.Millisecond)
	}
	return least
}

// report prints the results, and fails the test if a promise was not kept.
func (w *world) report(t *testing.T, took time.Duration, u usage, acked, unsure int) {
	t.Helper()
	faults, list := w.ledger.faults()
	all, table := w.ledger.verdicts()
	t.Logf("%v: %d faults: %s", took.Round(time.Second), faults, list)
	t.Logf("answers:%s", table)
	t.Logf("from the end of a fault to a right answer:%s", w.ledger.recoveries())
	for _, text := range w.ledger.wrongs {
		t.Errorf("neither right nor flagged: %s", text)
	}
	for _, text := range w.ledger.late {
		t.Errorf("late: %s", text)
	}
	if all[right] == 0 || all[flagged]+all[refused] == 0 || acked == 0 {
		t.Errorf("%d right, %d flagged, %d refused answers, %d acknowledged writes: nothing was tried", all[right], all[flagged], all[refused], acked)
	}
	for _, text := range w.ledger.slowest {
		t.Logf("past its timeout: %s", text)
	}
	n, p50, p99 := w.ledger.overrun()
	goroutines := w.settled(t, w.two, u.idle+20)
	if goroutines > u.idle+50 {
		t.Errorf("%.0f goroutines, before %.0f", goroutines, u.idle)
	}
	zombies := 0
	for _, s := range w.sidecars() {
		_, z := s.children()
		zombies += len(z)
	}
	if zombies > 0 {
		t.Errorf("%d zombies", zombies)
	}
	var first, last sample
	var most float64
	for i, s := range u.samples {
		if i == 0 {
			first = s
		}
		last, most = s, max(most, s.goroutines)
	}
	t.Logf("sidecar two: resident %.0f MiB, at the end %.0f MiB, %+.1f MiB an hour in the second half; live heap %.1f MiB, at the end %.1f MiB, %+.1f MiB an hour; goroutines %.0f before, %.0f at most, %.0f after; answers past their timeout of %v by %v in the median, %v at p99, of %d",
		first.rss/(1<<20), last.rss/(1<<20), u.slope(resident), first.live/(1<<20), last.live/(1<<20), u.slope(live), u.idle, most, goroutines, timeout, p50.Round(time.Millisecond), p99.Round(time.Millisecond), n)
	if took < time.Minute {
		return // too short for figures
	}
	span := took.Round(time.Second)
	t.Logf("reliability row=3 figure=%d faults in %v: %d right, %d flagged, %d refused, %d neither", faults, span, all[right], all[flagged], all[refused], all[wrong])
	t.Logf("reliability row=1 figure=under chaos, past a timeout of %v: %v in the median, %v at p99 of %d answers", timeout, p50.Round(time.Millisecond), p99.Round(time.Millisecond), n)
	for row, name := range map[int]string{12: "store killed", 17: "plugin killed", 18: "plugin stopped"} {
		if of := w.ledger.recovered(name); len(of.alone) > 0 { // otherwise other faults came before
			t.Logf("reliability row=%d figure=%s: %v", row, name, of)
		}
	}
	if gone := w.ledger.noticed; len(gone) > 0 {
		t.Logf("reliability row=16 figure=half-open links in use: given up after %v in the median, %v at most (%d links)", quantile(gone, .5).Round(time.Millisecond), quantile(gone, 1).Round(time.Millisecond), len(gone))
	}
	t.Logf("reliability row=12 figure=%d acknowledged writes in %v, none lost or doubled; %d not acknowledged", acked, span, unsure)
	t.Logf("reliability row=33 figure=%v: live heap after a collection %+.1f MiB an hour in the second half, %.1f MiB at the end; resident %+.1f MiB an hour, %.0f MiB at the end; goroutines %.0f before, %.0f after; %d zombies",
		span, u.slope(live), last.live/(1<<20), u.slope(resident), last.rss/(1<<20), u.idle, goroutines, zombies)
	if n := w.ledger.injected["clock jump"]; n > 0 {
		t.Logf("reliability row=42 figure=%d jumps by a minute, an hour and ten days, both ways, in %v; nothing failed that way", n, span)
	}
	if n := w.ledger.injected["full disk"]; n > 0 {
		t.Logf("reliability row=41 figure=%d times full in %v; one reconcile found the rest", n, span)
	}
}
