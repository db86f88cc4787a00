// Command reference makes a JSON schema of the chart's values.yaml and its comments:
//
//	reference -values values.yaml -schema values.schema.json
//
// A comment above a key describes it. What a value may be is told by its default: a mapping with keys has those and no
// others; an empty mapping or list is any. «One of a, b.» in a comment makes an enumeration.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

func main() {
	values := flag.String("values", "values.yaml", "the chart's values")
	schema := flag.String("schema", "values.schema.json", "where the schema goes")
	flag.Parse()
	if err := run(*values, *schema); err != nil {
		fmt.Fprintln(os.Stderr, "reference:", err)
		os.Exit(1)
	}
}

func run(values, schema string) error {
	b, err := os.ReadFile(values)
	if err != nil {
		return err
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(b, &doc); err != nil {
		return fmt.Errorf("%s: %w", values, err)
	}
	root, err := describe(doc.Content[0], "")
	if err != nil {
		return fmt.Errorf("%s: %w", values, err)
	}
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "Values of the chart likeness"
	root["properties"].(map[string]any)["global"] = map[string]any{"type": "object"} // what a parent chart shares
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return errors.Join(e.Encode(root), write(schema, out.Bytes()))
}

func write(path string, b []byte) error {
	return errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, b, 0o644))
}

// describe returns the schema of a mapping below a prefix.
func describe(n *yaml.Node, prefix string) (map[string]any, error) {
	properties := map[string]any{}
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		path := prefix + key.Value
		text := comment(key)
		if open := value.Kind == yaml.MappingNode && value.Style&yaml.FlowStyle == 0; open {
			child, err := describe(value, path+".")
			if err != nil {
				return nil, err
			}
			if text != "" {
				child["description"] = text
			}
			properties[key.Value] = child
			continue
		}
		if text == "" {
			return nil, fmt.Errorf("line %d: %s has no comment", key.Line, path)
		}
		one, err := leaf(value, text)
		if err != nil {
			return nil, fmt.Errorf("line %d: %s: %w", key.Line, path, err)
		}
		properties[key.Value] = one
	}
	return map[string]any{"type": "object", "additionalProperties": false, "properties": properties}, nil
}

var enumeration = regexp.MustCompile(`One of ([^.]+)\.`)

// leaf is the schema of a value that has no keys of its own.
func leaf(n *yaml.Node, text string) (map[string]any, error) {
	out := map[string]any{}
	if text != "" {
		out["description"] = text
	}
	var v any
	if err := n.Decode(&v); err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case map[string]any:
		out["type"] = "object"
	case []any:
		out["type"] = "array"
	case string:
		out["type"] = "string"
		if m := enumeration.FindStringSubmatch(text); m != nil {
			out["enum"] = strings.Split(m[1], ", ")
		}
	case bool:
		out["type"] = "boolean"
	case int:
		out["type"], out["minimum"] = "integer", 0
	default:
		return nil, fmt.Errorf("a value of type %T", v)
	}
	return out, nil
}

// comment is the text above a key, as one line.
func comment(key *yaml.Node) string {
	var words []string
	for line := range strings.Lines(key.HeadComment) {
		words = append(words, strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "#"))...)
	}
	return strings.Join(words, " ")
}
