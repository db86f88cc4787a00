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
	fitmaxsim "github.com/likenessdb/likeness/learn/fit/maxsim"
	fitmol "github.com/likenessdb/likeness/learn/fit/mol"
	"github.com/likenessdb/likeness/learn/fit/rbe"
	"github.com/likenessdb/likeness/rerank/dot"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/experiment"
	"github.com/likenessdb/likeness/sidecar/serve"
)

// flagged is a set of flags, and what is made of them.
type flagged struct {
	// commands are the commands that have the flags, such as "model import". A row without commands stands for
	// every command.
	commands []string
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

// fields makes the make of flags that are compared as they are stored: add adds them to a command, and returns the
// struct that they set.
func fields(add func(*cobra.Command) any) func(*testing.T, *cobra.Command) func() any {
	return func(_ *testing.T, cmd *cobra.Command) func() any {
		f := add(cmd)
		return func() any { return f }
	}
}

// unread stands for the field of a flag that read does not show.
const unread = "-"

// TestEveryFlagReachesWhatItSets: each flag of a command, given alone, changes the field of its own name in what
// the command passes on, and no other field. A flag of a command without a row fails.
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
	rows := map[string]bool{}
	for name, c := range map[string]flagged{
		"query": {
			commands: []string{"query"},
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
			sets: tlsFields(),
		},
		"eval": {
			commands: []string{"eval"},
			make: func(_ *testing.T, cmd *cobra.Command) func() any {
				f := &evalFlags{}
				f.add(cmd)
				return func() any { return f }
			},
			sets: map[string]string{"model": "models", "history": "Path", "keep-history": "Keep", "config": "File"},
		},
		"calibrate": {
			commands: []string{"calibrate"},
			make: func(_ *testing.T, cmd *cobra.Command) func() any {
				f := &calibrateFlags{}
				f.add(cmd)
				return func() any { return f }
			},
		},
		"index, the table": {
			commands: []string{"index"},
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
			commands: []string{"index"},
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
			commands: []string{"index"},
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
			commands: []string{"index"},
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
			commands: []string{"index"},
			make: func(_ *testing.T, cmd *cobra.Command) func() any {
				f := &rankerFlags{}
				f.register(cmd)
				return func() any { return f.options("beside", false) }
			},
			sets: with(rankerFlagNames(), map[string]string{"calls-per-second": "PerSecond", "cache": "Dir"}),
		},
		"proxy": {
			commands: []string{"proxy"},
			make: func(_ *testing.T, cmd *cobra.Command) func() any {
				f := &proxyFlags{}
				f.add(cmd)
				return func() any { return f }
			},
			sets: map[string]string{
				"qdrant-rest": "REST.Upstream", "qdrant-grpc": "GRPC.Upstream", "milvus": "GRPC.Upstream", "listen-rest": "REST.Listen", "listen-grpc": "GRPC.Listen",
			},
		},
		"config validate": {commands: []string{"config validate"}, make: func(_ *testing.T, cmd *cobra.Command) func() any {
			o := &serve.CheckOptions{}
			addCheckFlags(cmd, o)
			return func() any { return o }
		}},
		"experiment plan": {commands: []string{"experiment plan"}, make: func(_ *testing.T, cmd *cobra.Command) func() any {
			q := &experiment.Question{}
			addPlanFlags(cmd, q)
			return func() any { return q }
		}},
		"try": {
			commands: []string{"try"},
			make: func(t *testing.T, cmd *cobra.Command) func() any {
				f := &tryFlags{}
				f.add(cmd)
				return func() any {
					o, err := f.of([]string{"http://h", "c"})
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
			commands: []string{"plugin check"},
			make: func(_ *testing.T, cmd *cobra.Command) func() any {
				c := &pluginCheck{}
				c.add(cmd)
				return func() any { return c }
			},
		},
		"fit bilinear": {commands: []string{"fit bilinear"}, make: func(_ *testing.T, cmd *cobra.Command) func() any {
			f := &fitBilinearFlags{options: fitbilinear.DefaultOptions()}
			f.register(cmd, &f.options.Common, true)
			f.flags(cmd)
			return func() any { return f }
		}, sets: with(fitFields(), map[string]string{"metric": "options.Measure"})},
		"fit mol": {commands: []string{"fit mol"}, make: func(_ *testing.T, cmd *cobra.Command) func() any {
			f := &fitMoLFlags{options: fitmol.DefaultOptions()}
			f.register(cmd, &f.options.Common, true)
			f.flags(cmd)
			return func() any { return f }
		}, sets: with(fitFields(), map[string]string{"metric": "options.Measure"})},
		"fit distilled": {commands: []string{"fit distilled"}, make: func(_ *testing.T, cmd *cobra.Command) func() any {
			f := &fitDistilledFlags{options: distilled.DefaultOptions()}
			f.register(cmd, &f.options.Common, true)
			f.flags(cmd)
			return func() any { return f }
		}, sets: fitFields()},
		"fit companion": {commands: []string{"fit companion"}, make: func(_ *testing.T, cmd *cobra.Command) func() any {
			f := &fitCompanionFlags{options: companion.DefaultOptions()}
			f.register(cmd, &f.options.Common, false)
			f.registerCounts(cmd)
			f.flags(cmd)
			return func() any { return f }
		}, sets: with(fitFields(), map[string]string{"fit-items": "options.Items"})},
		"fit rbe": {commands: []string{"fit rbe"}, make: func(_ *testing.T, cmd *cobra.Command) func() any {
			f := &fitRBEFlags{options: rbe.DefaultOptions()}
			f.flags(cmd)
			return func() any { return f }
		}, sets: with(scorerFields(), map[string]string{"item-ids": "ids", "out-width": "options.Out", "hit-rates": "judged", "config": "File"})},
		"fit bridge": {commands: []string{"fit bridge"}, make: func(_ *testing.T, cmd *cobra.Command) func() any {
			f := &fitBridgeFlags{options: bridge.DefaultOptions()}
			f.flags(cmd)
			return func() any { return f }
		}, sets: map[string]string{"new": "now", "queries-new": "Queries"}},
		"configuration": {make: fields(func(cmd *cobra.Command) any { return addConfigFlags(cmd) }), sets: map[string]string{"config": "File"}},
		"output":        {make: fields(func(cmd *cobra.Command) any { return &struct{ Output *output }{addOutput(cmd)} })},
		"serve": {commands: []string{"serve"}, make: func(t *testing.T, cmd *cobra.Command) func() any {
			addServeSettings(cmd)
			return func() any {
				c, err := config.Load(config.Source{Set: givenSettings(cmd), Environ: []string{}})
				if err != nil {
					t.Fatal(err)
				}
				return &struct {
					Listen config.Listen
					Log    config.Log
				}{c.Listen, c.Log}
			}
		}, sets: map[string]string{"listen": "Listen.GRPC", "rest": "Listen.REST", "admin": "Listen.Admin", "log-level": "Log.Level"},
			values: map[string]string{"listen": "h:7", "rest": "h:7", "admin": "h:7", "log-level": "debug"}},
		"query, its vector": {commands: []string{"query"}, make: fields(func(cmd *cobra.Command) any {
			f := &queryFlags{}
			f.add(cmd)
			return f
		}), sets: with(tlsFields(), map[string]string{
			"vector-file": "file", "item": "items", "exclude-id": "excludeIDs", "exclude-ids": "excludeFile", "stored-vector": "storedVector",
		})},
		"index": {commands: []string{"index"}, make: fields(func(cmd *cobra.Command) any {
			f := &indexFlags{}
			f.add(cmd)
			return f
		}), sets: with(scorerFields(), map[string]string{"rows-per-second": "rate", "stored-scores": "stored", "full-precision": "full"})},
		"admin": {make: fields(func(cmd *cobra.Command) any {
			f := &adminFlags{}
			f.add(cmd)
			return f
		}), sets: with(tlsFields(), map[string]string{"output": unread})},
		"refit": {commands: []string{"refit"}, make: fields(func(cmd *cobra.Command) any {
			f := &refitFlags{newest: 7}
			f.flags(cmd)
			return f
		}), sets: with(tlsFields(), map[string]string{"config": "File", "stop-experiment": "stop"})},
		"reconcile": {commands: []string{"reconcile"}, make: fields(func(cmd *cobra.Command) any {
			f := &reconcileFlags{}
			f.flags(cmd)
			return f
		}), sets: with(tlsFields(), map[string]string{"output": unread})},
		"model activate": {commands: []string{"model activate"}, make: func(_ *testing.T, cmd *cobra.Command) func() any {
			f := &activateFlags{}
			f.add(cmd)
			return func() any { return f.request("v2") }
		}, sets: with(connection, others("timeout", "output"))},
		"model gc": {commands: []string{"model gc"}, make: func(_ *testing.T, cmd *cobra.Command) func() any {
			f := &gcFlags{}
			f.add(cmd)
			return func() any { return f.request() }
		}, sets: with(connection, others("timeout", "output"))},
		"drop-companion": {commands: []string{"drop-companion"}, make: fields(func(cmd *cobra.Command) any {
			f := &dropCompanionFlags{}
			f.flags(cmd)
			return f
		})},
		"bridge fill": {commands: []string{"bridge fill"}, make: fields(func(cmd *cobra.Command) any {
			f := &bridgeFillFlags{}
			f.flags(cmd)
			return f
		}), sets: map[string]string{"new": "now", "item-ids": "ids"}},
		"bridge finish": {commands: []string{"bridge finish"}, make: fields(func(cmd *cobra.Command) any {
			f := &bridgeFinishFlags{}
			f.flags(cmd)
			return f
		})},
		"events export": {commands: []string{"events export"}, make: func(t *testing.T, cmd *cobra.Command) func() any {
			f := &eventsExportFlags{}
			f.flags(cmd)
			return func() any {
				o, err := f.options([]string{"dir"})
				if err != nil {
					t.Fatal(err)
				}
				return &o
			}
		}, sets: map[string]string{"out": "Log", "weight": "Weights"}, values: map[string]string{"from": "2026-01-31", "to": "2026-01-31", "weight": "click=5"}},
		"model import": {commands: []string{"model import"}, make: fields(func(cmd *cobra.Command) any {
			f := &importFlags{}
			f.flags(cmd)
			return f
		}), sets: map[string]string{"from": "format"}},
		"plugin device": {commands: []string{"plugin device"}, make: fields(func(cmd *cobra.Command) any {
			f := &pluginDevice{}
			f.flags(cmd)
			return f
		}), sets: map[string]string{"tls-cert": "CertFile", "tls-key": "KeyFile", "tls-client-ca": "ClientCAFile"}},
		"fit maxsim": {commands: []string{"fit maxsim"}, make: fields(func(cmd *cobra.Command) any {
			f := &fitMaxSimFlags{options: fitmaxsim.DefaultOptions()}
			f.register(cmd, &f.options.Common, true)
			f.flags(cmd)
			return f
		}), sets: with(fitFields(), map[string]string{"beta": "Betas", "metric": "options.Measure"})},
		"bench search": {commands: []string{"bench search"}, make: fields(func(cmd *cobra.Command) any {
			f := &benchFlags{}
			f.flags(cmd)
			return f
		}), sets: map[string]string{"events": "Turns", "average-depth": "avgDepth", "config": "File"}},
		"bench gpu": {commands: []string{"bench gpu"}, make: fields(func(cmd *cobra.Command) any {
			f := &benchGPUFlags{}
			f.flags(cmd)
			return f
		}), sets: map[string]string{"config": "File", "route": "route.name", "plugin": "path", "case": "cases", "cpu": "withCPU", "time": "duration"}},
		"bench machine": {commands: []string{"bench machine"}, make: fields(func(cmd *cobra.Command) any {
			f := &benchMachineFlags{}
			f.flags(cmd)
			return f
		})},
		"bench rails": {commands: []string{"bench rails"}, make: fields(func(cmd *cobra.Command) any {
			f := &railsFlags{}
			f.flags(cmd)
			return f
		}), sets: map[string]string{"count": "Items", "batch": "Batches"}},
		"bench rerank": {commands: []string{"bench rerank"}, make: fields(func(cmd *cobra.Command) any {
			f := &benchRerankFlags{}
			f.flags(cmd)
			return f
		})},
		"bench scan": {commands: []string{"bench scan"}, make: fields(func(cmd *cobra.Command) any {
			f := &benchScanFlags{}
			f.flags(cmd)
			return f
		}), sets: map[string]string{"full-precision": "Full", "time": "Budget"}},
		"bench score": {commands: []string{"bench score"}, make: fields(func(cmd *cobra.Command) any {
			f := &benchScoreFlags{}
			f.flags(cmd)
			return f
		}), sets: map[string]string{"time": "Budget"}},
		"bench serve": {commands: []string{"bench serve"}, make: fields(func(cmd *cobra.Command) any {
			f := &benchServeFlags{}
			f.flags(cmd)
			return f
		}), sets: with(tlsFields(), map[string]string{"load": "multiples", "rate": "rates"})},
	} {
		t.Run(name, func(t *testing.T) {
			all := &cobra.Command{}
			c.make(t, all)
			all.Flags().VisitAll(func(flag *pflag.Flag) {
				want := cmp.Or(c.sets[flag.Name], flag.Name)
				if want == unread {
					return
				}
				rows["--"+flag.Name] = rows["--"+flag.Name] || c.commands == nil
				for _, command := range c.commands {
					rows[command+" --"+flag.Name] = true
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
	everyCommand(newRootCommand(&app{}), func(c *cobra.Command) {
		_, command, _ := strings.Cut(c.CommandPath(), " ")
		c.LocalFlags().VisitAll(func(flag *pflag.Flag) {
			own := command + " --" + flag.Name
			if !rows["--"+flag.Name] && !rows[own] && !slices.Contains(localFlags, own) {
				t.Errorf("%s has no row here", own)
			}
		})
	})
}

// localFlags are flags that set a local variable of a command of a few lines, or that belong to cobra.
var localFlags = []string{
	"completion bash --no-descriptions", "completion fish --no-descriptions", "completion powershell --no-descriptions", "completion zsh --no-descriptions",
	"config print --default", "config schema --markdown", "docs --dir", "docs --man",
	"model dot --dim", "model dot --force", "model dot --normalise", "model late --dim", "model late --force", "model late --normalise",
	"plugin serve --admin", "plugin serve --log-level", "plugin serve --protocol", "serve --ready-file",
}

// everyCommand calls visit for a command and for all commands below it.
func everyCommand(c *cobra.Command, visit func(*cobra.Command)) {
	visit(c)
	for _, child := range c.Commands() {
		everyCommand(child, visit)
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
	case "format":
		return string(outputJSON)
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

// tlsFields names the fields that the flags of credentials set, where they have other names.
func tlsFields() map[string]string {
	return map[string]string{"tls-ca": "caFile", "tls-cert": "certFile", "tls-key": "keyFile", "tls-server-name": "hostname"}
}

// scorerFields names the fields that the flags of rankerFlags set, where they have other names.
func scorerFields() map[string]string {
	return map[string]string{
		"scorer-url": "url", "scorer-token-file": "token", "calls-per-second": "perSecond", "scorer-arg": "args", "scorer-env": "env", "scorer-fields": "fields",
		"scorer-model": "model", "scorer-version": "version", "scorer-timeout": "timeout", "scorer-items": "maxItems", "scorer-parallel": "parallel",
	}
}
