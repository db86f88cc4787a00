package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

// EnvPrefix begins the variables that set keys: LIKENESS_LIMITS_MAX_K sets limits.max_k.
const EnvPrefix = "LIKENESS_"

// Source says where a configuration comes from. A flag overrides the environment, the
// environment overrides the file, and the file overrides the default.
type Source struct {
	// File names the YAML file; empty reads no file.
	File string
	// Environ holds environment variables as os.Environ returns them; nil stands for the
	// process's own.
	Environ []string
	// Set holds the flags, each as key=value: limits.max_k=100.
	Set []string
}

// origin remembers where values came from, for error messages and to read secrets.
type origin struct {
	file  string
	lines map[string]int // key path → line of the file
	env   map[string]string
}

// at names a key and, if the file sets it, the file and the line.
func (o origin) at(path string) string {
	if line := o.lines[path]; line > 0 {
		return fmt.Sprintf("%s:%d: %s", o.file, line, path)
	}
	return path
}

// Load reads a configuration from all its sources and validates it. It returns ErrConfig
// with file, line and key of the mistake, and suggests the nearest key for an unknown key.
func Load(s Source) (*Config, error) {
	var data []byte
	if s.File != "" {
		var err error
		if data, err = os.ReadFile(s.File); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrConfig, err)
		}
	}
	environ := s.Environ
	if environ == nil {
		environ = os.Environ()
	}
	return Parse(s.File, data, environ, s.Set)
}

// Parse does what Load does, for a file whose content is data. File names in it are relative
// to the directory of file.
func Parse(file string, data []byte, environ, set []string) (*Config, error) {
	c := Default()
	c.origin = origin{file: file, lines: map[string]int{}, env: environment(environ)}
	if err := c.readYAML(data); err != nil {
		return nil, err
	}
	resolvePaths(reflect.ValueOf(&c).Elem(), filepath.Dir(file))
	if err := c.readEnvironment(); err != nil {
		return nil, err
	}
	if err := c.readFlags(set); err != nil {
		return nil, err
	}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return &c, nil
}

func (c *Config) readYAML(data []byte) error {
	var doc yaml.Node
	decoder := yaml.NewDecoder(strings.NewReader(string(data)))
	switch err := decoder.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil // nothing but comments
	case err != nil:
		return c.yamlError(err)
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: %s holds more than one YAML document", ErrConfig, c.origin.file)
	}
	if err := doc.Decode(c); err != nil {
		return c.yamlError(err)
	}
	check := keyCheck{origin: &c.origin, seen: map[visit]bool{}}
	check.walk(&doc, reflect.TypeFor[Config](), "")
	return problems(check.found)
}

// yamlError adds the name of the file to the line numbers of the parser.
func (c *Config) yamlError(err error) error {
	var types *yaml.TypeError
	if errors.As(err, &types) {
		found := make([]string, len(types.Errors))
		for i, e := range types.Errors {
			e = strings.Replace(e, "into time.Duration", "into a duration; give it a unit, as 5s", 1)
			found[i] = c.origin.file + ": " + e
		}
		return problems(found)
	}
	return fmt.Errorf("%w: %s: %w", ErrConfig, c.origin.file, err)
}

// problems returns one error that lists everything that was found, or nil for an empty list.
func problems(found []string) error {
	switch len(found) {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("%w: %s", ErrConfig, found[0])
	default:
		return fmt.Errorf("%w:\n  %s", ErrConfig, strings.Join(found, "\n  "))
	}
}

// environment returns the variables by name. Of a variable that is set twice the last value
// counts.
func environment(environ []string) map[string]string {
	env := map[string]string{}
	for _, kv := range environ {
		if name, value, ok := strings.Cut(kv, "="); ok {
			env[name] = value
		}
	}
	return env
}

// readEnvironment applies variables of the form LIKENESS_SECTION_KEY. A variable with the
// name of a section but no known key is an error. Other variables are ignored: Kubernetes
// sets such variables for a service called likeness.
func (c *Config) readEnvironment() error {
	leaves := leavesOf(reflect.ValueOf(c).Elem())
	byName := map[string]string{}
	for _, path := range leaves {
		byName[envName(path)] = path
	}
	sections := keysOf(reflect.TypeFor[Config]())
	var found []string
	for name, value := range c.origin.env {
		rest, ok := strings.CutPrefix(name, EnvPrefix)
		if !ok {
			continue
		}
		path, known := byName[name]
		section, _, _ := strings.Cut(rest, "_")
		switch {
		case known:
			if err := c.set(path, value); err != nil {
				found = append(found, fmt.Sprintf("variable %s: %v", name, err))
			}
		case contains(sections, strings.ToLower(section)):
			found = append(found, fmt.Sprintf("variable %s names no key%s", name, hint(name, keys(byName))))
		}
	}
	return problems(sorted(found))
}

func (c *Config) readFlags(set []string) error {
	leaves := leavesOf(reflect.ValueOf(c).Elem())
	for _, kv := range set {
		path, value, ok := strings.Cut(kv, "=")
		if !ok {
			return fmt.Errorf("%w: flag %q: write key=value, as limits.max_k=100", ErrConfig, path)
		}
		if !contains(leaves, path) {
			return fmt.Errorf("%w: flag: unknown key %q%s", ErrConfig, path, hint(path, leaves))
		}
		if err := c.set(path, value); err != nil {
			return fmt.Errorf("%w: flag %s: %w", ErrConfig, path, err)
		}
	}
	return nil
}

// set sets the existing key at path to a value in YAML notation. Its errors do not repeat
// the value, which may be long or secret.
func (c *Config) set(path, value string) error {
	delete(c.origin.lines, path)
	return setLeaf(reflect.ValueOf(c).Elem(), path, value)
}
