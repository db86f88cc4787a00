package config

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// fill gives every value of a struct, sections included, a value that says which of two
// configurations it comes from.
func fill(t *testing.T, v reflect.Value, n int) {
	t.Helper()
	for f := range fields(v.Type()) {
		at := v.FieldByIndex(f.Index)
		switch x := at.Addr().Interface().(type) {
		case *time.Duration:
			*x = time.Duration(n)
			continue
		case **float32:
			bound := float32(n)
			*x = &bound
			continue
		case *[]string:
			*x = []string{string(rune('a' + n))}
			continue
		}
		switch at.Kind() {
		case reflect.String:
			at.SetString(string(rune('a' + n)))
		case reflect.Int:
			at.SetInt(int64(n))
		case reflect.Float64:
			at.SetFloat(float64(n))
		case reflect.Bool:
			at.SetBool(n == 2)
		case reflect.Struct:
			fill(t, at, n)
		default:
			t.Fatalf("%s is a %s: fill does not know how to make one", f.Name, at.Type())
		}
	}
}

func TestReloadTakesTheLiveKeysAndNoOthers(t *testing.T) {
	var served, changed Policy
	fill(t, reflect.ValueOf(&served).Elem(), 1)
	fill(t, reflect.ValueOf(&changed).Elem(), 2)
	served.Name, changed.Name = "served", "changed"
	was, is := valuesOf(served), valuesOf(changed)
	got := served.WithLive(changed)
	if got.Name != "served" {
		t.Errorf("the route is called %q now", got.Name)
	}
	live := 0
	eachLeaf(reflect.ValueOf(got), "", func(path string, f reflect.StructField, v reflect.Value) {
		want := was[path]
		if f.Tag.Get("reload") == "live" {
			want, live = is[path], live+1
		}
		if !reflect.DeepEqual(v.Interface(), want) {
			t.Errorf("%s is %v after a reload, want %v", path, v.Interface(), want)
		}
		if reflect.DeepEqual(was[path], is[path]) {
			t.Errorf("%s: the test gives it one value twice", path)
		}
	})
	if live < 20 || served.Depth != 1 || changed.Depth != 2 {
		t.Errorf("%d live keys; depth %d before and %d in the changed policy", live, served.Depth, changed.Depth)
	}
}

func valuesOf(p Policy) map[string]any {
	values := map[string]any{}
	eachLeaf(reflect.ValueOf(p), "", func(path string, _ reflect.StructField, v reflect.Value) { values[path] = v.Interface() })
	return values
}

// eachKey visits the keys of a section and of the sections within it.
func eachKey(t reflect.Type, path string, visit func(path string, f reflect.StructField)) {
	for f := range fields(t) {
		key, _ := keyOf(f)
		switch {
		case isSection(f.Type):
			eachKey(f.Type, join(path, key), visit)
		case isSectionMap(f.Type):
			eachKey(f.Type.Elem(), join(path, key), visit)
		default:
			visit(join(path, key), f)
		}
	}
}

// keysWithoutReload lists the keys of a section that do not say when a change takes effect.
func keysWithoutReload(t reflect.Type) []string {
	var found []string
	eachKey(t, "", func(path string, f reflect.StructField) {
		switch Effect(f.Tag.Get("reload")) {
		case EffectLive, EffectActivation, EffectRestart:
		default:
			found = append(found, path)
		}
	})
	return found
}

func TestEveryKeyOfARouteSaysWhenItTakesEffect(t *testing.T) {
	if found := keysWithoutReload(reflect.TypeFor[Route]()); len(found) > 0 {
		t.Errorf("%q have no reload tag; give them live, activation or restart", found)
	}
	type planted struct {
		Policy `yaml:",inline"`
		Inner  struct {
			New int `yaml:"new"`
		} `yaml:"inner"`
		Misspelt int `yaml:"misspelt" reload:"alive"`
	}
	if found := keysWithoutReload(reflect.TypeFor[planted]()); !slices.Equal(found, []string{"inner.new", "misspelt"}) {
		t.Errorf("of two planted keys without a tag %q are found", found)
	}
}

// A reload replaces the policy of a route. The live keys outside the policy have to be
// applied one by one: to the admission of searches, to the audits, to experiments, and to the
// version in service.
func TestLiveKeysOutsideThePolicyAreKnown(t *testing.T) {
	policy := keysOf(reflect.TypeFor[Policy]())
	known := []string{"max_searches", "rate", "burst", "audit.share", "audit.per_second", "audit.alpha", "self_calibration", "calibration_scan.at", "calibration_scan.rows_per_second", "active",
		"experiment.candidate", "experiment.kind", "experiment.share", "experiment.feedback", "experiment.session", "experiment.alpha", "experiment.promote",
		"experiment.guard.latency_p99", "experiment.guard.degraded", "experiment.guard.empty", "experiment.guard.errors"}
	eachKey(reflect.TypeFor[Route](), "", func(path string, f reflect.StructField) {
		top, _, _ := strings.Cut(path, ".")
		if effectOf(f) == EffectLive && !slices.Contains(policy, top) && top != "versions" && !slices.Contains(known, path) {
			t.Errorf("%s is live, and no reload is known to apply it; apply it in package serve and name it here, or move it to Policy", path)
		}
	})
}

func TestVersionReplacesTheKeysThatItSets(t *testing.T) {
	route := defaultRoute()
	fill(t, reflect.ValueOf(&route.Policy).Elem(), 1)
	version := Version{}
	fill(t, reflect.ValueOf(&version).Elem(), 2)
	route.Versions = map[string]Version{"all": version, "none": {}}
	all, ok := route.At("all")
	if !ok || all.Versions != nil {
		t.Fatalf("%v, versions %v", ok, all.Versions)
	}
	own := map[string]any{}
	eachLeaf(reflect.ValueOf(version), "", func(path string, _ reflect.StructField, v reflect.Value) { own[path] = v.Interface() })
	replaced := 0
	eachLeaf(reflect.ValueOf(all), "", func(path string, _ reflect.StructField, v reflect.Value) {
		if want, ok := own[path]; ok {
			replaced++
			if !reflect.DeepEqual(v.Interface(), want) {
				t.Errorf("%s is %v, want the version's %v", path, v.Interface(), want)
			}
		}
	})
	if replaced != len(own) {
		t.Errorf("%d of the %d keys of a version are keys of a route", replaced, len(own))
	}
	none, _ := route.At("none")
	if !reflect.DeepEqual(none.Policy, route.Policy) || none.Table != route.Table {
		t.Errorf("a version without keys changes the route: %+v", none)
	}
	if _, ok := route.At("gone"); ok {
		t.Error("a version that does not exist is found")
	}
}

func TestRouteAtFillsInTheLimitsOfTheProcess(t *testing.T) {
	c := Default()
	c.Limits.MaxK, c.Limits.MaxDepth = 7, 11
	own := defaultRoute()
	own.MaxK, own.MaxDepth = 3, 5
	c.Routes = map[string]Route{"open": defaultRoute(), "own": own}
	open, _ := c.RouteAt("open", "")
	narrow, _ := c.RouteAt("own", "")
	if open.Name != "open" || open.MaxK != 7 || open.MaxDepth != 11 || narrow.MaxK != 3 || narrow.MaxDepth != 5 {
		t.Errorf("open %q: %d, %d; own: %d, %d", open.Name, open.MaxK, open.MaxDepth, narrow.MaxK, narrow.MaxDepth)
	}
	if c.Routes["open"].MaxK != 0 {
		t.Error("the configuration itself was changed")
	}
}

func TestPolicyReadsItsKeys(t *testing.T) {
	p := DefaultPolicy()
	if p.IsEager() || p.PassPercent() != 0 || p.KeepsStoreScores() {
		t.Errorf("by default: eager %v, %d %% pass, store's scores %v", p.IsEager(), p.PassPercent(), p.KeepsStoreScores())
	}
	p.Fallback, p.Ramp, p.Score = FallbackEager, 30, ScoreStore
	if !p.IsEager() || p.PassPercent() != 70 || !p.KeepsStoreScores() {
		t.Errorf("eager %v, %d %% pass, store's scores %v", p.IsEager(), p.PassPercent(), p.KeepsStoreScores())
	}
}

// TestWhenAChangeTakesEffect: a live key that only one of two configurations has belongs to a
// version, and takes effect when the version is activated.
func TestWhenAChangeTakesEffect(t *testing.T) {
	for tag, want := range map[string][2]Effect{ // in both configurations, and in one
		`reload:"live"`: {EffectLive, EffectActivation}, `reload:"activation"`: {EffectActivation, EffectActivation},
		`reload:"restart"`: {EffectRestart, EffectRestart}, ``: {EffectRestart, EffectRestart},
	} {
		l := leaf{path: "a.b", field: reflect.StructField{Tag: reflect.StructTag(tag)}}
		if got := [2]Effect{l.effect(true), l.effect(false)}; got != want {
			t.Errorf("%q: %q, want %q", tag, got, want)
		}
	}
}

// TestANewEntryNeedsARestart: a store, plugin, ranker, embedder or route that only one of two configurations has is
// one change, which takes effect at a restart.
func TestANewEntryNeedsARestart(t *testing.T) {
	var with Config
	with.Stores, with.Plugins, with.Rankers = map[string]Store{"s": {}}, map[string]Plugin{"p": {}}, map[string]Ranker{"r": {}}
	with.Embedders, with.Routes = map[string]Embedder{"e": {}}, map[string]Route{"t": {}}
	var want []Change
	for _, path := range []string{"stores.s", "plugins.p", "rankers.r", "embedders.e", "routes.t"} {
		want = append(want, Change{Path: path, Effect: EffectRestart})
	}
	for name, got := range map[string][]Change{"new": new(Config).Changes(&with), "gone": with.Changes(new(Config))} {
		if !slices.Equal(got, want) {
			t.Errorf("entries that are %s: %v, want %v", name, got, want)
		}
	}
}
