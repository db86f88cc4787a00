package config

import (
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"

	"go.yaml.in/yaml/v3"

	"github.com/likenessdb/likeness/internal/edits"
)

// keyOf returns the key of a field, and false for a field without one.
func keyOf(f reflect.StructField) (string, bool) {
	key := f.Tag.Get("yaml")
	return key, key != "" && key != "-"
}

func keysOf(t reflect.Type) []string {
	var all []string
	for f := range fields(t) {
		key, _ := keyOf(f)
		all = append(all, key)
	}
	return all
}

// fields yields the fields of a struct type that have a key. The fields of a struct that
// is embedded inline count as fields of the outer struct; their Index leads to them.
func fields(t reflect.Type) func(yield func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) { eachField(t, nil, yield) }
}

// eachField yields the fields of t, which index leads to, until yield returns false.
func eachField(t reflect.Type, index []int, yield func(reflect.StructField) bool) bool {
	for i := range t.NumField() {
		f := t.Field(i)
		f.Index = append(slices.Clone(index), i)
		if f.Tag.Get("yaml") == ",inline" {
			if !eachField(f.Type, f.Index, yield) {
				return false
			}
			continue
		}
		if _, ok := keyOf(f); ok && !yield(f) {
			return false
		}
	}
	return true
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// keyCheck finds the keys of a YAML tree that the type does not have, and records the lines
// of the keys that it has.
type keyCheck struct {
	origin *origin
	seen   map[visit]bool // aliases can lead to the same node twice
	found  []string
}

type visit struct {
	node *yaml.Node
	typ  reflect.Type
}

func (k *keyCheck) walk(n *yaml.Node, t reflect.Type, path string) {
	if k.seen[visit{n, t}] {
		return
	}
	k.seen[visit{n, t}] = true
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch n.Kind {
	case yaml.DocumentNode, yaml.SequenceNode:
		for _, child := range n.Content {
			k.walk(child, t, path)
		}
	case yaml.ScalarNode:
		if isTruncated(n, t) {
			k.found = append(k.found, fmt.Sprintf("%s:%d: %s: not a valid %s", k.origin.file, n.Line, path, typeName(t)))
		}
	case yaml.AliasNode:
		k.walk(n.Alias, t, path)
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			k.entry(n.Content[i], n.Content[i+1], t, path)
		}
	}
}

func (k *keyCheck) entry(key, value *yaml.Node, t reflect.Type, path string) {
	if key.Tag == "!!merge" {
		k.walk(value, t, path)
		return
	}
	at := join(path, key.Value)
	switch t.Kind() {
	case reflect.Map:
		k.origin.lines[at] = key.Line
		k.walk(value, t.Elem(), at)
	case reflect.Struct:
		for f := range fields(t) {
			if name, _ := keyOf(f); name == key.Value {
				k.origin.lines[at] = key.Line
				k.walk(value, f.Type, at)
				return
			}
		}
		k.found = append(k.found, fmt.Sprintf("%s:%d: unknown key %q%s%s",
			k.origin.file, key.Line, key.Value, in(path), hint(key.Value, keysOf(t))))
	}
}

// isTruncated reports whether the YAML library would drop the fraction of a number.
func isTruncated(n *yaml.Node, t reflect.Type) bool {
	if n.Kind == yaml.DocumentNode {
		n = n.Content[0]
	}
	var number float64
	return t.Kind() == reflect.Int && n.ShortTag() == "!!float" && n.Decode(&number) == nil && number != math.Trunc(number)
}

func in(path string) string {
	if path == "" {
		return ""
	}
	return " in " + path
}

// leavesOf lists the paths of all values in v, and in the entries of its maps.
func leavesOf(v reflect.Value) []string {
	var all []string
	eachLeaf(v, "", func(path string, _ reflect.StructField, _ reflect.Value) { all = append(all, path) })
	return all
}

// eachLeaf calls visit for every value of a struct, in the order of the schema; entries of a
// map come sorted by name. A value within a map is a copy.
func eachLeaf(v reflect.Value, path string, visit func(path string, f reflect.StructField, v reflect.Value)) {
	for f := range fields(v.Type()) {
		key, _ := keyOf(f)
		at, value := join(path, key), v.FieldByIndex(f.Index)
		switch {
		case isSection(f.Type):
			eachLeaf(value, at, visit)
		case isSectionMap(f.Type):
			for _, name := range mapKeys(value) {
				eachLeaf(value.MapIndex(reflect.ValueOf(name)), join(at, name), visit)
			}
		case f.Type.Kind() == reflect.Pointer && isSection(f.Type.Elem()):
			if !value.IsNil() {
				eachLeaf(value.Elem(), at, visit)
			}
		default:
			visit(at, f, value)
		}
	}
}

func isSection(t reflect.Type) bool { return t.Kind() == reflect.Struct }

func isSectionMap(t reflect.Type) bool { return t.Kind() == reflect.Map && isSection(t.Elem()) }

func mapKeys(v reflect.Value) []string {
	var names []string
	for _, k := range v.MapKeys() {
		names = append(names, k.String())
	}
	return sorted(names)
}

// setLeaf sets the value at path, which leavesOf listed.
func setLeaf(v reflect.Value, path, text string) error {
	for f := range fields(v.Type()) {
		key, _ := keyOf(f)
		value := v.FieldByIndex(f.Index)
		rest, inside := strings.CutPrefix(path, key+".")
		switch {
		case path == key:
			return setText(value, text)
		case !inside:
		case f.Type.Kind() == reflect.Pointer:
			return setLeaf(value.Elem(), rest, text)
		case isSectionMap(f.Type):
			return setEntry(value, rest, text)
		default:
			return setLeaf(value, rest, text)
		}
	}
	return fmt.Errorf("no key %s", path)
}

// setEntry sets a value within an entry of a map. The name of an entry may contain dots.
func setEntry(m reflect.Value, path, text string) error {
	for _, name := range mapKeys(m) {
		rest, ok := strings.CutPrefix(path, name+".")
		entry := reflect.New(m.Type().Elem()).Elem()
		entry.Set(m.MapIndex(reflect.ValueOf(name)))
		if !ok || !contains(leavesOf(entry), rest) {
			continue
		}
		if err := setLeaf(entry, rest, text); err != nil {
			return err
		}
		m.SetMapIndex(reflect.ValueOf(name), entry)
		return nil
	}
	return fmt.Errorf("no entry for %s", path)
}

func setText(v reflect.Value, text string) error {
	if v.Kind() == reflect.String {
		v.SetString(text) // not parsed as YAML, so that a file may be called 1e3 or no
		return nil
	}
	target := reflect.New(v.Type())
	var number yaml.Node
	err := yaml.Unmarshal([]byte(text), target.Interface())
	if err != nil || yaml.Unmarshal([]byte(text), &number) == nil && isTruncated(&number, v.Type()) {
		return fmt.Errorf("not a valid %s", typeName(v.Type()))
	}
	v.Set(target.Elem())
	return nil
}

func typeName(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return "duration; write 250ms, 5s, 1m"
	case t == reflect.TypeFor[Bytes]():
		return "size; write a number, or one with KiB, MiB or GiB"
	case t.Kind() == reflect.Pointer:
		return typeName(t.Elem())
	case t.Kind() == reflect.Slice:
		return "list; write [a, b]"
	case t.Kind() == reflect.Bool:
		return "boolean; write true or false"
	case t.Kind() == reflect.Int:
		return "whole number"
	default:
		return "number"
	}
}

// resolvePaths joins dir with every relative file name in v.
func resolvePaths(v reflect.Value, dir string) {
	var relative []string
	values := map[string]string{}
	eachLeaf(v, "", func(path string, f reflect.StructField, v reflect.Value) {
		if f.Tag.Get("path") != "" && v.String() != "" && !filepath.IsAbs(v.String()) {
			relative = append(relative, path)
			values[path] = filepath.Join(dir, v.String())
		}
	})
	for _, path := range relative {
		_ = setLeaf(v, path, values[path]) // the path was just listed
	}
}

// envName returns the name of the environment variable that sets a key.
func envName(path string) string {
	name := strings.Map(func(r rune) rune {
		if r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r)) {
			return unicode.ToUpper(r)
		}
		return '_'
	}, path)
	return EnvPrefix + name
}

// fewWords is the number of known words up to which hint names them all.
const fewWords = 24

// hint suggests the known word that is nearest to word. If none is near it names all known words, or
// returns "" if there are many or none.
func hint(word string, known []string) string {
	best := edits.Close(word, known)
	switch {
	case best != "":
		return fmt.Sprintf("; did you mean %q?", best)
	case len(known) == 0 || len(known) > fewWords:
		return ""
	}
	return "; known: " + strings.Join(known, ", ")
}

func contains(list []string, s string) bool { return slices.Contains(list, s) }

func sorted(list []string) []string {
	slices.Sort(list)
	return list
}

func keys(m map[string]string) []string { return sorted(slices.Collect(maps.Keys(m))) }
