package gpu

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/likenessdb/likeness/plugin/device"
)

// gathering adds n searches of one table to the queue. begun says whether they are in their second step.
func gathering(q *queue, begun bool, n int) {
	t := &table{model: &loaded{onMachine: &scripted{}}}
	if len(q.lines) > 0 {
		t = q.lines[0].key.table
	}
	for range n {
		q.requeue(&search{ctx: context.Background(), table: t, begun: begun, limits: nil, stage: exactAll, done: make(chan struct{})})
	}
}

// TestGather: a single search does not wait. After searches that came together, the next search waits for others: longer
// each time, up to the configured time and to half of a launch. When searches come alone again, the wait shrinks to
// nothing. A full batch, and a search's second step, never wait.
func TestGather(t *testing.T) {
	q := newQueue()
	const most = 200 * time.Microsecond
	q.limits(100, 4, most)
	launch := func(want int, took time.Duration) {
		t.Helper()
		batch, wait := q.next(time.Now().Add(time.Second))
		if len(batch) != want || wait != 0 {
			t.Fatalf("%d searches are launched, want %d; it waits %v", len(batch), want, wait)
		}
		q.recordLaunch(took, len(batch))
	}
	gathering(q, false, 1)
	if batch, wait := q.next(time.Now()); len(batch) != 1 || wait != 0 {
		t.Fatalf("at low load %d searches are launched, after a wait of %v", len(batch), wait)
	}
	for _, want := range []int{10, 20, 40, 80, 160, 200, 200} {
		gathering(q, false, 2)
		launch(2, time.Millisecond)
		if q.window != time.Duration(want)*time.Microsecond {
			t.Errorf("the next one waits %v, want %v µs", q.window, want)
		}
	}
	gathering(q, false, 1)
	if batch, wait := q.next(q.lines[0].since); len(batch) != 0 || wait != most {
		t.Errorf("%d searches are launched, the wait is %v; want none and %v", len(batch), wait, most)
	}
	if batch, _ := q.next(q.lines[0].since.Add(most)); len(batch) != 1 {
		t.Errorf("%d searches are launched when the wait is over, want 1", len(batch))
	}
	for name, c := range map[string]struct {
		begun bool
		n     int
	}{"a full batch": {false, 4}, "a second step": {true, 1}} {
		gathering(q, c.begun, c.n)
		if batch, wait := q.next(q.lines[0].since); len(batch) != c.n || wait != 0 {
			t.Errorf("%s: %d searches are launched, the wait is %v", name, len(batch), wait)
		}
	}
	gathering(q, false, 2)
	launch(2, 60*time.Microsecond)
	if q.window != 30*time.Microsecond {
		t.Errorf("behind launches of 60 µs one waits %v, want half of it", q.window)
	}
	for _, want := range []time.Duration{15 * time.Microsecond, 7500 * time.Nanosecond, 0} {
		gathering(q, false, 1)
		launch(1, 60*time.Microsecond)
		if q.window != want {
			t.Errorf("alone again, the next one waits %v, want %v", q.window, want)
		}
	}
	never := newQueue()
	never.limits(100, 4, 0)
	gathering(never, false, 3)
	if batch, _ := never.next(time.Now()); len(batch) != 3 {
		t.Errorf("%d searches are launched, want 3", len(batch))
	}
	if never.recordLaunch(time.Millisecond, 3); never.window != 0 {
		t.Errorf("without gathering one waits %v", never.window)
	}
}

// TestDeadlines: of one table's searches those with earlier deadlines go first and those without a deadline last. A search
// whose deadline ends before its turn is refused.
func TestDeadlines(t *testing.T) {
	q := newQueue()
	q.limits(100, 2, 0)
	tb, now := &table{model: &loaded{onMachine: &scripted{}}}, time.Now()
	add := func(in time.Duration) error {
		s := &search{ctx: context.Background(), table: tb, stage: exactAll, done: make(chan struct{})}
		if in > 0 {
			s.deadline = now.Add(in)
		}
		return q.add(s)
	}
	for _, in := range []time.Duration{3 * time.Hour, 0, time.Hour, 2 * time.Hour} {
		if err := add(in); err != nil {
			t.Fatal(err)
		}
	}
	q.each = time.Hour // of a launch
	if err := add(90 * time.Minute); err != nil {
		t.Errorf("behind one of an hour: %v", err)
	}
	if err := add(100 * time.Minute); err == nil {
		t.Error("one that two of an hour are before was taken in")
	}
	var order []time.Duration
	for range 3 {
		batch, _ := q.next(now)
		for _, s := range batch {
			order = append(order, max(0, s.deadline.Sub(now)))
		}
	}
	want := []time.Duration{time.Hour, 90 * time.Minute, 2 * time.Hour, 3 * time.Hour, 0}
	for i := range want {
		if i >= len(order) || order[i] != want[i] {
			t.Fatalf("launched by deadline in %v, want %v", order, want)
		}
	}
}

// TestEqualDeadlines: of searches with one deadline, or with none, the first to come goes first.
func TestEqualDeadlines(t *testing.T) {
	tb, at := &table{model: &loaded{onMachine: &scripted{}}}, time.Now().Add(time.Hour)
	for _, deadline := range []time.Time{at, {}} {
		q := newQueue()
		q.limits(100, 2, 0)
		var want, got []*search
		for range 6 {
			s := &search{ctx: context.Background(), table: tb, stage: exactAll, deadline: deadline, done: make(chan struct{})}
			if err := q.add(s); err != nil {
				t.Fatal(err)
			}
			want = append(want, s)
		}
		for len(got) < len(want) {
			batch, _ := q.next(time.Now())
			got = append(got, batch...)
		}
		if !slices.Equal(got, want) {
			t.Errorf("searches with the deadline %v are launched in another order than they came", deadline)
		}
	}
}

// TestTheQueueKeepsItsAccounts: the queue counts the searches that wait and those in a launch, and what each adds to a
// launch. When the device ends, every search gets an answer.
func TestTheQueueKeepsItsAccounts(t *testing.T) {
	tb := &table{model: &loaded{onMachine: &scripted{}}}
	of := func(ctx context.Context) *search {
		return &search{ctx: ctx, table: tb, stage: exactAll, done: make(chan struct{})}
	}
	ended := func(s *search) bool {
		select {
		case <-s.done:
			return true
		default:
			return false
		}
	}
	q := newQueue()
	q.limits(2, 2, 0)
	gone, cancel := context.WithCancel(t.Context())
	cancelled := of(gone)
	if err := errors.Join(q.add(cancelled), q.add(of(t.Context()))); err != nil {
		t.Fatal(err)
	}
	if err := q.add(of(t.Context())); !errors.Is(err, device.ErrBusy) {
		t.Errorf("a third search of two: %v", err)
	}
	cancel()
	if batch, _ := q.next(time.Now()); len(batch) != 1 || !ended(cancelled) || !errors.Is(cancelled.err, context.Canceled) || q.waiting() != 0 {
		t.Errorf("%d searches are launched, %d wait; the cancelled one has %v", len(batch), q.waiting(), cancelled.err)
	}

	q.each = 0
	for range 200 {
		q.recordLaunch(8*time.Millisecond, 8)
	}
	if q.each < 990*time.Microsecond || q.each > time.Millisecond {
		t.Errorf("a search of eight in 8 ms takes %s", q.each)
	}
	urgent := of(t.Context())
	urgent.deadline = time.Now().Add(time.Hour)
	gathering(q, false, 1)
	if batch, _ := q.next(time.Now()); len(batch) != 1 || q.estimateWait(urgent) != q.each {
		t.Errorf("behind one that flies a search waits %s, want %s", q.estimateWait(urgent), q.each)
	}
	if q.recordLaunch(8*time.Millisecond, 8); q.estimateWait(urgent) != 0 {
		t.Errorf("behind nothing a search waits %s", q.estimateWait(urgent))
	}

	waiting, later, next := of(t.Context()), of(t.Context()), of(t.Context())
	if err := q.add(waiting); err != nil {
		t.Fatal(err)
	}
	q.close(device.ErrUnavailable)
	if q.requeue(next); !ended(waiting) || !ended(next) || !errors.Is(next.err, device.ErrUnavailable) || q.waiting() != 0 {
		t.Errorf("a search that waits when the device ends has %v, one with a further step %v", waiting.err, next.err)
	}
	if err := q.add(later); !errors.Is(err, device.ErrUnavailable) {
		t.Errorf("a search after the end: %v", err)
	}
}

// TestTablesTakeTurns: a table whose searches fill many launches lets searches of other tables in
// between, and loses none of its own.
func TestTablesTakeTurns(t *testing.T) {
	q := newQueue()
	q.limits(100, 2, 0)
	m := &scripted{}
	busy, quiet := &table{model: &loaded{onMachine: m}}, &table{model: &loaded{onMachine: m}}
	for _, tb := range []*table{busy, busy, busy, busy, busy, quiet} {
		if err := q.add(&search{ctx: t.Context(), table: tb, stage: exactAll, done: make(chan struct{})}); err != nil {
			t.Fatal(err)
		}
	}
	var order []string
	for {
		batch, _ := q.next(time.Now())
		if len(batch) == 0 {
			break
		}
		name := "busy"
		if batch[0].table == quiet {
			name = "quiet"
		}
		order = append(order, fmt.Sprint(name, " ", len(batch)))
	}
	if want := []string{"busy 2", "quiet 1", "busy 2", "busy 1"}; !slices.Equal(order, want) || q.waiting() != 0 {
		t.Errorf("launches %q, want %q; %d wait", order, want, q.waiting())
	}
}
