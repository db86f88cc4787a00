package main

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	fitbilinear "github.com/likenessdb/likeness/learn/fit/bilinear"
	"github.com/likenessdb/likeness/learn/fit/bridge"
	"github.com/likenessdb/likeness/learn/fit/companion"
	"github.com/likenessdb/likeness/learn/fit/distilled"
	fitmol "github.com/likenessdb/likeness/learn/fit/mol"
	"github.com/likenessdb/likeness/learn/fit/rbe"
	"github.com/likenessdb/likeness/rerank/dot"
	"github.com/likenessdb/likeness/sidecar/experiment"
	"github.com/likenessdb/likeness/sidecar/serve"
)

// flagged is a set of flags, and what is made of them.
type flagged struct {
	// make adds the flags to a command, and returns a function that returns what the parsed flags say. Its
	// result is compared field by field.
	make func(t *testing.T, cmd *cobra.Command) (read func() any)
	// given are arguments without which the flags are refused.
	given []string
	// sets names the field that a flag sets if it has another name than the flag, as max-k and MaxK have the
	// same. A flag that read does not show is unread.
	sets map[string]string
	// values are arguments of flags that take no plain text or number.
	values map[string]string
}

// unread stands for the field of a flag that read does not show.
const unread = "-"

// TestEveryFlagReachesWhatItSets: each flag of a command, given alone, changes the field of its own name in what
// the command passes on, and no other field.
func TestEveryFlagReachesWhatItSets(t *testing.T) {
	ids := filepath.Join(t.TempDir(), "ids.txt")
	if err := os.WriteFile(ids, []byte("7\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	others := func(flags ...string) map[string]string {
		out := map[string]string{}
		for _, flag := range flags {
			out[flag] = unread
		}
		return out
	}
	connection := others("address", "tls", "max-message-bytes", "token-file", "tls-ca", "tls-cert", "tls-key", "tls-server-name")
	for name, c := range map[string]flagged{
		"query": {
			make: func(t *testing.T, cmd *cobra.Command) func() any {
				f := &queryFlags{}
				f.add(cmd)
				return func() any {
					r := request(nil)
					if err := f.apply(cmd, r); err != nil {
						t.Fatal(err)
					}
					return r
				}
			},
			given: []string{"--route", "r"},
			sets: with(with(connection, others("vector", "vector-file", "row")), map[string]string{
				"item": "ItemIds", "exclude-id": "ExcludeIds", "payload-fields": "Payload",
			}),
			values: map[string]string{"strategy": "average", "weights": "gates", "stored-vector": "[1]", "exclude-ids": ids},
		},
		"dial": {
			make: func(_ *testing.T, cmd *cobra.Command) func() any {
				f := &dialFlags{}
				f.add(cmd)
				return func() any { return f }
			},
			sets: map[string]string{"tls-ca": "caFile", "tls-cert": "certFile", "tls-key": "keyFile", "tls-server-name": "hostname"},
		},
		"eval": {
			make: func(_ *testing.T, cmd *cobra.Command) func() any {
				f := &evalFlags{}
				f.add(cmd)
				return func() any { return f }
			},
			sets: map[string]string{"model": "models", "history": "Path", "keep-history": "Keep", "config": "File"},
		},
		"calibrate": {
			make: func(_ *testing.T, cmd *cobra.Command) func() any {
				f := &calibrateFlags{}
				f.add(cmd)
				return func() any { return f }
			},
		},
		"index, the table": {
			make: func(t *testing.T, cmd *cobra.Command) func() any {
				f := &indexFlags{}
				f.add(cmd)
				return func() any {
					to := target{}
					if err := f.applyTo(&to); err != nil {
						t.Fatal(err)
					}
					return to
				}
			},
			sets: with(with(others("route", "version", "only", "files", "strategies", "weights", "features", "force", "merge", "verify", "verify-all", "model",
				"items", "ids", "owners", "collection", "behaviour", "payload", "stored-scores", "any-version"), rankerFlagNames()),
				map[string]string{"partition": "Part", "full-precision": "full"}),
			values: map[string]string{"partition": "2/4", "format": "int8", "layout": "tiles"},
		},
		"index, the companion": {
			make: func(t *testing.T, cmd *cobra.Command) func() any {
				f := &indexFlags{}
				f.add(cmd)
				sim, err := dot.New(dot.Config{Dim: 2}, nil)
				if err != nil {
					t.Fatal(err)
				}
				return func() any {
					to := target{}
					to.model.Similarity = sim
					_ = f.applyTo(&to)
					job, _ := f.companionJob(to, newProgress(nil)) // which the model does not derive
					return job
				}
			},
			sets: with(with(others("route", "version", "only", "files", "merge", "verify", "verify-all", "model", "table", "format", "layout", "full-precision",
				"items", "ids", "owners", "collection", "behaviour", "payload", "stored-scores", "any-version"), rankerFlagNames()),
				map[string]string{"partition": "Part", "companion": "Name"}),
			values: map[string]string{"partition": "2/4", "strategies": "average", "weights": "gates"},
		},
		"a ranker's URL": {
			make: func(t *testing.T, cmd *cobra.Command) func() any {
				f := &rankerFlags{}
				f.register(cmd)
				return func() any {
					c, err := f.configuration()
					if err != nil {
						t.Fatal(err)
					}
					f.raiseTimeouts(c)
					return c.Rankers[directName]
				}
			},
			given: []string{"--scorer-url", "http://h/rerank", "--scorer-fields", "a", "--scorer-model", "m"},
			sets: with(others("ranker", "scorer", "scorer-arg", "scorer-env", "calls-per-second", "cache", "max-calls", "estimate"), map[string]string{
				"scorer-url": "URL", "scorer-fields": "Fields", "scorer-model": "Model", "scorer-version": "Version", "scorer-token-file": "TokenFile",
				"scorer-timeout": "Timeout", "scorer-items": "MaxItems", "scorer-parallel": "Parallel",
			}),
			values: map[string]string{"scorer-url": "http://other/rerank", "dialect": "jina", "scorer-token-file": ids},
		},
		"a ranker's plugin": {
			make: func(t *testing.T, cmd *cobra.Command) func() any {
				f := &rankerFlags{}
				f.register(cmd)
				return func() any {
					c, err := f.configuration()
					if err != nil {
						t.Fatal(err)
					}
					return c.Plugins[directName]
				}
			},
			given: []string{"--scorer", os.Args[0]},
			sets: with(with(rankerFlagNames(), others("scorer-url")), map[string]string{
				"scorer": "Path", "scorer-arg": "Args", "scorer-env": "Env",
			}),
			values: map[string]string{"scorer": ids},
		},
		"asking a ranker": {
			make: func(_ *testing.T, cmd *cobra.Command) func() any {
				f := &rankerFlags{}
				f.register(cmd)
				return func() any { return f.options("beside", false) }
			},
			sets: with(rankerFlagNames(), map[string]string{"calls-per-second": "PerSecond", "cache": "Dir"}),
		},
		"proxy": {
			make: func(_ *testing.T, cmd *cobra.Command) func() any {
				f := &proxyFlags{}
				f.add(cmd)
				return func() any { return f }
			},
			sets: map[string]string{
				"qdrant-rest": "REST.Upstream", "qdrant-grpc": "GRPC.Upstream", "milvus": "GRPC.Upstream", "listen-rest": "REST.Listen", "listen-grpc": "GRPC.Listen",
			},
		},
		"config validate": {make: func(_ *testing.T, cmd *cobra.Command) func() any {
			o := &serve.CheckOptions{}
			addCheckFlags(cmd, o)
			return func() any { return o }
		}},
		"experiment plan": {make: func(_ *testing.T, cmd *cobra.Command) func() any {
			q := &experiment.Question{}
			addPlanFlags(cmd, q)
			return func() any { return q }
		}},
		"try": {
			make: func(t *testing.T, cmd *cobra.Command) func() any {
				f := &tryFlags{}
				f.add(cmd)
				return func() any {
					o, err := f.of("http://h", "c")
					if err != nil {
						t.Fatal(err)
					}
					return o
				}
			},
			given:  []string{"--title", "t"},
			sets:   map[string]string{"embedder": "Embedder.URL", "text": "Embedder.Field", "api-key-env": "KeyEnv", "api-key-file": "KeyFile", "questions": "Log"},
			values: map[string]string{"title": "other", "questions": "log.jsonl"},
		},
		"plugin check": {
			make: func(_ *testing.T, cmd *cobra.Command) func() any {
				c := &pluginCheck{}
				c.add(cmd)
				return func() any { return c }
			},
		},
		"fit bilinear": {make: func(_ *testing.T, cmd *cobra.Command) func() any {
			f := &fitBilinearFlags{options: fitbilinear.DefaultOptions()}
			f.register(cmd, &f.options.Common, true)
			f.flags(cmd)
			return func() any { return f }
		}, sets: fitFields()},
		"fit mol": {make: func(_ *testing.T, cmd *cobra.Command) func() any {
			f := &fitMoLFlags{options: fitmol.DefaultOptions()}
			f.register(cmd, &f.options.Common, true)
			f.flags(cmd)
			return func() any { return f }
		}, sets: fitFields()},
		"fit distilled": {make: func(_ *testing.T, cmd *cobra.Command) func() any {
			f := &fitDistilledFlags{options: distilled.DefaultOptions()}
			f.register(cmd, &f.options.Common, true)
			f.flags(cmd)
			return func() any { return f }
		}, sets: fitFields()},
		"fit companion": {make: func(_ *testing.T, cmd *cobra.Command) func() any {
			f := &fitCompanionFlags{options: companion.DefaultOptions()}
			f.register(cmd, &f.options.Common, false)
			f.flags(cmd)
			return func() any { return f }
		}, sets: with(fitFields(), map[string]string{"fit-items": "options.Items"})},
		"fit rbe": {make: func(_ *testing.T, cmd *cobra.Command) func() any {
			f := &fitRBEFlags{options: rbe.DefaultOptions()}
			f.flags(cmd)
			return func() any { return f }
		}, sets: map[string]string{
			"item-ids": "ids", "out-width": "options.Out", "hit-rates": "judged", "config": "File", "scorer-url": "url", "scorer-token-file": "token", "calls-per-second": "perSecond",
			"scorer-arg": "args", "scorer-env": "env", "scorer-fields": "fields", "scorer-model": "model", "scorer-version": "version", "scorer-timeout": "timeout",
			"scorer-items": "maxItems", "scorer-parallel": "parallel",
		}},
		"fit bridge": {make: func(_ *testing.T, cmd *cobra.Command) func() any {
			f := &fitBridgeFlags{options: bridge.DefaultOptions()}
			f.flags(cmd)
			return func() any { return f }
		}, sets: map[string]string{"new": "now", "queries-new": "Queries"}},
	} {
		t.Run(name, func(t *testing.T) {
			all := &cobra.Command{}
			c.make(t, all)
			all.Flags().VisitAll(func(flag *pflag.Flag) {
				want := cmp.Or(c.sets[flag.Name], flag.Name)
				if want == unread {
					return
				}
				got := c.fields(t, flag)
				if len(got) == 0 {
					t.Errorf("--%s changes nothing", flag.Name)
				}
				for _, path := range got {
					if !strings.Contains(spelled(path)+".", "."+spelled(want)+".") {
						t.Errorf("--%s changes %s, want %q", flag.Name, path, want)
					}
				}
			})
		})
	}
}

// fields returns the paths of the fields that a flag changes.
func (c *flagged) fields(t *testing.T, flag *pflag.Flag) []string {
	t.Helper()
	read := func(args ...string) any {
		cmd := &cobra.Command{}
		result := c.make(t, cmd)
		if err := cmd.ParseFlags(append(slices.Clone(c.given), args...)); err != nil {
			t.Fatal(err)
		}
		return result()
	}
	value, ok := c.values[flag.Name]
	if !ok {
		value = otherValue(flag)
	}
	paths := map[string]bool{}
	differences("", reflect.ValueOf(read()), reflect.ValueOf(read("--"+flag.Name+"="+value)), paths)
	return slices.Sorted(maps.Keys(paths))
}

// otherValue returns a value of a flag that is not its default.
func otherValue(flag *pflag.Flag) string {
	switch flag.Value.Type() {
	case "bool":
		return fmt.Sprint(flag.DefValue == "false")
	case "duration":
		return "77m"
	case "float32", "float64", "float64Slice":
		return "0.77"
	case "string", "stringArray", "stringSlice":
		return "text"
	case "stringToString":
		return "key=text"
	default:
		return "77"
	}
}

// differences collects the paths of the exported and unexported fields in which two values differ. It leaves out
// functions, and the state that generated messages keep for themselves.
func differences(path string, a, b reflect.Value, paths map[string]bool) {
	switch a.Kind() {
	case reflect.Pointer, reflect.Interface:
		switch {
		case a.IsNil() != b.IsNil():
			paths[path] = true
		case !a.IsNil():
			differences(path, a.Elem(), b.Elem(), paths)
		}
	case reflect.Struct:
		for i := range a.NumField() {
			field := a.Type().Field(i)
			if field.Type.PkgPath() == "google.golang.org/protobuf/internal/impl" || field.Name == "sizeCache" || field.Name == "unknownFields" {
				continue
			}
			next := path + "." + field.Name
			if field.Anonymous {
				next = path
			}
			differences(next, a.Field(i), b.Field(i), paths)
		}
	case reflect.Func, reflect.Chan:
	case reflect.Slice, reflect.Map:
		if a.Len() != b.Len() || fmt.Sprint(a) != fmt.Sprint(b) {
			paths[path] = true
		}
	default:
		if !a.Equal(b) {
			paths[path] = true
		}
	}
}

// spelled spells the names of a flag and of a field alike.
func spelled(name string) string { return strings.ToLower(strings.ReplaceAll(name, "-", "")) }

// with returns a map with the entries of both, where the second one's take precedence.
func with(a, b map[string]string) map[string]string {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

// rankerFlagNames returns the flags of rankerFlags, as unread ones.
func rankerFlagNames() map[string]string {
	cmd, out := &cobra.Command{}, map[string]string{}
	(&rankerFlags{}).register(cmd)
	cmd.Flags().VisitAll(func(flag *pflag.Flag) { out[flag.Name] = unread })
	return out
}

// fitFields names the fields that the flags of every fit set, where they have other names.
func fitFields() map[string]string {
	return map[string]string{"history": "Path", "keep-history": "Keep", "config": "File", "split": "SplitBy"}
}
