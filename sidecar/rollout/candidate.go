package rollout

import (
	"context"
	"errors"
	"fmt"

	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

// Candidate is a version that is searched beside the version in service.
type Candidate struct {
	*search.Standby
	// Model is the digest of the candidate's model. Beside and Control are the version in service and
	// the digest of its model.
	Model, Beside, Control string
	// Close closes the candidate after its last search.
	Close func() error
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
	if m.Follower != nil && m.Follower.Freshness(v.Route) != nil {
		v.Route.Freshness = unfollowed{}
	}
	v.Route.Promise = nil // calibrations are kept and audited for the version in service
	next, err := m.Engine.Prepare(ctx, v.Route)
	if err == nil {
		_, err = m.warm(ctx, next, false)
	}
	if err != nil {
		return nil, errors.Join(err, v.Close())
	}
	closeUnused := func() error { return closeAfter(next.Discard(), v.Close) }
	return &Candidate{Standby: next, Model: v.Model.Version, Beside: served.Name, Control: served.Model.Version, Close: closeUnused}, nil
}

// closeAfter calls closeVersion once the last search has ended.
func closeAfter(ended <-chan struct{}, closeVersion func() error) error {
	<-ended
	return closeVersion()
}

// unfollowed is the Freshness of a table or companion that shows no write since it was made.
type unfollowed struct{}

// Fresh implements route.Freshness.
func (unfollowed) Fresh() bool { return false }

// Horizon implements route.Freshness.
func (unfollowed) Horizon() route.Horizon { return route.Horizon{Disputed: route.DisputeUnchecked} }

// Assess implements route.Freshness.
func (unfollowed) Assess() (fresh bool, doubt route.Doubt) { return false, nil }

// Serving returns the name of a route's version in service, and the digest of its model. It returns
// route.ErrUnknown, and route.ErrSetup for a broken route.
func (m *Manager) Serving(rt string) (version, model string, err error) {
	served, _, err := m.active(rt)
	switch {
	case err != nil:
		return "", "", err
	case served == nil:
		return "", "", fmt.Errorf("%w: route %q is broken", route.ErrSetup, rt)
	}
	return served.Name, served.Model.Version, nil
}
