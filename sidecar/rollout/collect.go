package rollout

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/embedded"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/rollout/choice"
)

// What Garbage can be.
const (
	KindTable     = "table"
	KindCompanion = "companion"
)

// Garbage is a table or companion of a version that is not kept.
type Garbage struct {
	Version, Kind, Name string
	Bytes               int64 // of files
	Removed             bool
}

// Collect lists what versions of a route that were served have left, but for
// the last keep_versions of them, which the active and the previous one are always
// among; with remove it removes it. It never touches a version that was not served
// yet, nor a file or collection that any route, or a version that stays, names.
// It returns route.ErrUnknown, config.ErrConfig, or what kept it from removing.
func (m *Manager) Collect(ctx context.Context, route string, remove bool) ([]Garbage, error) {
	end, err := m.begin(ctx, route)
	if err != nil {
		return nil, err
	}
	defer end()
	c, err := m.reload()
	if err != nil {
		return nil, err
	}
	_, made, err := m.active(route)
	if err != nil {
		return nil, err
	}
	found, err := m.garbage(ctx, c, route, made)
	if err != nil || !remove {
		return found, err
	}
	var failed []error
	for i := range found {
		err := m.remove(ctx, c, route, found[i])
		found[i].Removed = err == nil
		failed = append(failed, err)
	}
	return found, errors.Join(failed...)
}

func (m *Manager) garbage(ctx context.Context, c *config.Config, route string, made choice.Choice) ([]Garbage, error) {
	r := c.Routes[route]
	dropped := made.Dropped(r.KeepVersions)
	kept := named(c, route, dropped)
	var out []Garbage
	for _, name := range dropped {
		at, ok := r.At(name)
		if !ok {
			continue // the configuration has forgotten it, and where its parts are
		}
		if at.Table != "" && !kept[KindTable+at.Table] {
			bytes, err := size(at.Table)
			if err != nil {
				return nil, err
			}
			if bytes > 0 {
				out = append(out, Garbage{Version: name, Kind: KindTable, Name: at.Table, Bytes: bytes})
			}
		}
		if at.Companion == "" || kept[KindCompanion+r.StoreName+"\x00"+at.Companion] {
			continue
		}
		there, err := m.exists(ctx, r.StoreName, at.Companion)
		if err != nil {
			return nil, err
		}
		if there {
			out = append(out, Garbage{Version: name, Kind: KindCompanion, Name: at.Companion})
		}
	}
	return out, nil
}

// named is everything that a route, or a version that stays, names.
func named(c *config.Config, route string, dropped []string) map[string]bool {
	out := map[string]bool{}
	add := func(r config.Route) {
		out[KindTable+r.Table] = true
		for _, name := range []string{r.Collection, r.Companion, r.CompanionAlias} {
			out[KindCompanion+r.StoreName+"\x00"+name] = true
		}
	}
	for name, r := range c.Routes {
		add(r)
		for _, version := range r.VersionNames() {
			if at, ok := r.At(version); ok && !(name == route && slices.Contains(dropped, version)) {
				add(at)
			}
		}
	}
	return out
}

// exists reports whether the store has the companion and can drop it. Those of an
// embedded store are the user's files.
func (m *Manager) exists(ctx context.Context, store, name string) (bool, error) {
	s := m.Assembly.Stores[store]
	if _, inProcess := s.(*embedded.Store); inProcess {
		return false, nil
	}
	can := adapters.AbilitiesOf(s)
	if can.Write == nil || can.Describe == nil {
		return false, nil
	}
	_, err := can.Describe.Describe(ctx, name)
	if errors.Is(err, adapters.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

func (m *Manager) remove(ctx context.Context, c *config.Config, route string, g Garbage) error {
	if g.Kind == KindCompanion {
		if err := adapters.AbilitiesOf(m.Assembly.Stores[c.Routes[route].StoreName]).Write.Drop(ctx, g.Name); err != nil {
			return fmt.Errorf("companion %q of version %q: %w", g.Name, g.Version, err)
		}
		return nil
	}
	files, err := filesOf(g.Name)
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := os.Remove(f); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("table of version %q: %w", g.Version, err)
		}
	}
	return nil
}

// filesOf lists a table's file and, of a live one, its logs and lock.
func filesOf(table string) ([]string, error) {
	dir, err := os.ReadDir(filepath.Dir(table))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, err
	}
	var out []string
	base := filepath.Base(table)
	for _, e := range dir {
		if name := e.Name(); name == base || name == base+".lock" || strings.HasPrefix(name, base+".log.") {
			out = append(out, filepath.Join(filepath.Dir(table), name))
		}
	}
	return out, nil
}

func size(table string) (total int64, err error) {
	files, err := filesOf(table)
	if err != nil {
		return 0, err
	}
	for _, f := range files {
		info, err := os.Stat(f)
		if err != nil {
			return 0, err
		}
		total += info.Size()
	}
	return total, nil
}
