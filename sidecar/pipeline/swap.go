package pipeline

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// slot is a route's place in a pipeline: the lane that the next search gets.
type slot struct{ current atomic.Pointer[lane] }

func newSlot(l *lane) *slot {
	s := &slot{}
	s.current.Store(l)
	return s
}

// hold returns the lane, for the caller to release. It takes no lock and
// allocates nothing.
func (s *slot) hold() *lane {
	for {
		if l := s.current.Load(); l.hold() {
			return l
		}
	}
}

func (s *slot) route() *Route { return &s.current.Load().current().Route }

func (p *Pipeline) slot(route string) (*slot, error) {
	if s, ok := p.slots[route]; ok {
		return s, nil
	}
	return nil, fmt.Errorf("%w: %q; the routes are %q", ErrRoute, route, p.names)
}

// find returns the lane of a request, for the caller to release.
func (p *Pipeline) find(ctx context.Context, route string) (*lane, error) {
	s, err := p.slot(route)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	if held, ok := ctx.Value(pinsKey{}).(*pins); ok {
		return held.hold(s), nil
	}
	return s.hold(), nil
}

type pinsKey struct{}

// pins are the lanes that the searches of one call share.
type pins struct {
	mu    sync.Mutex
	lanes map[*slot]*lane
}

// Pin makes all searches and scores under the context that it returns answer
// from one version of a route, the one that the first of them met: the parts of
// a call that is answered as a whole. The caller calls release after the last.
func Pin(ctx context.Context) (pinned context.Context, release func()) {
	held := &pins{lanes: map[*slot]*lane{}}
	return context.WithValue(ctx, pinsKey{}, held), held.release
}

func (h *pins) hold(s *slot) *lane {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.lanes[s]
	if l == nil {
		l = s.hold()
		h.lanes[s] = l
	}
	l.holds.Add(1) // the pin's own hold keeps it from ending
	return l
}

func (h *pins) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s, l := range h.lanes {
		l.release()
		delete(h.lanes, s)
	}
}

// Hold is Route for whoever needs what the route holds for longer than a call,
// its table above all: nothing of it is closed before release is called.
func (p *Pipeline) Hold(name string) (r *Route, release func(), err error) {
	s, err := p.slot(name)
	if err != nil {
		return nil, nil, err
	}
	l := s.hold()
	return &l.current().Route, sync.OnceFunc(l.release), nil
}

// Standby is a route that was checked against its store and can be searched, in
// waiting for the place of the one that is served under its name. It is safe for
// concurrent use.
type Standby struct {
	pipeline *Pipeline
	slot     *slot
	lane     *lane
}

// Prepare checks a route that is to take the place of the one of its name, and
// leaves that one in service. It returns ErrRoute if there is none of that name,
// otherwise what Open returns.
func (p *Pipeline) Prepare(ctx context.Context, r *Route) (*Standby, error) {
	s, err := p.slot(r.Name)
	if err != nil {
		return nil, err
	}
	l, err := newLane(r, p.sharing)
	if err != nil {
		return nil, err
	}
	if _, err := l.open(ctx); err != nil {
		return nil, err
	}
	return &Standby{pipeline: p, slot: s, lane: l}, nil
}

// Route is the route with its defaults and limits; read-only.
func (s *Standby) Route() *Route { return &s.lane.current().Route }

// Search is Pipeline.Search on the route in waiting; no observer is told. What it
// measures counts for scan_if_faster.
func (s *Standby) Search(ctx context.Context, r Request) (Answer, error) {
	began := time.Now()
	a, err := s.pipeline.searchOn(ctx, s.lane, r)
	a.Timings.Total = time.Since(began)
	return a, err
}

// Switch puts the route in its place, in one step: searches that begin later get
// it, those under way end with what they began with. ended is closed when the
// last of them, or of what Hold and Pin keep, has let go of the route that was
// served; only then may its table, model and companion be closed or removed. It
// is called once.
func (s *Standby) Switch() (ended <-chan struct{}) {
	before := s.slot.current.Swap(s.lane)
	before.release()
	return before.ended
}
