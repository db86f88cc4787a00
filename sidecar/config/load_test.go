package config_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/sidecar/config"
)

// TestAnchors: entries can share keys by YAML's merge keys and aliases, and their own keys count.
func TestAnchors(t *testing.T) {
	c := parse(t, `
stores:
  main: &main
    kind: qdrant
    address: "db:6334"
    guard: &guard {break_after: 9}
  second:
    <<: *main
    address: "second:6334"
  third: {<<: [{address: "third:1"}, *main]}
  fourth: {kind: milvus, address: "fourth:1", guard: *guard}
`, nil)
	for name, want := range map[string]string{"main": "db:6334", "second": "second:6334", "third": "third:1", "fourth": "fourth:1"} {
		if s := c.Stores[name]; s.Address != want || s.Guard.BreakAfter != 9 || (s.Kind == "milvus") != (name == "fourth") {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// TestUnknownKeysBehindAnchors: a mistyped key is found in merged keys and behind an alias, and an
// alias does not hide one that another type lacks.
func TestUnknownKeysBehindAnchors(t *testing.T) {
	for text, want := range map[string]string{
		"models: {a: {<<: {pth: x}, path: y}}":       `unknown key "pth" in models.a; did you mean "path"?`,
		"models: {a: {<<: [{pth: x}], path: y}}":     `unknown key "pth" in models.a`,
		"limits: &l {max_k: 3}\nlog: *l":             `likeness.yaml:1: unknown key "max_k" in log`,
		"limits: {max_k: 3}\nlog: {<<: {max_k: 3}}":  `likeness.yaml:2: unknown key "max_k" in log`,
		"models: {a: &a {path: x}}\nroutes: {b: *a}": `unknown key "path" in routes.b`,
	} {
		_, err := config.Parse("likeness.yaml", []byte(text), nil, nil)
		if !errors.Is(err, config.ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\nerror %v, want one that contains %q", text, err, want)
		}
	}
}

// TestVariables: if a variable is set twice, the last value counts, and a value may contain equals
// signs. Variables that begin with no section belong to others.
func TestVariables(t *testing.T) {
	c := parse(t, strings.Replace(small, "api_key_file: key", "api_key_env: KEY", 1),
		[]string{"LIKENESS_LIMITS_MAX_K=1", "LIKENESS_LIMITS_MAX_K=2", "KEY=a=b=", "LIKENESS_PORT=tcp://10.0.0.1:1", "LIKENESS_SERVICE_PORT_GRPC=1", "no variable"})
	if key, err := c.APIKey("main"); c.Limits.MaxK != 2 || err != nil || key.Reveal() != "a=b=" {
		t.Errorf("max_k %d, key %q, %v", c.Limits.MaxK, key.Reveal(), err)
	}
}

// TestTextsAreTakenAsTheyAre: the values of flags and variables that are texts are no YAML.
func TestTextsAreTakenAsTheyAre(t *testing.T) {
	for _, text := range []string{"a: b", "'quoted'", "~", "# no comment", "[1, 2]", "1e3", "no", "a=b"} {
		c := parse(t, small, []string{"LIKENESS_ROUTES_PRODUCTS_VECTOR=" + text}, "routes.products.collection="+text)
		if r := c.Routes["products"]; r.Collection != text || r.Vector != text {
			t.Errorf("%q becomes %q as a flag, %q as a variable", text, r.Collection, r.Vector)
		}
	}
}

// TestErrorsOfFlagsNameNoLine: the file is not at fault for a value that a flag or a variable
// replaced.
func TestErrorsOfFlagsNameNoLine(t *testing.T) {
	const text = "limits: {max_k: 5}"
	for name, sources := range map[string]struct{ environ, set []string }{
		"flag":     {nil, []string{"limits.max_k=0"}},
		"variable": {[]string{"LIKENESS_LIMITS_MAX_K=0"}, nil},
	} {
		_, err := config.Parse("likeness.yaml", []byte(text), sources.environ, sources.set)
		if !errors.Is(err, config.ErrConfig) || !strings.Contains(err.Error(), "limits.max_k: 0 is too small") || strings.Contains(err.Error(), "likeness.yaml:") {
			t.Errorf("%s: error %v", name, err)
		}
	}
	for flag, want := range map[string]string{
		"routes.products.timeout=5":     "not a valid duration; write 250ms, 5s, 1m",
		"limits.memory=much":            "not a valid size",
		"routes.products.max_gap=far":   "not a valid number",
		"routes.products.partitions={}": "not a valid list; write [a, b]",
		"limits.adaptive=perhaps":       "not a valid boolean; write true or false",
		"limits.max_k=1.5":              "not a valid whole number",
	} {
		if _, err := config.Parse("likeness.yaml", []byte(small), nil, []string{flag}); !errors.Is(err, config.ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", flag, err, want)
		}
	}
}

// TestNamesWithDots: a flag finds the entry whose name contains dots beside one that begins alike.
func TestNamesWithDots(t *testing.T) {
	const route = "{store: main, collection: c, model: taste, placement: stored}\n"
	c := parse(t, small+"  a: "+route+"  a.b: "+route, nil, "routes.a.b.depth=7", "routes.a.depth=8", "routes.products.audit.alpha=0.25")
	if c.Routes["a"].Depth != 8 || c.Routes["a.b"].Depth != 7 || c.Routes["products"].Audit.Alpha != 0.25 {
		t.Errorf("depths %d of a, %d of a.b; alpha %g", c.Routes["a"].Depth, c.Routes["a.b"].Depth, c.Routes["products"].Audit.Alpha)
	}
}

// TestSuggestions: an unknown key suggests the nearest known key, unless that is too different.
func TestSuggestions(t *testing.T) {
	for key, want := range map[string]string{"max_ks": `"max_k"`, "max_dept": `"max_depth"`, "ax_k": `"max_k"`, "adaptiev": `"adaptive"`, "zzzzzzzz": ""} {
		_, err := config.Parse("likeness.yaml", []byte("limits: {"+key+": 1}"), nil, nil)
		if _, hint, _ := strings.Cut(err.Error(), "did you mean "); strings.TrimSuffix(hint, "?") != want {
			t.Errorf("%s: error %v, want the hint %s", key, err, want)
		}
	}
}
