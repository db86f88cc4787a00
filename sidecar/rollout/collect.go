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

// Kinds of Garbage.
const (
	KindTable     = "table"
	KindCompanion = "companion"
)

// Garbage is a table or a companion that no kept version uses.
type Garbage struct {
	Version, Kind, Name string
	Bytes               int64 // size of a table's files
	Removed             bool
}

// Collect lists the tables and companions of old versions of a route, and removes them if
// remove is set. Old are all versions that were served except the last keep_versions; the
// active and the previous version are never old. Collect leaves alone versions that were
// never served, and every file and collection that a route or a kept version names. It
// returns route.ErrUnknown, config.ErrConfig, or the errors of removing.
func (m *Manager) Collect(ctx context.Context, route string, remove bool) ([]Garbage, error) {
	unlock, err := m.lockRoute(ctx, route)
	if err != nil {
		return nil, err
	}
	defer unlock()
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
	kept := namesInUse(c, route, dropped)
	var out []Garbage
	for _, name := range dropped {
		at, ok := r.At(name)
		if !ok {
			continue // the configuration does not have it any more, so its files are not known
		}
		if at.Table != "" && !kept[KindTable+at.Table] {
			bytes, err := filesSize(at.Table)
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

// namesInUse returns the tables and companions that any route, or any version of it that is not
// dropped, names.
func namesInUse(c *config.Config, route string, dropped []string) map[string]bool {
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

// exists reports whether the store has the companion and can drop it. Collections of an
// embedded store are the user's own files and are never dropped.
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

// filesOf lists the files of a table: the table itself and, if it is live, its logs and its
// lock.
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

func filesSize(table string) (total int64, err error) {
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
