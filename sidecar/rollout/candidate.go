package rollout

import (
	"context"
	"errors"
	"fmt"

	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
	"github.com/likenessdb/likeness/sidecar/wiring"
)

// Candidate is a version that is searched beside the version in service.
type Candidate struct {
	*search.Standby
	// Model and Control are the digests of the candidate's model and of the model in service.
	Model, Control string

	version *wiring.Version
}

// OpenCandidate opens a version of a route beside the version in service, and tries it with recent
// queries. Nothing follows writes for its table and its companion. The caller closes the candidate. It
// returns the errors of Activate, and ErrVersion for the version in service.
func (m *Manager) OpenCandidate(ctx context.Context, rt, version string) (*Candidate, error) {
	unlock, err := m.lockRoute(ctx, rt)
	if err != nil {
		return nil, err
	}
	defer unlock()
	served, _, err := m.active(rt)
	switch {
	case err != nil:
		return nil, err
	case served == nil:
		return nil, fmt.Errorf("%w: route %q is broken", route.ErrSetup, rt)
	case served.Name == version:
		return nil, fmt.Errorf("%w: version %q of route %q is in service already; name another one as candidate", ErrVersion, version, rt)
	}
	c, err := m.reload()
	if err != nil {
		return nil, err
	}
	v, err := m.Assembly.OpenVersion(c, rt, version)
	if err != nil {
		return nil, err
	}
	v.Route.Promise = nil // calibrations are kept and audited for the version in service
	next, err := m.Engine.Prepare(ctx, v.Route)
	if err == nil {
		_, err = m.warm(ctx, next, false)
	}
	if err != nil {
		return nil, errors.Join(err, v.Close())
	}
	return &Candidate{Standby: next, Model: v.Model.Version, Control: served.Model.Version, version: v}, nil
}

// Close closes the candidate after its last search.
func (c *Candidate) Close() error {
	<-c.Discard()
	return c.version.Close()
}
