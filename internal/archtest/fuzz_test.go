package archtest_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFuzzTargetsHaveSeeds: every fuzz target has inputs of its own, added by itself or by a
// function that gets its *testing.F, or committed beside it. Without inputs a run starts from
// nothing, and `make test` tries nothing.
func TestFuzzTargetsHaveSeeds(t *testing.T) {
	targets := 0
	for _, path := range tracked(t) {
		if !strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, path), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Recv != nil || !strings.HasPrefix(f.Name.Name, "Fuzz") {
				continue
			}
			targets++
			committed, _ := os.ReadDir(filepath.Join(root, filepath.Dir(path), "testdata", "fuzz", f.Name.Name))
			if len(committed) == 0 && !adds(file, f, 3) {
				t.Errorf("%s: %s has no seeds: add inputs that it reads well with f.Add, or commit them in testdata/fuzz/%s", path, f.Name.Name, f.Name.Name)
			}
		}
	}
	if targets < 50 {
		t.Errorf("%d fuzz targets", targets)
	}
}

// adds reports whether a function calls Add on its first parameter, or hands that to a
// function of the file that does.
func adds(file *ast.File, f *ast.FuncDecl, depth int) (found bool) {
	if depth == 0 || len(f.Type.Params.List) == 0 || len(f.Type.Params.List[0].Names) == 0 {
		return false
	}
	is := func(e ast.Expr) bool {
		name, ok := e.(*ast.Ident)
		return ok && name.Name == f.Type.Params.List[0].Names[0].Name
	}
	ast.Inspect(f.Body, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || found {
			return !found
		}
		switch callee := call.Fun.(type) {
		case *ast.SelectorExpr:
			found = callee.Sel.Name == "Add" && is(callee.X)
		case *ast.Ident:
			if len(call.Args) > 0 && is(call.Args[0]) {
				found = adds(file, function(file, callee.Name), depth-1)
			}
		}
		return !found
	})
	return found
}

// function returns a function of a file, or one without parameters and body if the file lacks it.
func function(file *ast.File, name string) *ast.FuncDecl {
	for _, decl := range file.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == name {
			return f
		}
	}
	return &ast.FuncDecl{Type: &ast.FuncType{Params: &ast.FieldList{}}, Body: &ast.BlockStmt{}}
}
