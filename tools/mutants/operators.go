package main

import (
	"bytes"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// edit replaces the bytes from start to end of a file.
type edit struct {
	start, end int
	text       string
}

// finder collects the edits of one file, each of which plants one defect.
type finder struct {
	pkg   *goPackage
	file  *sourceFile
	edits []edit
}

// findEdits returns every edit of a file by the operators below. Some do not compile. Generated files, String and
// Error methods, and the texts of errors, logs and metrics have none.
func findEdits(pkg *goPackage, file *sourceFile) []edit {
	if ast.IsGenerated(file.syntax) {
		return nil
	}
	f := &finder{pkg: pkg, file: file}
	for _, decl := range file.syntax.Decls {
		if fn, ok := decl.(*ast.FuncDecl); !ok || fn.Recv == nil || !slices.Contains([]string{"String", "Error", "GoString", "LogValue"}, fn.Name.Name) {
			ast.Inspect(decl, f.visit)
		}
	}
	return f.edits
}

// visit finds the edits of one node, and reports whether to visit its children.
func (f *finder) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.ExprStmt:
		if call, ok := n.X.(*ast.CallExpr); ok && !f.isText(call) && !f.isBuiltin(call.Fun, "panic") {
			f.replace(n, "")
		}
	case *ast.SendStmt, *ast.DeferStmt, *ast.GoStmt, *ast.IncDecStmt:
		f.replace(n, "")
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE && !isBlank(n.Lhs) && !isGrow(n.Rhs[0]) {
			f.replace(n, "")
		}
	case *ast.CompositeLit:
		f.dropFields(n)
	case *ast.IfStmt:
		f.replace(n.Cond, "false && ("+f.text(n.Cond)+")")
	case *ast.BinaryExpr:
		if n.Op == token.LAND || n.Op == token.LOR {
			f.replace(n, f.text(n.X))
			f.replace(n, f.text(n.Y))
		}
	case *ast.ReturnStmt:
		f.swallowError(n)
	case *ast.CallExpr:
		if f.isText(n) {
			return false
		}
		f.changeArguments(n)
	}
	return true
}

// dropFields leaves out one field of a struct literal.
func (f *finder) dropFields(literal *ast.CompositeLit) {
	for _, element := range literal.Elts {
		field, ok := element.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		name, ok := field.Key.(*ast.Ident)
		if !ok || name.Name == "Help" {
			continue
		}
		if v, isVar := f.pkg.info.Uses[name].(*types.Var); isVar && v.IsField() && !f.isZero(field.Value) {
			start, end := f.offsets(element)
			rest := f.file.source[end:]
			if bytes.HasPrefix(rest, []byte(",")) {
				end += len(rest) - len(bytes.TrimLeft(rest[1:], " "))
			}
			f.edits = append(f.edits, edit{start, end, ""})
		}
	}
}

// swallowError returns nil instead of an error.
func (f *finder) swallowError(n *ast.ReturnStmt) {
	if len(n.Results) == 0 {
		return
	}
	last := n.Results[len(n.Results)-1]
	if t := f.pkg.info.TypeOf(last); t != nil && !f.isZero(last) && types.Implements(t, errorInterface) {
		f.replace(last, "nil")
	}
}

var errorInterface = types.Universe.Lookup("error").Type().Underlying().(*types.Interface)

// changeArguments exchanges min and max, passes the zero value for one argument, and swaps neighbours of one type.
func (f *finder) changeArguments(call *ast.CallExpr) {
	switch {
	case f.isBuiltin(call.Fun, "min"):
		f.replace(call.Fun, "max")
	case f.isBuiltin(call.Fun, "max"):
		f.replace(call.Fun, "min")
	}
	if tv := f.pkg.info.Types[call.Fun]; tv.IsType() || tv.IsBuiltin() {
		return
	}
	for i, arg := range call.Args {
		if zero := zeroLiteral(f.pkg.info.TypeOf(arg)); zero != "" && isName(arg) && !f.isZero(arg) {
			f.replace(arg, zero)
		}
		if i == 0 {
			continue
		}
		before := call.Args[i-1]
		if t := f.pkg.info.TypeOf(arg); t != nil && types.Identical(t, f.pkg.info.TypeOf(before)) && f.text(arg) != f.text(before) && !isSymmetric(call.Fun) {
			start, first := f.offsets(before)
			second, end := f.offsets(arg)
			f.edits = append(f.edits, edit{start, end, f.text(arg) + string(f.file.source[first:second]) + f.text(before)})
		}
	}
}

// zeroLiteral returns the literal of a type's zero value, or "" where the type has none that is worth passing.
func zeroLiteral(t types.Type) string {
	if t == nil {
		return ""
	}
	switch u := t.Underlying().(type) {
	case *types.Slice, *types.Pointer, *types.Map:
		return "nil"
	case *types.Basic:
		switch {
		case u.Info()&types.IsBoolean != 0:
			return "false"
		case u.Info()&types.IsString != 0:
			return `""`
		case u.Info()&types.IsNumeric != 0:
			return "0"
		}
	}
	return ""
}

// isText reports whether a call logs, traces or makes a message: its arguments are for people to read. A call with a format
// among its arguments makes one, whatever its name.
func (f *finder) isText(call *ast.CallExpr) bool {
	for _, arg := range call.Args {
		if v := f.pkg.info.Types[arg].Value; v != nil && v.Kind() == constant.String && strings.Contains(constant.StringVal(v), "%") {
			return true
		}
	}
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	callee := f.pkg.info.Uses[selector.Sel]
	if callee == nil || callee.Pkg() == nil {
		return false
	}
	switch callee.Pkg().Path() {
	case "fmt", "log", "log/slog", "errors", "go.opentelemetry.io/otel/attribute", "go.opentelemetry.io/otel/trace":
		return callee.Name() != "Join" && callee.Name() != "Is" && callee.Name() != "As"
	}
	return false
}

func (f *finder) isBuiltin(fun ast.Expr, name string) bool {
	ident, ok := fun.(*ast.Ident)
	return ok && ident.Name == name && f.pkg.info.Types[fun].IsBuiltin()
}

// isZero reports whether an expression is nil or a constant zero.
func (f *finder) isZero(e ast.Expr) bool {
	tv := f.pkg.info.Types[e]
	if tv.IsNil() {
		return true
	}
	if tv.Value == nil {
		return false
	}
	switch tv.Value.Kind() {
	case constant.Bool:
		return !constant.BoolVal(tv.Value)
	case constant.String:
		return constant.StringVal(tv.Value) == ""
	default:
		return constant.Sign(tv.Value) == 0
	}
}

// isName reports whether an expression is an identifier or a selector.
func isName(e ast.Expr) bool {
	switch e.(type) {
	case *ast.Ident, *ast.SelectorExpr:
		return true
	}
	return false
}

func isBlank(left []ast.Expr) bool {
	return !slices.ContainsFunc(left, func(e ast.Expr) bool {
		name, ok := e.(*ast.Ident)
		return !ok || name.Name != "_"
	})
}

// isGrow reports whether an expression only allocates ahead, as slices.Grow does.
func isGrow(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	return ok && calledName(call.Fun) == "Grow"
}

// isSymmetric reports whether a function has the same result with its arguments swapped.
func isSymmetric(fun ast.Expr) bool {
	return slices.Contains([]string{"Max", "Min", "Equal", "Hypot", "Join"}, calledName(fun))
}

func calledName(fun ast.Expr) string {
	switch fun := fun.(type) {
	case *ast.Ident:
		return fun.Name
	case *ast.SelectorExpr:
		return fun.Sel.Name
	}
	return ""
}

func (f *finder) replace(n ast.Node, text string) {
	start, end := f.offsets(n)
	f.edits = append(f.edits, edit{start, end, text})
}

func (f *finder) offsets(n ast.Node) (start, end int) {
	return f.pkg.fset.Position(n.Pos()).Offset, f.pkg.fset.Position(n.End()).Offset
}

func (f *finder) text(n ast.Node) string {
	start, end := f.offsets(n)
	return string(f.file.source[start:end])
}

// record returns the whole lines that an edit changes, before and after it. Lines above are added until the old text
// occurs once in the file, as a record of a list must.
func (e edit) record(source string) (old, changed string) {
	start := strings.LastIndexByte(source[:e.start], '\n') + 1
	end := len(source)
	if i := strings.IndexByte(source[e.end:], '\n'); i >= 0 {
		end = e.end + i
	}
	for {
		old = strings.TrimLeft(source[start:end], "\t ")
		indent := end - start - len(old)
		changed = source[start+indent:max(e.start, start+indent)] + e.text + source[e.end:end]
		if start == 0 || strings.Count(source, old) == 1 && old != "" {
			return old, changed
		}
		start = strings.LastIndexByte(source[:start-1], '\n') + 1
	}
}
