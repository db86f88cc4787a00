package rollout

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/embedded"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/dot"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/ranker"
	"github.com/likenessdb/likeness/sidecar/rollout/choice"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
	"github.com/likenessdb/likeness/sidecar/search/failure"
	"github.com/likenessdb/likeness/sidecar/wiring"
)

// TestRecent: the first requests of a route are kept, then every sixteenth in place of
// the oldest, each with a vector of its own.
func TestRecent(t *testing.T) {
	r := NewRecent([]string{"r"})
	vector := make([]float32, 1)
	note := func(n int) {
		vector[0] = float32(n)
		r.Searched(t.Context(), "r", search.Request{K: n, Query: rerank.Query{Vector: vector}}, search.Answer{}, nil)
	}
	kept := func() (all []int) {
		for _, q := range r.requests("r") {
			if float32(q.K) != q.Query.Vector[0] {
				t.Errorf("request %d has the vector of request %v", q.K, q.Query.Vector[0])
			}
			all = append(all, q.K)
		}
		slices.Sort(all)
		return all
	}
	for n := range recentKept {
		note(n)
	}
	r.Searched(t.Context(), "r", search.Request{K: -1}, search.Answer{}, errors.New("failed"))
	r.Searched(t.Context(), "other", search.Request{K: -1}, search.Answer{}, nil)
	want := make([]int, recentKept)
	for n := range want {
		want[n] = n
	}
	if got := kept(); !slices.Equal(got, want) {
		t.Errorf("of the first requests are kept %v", got)
	}
	for n := recentKept; n < recentKept*(recentEvery+1); n++ {
		note(n)
	}
	for i := range want {
		want[i] = recentKept + i*recentEvery
	}
	if got := kept(); !slices.Equal(got, want) {
		t.Errorf("later are kept %v, want %v", got, want)
	}
	if r.requests("other") != nil {
		t.Error("requests of a route that is not watched are kept")
	}
}

// TestTrialQueries: a version is tried with unit vectors of its dimension, with a user
// where the model reads one, and a ranker's requests only where they bring a vector.
func TestTrialQueries(t *testing.T) {
	for _, users := range []bool{false, true} {
		made := madeUpQueries(rerank.Spec{QueryDim: 5, UserIDs: users})
		if len(made) != madeQueries || made[0].K < 1 || slices.Equal(made[0].Query.Vector, made[1].Query.Vector) {
			t.Errorf("%+v", made)
		}
		for _, r := range made {
			if len(r.Query.Vector) != 5 || !(math.Abs(rerank.Norm(r.Query.Vector)-1) <= 1e-6) || r.Query.HasUserID != users {
				t.Errorf("%+v", r)
			}
		}
	}
	sim, err := dot.New(dot.Config{Dim: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	calls := 9
	recent := func() []search.Request {
		return []search.Request{{K: 1, Calls: &calls, Rounds: 2}, {K: 2, Calls: &calls, Rounds: 2, Query: rerank.Query{Vector: []float32{1}}}, {K: 3, Query: rerank.Query{Text: "t"}}}
	}
	plain := &route.Route{Policy: route.Policy{Name: "r"}, Parts: route.Parts{Model: route.Model{Similarity: sim}}}
	ranked := &route.Route{Policy: plain.Policy, Parts: plain.Parts}
	ranked.Ranker = someRanker{}
	for name, c := range map[string]struct {
		rt     *route.Route
		recent []search.Request
		kept   int // the recent requests that are used
	}{
		"no ranker":                 {plain, recent(), 3},
		"a ranker":                  {ranked, recent(), 1},
		"nothing recent":            {plain, nil, 0},
		"nothing with a vector":     {ranked, recent()[2:], 0},
		"nothing recent, a ranker":  {ranked, nil, 0},
		"text only, without ranker": {plain, recent()[2:], 1},
	} {
		got, isRecent := trialQueries(c.rt, c.recent)
		if isRecent != (c.kept > 0) || isRecent && len(got) != c.kept || !isRecent && len(got) != madeQueries {
			t.Errorf("%s: %d queries, recent: %t", name, len(got), isRecent)
		}
		for _, r := range got {
			if r.Route != "r" || c.rt == ranked && (r.Calls == nil || *r.Calls != 0 || r.Rounds != 0 || len(r.Query.Vector) == 0) {
				t.Errorf("%s: %+v", name, r)
			}
		}
	}
}

// someRanker is a Ranker that nobody calls.
type someRanker struct{ ranker.Ranker }

// TestTrialFailures: an error and an answer in the store's own order are failures.
func TestTrialFailures(t *testing.T) {
	broken := errors.New("broken")
	degraded := search.Answer{Degraded: &search.Degraded{Reason: "model", Detail: "not finite"}}
	for _, c := range []struct {
		a    search.Answer
		err  error
		want error
	}{{search.Answer{}, nil, nil}, {search.Answer{}, broken, broken}, {degraded, nil, failure.ErrDegraded}} {
		if got := trialFailure(c.a, c.err); !errors.Is(got, c.want) || (got == nil) != (c.want == nil) {
			t.Errorf("%+v, %v: %v, want %v", c.a, c.err, got, c.want)
		}
	}
}

// TestPointAlias: the alias is moved to the companion of the version, if there is an alias and
// a companion; a store without aliases, and one that fails, are errors.
func TestPointAlias(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		alias, companion string
		store            adapters.Store
		moved            string
		err              error
	}{
		"moved":           {"live", "c2", &aliasing{}, "live -> c2", nil},
		"no alias":        {"", "c2", &aliasing{}, "", nil},
		"no companion":    {"live", "", &aliasing{}, "", nil},
		"it fails":        {"live", "c2", &aliasing{err: broken}, "live -> c2", broken},
		"without aliases": {"live", "c2", struct{ adapters.Store }{}, "", route.ErrSetup},
	} {
		to := &route.Route{Policy: route.Policy{Name: "r", Companion: c.companion}, Parts: route.Parts{Store: c.store}}
		alias, err := pointAlias(t.Context(), config.Route{CompanionAlias: c.alias}, to)
		moved := ""
		if s, ok := c.store.(*aliasing); ok {
			moved = s.moved
		}
		if !errors.Is(err, c.err) || (err == nil) != (c.err == nil) || moved != c.moved || (alias != "") != (c.moved != "" && err == nil) {
			t.Errorf("%s: %q, %v, moved %q; want %q, %v", name, alias, err, moved, c.moved, c.err)
		}
	}
}

// aliasing is a store that records the moves of aliases.
type aliasing struct {
	adapters.Store
	moved string
	err   error
}

func (a *aliasing) SwitchAlias(_ context.Context, alias, collection string) error {
	a.moved = alias + " -> " + collection
	return a.err
}

// TestCompanionsThatExist: a companion is garbage if its store has it and can drop it, and is
// never a collection of the user's own files.
func TestCompanionsThatExist(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		store adapters.Store
		there bool
		err   error
	}{
		"it is there":     {described{}, true, nil},
		"it is gone":      {described{err: adapters.ErrNotFound}, false, nil},
		"nobody knows":    {described{err: broken}, false, broken},
		"it is not ours":  {embedded.New(), false, nil},
		"nobody can drop": {struct{ adapters.Store }{}, false, nil},
		"no such store":   {nil, false, nil},
	} {
		m := &Manager{Options: Options{Assembly: &wiring.Assembly{Stores: map[string]adapters.Store{"s": c.store}}}}
		if there, err := m.exists(t.Context(), "s", "c"); there != c.there || !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
			t.Errorf("%s: %t, %v; want %t, %v", name, there, err, c.there, c.err)
		}
	}
}

// described is a store that can write and says whether a collection is there.
type described struct {
	adapters.Store
	adapters.Writer
	err error
}

func (d described) Describe(context.Context, string) (adapters.Description, error) {
	return adapters.Description{}, d.err
}

// dropping is a store that notes what it drops, and may refuse to.
type dropping struct {
	described
	dropped *[]string
	refuses error
}

func (d dropping) Drop(_ context.Context, name string) error {
	*d.dropped = append(*d.dropped, name)
	return d.refuses
}

// TestCompanionsAreDropped: existing companions of dropped versions are dropped, and an error names
// one that was not.
func TestCompanionsAreDropped(t *testing.T) {
	refused := errors.New("refused")
	things := config.Route{KeepVersions: 1, Versions: map[string]config.Version{
		"v1": {Table: filepath.Join(t.TempDir(), "gone"), Companion: "c1"}, "v2": {Companion: "c2"}, "v3": {Companion: "c3"},
	}}
	things.StoreName, things.Collection = "s", "things"
	made := choice.Choice{}.Next("v1", "", "", time.Time{}).Next("v2", "", "", time.Time{}).Next("v3", "", "", time.Time{})
	for _, err := range []error{nil, refused} {
		var dropped []string
		m := &Manager{
			Options: Options{
				Config:   &config.Config{Routes: map[string]config.Route{"things": things}},
				Assembly: &wiring.Assembly{Stores: map[string]adapters.Store{"s": dropping{dropped: &dropped, refuses: err}}},
			},
			locks: map[string]chan struct{}{"things": make(chan struct{}, 1)}, served: map[string]*wiring.Version{"things": {}}, choices: map[string]choice.Choice{"things": made},
		}
		want := Garbage{Version: "v1", Kind: KindCompanion, Name: "c1"} // its table has no file, and v2 is the way back
		if found, err := m.Collect(t.Context(), "things", false); err != nil || !slices.Equal(found, []Garbage{want}) || dropped != nil {
			t.Errorf("listed are %+v, %v; dropped %q", found, err, dropped)
		}
		want.Removed = err == nil
		found, got := m.Collect(t.Context(), "things", true)
		if !errors.Is(got, err) || !slices.Equal(found, []Garbage{want}) || !slices.Equal(dropped, []string{"c1"}) {
			t.Errorf("removed are %+v, %v; dropped %q", found, got, dropped)
		}
	}
}

// TestInfo: what is said of a version, of the one in service and of the others.
func TestInfo(t *testing.T) {
	at := time.Unix(7, 0)
	made := choice.Choice{}.Next("v1", "old digest of v1", "", at).Next("v2", "digest of v2", "", at.Add(time.Hour))
	r := config.Route{Versions: map[string]config.Version{"v1": {}, "v2": {}, "v3": {}}}
	r.ModelName, r.Table, r.Companion = "m", "t", "c"
	active := &wiring.Version{Name: "v1", Model: &model.Model{Version: "new digest of v1"}}
	for name, want := range map[string]Info{
		"v1": {Name: "v1", Model: "m", ModelVersion: "new digest of v1", Table: "t", Companion: "c", Active: true, Previous: true, Activated: at},
		"v2": {Name: "v2", Model: "m", ModelVersion: "digest of v2", Table: "t", Companion: "c", Activated: at.Add(time.Hour)},
		"v3": {Name: "v3", Model: "m", Table: "t", Companion: "c"},
	} {
		if got := infoOf(r, name, active, made); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	only := infoOf(config.Route{}, "", &wiring.Version{Model: &model.Model{Version: "d"}}, choice.Choice{})
	if !only.Active || only.Previous || only.ModelVersion != "d" {
		t.Errorf("the only version of a route is %+v", only)
	}
}

// TestNamesInUse: a table or companion is in use if a route, or a version that is kept, names it.
// Companions of different stores are different.
func TestNamesInUse(t *testing.T) {
	things := config.Route{Versions: map[string]config.Version{"v1": {Table: "t1", Companion: "c1"}, "v2": {Table: "t2", Companion: "c2"}}}
	things.StoreName, things.Collection, things.CompanionAlias = "s", "things", "alias"
	things.Table = "t0" // of a route whose versions name others
	other := config.Route{Table: "t3", Versions: map[string]config.Version{"v1": {Companion: "c3"}}}
	other.StoreName, other.Collection = "s2", "others"
	used := namesInUse(&config.Config{Routes: map[string]config.Route{"things": things, "other": other}}, "things", []string{"v1"})
	for name, want := range map[string]bool{
		KindTable + "t0": true, KindTable + "t1": false, KindTable + "t2": true, KindTable + "t3": true,
		KindCompanion + "s\x00c1": false, KindCompanion + "s\x00c2": true, KindCompanion + "s\x00things": true, KindCompanion + "s\x00alias": true,
		KindCompanion + "s2\x00c3": true, KindCompanion + "s\x00c3": false, KindCompanion + "s2\x00others": true,
	} {
		if used[name] != want {
			t.Errorf("%q is in use: %v, want %v", name, !want, want)
		}
	}
}

// TestFilesOf: the files of a table are the table, its lock and its logs, and nothing else.
func TestFilesOf(t *testing.T) {
	dir := t.TempDir()
	for name, size := range map[string]int{"a.table": 5, "a.table.lock": 0, "a.table.log.7": 3, "a.table.log.8": 2, "a.table2": 9, "a.table.logs": 9, "b.a.table": 9, "a.table.bak": 9} {
		if err := os.WriteFile(filepath.Join(dir, name), make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	files, err := filesOf(filepath.Join(dir, "a.table"))
	for i := range files {
		files[i] = filepath.Base(files[i])
	}
	if want := []string{"a.table", "a.table.lock", "a.table.log.7", "a.table.log.8"}; err != nil || !slices.Equal(files, want) {
		t.Errorf("%q, %v; want %q", files, err, want)
	}
	if size, err := filesSize(filepath.Join(dir, "a.table")); err != nil || size != 10 {
		t.Errorf("%d bytes, %v; want 10", size, err)
	}
	if files, err := filesOf(filepath.Join(dir, "nowhere", "a.table")); err != nil || files != nil {
		t.Errorf("of a folder that is not there: %q, %v", files, err)
	}
}

// TestStillDraining: closed channels are removed.
func TestStillDraining(t *testing.T) {
	open, closed := make(chan struct{}), make(chan struct{})
	close(closed)
	if got := stillDraining([]<-chan struct{}{closed, open, closed}); len(got) != 1 || got[0] != (<-chan struct{})(open) {
		t.Errorf("%v", got)
	}
}

// TestDrainingVersionsAreForgotten: a version whose last search has ended is not kept in memory when the settings
// of its route change again.
func TestDrainingVersionsAreForgotten(t *testing.T) {
	r := &route.Route{Policy: route.Policy{Name: "r", StoreName: "s", Collection: "c", Placement: route.PlacementStored}}
	sim, err := dot.New(dot.Config{Dim: 2}, nil)
	if err != nil {
		t.Fatal(err)
	}
	store := embedded.New()
	if err := store.Load("c", embedded.Collection{Fields: []embedded.Field{{VectorField: adapters.VectorField{Metric: adapters.InnerProduct}, Vectors: rerank.NewMatrix(1, 2)}}}); err != nil {
		t.Fatal(err)
	}
	r.Store, r.Model = store, route.Model{Name: "m", Version: "v", Similarity: sim}
	engine, err := search.New([]*route.Route{r}, search.Options{})
	if err != nil {
		t.Fatal(err)
	}
	m := &Manager{Options: Options{Engine: engine}, draining: map[string][]<-chan struct{}{}, served: map[string]*wiring.Version{}}
	for range 5 {
		standby, err := engine.Prepare(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		v := &wiring.Version{Route: r}
		a := &Adjustment{manager: m, staged: []staged{{v, standby}}}
		if err := a.Apply(); err != nil || m.served["r"] != v {
			t.Fatalf("in service is %p, want %p; %v", m.served["r"], v, err)
		}
	}
	if n := len(m.draining["r"]); n != 1 {
		t.Errorf("after five changes %d versions are still to end, want the last", n)
	}
}

// TestLockRoute: only one caller at a time changes a route. Another one waits until its context
// ends at the latest.
func TestLockRoute(t *testing.T) {
	m := &Manager{locks: map[string]chan struct{}{"r": make(chan struct{}, 1), "s": make(chan struct{}, 1)}}
	unlock, err := m.lockRoute(t.Context(), "r")
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.lockRoute(ended, "r"); !errors.Is(err, context.Canceled) {
		t.Errorf("a second one: %v", err)
	}
	other, err := m.lockRoute(t.Context(), "s")
	if err != nil {
		t.Errorf("another route: %v", err)
	} else {
		other()
	}
	unlock()
	if unlock, err = m.lockRoute(t.Context(), "r"); err != nil {
		t.Errorf("after the first: %v", err)
	} else {
		unlock()
	}
	if _, err := m.lockRoute(t.Context(), "nothing"); err == nil {
		t.Error("a route that is not there was locked")
	}
}

// TestReadyVersions: a version that answered no query goes into service only with force.
func TestReadyVersions(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		w     Warm
		force bool
		ready bool
	}{
		"it answered all":           {Warm{Queries: 3}, false, true},
		"it answered one":           {Warm{Queries: 3, Failed: 2}, false, true},
		"it answered none":          {Warm{Queries: 3, Failed: 3}, false, false},
		"it answered none, forced":  {Warm{Queries: 3, Failed: 3}, true, true},
		"there was no time for any": {Warm{}, false, true},
	} {
		if err := c.w.check(broken, c.force); (err == nil) != c.ready || !c.ready && (!errors.Is(err, ErrNotReady) || !errors.Is(err, broken)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAWarmUpLeavesRoom: the searches of a warm-up take a quarter of its time, and those that do not fit into it are
// left out.
func TestAWarmUpLeavesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		began, broken := time.Now(), errors.New("broken")
		var w Warm
		var starts []time.Duration
		last := w.try(ctx, make([]search.Request, 9), func(context.Context, search.Request) (a search.Answer, err error) {
			starts = append(starts, time.Since(began))
			time.Sleep(time.Second) //nolint:forbidigo // of the bubble: no time passes
			if len(starts) == 2 {
				err = broken
			}
			return a, err
		})
		if want := []time.Duration{0, 4 * time.Second, 8 * time.Second}; !slices.Equal(starts, want) || w.Queries != 2 || w.Failed != 1 || !errors.Is(last, broken) {
			t.Errorf("searches began after %v, want %v; %+v, %v", starts, want, w, last)
		}
	})
}

// TestEarlierSettingsAreForgotten once a version takes over that waits for their searches.
func TestEarlierSettingsAreForgotten(t *testing.T) {
	first, second := make(chan struct{}), make(chan struct{})
	m := &Manager{draining: map[string][]<-chan struct{}{"a": {first}, "b": {second}}}
	if got := m.takeDraining("a"); len(got) != 1 || got[0] != first || len(m.draining) != 1 || m.draining["b"][0] != second {
		t.Errorf("route a waits for %v, and %v are left", got, m.draining)
	}
	if got := m.takeDraining("a"); len(got) != 0 {
		t.Errorf("the next version waits for %d adjustments", len(got))
	}
}

// TestACandidateIsSearchedToTheEnd: it closes once its last search has ended.
func TestACandidateIsSearchedToTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		ended, closed := make(chan struct{}), make(chan error, 1)
		isClosed := false
		go func() {
			closed <- closeAfter(ended, func() error { isClosed = true; return broken })
		}()
		if synctest.Wait(); isClosed {
			t.Error("it closes under a search")
		}
		close(ended)
		if err := <-closed; !isClosed || !errors.Is(err, broken) {
			t.Errorf("closed %t, %v", isClosed, err)
		}
	})
}
