package config_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/likenessdb/likeness/sidecar/config"
)

const small = `
listen: {grpc: "127.0.0.1:0"}
stores:
  main: {kind: qdrant, address: "db:6334", api_key_file: key}
models:
  taste: {path: taste.safetensors}
routes:
  products: {store: main, collection: products, model: taste, placement: stored, timeout: 250ms}
`

func parse(t *testing.T, text string, environ []string, set ...string) *config.Config {
	t.Helper()
	c, err := config.Parse("/etc/likeness/likeness.yaml", []byte(text), environ, set)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestFileOverDefaults(t *testing.T) {
	c := parse(t, small, nil)
	r := c.Routes["products"]
	if r.Timeout != 250*time.Millisecond || r.Depth != 200 || r.Failure != "fail_open" {
		t.Errorf("route %+v: the file's values over the route's defaults are wanted", r)
	}
	if c.Listen.GRPC != "127.0.0.1:0" || c.Listen.Admin != config.Default().Listen.Admin {
		t.Errorf("listen %+v", c.Listen)
	}
	if got := c.Models["taste"].Path; got != "/etc/likeness/taste.safetensors" {
		t.Errorf("path %s, want it relative to the file", got)
	}
}

func TestOrderOfSources(t *testing.T) {
	env := []string{"LIKENESS_LIMITS_MAX_K=20", "LIKENESS_ROUTES_PRODUCTS_DEPTH=30", "LIKENESS_SERVICE_HOST=10.0.0.1",
		"LIKENESS_LIMITS_MAX_MESSAGE_BYTES=1MiB", "LIKENESS_LISTEN_GRPC=:1"}
	c := parse(t, small, env, "listen.grpc=:2", "routes.products.max_gap=0.5", "routes.products.partitions=[a, b]")
	r := c.Routes["products"]
	switch {
	case c.Listen.GRPC != ":2":
		t.Errorf("grpc %s, want the flag's", c.Listen.GRPC)
	case c.Limits.MaxK != 20 || r.Depth != 30 || c.Limits.MaxMessageBytes != 1<<20:
		t.Errorf("limits %+v, depth %d, want the environment's", c.Limits, r.Depth)
	case r.MaxGap == nil || *r.MaxGap != 0.5 || len(r.Partitions) != 2:
		t.Errorf("max_gap %v, partitions %v, want the flags'", r.MaxGap, r.Partitions)
	}
}

func TestErrorsNameThePlace(t *testing.T) {
	tests := []struct{ name, text, env, set, want string }{
		{"unknown key", "limits:\n  max_kk: 3\n", "", "", `likeness.yaml:2: unknown key "max_kk" in limits; did you mean "max_k"?`},
		{"unknown section", "lisen: {}\n", "", "", `unknown key "lisen"; did you mean "listen"?`},
		{"a key like none", "stores: {m: {adapter: qdrant}}\n", "", "", `unknown key "adapter" in stores.m; known: kind, address, `},
		{"inline secret", "stores: {m: {kind: qdrant, address: 'a:1', api_key: canary}}\n", "", "", `unknown key "api_key" in stores.m; did you mean "api_key_`},
		{"type", "limits:\n  max_k: many\n", "", "", "likeness.yaml: line 2"},
		{"fraction", "limits:\n  max_k: 1.5\n", "", "", "likeness.yaml:2: limits.max_k: not a valid whole number"},
		{"duration", "shutdown:\n  grace: 5\n", "", "", "line 2: cannot unmarshal !!int `5` into a duration; give it a unit, as 5s"},
		{"bytes", "limits:\n  max_message_bytes: 3 parsecs\n", "", "", `"3 parsecs" is not a size`},
		{"yaml", "limits: [\n", "", "", "likeness.yaml"},
		{"twice", "log: {}\nlog: {}\n", "", "", "already defined"},
		{"documents", "log: {}\n---\nlog: {}\n", "", "", "more than one"},
		{"enum", "log:\n  level: loud\n", "", "", `likeness.yaml:2: log.level: "loud" is not one of debug, info, warn, error`},
		{"minimum", "limits: {max_k: 0}\n", "", "", "limits.max_k: 0 is too small, at least 1"},
		{"maximum", "limits: {max_message_bytes: 4GiB}\n", "", "", "4GiB is too large"},
		{"proxy store", "proxy: {store: none, listen_grpc: 'a:1'}\n", "", "", `proxy.store: "none" is no store of kind qdrant`},
		{"proxy REST", "stores: {q: {kind: qdrant, address: 'a:1'}}\nproxy: {store: q, listen_rest: 'a:1'}\n", "", "", "proxy.rest_url: listen_rest and rest_url belong together"},
		{"proxy route", "stores: {q: {kind: qdrant, address: 'a:1'}}\nproxy: {store: q, listen_grpc: 'a:1', routes: [none]}\n", "", "", `proxy.routes: there is no route "none"`},
		{"ratio", "trace: {sample_ratio: .nan}\n", "", "", "must be a number"},
		{"address", "listen: {grpc: 'http://x:1/'}\n", "", "", "listen.grpc: not an address"},
		{"store", small + "  b: {store: mian, collection: c, model: taste, placement: stored}\n", "", "", `there is no store "mian"; did you mean "main"?`},
		{"a store like none", small + "  b: {store: vectors, collection: c, model: taste, placement: stored}\n", "", "", `there is no store "vectors"; known: main`},
		{"model", small + "  b: {store: main, collection: c, model: tast, placement: stored}\n", "", "", `there is no model "tast"; did you mean "taste"?`},
		{"table", small + "  b: {store: main, collection: c, model: taste, placement: table}\n", "", "", "likeness index"},
		{"depth", small + "  b: {store: main, collection: c, model: taste, placement: stored, depth: 99999}\n", "", "", "greatest depth, 16384"},
		{"active", small + "  b: {store: main, collection: c, active: v2, versions: {v1: {model: taste, placement: stored}}}\n", "", "", `active: "v2" is none of the route's versions ["v1"]`},
		{"active of none", small + "  b: {store: main, collection: c, model: taste, placement: stored, active: v2}\n", "", "", `none of the route's versions`},
		{"a version's model", small + "  b: {store: main, collection: c, active: v1, versions: {v1: {model: tast, placement: stored}}}\n", "", "", `versions.v1.model: there is no model "tast"; did you mean "taste"?`},
		{"a version without a model", small + "  b: {store: main, collection: c, active: v1, versions: {v1: {placement: stored}}}\n", "", "", `versions.v1.model: a value is required`},
		{"a version's word", small + "  b: {store: main, collection: c, active: v1, versions: {v1: {model: taste, placement: cellar}}}\n", "", "", `versions.v1.placement: "cellar" is not one of`},
		{"a live table of two", small + "  b: {store: main, collection: c, active: v1, table: t, table_live: true, versions: {v1: {model: taste}, v2: {model: taste}}}\n", "", "", `also the table of version "v1"`},
		{"no model", small + "  b: {store: main, collection: c, placement: stored}\n", "", "", "b.model: a value is required"},
		{"variable", small, "LIKENESS_LIMITS_MAXK=3", "", `variable LIKENESS_LIMITS_MAXK names no key; did you mean "LIKENESS_LIMITS_MAX_K"?`},
		{"variable's value", small, "LIKENESS_LIMITS_MAX_K=x", "", "LIKENESS_LIMITS_MAX_K: not a valid whole number"},
		{"flag", small, "", "limits.maxk=3", `flag: unknown key "limits.maxk"; did you mean "limits.max_k"?`},
		{"flag's form", small, "", "limits.max_k", "write key=value"},
		{"embedded", "stores: {e: {kind: embedded}}\n", "", "", "at least one collection"},
		{"credentials", "stores: {m: {kind: milvus, address: 'a:1', username: u}}\n", "", "", "belong together"},
		{"tls", "listen: {tls: {cert_file: c.pem}}\n", "", "", "belong together"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			var set []string
			if tc.set != "" {
				set = []string{tc.set}
			}
			_, err := config.Parse("likeness.yaml", []byte(tc.text), []string{tc.env}, set)
			if !errors.Is(err, config.ErrConfig) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one that contains %q", err, tc.want)
			}
			if err != nil && strings.Contains(err.Error(), "canary") {
				t.Error("the error repeats a secret")
			}
		})
	}
}

func TestDefaultFileRoundTrips(t *testing.T) {
	var commented, first, second bytes.Buffer
	if err := config.PrintDefault(&commented); err != nil {
		t.Fatal(err)
	}
	c := parse(t, commented.String(), nil)
	if err := c.Print(&first); err != nil {
		t.Fatal(err)
	}
	if err := parse(t, first.String(), nil).Print(&second); err != nil {
		t.Fatal(err)
	}
	if first.String() != second.String() {
		t.Errorf("printed and read again:\n%s\nbefore:\n%s", second.String(), first.String())
	}
	want, got := config.Default(), *c
	want.Listen.AllowedHosts = []string{} // as it is printed
	if !reflect.DeepEqual(got.Listen, want.Listen) || got.Limits != want.Limits || got.Log != want.Log || got.Trace != want.Trace || got.Shutdown != want.Shutdown {
		t.Errorf("the commented file is not the default: %+v", got)
	}
}

func TestSecretsDoNotShow(t *testing.T) {
	const canary = "canary-7f3a"
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "key"), []byte(canary+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	text := small + "  b: {store: other, collection: c, model: taste, placement: stored}\n"
	text = strings.Replace(text, "models:", "  other: {kind: milvus, address: 'a:1', username: u, password_env: PW}\nmodels:", 1)
	c, err := config.Parse(filepath.Join(dir, "likeness.yaml"), []byte(text), []string{"PW=" + canary}, nil)
	if err != nil {
		t.Fatal(err)
	}
	key, err := c.APIKey("main")
	if err != nil || key.Reveal() != canary {
		t.Fatalf("api key: %v", err)
	}
	password, err := c.Password("other")
	if err != nil || password.Reveal() != canary {
		t.Fatalf("password: %v", err)
	}
	var out bytes.Buffer
	if err := c.Print(&out); err != nil {
		t.Fatal(err)
	}
	slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "key", key, "password", password, "store", c.Stores["main"])
	if err := json.NewEncoder(&out).Encode(map[string]any{"key": key, "password": password}); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&out, "%v %+v %#v %s", key, password, key, password)
	if strings.Contains(out.String(), canary) {
		t.Errorf("a secret shows:\n%s", out.String())
	}
}

func TestSecretMissing(t *testing.T) {
	c := parse(t, small, nil)
	if _, err := c.APIKey("main"); !errors.Is(err, config.ErrConfig) || !strings.Contains(err.Error(), "api_key_file") {
		t.Errorf("error %v, want one that names the key", err)
	}
}

// The committed files equal the generators' output.
func TestGeneratedFiles(t *testing.T) {
	files := map[string]func(*bytes.Buffer) error{
		"../../deploy/likeness.yaml":              func(b *bytes.Buffer) error { return config.PrintDefault(b) },
		"../../docs/reference/config.schema.json": func(b *bytes.Buffer) error { return config.WriteSchema(b) },
		"../../docs/reference/config.md":          func(b *bytes.Buffer) error { return config.WriteReference(b) },
	}
	for name, write := range files {
		var want bytes.Buffer
		if err := write(&want); err != nil {
			t.Fatal(err)
		}
		have, err := os.ReadFile(name)
		if err != nil || !bytes.Equal(have, want.Bytes()) {
			t.Errorf("%s is not up to date (%v); run make generate", filepath.Base(name), err)
		}
	}
}

// Every key has a documentation.
func TestEveryKeyIsDocumented(t *testing.T) {
	var b bytes.Buffer
	if err := config.WriteSchema(&b); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), `"description": ""`) {
		t.Errorf("a key has no comment:\n%s", b.String())
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(small))
	f.Add([]byte("a: &a [*a]\nlog: {<<: {level: info}}"))
	f.Add([]byte("routes: {? [x]: y}"))
	f.Add([]byte("routes: {r: null}\nstores: null\nlimits: {memory: 9999999999GiB}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := config.Parse("f.yaml", data, []string{"LIKENESS_LIMITS_MAX_K=9"}, nil)
		if err != nil {
			if !errors.Is(err, config.ErrConfig) {
				t.Errorf("error %v is not ErrConfig", err)
			}
			return
		}
		var out bytes.Buffer
		if err := c.Print(&out); err != nil {
			t.Fatal(err)
		}
		if _, err := config.Parse("f.yaml", out.Bytes(), nil, nil); err != nil {
			t.Errorf("what was printed is refused: %v\n%s", err, out.String())
		}
	})
}
