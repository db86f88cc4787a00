package search

import (
	"context"
	"time"

	"github.com/likenessdb/likeness/sidecar/route"
)

// Standby is a version of a route that waits to replace the version in service, and that can be
// searched meanwhile. It is safe for concurrent use.
type Standby struct {
	*route.Standby
	engine *Engine
}

// Prepare checks a route that is to replace the route of the same name, and leaves that one in
// service. It returns what route.Set.Prepare returns.
func (e *Engine) Prepare(ctx context.Context, r *route.Route) (*Standby, error) {
	s, err := e.Set.Prepare(ctx, r)
	if err != nil {
		return nil, err
	}
	return &Standby{Standby: s, engine: e}, nil
}

// Search is Engine.Search on the waiting version, without telling the observer. The costs that it
// measures count for scan_if_faster.
func (s *Standby) Search(ctx context.Context, r Request) (Answer, error) {
	began := time.Now()
	a, err := s.engine.searchVersion(ctx, s.Version, r)
	a.Timings.Total = time.Since(began)
	return a, err
}
