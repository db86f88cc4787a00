package rollout_test

import (
	"errors"
	"testing"

	"github.com/likenessdb/likeness/sidecar/rollout"
	"github.com/likenessdb/likeness/sidecar/route"
)

// TestCandidate: a candidate whose table would be followed in service says that it shows no write, one that
// derives nothing says nothing, and the version in service is no candidate.
func TestCandidate(t *testing.T) {
	for version, followed := range map[string]bool{"v2": true, "v3": false} {
		f := newFollower()
		if followed {
			f.fresh = struct{ route.Freshness }{}
		}
		m := newWorld(t).manage(t, f)
		if name, digest, err := m.Serving("things"); err != nil || name != "v1" || digest == "" {
			t.Errorf("%s, %s, %v serve", name, digest, err)
		}
		c, err := m.OpenCandidate(t.Context(), "things", version)
		must(t, err)
		if promise := c.Version.Current().Promise; promise != nil || m.route(t).Promise == nil {
			t.Errorf("%s promises %v, and the version in service %v", version, promise, m.route(t).Promise)
		}
		got := c.Version.Current().Freshness
		if (got != nil) != followed {
			t.Errorf("%s: %v", version, got)
		}
		if got != nil {
			fresh, doubt := got.Assess()
			if got.Fresh() || fresh || doubt != nil || got.Horizon().Disputed != route.DisputeUnchecked {
				t.Errorf("%s: fresh %t and %t, %v, %+v", version, got.Fresh(), fresh, doubt, got.Horizon())
			}
		}
		if c.Beside != "v1" || c.Model == c.Control {
			t.Errorf("%+v", c)
		}
		must(t, c.Close())
		if _, err := m.OpenCandidate(t.Context(), "things", "v1"); !errors.Is(err, rollout.ErrVersion) {
			t.Errorf("the version in service: %v", err)
		}
		must(t, m.Close(t.Context()))
	}
}
