package wiring_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestNothingElseOpensAConfiguration looks for calls that open stores and tables past Open.
// Commands may open a table or a model that a flag names.
func TestNothingElseOpensAConfiguration(t *testing.T) {
	for folder, forbidden := range map[string][]string{
		"../../cmd/likeness": {"guard.New", "qdrant.Open", "table.OpenLive"},
		"..":                 {"guard.New", "qdrant.Open", "table.OpenLive", "table.Open", "model.Open"},
	} {
		for file, calls := range callsIn(t, folder) {
			if strings.HasPrefix(file, "../wiring/") {
				continue
			}
			for _, call := range calls {
				if slices.Contains(forbidden, call) {
					t.Errorf("%s calls %s; use wiring.Open", file, call)
				}
			}
		}
	}
	found := callsIn(t, ".")
	if !slices.Contains(found["version.go"], "table.OpenLive") || !slices.Contains(found["qdrant.go"], "qdrant.Open") {
		t.Errorf("the calls of this package are not found: %q", found)
	}
}

// callsIn lists the functions of other packages that each production file calls.
func callsIn(t *testing.T, folder string) map[string][]string {
	t.Helper()
	calls := map[string][]string{}
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if f, ok := call.Fun.(*ast.SelectorExpr); ok {
					if pkg, ok := f.X.(*ast.Ident); ok {
						calls[path] = append(calls[path], pkg.Name+"."+f.Sel.Name)
					}
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return calls
}
