package config_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/internal/bomb"
	"github.com/likenessdb/likeness/sidecar/config"
)

// aliases is a text of nine levels, each of nine times the one before.
func aliases(level func(n int, of string) string) string {
	var b strings.Builder
	of := "x"
	for n := range 9 {
		b.WriteString(level(n, of))
		of = fmt.Sprintf("*a%d", n)
	}
	return b.String()
}

func nine(of string) string { return strings.TrimSuffix(strings.Repeat(of+", ", 9), ", ") }

// TestSmallFilesThatGrow: what stands for more than it is, or nests without end, is
// refused before it is spread out.
func TestSmallFilesThatGrow(t *testing.T) {
	keys := make([]string, 3000)
	for i := range keys {
		keys[i] = fmt.Sprintf("key%d: {}\n", i)
	}
	for name, c := range map[string]struct{ text, want string }{
		"lists of lists": {aliases(func(n int, of string) string { return fmt.Sprintf("a%d: &a%d [%s]\n", n, n, nine(of)) }) +
			"routes: {r: {partitions: *a8}}\n", "f.yaml"},
		"merged routes": {"routes:\n" + aliases(func(n int, of string) string {
			if of == "x" {
				return "  r0: &a0 {depth: 1}\n"
			}
			return fmt.Sprintf("  r%d: &a%d {<<: [%s]}\n", n, n, nine(of))
		}), "f.yaml"},
		"an alias of itself":  {"routes: &a {r: *a}\n", "f.yaml"},
		"deep lists":          {"routes: " + strings.Repeat("[", 60_000), "f.yaml"},
		"deep maps":           {"routes: " + strings.Repeat("{a: ", 15_000), "f.yaml"},
		"keys without number": {strings.Join(keys, ""), `f.yaml:1: unknown key "key0"`},
		"a long key":          {strings.Repeat("k", 60_000) + ": 1\n", "f.yaml"},
		"a number":            {"limits: {max_k: " + strings.Repeat("9", 60_000) + "}\n", "f.yaml"},
		"a size":              {"limits: {memory: 99999999999999999999GiB}\n", "f.yaml"},
		"many documents":      {strings.Repeat("---\n{}\n", 8000), "more than one YAML document"},
	} {
		if len(c.text) > 64<<10 {
			t.Fatalf("%s has %d bytes", name, len(c.text))
		}
		bomb.Refused(t, name, func() error {
			_, err := config.Parse("f.yaml", []byte(c.text), nil, nil)
			return err
		}, config.ErrConfig, c.want)
	}
}
