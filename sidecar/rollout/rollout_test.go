package rollout_test

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/rollout"
)

func (s *sidecar) list(t *testing.T) map[string]*likenessv1.Version {
	t.Helper()
	r, err := s.admin.ListVersions(t.Context(), &likenessv1.ListVersionsRequest{Route: "things"})
	must(t, err)
	out := map[string]*likenessv1.Version{}
	for _, v := range r.GetVersions() {
		out[v.GetName()] = v
	}
	return out
}

func (s *sidecar) rollBack(t *testing.T) *likenessv1.Activation {
	t.Helper()
	r, err := s.admin.RollBack(t.Context(), &likenessv1.RollBackRequest{Route: "things"})
	must(t, err)
	return r.GetActivation()
}

// refused wants an error with the code and reason, and the version still to be served.
func (w *world) refused(t *testing.T, s *sidecar, err error, code codes.Code, reason, still string) {
	t.Helper()
	have := ""
	for _, d := range status.Convert(err).Details() {
		if i, ok := d.(*errdetails.ErrorInfo); ok {
			have = i.GetReason()
		}
	}
	if status.Code(err) != code || have != reason {
		t.Errorf("%v with reason %s, want %v with %s", err, have, code, reason)
	}
	if v := w.serving(t, s); v != still {
		t.Errorf("%s is served after that, want %s", v, still)
	}
}

// TestForwardBackAndRestart: a switch and its undo are remembered over a restart, and a newer
// change of the configuration takes precedence.
func TestForwardBackAndRestart(t *testing.T) {
	w := newWorld(t)
	s := w.start(t)
	if _, err := s.admin.RollBack(t.Context(), &likenessv1.RollBackRequest{Route: "things"}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("rolling back from the first version: %v", err)
	}
	if v := w.serving(t, s); v != "v1" {
		t.Fatalf("%s is served first", v)
	}
	a := s.activate(t, "v2")
	if a.GetPrevious() != "v1" || !a.GetRemembered() || !a.GetRecent() || a.GetQueries() == 0 || a.GetFailed() != 0 {
		t.Errorf("%v", a)
	}
	if v := w.serving(t, s); v != "v2" {
		t.Errorf("%s is served after v2 was activated", v)
	}
	all := s.list(t)
	if !all["v2"].GetActive() || !all["v1"].GetPrevious() || all["v3"].GetActive() || all["v3"].GetActivated() != nil || all["v2"].GetActivated() == nil {
		t.Errorf("%v", all)
	}
	s.stop()
	s = w.start(t)
	if v := w.serving(t, s); v != "v2" {
		t.Errorf("%s is served after a restart, want v2", v)
	}
	if a := s.rollBack(t); a.GetVersion().GetName() != "v1" {
		t.Errorf("rolled back to %v", a)
	}
	if a := s.rollBack(t); a.GetVersion().GetName() != "v2" { // undoes the undo
		t.Errorf("rolled back to %v", a)
	}
	s.stop()
	w.configure(t, strings.Replace(configuration, "active: v1", "active: v3", 1))
	s = w.start(t)
	if v := w.serving(t, s); v != "v3" {
		t.Errorf("%s is served after the configuration said v3", v)
	}
	if a := s.rollBack(t); a.GetVersion().GetName() != "v2" {
		t.Errorf("rolled back to %v", a)
	}
	s.stop()
	w.configure(t, strings.Replace(strings.Replace(configuration, "active: v1", "active: v3", 1), "      v2: {model: m2, table: v2.table}\n", "", 1))
	if _, err := w.run(t); !errors.Is(err, config.ErrConfig) || !strings.Contains(err.Error(), `"v2"`) {
		t.Errorf("the chosen version is gone: %v", err)
	}
}

// TestAVersionIsAddedAndRefused adds a version to a running sidecar, which reads its configuration
// again.
func TestAVersionIsAddedAndRefused(t *testing.T) {
	w := newWorld(t)
	must(t, os.WriteFile(w.path("damaged.table"), []byte("no table"), 0o600))
	w.configure(t, strings.Replace(configuration, "      v2: {model: m2, table: v2.table}\n", "", 1))
	s := w.start(t)
	activate := func(version string) error {
		_, err := s.admin.ActivateVersion(t.Context(), &likenessv1.ActivateVersionRequest{Route: "things", Version: version})
		return err
	}
	w.refused(t, s, activate("v2"), codes.NotFound, "VERSION_NOT_FOUND", "v1")
	w.configure(t, configuration+`      v4: {model: m2, table: v1.table}
      v5: {model: m2, table: nowhere.table}
      v6: {model: m2, table: damaged.table}
`)
	s.activate(t, "v2")
	for version, reason := range map[string]string{"v4": "TABLE_INVALID", "v5": "FILE_NOT_FOUND", "v6": "TABLE_INVALID"} {
		w.refused(t, s, activate(version), codes.FailedPrecondition, reason, "v2")
	}
	w.configure(t, "routes: [")
	w.refused(t, s, activate("v1"), codes.FailedPrecondition, "CONFIG_INVALID", "v2")
	w.configure(t, strings.Replace(configuration, "m3.safetensors", "narrow.safetensors", 1))
	must(t, os.Rename(w.path("m3.safetensors"), w.path("narrow.safetensors")))
	must(t, os.Truncate(w.path("narrow.safetensors"), 100))
	w.refused(t, s, activate("v3"), codes.FailedPrecondition, "MODEL_INVALID", "v2")
	_, err := s.admin.ListVersions(t.Context(), &likenessv1.ListVersionsRequest{Route: "nothing"})
	w.refused(t, s, err, codes.NotFound, "ROUTE_NOT_FOUND", "v2")
}

// TestModelsFilesAreReadAnew: activating a version again serves the present content of its files.
func TestModelsFilesAreReadAnew(t *testing.T) {
	w := newWorld(t)
	s := w.start(t)
	s.activate(t, "v3")
	must(t, os.Rename(w.path("m2.safetensors"), w.path("m3.safetensors")))
	if v := w.serving(t, s); v != "v3" {
		t.Errorf("%s is served before it was activated again", v)
	}
	s.activate(t, "v3")
	a, err := s.search.Search(t.Context(), w.request(0))
	must(t, err)
	must(t, w.agrees(0, a))
	if w.names[a.GetModel().GetVersion()] != "v2" {
		t.Error("the model's new file is not served")
	}
}

// TestGarbage: only what versions that were served have left is removed, never the
// active, the previous, or what another version names.
func TestGarbage(t *testing.T) {
	w := newWorld(t)
	w.configure(t, strings.Replace(configuration, "active: v1", "active: v1\n    keep_versions: 2", 1)+"      v4: {model: m2, table: v2.table, strategy: average}\n")
	s := w.start(t)
	collect := func(remove bool) []string {
		r, err := s.admin.CollectVersions(t.Context(), &likenessv1.CollectVersionsRequest{Route: "things", Remove: remove})
		must(t, err)
		var out []string
		for _, g := range r.GetGarbage() {
			if g.GetRemoved() != remove || g.GetBytes() == 0 || g.GetKind() != rollout.KindTable {
				t.Errorf("%v", g)
			}
			out = append(out, g.GetVersion())
		}
		return out
	}
	s.activate(t, "v2")
	if found := collect(true); found != nil {
		t.Errorf("%v is removed while two were served", found)
	}
	s.activate(t, "v3")
	if found := collect(false); !slices.Equal(found, []string{"v1"}) {
		t.Errorf("would remove %v", found)
	}
	if _, err := os.Stat(w.path("v1.table")); err != nil {
		t.Errorf("a dry run removed it: %v", err)
	}
	s.activate(t, "v1")
	if found := collect(true); found != nil { // v2's table is v4's too
		t.Errorf("%v is removed", found)
	}
	s.activate(t, "v2")
	s.activate(t, "v3")
	if found := collect(true); !slices.Equal(found, []string{"v1"}) {
		t.Errorf("removed %v", found)
	}
	if _, err := os.Stat(w.path("v1.table")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("v1.table: %v", err)
	}
	if _, err := os.Stat(w.path("v2.table")); err != nil {
		t.Error(err)
	}
	if v := w.serving(t, s); v != "v3" {
		t.Errorf("%s is served", v)
	}
}
