package archtest_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

const root = "../.."

// TestProductionCodeReturnsErrors forbids init functions and panics, and lets
// only the function main end the process.
func TestProductionCodeReturnsErrors(t *testing.T) {
	for path, file := range productionFiles(t) {
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			isMain := file.Name.Name == "main" && f.Recv == nil && f.Name.Name == "main"
			if f.Recv == nil && f.Name.Name == "init" {
				t.Errorf("%s: func init: wire it in main", path)
			}
			ast.Inspect(f, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				if name := callee(call); exitsProcess(name) && !(isMain && name == "os.Exit") && !abortsHandler(call) {
					t.Errorf("%s: %s in %s: return an error", path, name, f.Name.Name)
				}
				return true
			})
		}
	}
}

func exitsProcess(name string) bool {
	return slices.Contains([]string{"panic", "os.Exit", "log.Fatal", "log.Fatalf", "log.Fatalln", "log.Panic", "log.Panicf"}, name)
}

// abortsHandler: panic(http.ErrAbortHandler) is how a handler of net/http ends a
// connection in the middle of an answer; it reaches nobody else.
func abortsHandler(call *ast.CallExpr) bool {
	if len(call.Args) != 1 {
		return false
	}
	s, ok := call.Args[0].(*ast.SelectorExpr)
	return ok && s.Sel.Name == "ErrAbortHandler"
}

// callee returns the called function as written: "panic", "os.Exit".
func callee(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		if pkg, ok := f.X.(*ast.Ident); ok {
			return pkg.Name + "." + f.Sel.Name
		}
	}
	return ""
}

// TestTextSpeaksOfTheProjectAlone keeps machine paths, registry hosts and
// unfinished work out of every tracked text file.
func TestTextSpeaksOfTheProjectAlone(t *testing.T) {
	forbidden := []struct {
		pattern *regexp.Regexp
		why     string
	}{
		{regexp.MustCompile(`(^|[\s"'=(:])/(work|root|home|Users|private)/[\w.]`), "a path of somebody's machine"},
		{regexp.MustCompile(`/tmp/\w`), "a path of somebody's machine; use a temporary directory"},
		{regexp.MustCompile(`\b(registry\.npmjs\.` + `org|pypi\.` + `org|proxy\.golang\.` + `org|sum\.golang\.` + `org|files\.pythonhosted\.` + `org)\b`), "the host of a registry; its client knows it"},
		{regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X|HA` + `CK)\b`), "unfinished work"},
		{regexp.MustCompile(`(\b[Ff]or` + ` now,|_PLACE` + `HOLDER\b)`), "unfinished work"},
	}
	for _, path := range tracked(t) {
		text := read(t, path)
		if generated(path) || !utf8.Valid(text) || bytes.IndexByte(text, 0) >= 0 {
			continue
		}
		for i, line := range strings.Split(string(text), "\n") {
			for _, f := range forbidden {
				if m := f.pattern.FindString(line); m != "" {
					t.Errorf("%s:%d: %q: %s", path, i+1, m, f.why)
				}
			}
		}
	}
}

// productionFiles parses every tracked Go file that is neither a test nor
// generated, nor part of a kit for tests.
func productionFiles(t *testing.T) map[string]*ast.File {
	t.Helper()
	files := map[string]*ast.File{}
	for _, path := range tracked(t) {
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") || generated(path) || strings.HasPrefix(path, "adapters/adaptertest/") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, path), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files[path] = file
	}
	return files
}

func generated(path string) bool {
	return strings.HasPrefix(path, "proto/gen/") || strings.HasPrefix(path, "proto/third_party/") || filepath.Base(path) == "go.sum"
}

// tracked lists the files under version control or, without git, the files of the source archive.
func tracked(t *testing.T) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", "ls-files", "-z")
	cmd.Dir = root
	if out, err := cmd.Output(); err == nil {
		files := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
		return slices.DeleteFunc(files, func(path string) bool {
			_, err := os.Stat(filepath.Join(root, path))
			return err != nil // removed from the working tree
		})
	}
	var files []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == ".cache" || d.Name() == "bin") {
			return filepath.SkipDir
		}
		if d.Type().IsRegular() {
			relative, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			files = append(files, filepath.ToSlash(relative))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return text
}
