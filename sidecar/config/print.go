package config

import (
	"embed" // the schema's source is its documentation
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

//go:embed schema.go schema_route.go
var schemaSource embed.FS

// docs holds the comments of the schema's fields by "Type.Field".
type docs map[string]string

func readDocs() (docs, error) {
	d := docs{}
	for _, name := range []string{"schema.go", "schema_route.go"} {
		source, err := schemaSource.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("schema: %w", err)
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, source, parser.ParseComments)
		if err != nil {
			return nil, fmt.Errorf("schema: %w", err)
		}
		d.add(file)
	}
	return d, nil
}

// add collects the field comments of a file.
func (d docs) add(file *ast.File) {
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		if s, ok := spec.Type.(*ast.StructType); ok {
			for _, f := range s.Fields.List {
				for _, name := range f.Names {
					d[spec.Name.Name+"."+name.Name] = strings.Join(strings.Fields(f.Doc.Text()), " ")
				}
			}
		}
		return false
	})
}

// of returns the comment of a field that fields(t) yields.
func (d docs) of(t reflect.Type, f reflect.StructField) string {
	for _, i := range f.Index[:len(f.Index)-1] {
		t = t.Field(i).Type
	}
	return d[t.Name()+"."+f.Name]
}

// Print writes the configuration as YAML. The output contains no secrets, only the names of
// their files and variables.
func (c *Config) Print(w io.Writer) error {
	return printer{}.write(w, reflect.ValueOf(c).Elem())
}

// PrintDefault writes a commented configuration file: every key with its default, and one
// store, model and route as an example.
func PrintDefault(w io.Writer) error {
	d, err := readDocs()
	if err != nil {
		return err
	}
	c := example()
	if _, err := io.WriteString(w, defaultHeader); err != nil {
		return err
	}
	return printer{docs: d}.write(w, reflect.ValueOf(&c).Elem())
}

const defaultHeader = `# The configuration of likeness: every key with its default. Stores, models and routes are an example.
# A flag (--set limits.max_k=100) overrides the environment (LIKENESS_LIMITS_MAX_K=100), the environment overrides this
# file. File names are relative to this file. Secrets belong in files or environment variables, never here.

`

func example() Config {
	c := Default()
	route := defaultRoute()
	route.StoreName, route.Collection, route.ModelName = "main", "products", "taste"
	store := defaultStore()
	store.Kind, store.Address = "qdrant", "127.0.0.1:6334"
	c.Stores = map[string]Store{"main": store}
	c.Models = map[string]Model{"taste": {Path: "models/taste.safetensors"}}
	c.Routes = map[string]Route{"products": route}
	return c
}

// printer writes a configuration as YAML, with comments if it has docs.
type printer struct{ docs docs }

func (p printer) write(w io.Writer, v reflect.Value) error {
	n, err := p.section(v)
	if err != nil {
		return err
	}
	encoder := yaml.NewEncoder(w)
	encoder.SetIndent(2)
	if err := encoder.Encode(n); err != nil {
		return err
	}
	return encoder.Close()
}

func (p printer) section(v reflect.Value) (*yaml.Node, error) {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for f := range fields(v.Type()) {
		key, _ := keyOf(f)
		value, err := p.value(v.FieldByIndex(f.Index))
		if err != nil {
			return nil, err
		}
		k := &yaml.Node{Kind: yaml.ScalarNode, Value: key, HeadComment: p.comment(v.Type(), f)}
		n.Content = append(n.Content, k, value)
	}
	return n, nil
}

func (p printer) value(v reflect.Value) (*yaml.Node, error) {
	switch {
	case isSection(v.Type()):
		return p.section(v)
	case v.Kind() == reflect.Pointer && isSection(v.Type().Elem()) && !v.IsNil():
		return p.section(v.Elem())
	case isSectionMap(v.Type()):
		n := &yaml.Node{Kind: yaml.MappingNode}
		for _, name := range mapKeys(v) {
			entry, err := p.section(v.MapIndex(reflect.ValueOf(name)))
			if err != nil {
				return nil, err
			}
			k := &yaml.Node{}
			k.SetString(name)
			n.Content = append(n.Content, k, entry)
		}
		return n, nil
	case v.Kind() == reflect.String:
		n := &yaml.Node{}
		return n, n.Encode(withoutUserInfo(v.String()))
	default:
		n := &yaml.Node{}
		return n, n.Encode(v.Interface())
	}
}

// withoutUserInfo hides the credentials in a URL and returns any other text unchanged.
func withoutUserInfo(text string) string {
	scheme, rest, ok := strings.Cut(text, "://")
	authority, _, _ := strings.Cut(rest, "/")
	at := strings.LastIndex(authority, "@")
	if !ok || at < 0 {
		return text
	}
	return scheme + "://" + redacted + rest[at:]
}

// comment returns the comment of a field with its allowed values, as wrapped YAML comment lines.
func (p printer) comment(t reflect.Type, f reflect.StructField) string {
	text := p.docs.of(t, f)
	if text == "" {
		return ""
	}
	if enum := f.Tag.Get("enum"); enum != "" {
		text += " One of " + strings.ReplaceAll(enum, ",", ", ") + "."
	}
	if f.Tag.Get("required") != "" {
		text += " Required."
	}
	var lines []string
	line := "#"
	for word := range strings.FieldsSeq(text) {
		if len(line)+1+len(word) > 110 {
			lines = append(lines, line)
			line = "#"
		}
		line += " " + word
	}
	return strings.Join(append(lines, line), "\n")
}
