package choice_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/rollout/choice"
	"github.com/likenessdb/likeness/sidecar/route"
)

// served returns a choice after these versions went into service, an hour apart.
func served(versions ...string) choice.Choice {
	var c choice.Choice
	for i, v := range versions {
		c = c.Next(v, "model of "+v, "v1", time.Unix(int64(3600*i), 0).UTC())
	}
	return c
}

// TestNext: the version that was in service becomes the previous one, unless the same
// version is activated again, and the history has each version once.
func TestNext(t *testing.T) {
	for name, c := range map[string]struct {
		versions         []string
		active, previous string
		history          []string
	}{
		"the first":         {[]string{"v1"}, "v1", "", []string{"v1"}},
		"another":           {[]string{"v1", "v2"}, "v2", "v1", []string{"v1", "v2"}},
		"back":              {[]string{"v1", "v2", "v1"}, "v1", "v2", []string{"v2", "v1"}},
		"the same again":    {[]string{"v1", "v2", "v2"}, "v2", "v1", []string{"v1", "v2"}},
		"a third":           {[]string{"v1", "v2", "v3"}, "v3", "v2", []string{"v1", "v2", "v3"}},
		"an undone undoing": {[]string{"v1", "v2", "v1", "v2"}, "v2", "v1", []string{"v1", "v2"}},
	} {
		got := served(c.versions...)
		var history []string
		for _, s := range got.History {
			history = append(history, s.Version)
		}
		last, ok := got.Last(c.active)
		if got.Active != c.active || got.Previous != c.previous || got.Configured != "v1" || !slices.Equal(history, c.history) ||
			!ok || last.ModelVersion != "model of "+c.active || !last.Activated.Equal(time.Unix(int64(3600*(len(c.versions)-1)), 0)) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	first := served("v1", "v2")
	_ = first.Next("v1", "m", "v1", time.Now())
	if len(first.History) != 2 || first.History[0].Version != "v1" {
		t.Errorf("the next choice changed the one before: %+v", first)
	}
	if _, ok := first.Last("v3"); ok {
		t.Error("a version that was never served was")
	}
}

// TestDropped: versions beyond the kept ones, but never the active and the previous one.
func TestDropped(t *testing.T) {
	for name, c := range map[string]struct {
		versions []string
		keep     int
		want     []string
	}{
		"all are kept":               {[]string{"v1", "v2", "v3"}, 3, nil},
		"one is not":                 {[]string{"v1", "v2", "v3"}, 2, []string{"v1"}},
		"the previous one stays":     {[]string{"v1", "v2", "v3"}, 1, []string{"v1"}},
		"both stay":                  {[]string{"v1", "v2", "v3"}, 0, []string{"v1"}},
		"more are kept than exist":   {[]string{"v1"}, 9, nil},
		"of four, the oldest two":    {[]string{"v1", "v2", "v3", "v4"}, 2, []string{"v1", "v2"}},
		"one that came back is late": {[]string{"v1", "v2", "v3", "v1"}, 2, []string{"v2"}},
	} {
		if got := served(c.versions...).Dropped(c.keep); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestSave: a choice is read as it was written, and an unreadable one is an error.
func TestSave(t *testing.T) {
	dir, want := t.TempDir(), served("v1", "v2")
	if got, err := choice.Read(dir, "r"); err != nil || !reflect.DeepEqual(got, choice.Choice{}) {
		t.Errorf("without a file: %+v, %v", got, err)
	}
	if err := want.Save(dir, "r"); err != nil {
		t.Fatal(err)
	}
	if got, err := choice.Read(dir, "r"); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("read %+v, %v; want %+v", got, err, want)
	}
	if got, err := choice.Read(dir, "other"); err != nil || got.Active != "" {
		t.Errorf("another route: %+v, %v", got, err)
	}
	if err := want.Save("", "r"); err != nil {
		t.Errorf("without a state folder: %v", err)
	}
	if got, err := choice.Read("", "r"); err != nil || got.Active != "" {
		t.Errorf("without a state folder: %+v, %v", got, err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "routes", "r", "*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("the folder holds %q, %v", files, err)
	}
	if err := os.WriteFile(files[0], []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := choice.Read(dir, "r"); !errors.Is(err, config.ErrConfig) || !strings.Contains(err.Error(), files[0]) {
		t.Errorf("a damaged file: %v, want ErrConfig that names it", err)
	}
}

const text = `
stores: {files: {kind: embedded, collections: {things: {vectors: things.npy}}}}
models: {m1: {path: m1}, m2: {path: m2}}
routes:
  plain: {store: files, collection: things, model: m1}
  things:
    store: files
    collection: things
    active: v1
    versions:
      v1: {model: m1}
      v2: {model: m2}
`

// TestInService: the version that was activated last is in service, unless the configuration has
// changed since.
func TestInService(t *testing.T) {
	c := configured(t, text)
	want := func(name, rt, version, model string, target error) {
		t.Helper()
		got, at, err := choice.InService(c, rt, version)
		switch {
		case target != nil && !errors.Is(err, target):
			t.Errorf("%s: err = %v, want %v", name, err, target)
		case target == nil && (err != nil || at.ModelName != model):
			t.Errorf("%s: version %q of model %q, %v; want model %q", name, got, at.ModelName, err, model)
		}
	}
	want("nothing was activated", "things", "", "m1", nil)
	want("a version by name", "things", "v2", "m2", nil)
	want("no such version", "things", "v3", "", route.ErrVersion)
	want("no such route", "nothing", "", "", route.ErrUnknown)
	want("a route without versions", "plain", "", "m1", nil)
	if err := (choice.Choice{Active: "v2", Configured: "v1"}).Save(c.StateDir, "things"); err != nil {
		t.Fatal(err)
	}
	want("v2 was activated", "things", "", "m2", nil)
	want("and v1 is named", "things", "v1", "m1", nil)
	if err := (choice.Choice{Active: "v2", Configured: "v2"}).Save(c.StateDir, "things"); err != nil {
		t.Fatal(err)
	}
	want("the configuration has changed since", "things", "", "m1", nil)
	if err := (choice.Choice{Active: "v3", Configured: "v1"}).Save(c.StateDir, "things"); err != nil {
		t.Fatal(err)
	}
	want("the choice is gone", "things", "", "", config.ErrConfig)
	if err := (choice.Choice{Active: "v2"}).Save(c.StateDir, "plain"); err != nil {
		t.Fatal(err)
	}
	want("a choice of versions that the route had", "plain", "", "m1", nil)
}

func configured(t *testing.T, text string) *config.Config {
	t.Helper()
	dir := t.TempDir()
	c, err := config.Parse(filepath.Join(dir, "likeness.yaml"), []byte(text+"state_dir: state\n"), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
