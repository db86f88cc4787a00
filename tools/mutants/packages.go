package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// goPackage is a package of the repository with the types of its expressions.
type goPackage struct {
	path     string // the argument of go test: ./rerank/scan
	hasTests bool
	fset     *token.FileSet
	files    []sourceFile
	info     *types.Info
	config   *types.Config
}

// sourceFile is one file of a package. It is never a test.
type sourceFile struct {
	name   string // relative to the root
	source []byte
	syntax *ast.File
}

// listedPackage is what go list says about a package.
type listedPackage struct {
	Dir, ImportPath, Export            string
	GoFiles, TestGoFiles, XTestGoFiles []string
	DepOnly                            bool
	Module                             *struct{ GoVersion string }
}

// loadPackages type-checks the packages of the module at root that match the patterns.
func loadPackages(ctx context.Context, root string, patterns []string) ([]*goPackage, error) {
	listed, err := listPackages(ctx, root, patterns)
	if err != nil {
		return nil, err
	}
	exports := map[string]string{} // the file of compiled declarations of each import path
	for _, p := range listed {
		exports[p.ImportPath] = p.Export
	}
	fset := token.NewFileSet()
	imports := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	var all []*goPackage
	for _, p := range listed {
		if p.DepOnly || len(p.GoFiles) == 0 {
			continue
		}
		loaded, err := p.load(root, fset, imports)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.ImportPath, err)
		}
		all = append(all, loaded)
	}
	return all, nil
}

// listPackages returns the matching packages and all that they import.
func listPackages(ctx context.Context, root string, patterns []string) (all []listedPackage, err error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"list", "-export", "-deps", "-json=Dir,ImportPath,Export,GoFiles,TestGoFiles,XTestGoFiles,DepOnly,Module", "--"}, patterns...)...)
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	output, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list %s: %w\n%s", strings.Join(patterns, " "), err, stderr.Bytes())
	}
	for decoder := json.NewDecoder(bytes.NewReader(output)); ; {
		var p listedPackage
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
}

func (p *listedPackage) load(root string, fset *token.FileSet, imports types.Importer) (*goPackage, error) {
	dir, err := filepath.Rel(root, p.Dir)
	if err != nil {
		return nil, err
	}
	loaded := &goPackage{
		path:     strings.TrimSuffix("./"+filepath.ToSlash(dir), "/."),
		hasTests: len(p.TestGoFiles)+len(p.XTestGoFiles) > 0,
		fset:     fset,
		info:     &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}},
		config:   &types.Config{Importer: imports, GoVersion: "go" + p.Module.GoVersion, Sizes: types.SizesFor("gc", "amd64")},
	}
	var syntax []*ast.File
	for _, name := range p.GoFiles {
		source, err := os.ReadFile(filepath.Join(p.Dir, name))
		if err != nil {
			return nil, err
		}
		file, err := parser.ParseFile(fset, name, source, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		syntax = append(syntax, file)
		loaded.files = append(loaded.files, sourceFile{filepath.Join(dir, name), source, file})
	}
	_, err = loaded.config.Check(p.ImportPath, fset, syntax, loaded.info)
	return loaded, err
}

// compiles reports whether the package type-checks with another source for one of its files.
func (p *goPackage) compiles(name string, source []byte) bool {
	var syntax []*ast.File
	for _, f := range p.files {
		if f.name == name {
			changed, err := parser.ParseFile(p.fset, name, source, parser.SkipObjectResolution)
			if err != nil {
				return false
			}
			f.syntax = changed
		}
		syntax = append(syntax, f.syntax)
	}
	_, err := p.config.Check(p.path, p.fset, syntax, nil)
	return err == nil
}
