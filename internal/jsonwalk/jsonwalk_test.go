package jsonwalk_test

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/internal/jsonwalk"
)

// randomJSON makes a value, with white space where it may be.
func randomJSON(random *rand.Rand, depth int) string {
	space := []string{"", "", " ", "\n\t"}[random.IntN(4)]
	texts := []string{`""`, `"a"`, `"\""`, `"\\"`, `"\\\""`, `"[{"`, `"]}"`, `"é\u00e9"`, `","`}
	kinds := 8
	if depth == 0 {
		kinds = 6
	}
	switch random.IntN(kinds) {
	case 0, 1:
		return space + texts[random.IntN(len(texts))] + space
	case 2, 3:
		return space + []string{"0", "-1.5e3", "12345678901234567890"}[random.IntN(3)] + space
	case 4, 5:
		return space + []string{"null", "true", "false"}[random.IntN(3)] + space
	case 6:
		parts := make([]string, random.IntN(4))
		for i := range parts {
			parts[i] = randomJSON(random, depth-1)
		}
		return space + "[" + strings.Join(parts, ",") + space + "]" + space
	}
	parts := make([]string, random.IntN(4))
	for i := range parts {
		parts[i] = texts[random.IntN(len(texts))] + ":" + randomJSON(random, depth-1)
	}
	return space + "{" + strings.Join(parts, ",") + space + "}" + space
}

// A walk finds the members and elements that encoding/json finds.
func TestWalkFindsWhatIsThere(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for range 20_000 {
		text := randomJSON(random, 4)
		s := jsonwalk.New([]byte(text))
		switch strings.TrimSpace(text)[0] {
		case '{':
			want, got := map[string]json.RawMessage{}, map[string]json.RawMessage{}
			if err := json.Unmarshal([]byte(text), &want); err != nil {
				t.Fatal(err)
			}
			ok := s.Object(func(key string) bool {
				value, ok := s.Value()
				got[key] = value
				return ok
			})
			if !ok || !s.AtEnd() || !maps.EqualFunc(want, got, func(a, b json.RawMessage) bool { return string(a) == string(b) }) {
				t.Fatalf("%q: %s, want %s", text, got, want)
			}
		case '[':
			var want, got []json.RawMessage
			if err := json.Unmarshal([]byte(text), &want); err != nil {
				t.Fatal(err)
			}
			ok := s.Array(func() bool {
				value, ok := s.Value()
				got = append(got, value)
				return ok
			})
			if !ok || !s.AtEnd() || len(want) > 0 && !reflect.DeepEqual(want, got) {
				t.Fatalf("%q: %s, want %s", text, got, want)
			}
		default:
			if value, ok := s.Value(); !ok || string(value) != strings.TrimSpace(text) || !s.AtEnd() {
				t.Fatalf("%q: %q", text, value)
			}
		}
	}
}

// Count counts no fewer values than a decoder finds, and the objects and levels exactly.
func TestCount(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	for range 20_000 {
		text := randomJSON(random, 4)
		var value any
		if err := json.Unmarshal([]byte(text), &value); err != nil {
			t.Fatal(err)
		}
		values, depth := measure(value)
		if c := jsonwalk.Count([]byte(text)); 1+c.Objects+c.Arrays+c.Commas < values || c.Depth < depth || c.Depth > 4 {
			t.Fatalf("%q: %+v, want %d values of %d levels", text, c, values, depth)
		}
	}
	want := jsonwalk.Counts{Objects: 2, Arrays: 1, Texts: 4, Commas: 2, Depth: 3}
	if c := jsonwalk.Count([]byte(`{"a":[{"b":1},2],"c{":"[\"}"}`)); c != want {
		t.Errorf("%+v, want %+v", c, want)
	}
}

// measure counts the values in a decoded value, and its levels.
func measure(v any) (values, depth int) {
	values = 1
	add := func(inner any) {
		n, d := measure(inner)
		values, depth = values+n, max(depth, d)
	}
	switch v := v.(type) {
	case []any:
		for _, inner := range v {
			add(inner)
		}
		depth++
	case map[string]any:
		for _, inner := range v {
			add(inner)
		}
		depth++
	}
	return values, depth
}

// Any text, JSON or not, is walked over to its end or given up.
func FuzzScanner(f *testing.F) {
	for _, seed := range []string{`{"a":[1,{"b":"\""}]}`, `["\\`, `[[[[`, `{"a"`, `{"a":1,}`, `"\`, ``} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s := jsonwalk.New(text)
		value, ok := s.Value()
		if json.Valid(text) && (!ok || !json.Valid(value) || !s.AtEnd()) {
			t.Errorf("%q: %q, %t", text, value, ok)
		}
		jsonwalk.Count(text)
		jsonwalk.New(text).Object(func(string) bool { return s.Skip() })
		inner := jsonwalk.New(text)
		inner.Array(func() bool { return inner.Skip() })
	})
}
