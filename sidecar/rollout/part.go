package rollout

import (
	"cmp"
	"context"
	"fmt"

	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/wiring"
)

// Part names the part of a configuration that a command needs.
type Part struct {
	Route string
	// Version is a version of the route; "" is the version in service.
	Version string
	// Collection opens the other routes of the route's collection too, each in its version
	// in service: they share one journal of writes.
	Collection bool
	// TableFile opens a live table as a file, as it was last written as a whole: a
	// sidecar may have it open.
	TableFile bool
}

// OpenPart opens a route, its store and its model, and nothing of the other routes. The
// caller closes the assembly. It returns route.ErrUnknown, ErrVersion, and what Open
// does.
func OpenPart(ctx context.Context, c *config.Config, p Part) (*wiring.Assembly, *route.Route, error) {
	version, _, err := InService(c, p.Route, p.Version)
	if err != nil {
		return nil, nil, err
	}
	of := c.Routes[p.Route]
	part := *c
	part.Routes, part.Models = map[string]config.Route{}, map[string]config.Model{}
	part.Stores = map[string]config.Store{of.Store: c.Stores[of.Store]}
	versions := map[string]string{}
	for name, r := range c.Routes {
		sibling := p.Collection && r.Store == of.Store && r.Collection == of.Collection
		if name != p.Route && !sibling {
			continue
		}
		served, at := version, config.Route{}
		if name != p.Route {
			served = ""
		}
		if served, at, err = InService(c, name, served); err != nil {
			return nil, nil, err
		}
		r.TableLive = r.TableLive && !p.TableFile
		part.Routes[name], part.Models[at.Model], versions[name] = r, c.Models[at.Model], served
	}
	parts, err := wiring.Open(ctx, &part, versions)
	if err != nil {
		return nil, nil, err
	}
	return parts, parts.Versions[p.Route].Route, nil
}

// InService returns a route of a configuration as a version of it stands, and the
// version's name: the version in service, if version is empty. It returns
// route.ErrUnknown, ErrVersion or config.ErrConfig.
func InService(c *config.Config, rt, version string) (name string, at config.Route, err error) {
	r, ok := c.Routes[rt]
	if !ok {
		return "", at, fmt.Errorf("%w: the configuration has no route %q; it has %q", route.ErrUnknown, rt, c.RouteNames())
	}
	if version == "" {
		chosen, err := chosenVersion(c, rt)
		if err != nil {
			return "", at, err
		}
		version = cmp.Or(chosen, r.Active)
	}
	if at, ok = r.At(version); !ok {
		return "", at, fmt.Errorf("%w: route %q has no version %q; it has %q", ErrVersion, rt, version, r.VersionNames())
	}
	return version, at, nil
}
