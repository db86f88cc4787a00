// Package choice remembers which version of a route is in service.
package choice

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/likenessdb/likeness/internal/statedir"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/route"
)

// Choice says which version of a route was activated last. The state folder keeps it in
// routes/ROUTE/version.json.
type Choice struct {
	Active   string `json:"active"`
	Previous string `json:"previous,omitempty"`
	// Configured is the route's active key when the choice was made. Once the key has
	// another value, the configuration takes precedence.
	Configured string `json:"configured"`
	// History lists the versions that were served, each once, the latest last.
	History []Served `json:"history"`
}

// Served records the last activation of a version.
type Served struct {
	Version      string    `json:"version"`
	ModelVersion string    `json:"model_version"`
	Activated    time.Time `json:"activated"`
}

// path returns the file that keeps the choice of a route.
func path(stateDir, route string) string {
	return filepath.Join(statedir.Route(stateDir, route), "version.json")
}

// Read returns the choice for a route. It is empty if there is no file, or no state
// folder. Read returns config.ErrConfig for a file that cannot be read.
func Read(stateDir, route string) (c Choice, err error) {
	if stateDir == "" {
		return c, nil
	}
	file := path(stateDir, route)
	if _, err := statedir.ReadJSON(file, &c); err != nil {
		return c, fmt.Errorf("%w: the choice of a version of route %q, %s: %w; remove it to serve what the configuration says", config.ErrConfig, route, file, err)
	}
	return c, nil
}

// Save writes the choice durably and in one step. Without a state folder it does nothing.
func (c Choice) Save(stateDir, route string) error {
	if stateDir == "" {
		return nil
	}
	return statedir.WriteJSON(path(stateDir, route), c)
}

// Next returns the choice after a version went into service. configured is the route's
// active key.
func (c Choice) Next(version, modelVersion, configured string, now time.Time) Choice {
	out := Choice{Active: version, Previous: c.Previous, Configured: configured}
	if c.Active != version {
		out.Previous = c.Active
	}
	out.History = slices.DeleteFunc(slices.Clone(c.History), func(s Served) bool { return s.Version == version })
	out.History = append(out.History, Served{Version: version, ModelVersion: modelVersion, Activated: now})
	return out
}

// Last returns the last activation of a version, and false if it was never served.
func (c Choice) Last(version string) (Served, bool) {
	i := slices.IndexFunc(c.History, func(s Served) bool { return s.Version == version })
	if i < 0 {
		return Served{}, false
	}
	return c.History[i], true
}

// Dropped lists the versions that are older than the last keep ones in the history. The
// active and the previous version are never among them.
func (c Choice) Dropped(keep int) []string {
	var out []string
	old := max(0, len(c.History)-keep)
	for i, s := range c.History {
		if i < old && s.Version != c.Active && s.Version != c.Previous {
			out = append(out, s.Version)
		}
	}
	return out
}

// InService returns a route as it stands in one version, and the name of that version. An
// empty version stands for the version in service: the one that was activated last or,
// if its active key has changed since, the one that the configuration names. InService
// returns route.ErrUnknown, route.ErrVersion, or config.ErrConfig for a choice that
// cannot be read or names a version that is gone.
func InService(c *config.Config, name, version string) (inService string, at config.Route, err error) {
	r, ok := c.Routes[name]
	if !ok {
		return "", at, fmt.Errorf("%w: the configuration has no route %q; it has %q", route.ErrUnknown, name, c.RouteNames())
	}
	if version == "" {
		chosen, err := chosenVersion(c, name)
		if err != nil {
			return "", at, err
		}
		version = cmp.Or(chosen, r.Active)
	}
	if at, ok = c.RouteAt(name, version); !ok {
		return "", at, fmt.Errorf("%w: route %q has no version %q; it has %q", route.ErrVersion, name, version, r.VersionNames())
	}
	return version, at, nil
}

// chosenVersion returns the version that was activated last. It returns "" if the
// configuration decides.
func chosenVersion(c *config.Config, name string) (string, error) {
	r := c.Routes[name]
	if len(r.Versions) == 0 {
		return "", nil
	}
	made, err := Read(c.StateDir, name)
	if err != nil || made.Active == "" || made.Configured != r.Active {
		return "", err
	}
	if _, ok := r.Versions[made.Active]; !ok {
		return "", fmt.Errorf("%w: `likeness model activate` chose version %q of route %q, which routes.%s.versions does not have any more; name it there again, or change routes.%s.active",
			config.ErrConfig, made.Active, name, name, name)
	}
	return made.Active, nil
}
