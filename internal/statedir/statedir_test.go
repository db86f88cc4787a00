package statedir_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/internal/statedir"
)

// TestFolders: each name has a folder of its own, whatever is in it.
func TestFolders(t *testing.T) {
	names := []string{"things", ".", "..", "%2E", "%2E%2E", "a/b", "a%2Fb", "../routes/things", "a b", "ä", `a\b`, "", "%", "/", "/etc/passwd", "..\\..", "%2e%2e%2f", "a\x00b", "a\u2215b", "a\uff0fb", "\u2024\u2024", "\uff0e\uff0e",
		strings.Repeat("x", 300), strings.Repeat("x", 301), strings.Repeat("商", 80), strings.Repeat("../", 100)}
	seen := map[string]string{}
	note := func(what, path string) {
		t.Helper()
		if at, ok := seen[path]; ok {
			t.Errorf("%s and %s share %s", what, at, path)
		}
		seen[path] = what
		if below, err := filepath.Rel("state", path); err != nil || strings.HasPrefix(below, "..") || path != filepath.Clean(path) {
			t.Errorf("%s: %s leaves the folder", what, path)
		}
		if part := filepath.Base(path); len(part) > 220 || strings.ContainsAny(part, "/\\\x00") {
			t.Errorf("%s: %q is no name of a file", what, part)
		}
	}
	for _, name := range names {
		note("route "+name, statedir.Route("state", name))
		note("events "+name, statedir.Events("state", name))
		store := statedir.Store("state", name)
		note("store "+name, store)
		for _, collection := range names {
			note("collection "+name+" "+collection, statedir.Collection(store, collection))
		}
	}
	if got, want := statedir.Collection(statedir.Store("state", "main"), "things"), filepath.Join("state", "stores", "main", "things"); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
