package route

import (
	"context"
	"slices"
	"sync"
)

// Pin makes all searches and scores under the returned context use the same version of a route: the
// version that the first of them used. A call whose parts are answered together needs that. The
// caller calls release after the last search.
func Pin(ctx context.Context) (pinned context.Context, release func()) {
	p := &pins{}
	return context.WithValue(ctx, pinsKey{}, p), p.release
}

type pinsKey struct{}

// pins holds the route versions that the searches of one call share.
type pins struct {
	mu  sync.Mutex
	all []pin // few, since most calls search one route
}

type pin struct {
	slot    *slot
	version *Version
}

func (p *pins) hold(s *slot) *Version {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.all, func(p pin) bool { return p.slot == s })
	if i < 0 {
		i = len(p.all)
		p.all = append(p.all, pin{s, s.hold()})
	}
	v := p.all[i].version
	v.holds.Add(1) // the version cannot end while the pin holds it
	return v
}

func (p *pins) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pin := range p.all {
		pin.version.Release()
	}
	p.all = nil
}
