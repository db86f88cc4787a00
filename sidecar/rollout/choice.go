package rollout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/likenessdb/likeness/internal/atomicfile"
	"github.com/likenessdb/likeness/internal/statedir"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/wiring"
)

// choice is which version of a route is served, as the state folder has it in
// routes/ROUTE/version.json.
type choice struct {
	Active   string `json:"active"`
	Previous string `json:"previous,omitempty"`
	// Configured is what the configuration said was active when the choice was made.
	// Once it says something else, that is the newer word.
	Configured string `json:"configured"`
	// History are the versions that were served, the latest last, once each.
	History []served `json:"history"`
}

// served is when a version was activated last, and what its model was then.
type served struct {
	Version      string    `json:"version"`
	ModelVersion string    `json:"model_version"`
	Activated    time.Time `json:"activated"`
}

// choicePath is the file of a route.
func choicePath(stateDir, route string) string {
	return filepath.Join(statedir.Route(stateDir, route), "version.json")
}

// readChoice returns what was chosen; nothing, without a file.
func readChoice(stateDir, route string) (c choice, err error) {
	if stateDir == "" {
		return c, nil
	}
	path := choicePath(stateDir, route)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &c)
	}
	if err != nil {
		return c, fmt.Errorf("%w: the choice of a version of route %q, %s: %w; remove it to serve what the configuration says", config.ErrConfig, route, path, err)
	}
	return c, nil
}

// save makes the choice durable, in one step.
func (c choice) save(stateDir, route string) error {
	if stateDir == "" {
		return nil
	}
	path := choicePath(stateDir, route)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return atomicfile.Write(path, func(w io.Writer) error { return json.NewEncoder(w).Encode(c) })
}

// next is the choice once a version is served.
func (c choice) next(version, modelVersion, configured string, now time.Time) choice {
	out := choice{Active: version, Previous: c.Previous, Configured: configured}
	if c.Active != version {
		out.Previous = c.Active
	}
	out.History = slices.DeleteFunc(slices.Clone(c.History), func(s served) bool { return s.Version == version })
	out.History = append(out.History, served{Version: version, ModelVersion: modelVersion, Activated: now})
	return out
}

func (c choice) last(version string) (served, bool) {
	i := slices.IndexFunc(c.History, func(s served) bool { return s.Version == version })
	if i < 0 {
		return served{}, false
	}
	return c.History[i], true
}

// Open opens what a configuration describes, as wiring.Open does, with the
// versions of the routes that were activated last.
func Open(ctx context.Context, c *config.Config) (*wiring.Assembly, error) {
	chosen, err := Chosen(c)
	if err != nil {
		return nil, err
	}
	return wiring.Open(ctx, c, chosen)
}

// Chosen lists, by route, the version that is to be served in place of the one
// that the configuration says is active. It returns config.ErrConfig for a choice
// that cannot be read, or of a version that is gone.
func Chosen(c *config.Config) (map[string]string, error) {
	out := map[string]string{}
	for _, name := range c.RouteNames() {
		version, err := chosenVersion(c, name)
		if err != nil {
			return nil, err
		}
		if version != "" {
			out[name] = version
		}
	}
	return out, nil
}

// chosenVersion is the version of a route that was activated last, or "" where the
// version that the configuration says is active is to be served.
func chosenVersion(c *config.Config, name string) (string, error) {
	r := c.Routes[name]
	if len(r.Versions) == 0 {
		return "", nil
	}
	made, err := readChoice(c.StateDir, name)
	if err != nil || made.Active == "" || made.Configured != r.Active {
		return "", err
	}
	if _, ok := r.Versions[made.Active]; !ok {
		return "", fmt.Errorf("%w: `likeness model activate` chose version %q of route %q, which routes.%s.versions does not have any more; name it there again, or change routes.%s.active",
			config.ErrConfig, made.Active, name, name, name)
	}
	return made.Active, nil
}
