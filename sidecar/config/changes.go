package config

import (
	"reflect"
	"strings"
)

// Effect says when a changed key takes effect.
type Effect string

// The effects, as the reload tags of the schema spell them.
const (
	// EffectLive: when the configuration is read again.
	EffectLive Effect = "live"
	// EffectActivation: when a version of the route is activated.
	EffectActivation Effect = "activation"
	// EffectRestart: when the process starts again.
	EffectRestart Effect = "restart"
)

// Change is a key whose value differs between two configurations.
type Change struct {
	Path   string
	Effect Effect
}

// Changes lists the keys whose values differ in next, in the order of the schema. A store,
// plugin, ranker, embedder or route that only one of the two configurations has counts as one change,
// with the path of its entry.
func (c *Config) Changes(next *Config) []Change {
	var out []Change
	entries := map[string]bool{}
	for _, kind := range []string{"stores", "plugins", "rankers", "embedders", "routes"} {
		for _, name := range differing(c.entries(kind), next.entries(kind)) {
			entries[join(kind, name)] = true
			out = append(out, Change{Path: join(kind, name), Effect: EffectRestart})
		}
	}
	was, is := c.values(), next.values()
	seen := map[string]bool{}
	for _, v := range append(is.list, was.list...) {
		if seen[v.path] || within(v.path, entries) {
			continue
		}
		seen[v.path] = true
		before, after := was.at[v.path], is.at[v.path]
		if before.IsValid() && after.IsValid() && reflect.DeepEqual(before.Interface(), after.Interface()) {
			continue
		}
		out = append(out, Change{Path: v.path, Effect: v.effect(before.IsValid() && after.IsValid())})
	}
	return out
}

func effectOf(f reflect.StructField) Effect {
	if e := Effect(f.Tag.Get("reload")); e != "" {
		return e
	}
	return EffectRestart
}

// leaf is a key of a configuration.
type leaf struct {
	path  string
	field reflect.StructField
}

// effect says when a change of the key takes effect. both tells whether both configurations
// have the key. If only one has it, the key belongs to a version or model that is new or
// gone; an activation reads those again.
func (l leaf) effect(both bool) Effect {
	e := effectOf(l.field)
	if !both && e == EffectLive {
		return EffectActivation
	}
	return e
}

type values struct {
	list []leaf
	at   map[string]reflect.Value
}

func (c *Config) values() values {
	v := values{at: map[string]reflect.Value{}}
	eachLeaf(reflect.ValueOf(c).Elem(), "", func(path string, f reflect.StructField, value reflect.Value) {
		v.list = append(v.list, leaf{path, f})
		v.at[path] = value
	})
	return v
}

func (c *Config) entries(kind string) []string {
	switch kind {
	case "stores":
		return c.StoreNames()
	case "plugins":
		return c.PluginNames()
	case "rankers":
		return c.RankerNames()
	case "embedders":
		return c.EmbedderNames()
	default:
		return c.RouteNames()
	}
}

// differing lists, sorted, the names that only one of the lists has.
func differing(a, b []string) []string {
	var out []string
	for _, name := range a {
		if !contains(b, name) {
			out = append(out, name)
		}
	}
	for _, name := range b {
		if !contains(a, name) {
			out = append(out, name)
		}
	}
	return sorted(out)
}

func within(path string, entries map[string]bool) bool {
	for entry := range entries {
		if strings.HasPrefix(path, entry+".") {
			return true
		}
	}
	return false
}
