package follow_test

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/likenessdb/likeness/internal/statedir"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/sidecar/follow"
	"github.com/likenessdb/likeness/sidecar/follow/journal"
	"github.com/likenessdb/likeness/sidecar/route"
)

// fixed returns a route with a table that is not live, built at the given time.
func (w *world) fixed(t testing.TB, built time.Time) *route.Route {
	t.Helper()
	path := filepath.Join(t.TempDir(), "t")
	out, err := table.NewWriter(path, table.Meta{
		Model: "m", ModelVersion: w.model.Version, Collection: items, Kind: "mol", Features: w.model.Similarity.Spec().Features,
		Format: rerank.FormatFloat32, Created: built.UTC().Format(time.RFC3339),
	})
	must(t, err)
	must(t, out.Close())
	opened, err := table.Open(path, table.Expect{})
	must(t, err)
	t.Cleanup(func() { must(t, opened.Close()) })
	return &route.Route{Policy: route.Policy{Name: "r", Collection: items, Vector: "vec", Placement: route.PlacementTable}, Parts: route.Parts{Store: w.db, Model: w.model, Table: opened}}
}

// TestFrozen: a table that cannot follow is fresh until the first write is seen, in later processes
// too if there is a folder, and again once it is rebuilt.
func TestFrozen(t *testing.T) {
	w := newWorld(t, 3)
	before, after := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	for _, dir := range []string{"", t.TempDir()} {
		open := func(r *route.Route) *follow.Follower {
			f, err := follow.New(follow.Options{Store: w.db, Dir: dir}, []follow.Route{{Route: r}})
			must(t, err)
			return f
		}
		r := w.fixed(t, before)
		f := open(r)
		if s := f.Status(); !r.Freshness.Fresh() || !f.Covers(items) || f.Covers("other") || len(s) != 1 || s[0].Stale {
			t.Fatalf("before any write: %+v", s)
		}
		begin(t.Context(), f, journal.Write{Collection: "other", Kind: journal.Upsert, IDs: ids(1)})()
		if !r.Freshness.Fresh() {
			t.Error("a write to another collection counts")
		}
		begin(t.Context(), f, journal.Write{Collection: items, Kind: journal.Upsert, IDs: ids(1)})()
		if s := f.Status()[0]; r.Freshness.Fresh() || !s.Stale || s.Age <= 0 || s.Pending != 0 {
			t.Errorf("after a write: %+v", s)
		}
		next := w.fixed(t, after)
		fresh := f.Freshness(next)
		must(t, f.Replace(next))
		if s := f.Status(); !fresh.Fresh() || !next.Freshness.Fresh() || len(s) != 1 || s[0].Stale {
			t.Errorf("built anew: %+v", s)
		}
		must(t, f.Close(closing(t)))
		old, anew := w.fixed(t, before), w.fixed(t, after)
		f = open(old)
		if got := old.Freshness.Fresh(); got != (dir == "") || f.Status()[0].Stale != (dir != "") {
			t.Errorf("folder %q, in the next process: fresh %t", dir, got)
		}
		must(t, f.Close(closing(t)))
		f = open(anew)
		if !anew.Freshness.Fresh() {
			t.Error("built anew, and not fresh in the next process")
		}
		must(t, f.Close(closing(t)))
	}
}

// TestFrozenWrittenAgain: a rebuilt table is stale after the next write. The log says so once for
// each table.
func TestFrozenWrittenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		var lines bytes.Buffer // the follower's goroutine writes, and rests when it is read
		f, err := follow.New(follow.Options{Store: w.db, Logger: slog.New(slog.NewTextHandler(&lines, nil))}, []follow.Route{{Route: w.fixed(t, time.Now())}})
		must(t, err)
		for n := range 3 {
			<-time.After(10 * time.Second)
			r := w.fixed(t, time.Now())
			must(t, f.Replace(r))
			if !r.Freshness.Fresh() {
				t.Errorf("table %d is not fresh before a write", n)
			}
			<-time.After(10 * time.Second)
			for range 3 {
				begin(t.Context(), f, journal.Write{Collection: items, Kind: journal.Upsert, IDs: ids(1)})()
				synctest.Wait()
			}
			if logged := strings.Count(lines.String(), "follow: route cannot track writes"); r.Freshness.Fresh() || logged != n+1 {
				t.Errorf("table %d after a write: fresh %t, logged %d times", n, r.Freshness.Fresh(), logged)
			}
		}
		must(t, f.Close(t.Context()))
	})
}

// TestFrozenDamaged: if the file of the last write cannot be read, the write may have come
// just now, so that a table built before is not fresh, and one built later is.
func TestFrozenDamaged(t *testing.T) {
	for _, content := range []string{"", "{", "[]", `{"last":7}`, "\x00\xff"} {
		w, dir, log := newWorld(t, 3), t.TempDir(), &bytes.Buffer{}
		path := filepath.Join(statedir.Collection(dir, items), "written.json")
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte(content), 0o600))
		o := follow.Options{Store: w.db, Dir: dir, Logger: slog.New(slog.NewTextHandler(log, nil))}
		before, after := w.fixed(t, time.Now().Add(-time.Minute)), w.fixed(t, time.Now().Add(time.Minute))
		if err := follow.Check(o, []follow.Route{{Route: before}}); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: Check returns %v, want an error that names the file", content, err)
		}
		f, err := follow.New(o, []follow.Route{{Route: before}})
		must(t, err)
		must(t, f.Replace(after))
		if before.Freshness.Fresh() || !after.Freshness.Fresh() || !strings.Contains(log.String(), path) {
			t.Errorf("%q: the table built before is fresh %t, the one built after %t, and logged: %s", content, before.Freshness.Fresh(), after.Freshness.Fresh(), log)
		}
		must(t, f.Close(closing(t)))
	}
}

// TestRecordDamaged: if the record of a collection cannot be read, the table that follows
// it is compared with all rows, and foreign writes are not ruled out.
func TestRecordDamaged(t *testing.T) {
	for _, content := range []string{"", "{", "[]", `{"clean":7}`, "\x00\xff"} {
		w, dir, log := newWorld(t, 3), t.TempDir(), &bytes.Buffer{}
		path := filepath.Join(statedir.Collection(dir, items), "record.json")
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte(content), 0o600))
		o := follow.Options{Store: w.db, Dir: dir, OnRequest: true, Logger: slog.New(slog.NewTextHandler(log, nil))}
		r := w.route(t, rerank.FormatFloat32)
		if err := follow.Check(o, []follow.Route{{Route: r}}); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: Check returns %v, want an error that names the file", content, err)
		}
		f, err := follow.New(o, []follow.Route{{Route: r}})
		must(t, err)
		if r.Freshness.Fresh() || r.Freshness.Horizon().Disputed != route.DisputeForeign || !strings.Contains(log.String(), path) {
			t.Errorf("%q: fresh %t, %+v, logged: %s", content, r.Freshness.Fresh(), r.Freshness.Horizon(), log)
		}
		_, err = f.Reconcile(t.Context(), items)
		must(t, err)
		if !r.Freshness.Fresh() {
			t.Errorf("%q: not fresh after all rows were compared", content)
		}
		must(t, f.Close(closing(t)))
	}
}

// TestFrozenBesideFollowed: a table that is not live does not become fresh because
// the companion beside it follows.
func TestFrozenBesideFollowed(t *testing.T) {
	w := newWorld(t, 10)
	r := w.fixed(t, time.Now().Add(-time.Hour))
	r.Companion = companion
	f := w.follow(t, r)
	fresh(t, r)
	done := begin(t.Context(), f, journal.Write{Collection: items, Kind: journal.Delete, IDs: ids(1)})
	w.remove(t, 1)
	done()
	until(t, func() bool { return f.Status()[0].Pending == 0 })
	if s := f.Status(); r.Freshness.Fresh() || len(s) != 1 || !s[0].Stale {
		t.Errorf("%+v", s)
	}
}

// TestFollowedBesideFrozen: an up-to-date fixed table does not make the companion beside it fresh,
// which is behind.
func TestFollowedBesideFrozen(t *testing.T) {
	w := newWorld(t, 10)
	r := w.fixed(t, time.Now().Add(-time.Hour))
	r.Companion = companion
	f, err := follow.New(follow.Options{Store: w.db, Dir: t.TempDir(), Applied: true, OnRequest: true}, []follow.Route{{Route: r}})
	must(t, err)
	t.Cleanup(func() { must(t, f.Close(closing(t))) })
	if r.Freshness.Fresh() {
		t.Error("fresh though nobody knows what the companion lacks")
	}
	_, err = f.Reconcile(t.Context(), items)
	if must(t, err); !r.Freshness.Fresh() {
		t.Error("not fresh though all rows were compared")
	}
}

// TestNothingRemembered: without a folder a live table and a companion cannot
// follow.
func TestNothingRemembered(t *testing.T) {
	w := newWorld(t, 3)
	r := w.route(t, "")
	f, err := follow.New(follow.Options{Store: w.db}, []follow.Route{{Route: r}})
	must(t, err)
	if !r.Freshness.Fresh() {
		t.Error("not fresh before any write")
	}
	begin(t.Context(), f, journal.Write{Collection: items, Kind: journal.Upsert, IDs: ids(1)})()
	if r.Freshness.Fresh() {
		t.Error("fresh after a write")
	}
	must(t, f.Close(closing(t)))
}

// asks is a similarity whose items' vectors are a ranker's scores.
type asks struct{ rerank.Similarity }

func (asks) Questions() []rerank.Query { return make([]rerank.Query, 1) }

// TestARankersItems: data that needs a ranker's scores cannot follow, and the log says so.
func TestARankersItems(t *testing.T) {
	w := newWorld(t, 3)
	r := w.route(t, "")
	r.Model.Similarity = asks{r.Model.Similarity}
	if follow.Followed(r) {
		t.Error("it is followed")
	}
	f := w.follow(t, r)
	begin(t.Context(), f, journal.Write{Collection: items, Kind: journal.Upsert, IDs: ids(1)})()
	if s := f.Status(); r.Freshness.Fresh() || len(s) != 1 || !s[0].Stale {
		t.Errorf("after a write: %+v", s)
	}
	if _, err := follow.Compare(t.Context(), r, nil); !errors.Is(err, follow.ErrRoute) {
		t.Errorf("%v, want ErrRoute", err)
	}
}
