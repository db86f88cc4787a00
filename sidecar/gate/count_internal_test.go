package gate

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
)

// taught is a limiter, and its permit, that counts what it learns from.
type taught struct {
	adaptivelimiter.AdaptiveLimiter[any]
	recorded, dropped int
}

func (l *taught) TryAcquirePermit() (adaptivelimiter.Permit, bool) { return l, true }
func (l *taught) Record()                                          { l.recorded++ }
func (l *taught) Drop()                                            { l.dropped++ }

// TestWhatALimitLearnsFrom: a limit learns from searches that were answered or came to their deadline, and not
// from those that failed or were given up.
func TestWhatALimitLearnsFrom(t *testing.T) {
	for err, learns := range map[error]bool{nil: true, context.DeadlineExceeded: true, context.Canceled: false, errors.New("no such filter"): false} {
		l := &taught{}
		end, refused := New(Options{}).permit(t.Context(), "r", &routeBounds{adaptive: l})
		if refused != nil {
			t.Fatal(refused)
		}
		if end(err); (l.recorded == 1) != learns || l.recorded+l.dropped != 1 {
			t.Errorf("%v: learned from %d searches, dropped %d; learns: %t", err, l.recorded, l.dropped, learns)
		}
	}
}

// TestARefusedSearchIsNotCounted: a search that a limit refuses counts for no caller and no route.
func TestARefusedSearchIsNotCounted(t *testing.T) {
	for name, l := range map[string]Limits{
		"of all":                {MaxSearches: 2, Routes: map[string]Limit{"r": {}}},
		"of a route":            {Routes: map[string]Limit{"r": {MaxSearches: 2}}},
		"of a route's rate":     {Routes: map[string]Limit{"r": {Rate: 1e-6, Burst: 2}}},
		"of a route among more": {MaxSearches: 3, Routes: map[string]Limit{"r": {MaxSearches: 2}}},
	} {
		g := New(Options{Limits: l})
		var leave []func(error)
		for range 5 {
			if end, err := g.Admit(t.Context(), "r"); err == nil {
				leave = append(leave, end)
			} else if !errors.Is(err, ErrOverload) {
				t.Fatal(err)
			}
		}
		b := g.searches.bounds.Load()
		if r := b.routes["r"]; len(leave) != 2 || b.shares.flying != 2 || r.shares.flying != 2 || r.flying.Load() != 2 || g.searches.flying.Load() != 2 {
			t.Errorf("the limit %s: %d let in, %d, %d, %d and %d counted; want 2", name, len(leave), b.shares.flying, r.shares.flying, r.flying.Load(), g.searches.flying.Load())
		}
		for _, end := range leave {
			end(nil)
		}
		if r := b.routes["r"]; b.shares.flying != 0 || r.shares.flying != 0 || r.flying.Load() != 0 || g.searches.flying.Load() != 0 || !b.all.TryAcquire(int64(b.max)) {
			t.Errorf("the limit %s: after the searches %d, %d, %d and %d are counted, want none", name, b.shares.flying, r.shares.flying, r.flying.Load(), g.searches.flying.Load())
		}
	}
}

// TestSearchesInFlightOutliveAChange: searches that began before a route's limit changed count against the limit
// of all routes, and those of the other routes against theirs.
func TestSearchesInFlightOutliveAChange(t *testing.T) {
	limits := func(changed float64) Limits {
		return Limits{MaxSearches: 2, Routes: map[string]Limit{"changed": {Rate: changed}, "same": {MaxSearches: 1}}}
	}
	g := New(Options{Limits: limits(100)})
	end, err := g.Admit(t.Context(), "same")
	if err != nil {
		t.Fatal(err)
	}
	g.SetLimits(limits(200))
	if _, err := g.Admit(t.Context(), "same"); !errors.Is(err, ErrOverload) {
		t.Errorf("a route that has not changed forgot its search: %v", err)
	}
	if _, err := g.Admit(t.Context(), "changed"); err != nil {
		t.Errorf("the second of two searches: %v", err)
	}
	if _, err := g.Admit(t.Context(), "changed"); !errors.Is(err, ErrOverload) {
		t.Errorf("the third of two searches: %v", err)
	}
	end(nil)
	if _, err := g.Admit(t.Context(), "same"); err != nil {
		t.Errorf("after a search from before the change has ended: %v", err)
	}
}

// TestTheReserveIsGivenBack: bytes that were granted from a room's reserve go back to it, and a sender without
// bytes and requests is forgotten.
func TestTheReserveIsGivenBack(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end() // nothing waits
	r := &room{most: 800}
	large, err := r.take(ended, "large", 700, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		small, err := r.take(ended, "small", 60, 0)
		if err != nil || !small.isReserve || r.reserved != 60 || r.used != 760 {
			t.Fatalf("%d: %v, %d of the reserve and %d in all", i, err, r.reserved, r.used)
		}
		if _, err := r.take(ended, "other", 60, 7); !errors.Is(err, context.Canceled) || r.waiting != 0 {
			t.Errorf("more than the reserve has: %v, %d bytes wait", err, r.waiting)
		}
		r.shrink(small, 20)
		if r.reserved != 20 || r.used != 720 || len(r.senders) != 2 {
			t.Errorf("a request that shrank has %d of the reserve, %d in all, of %d senders", r.reserved, r.used, len(r.senders))
		}
		if r.shrink(small, 0); r.reserved != 0 || r.used != 700 || len(r.senders) != 1 {
			t.Errorf("given back: %d of the reserve, %d in all, %d senders", r.reserved, r.used, len(r.senders))
		}
	}
	if r.shrink(large, 0); r.used != 0 || len(r.senders) != 0 {
		t.Errorf("in the end %d bytes and %d senders are left", r.used, len(r.senders))
	}
}

// crowded is a limiter with searches in flight and in its queue.
type crowded struct {
	adaptivelimiter.AdaptiveLimiter[any]
}

func (crowded) Limit() int    { return 7 }
func (crowded) Inflight() int { return 5 }
func (crowded) Queued() int   { return 3 }

// TestLoad: the load of a route is what its limiter says, if its limit adapts.
func TestLoad(t *testing.T) {
	g := New(Options{})
	g.searches.bounds.Store(&bounds{routes: map[string]*routeBounds{"r": {adaptive: crowded{}}, "fixed": {}}})
	if l, ok := g.Load("r"); !ok || l != (Load{Limit: 7, InFlight: 5, Queued: 3}) {
		t.Errorf("%+v, %t", l, ok)
	}
	for _, route := range []string{"fixed", "unknown"} {
		if l, ok := g.Load(route); ok || l != (Load{}) {
			t.Errorf("%s: %+v, %t", route, l, ok)
		}
	}
}

// waiting is a limiter without a free permit. Whoever waits for one gets an error.
type waiting struct{ taught }

func (*waiting) TryAcquirePermit() (adaptivelimiter.Permit, bool) { return nil, false }
func (*waiting) AcquirePermitWithMaxWait(context.Context, time.Duration) (adaptivelimiter.Permit, error) {
	return nil, adaptivelimiter.ErrExceeded
}
func (*waiting) Limit() int { return 1 }

// TestWhoGivesUpIsNoOverload: a search whose caller goes away while it waits says nothing about the load.
func TestWhoGivesUpIsNoOverload(t *testing.T) {
	gone, leave := context.WithCancel(t.Context())
	leave()
	for name, c := range map[string]struct {
		ctx  context.Context
		want error
		over bool
	}{"gone": {gone, context.Canceled, false}, "refused": {t.Context(), ErrOverload, true}} {
		g, r := New(Options{}), &routeBounds{adaptive: &waiting{}}
		if _, err := g.permit(c.ctx, "r", r); !errors.Is(err, c.want) || g.Overloaded() != c.over || (r.overUntil.Load() > 0) != c.over {
			t.Errorf("%s: %v, overloaded %t", name, err, g.Overloaded())
		}
	}
}
