package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

var (
	target   = regexp.MustCompile(`(?:^| )make ([a-z][a-z-]*)`)
	filePath = regexp.MustCompile(`(?:^|[ '"=])(?:\./)?((?:adapters|bench|client|cmd|deploy|docs|e2e|examples|gpu|internal|learn|plugin|python|rerank|sidecar|tools)(?:/[\w./-]*)?)(?:[ '"]|$)`)
	selected = regexp.MustCompile(` -(run|bench)[ =]['"]?([^'" ]+)`)
	declared = regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz|Example)\w*)\(`)
)

// commandExists checks the parts of a command that the repository knows: targets of make, files and
// folders, and tests and benchmarks of go test.
func commandExists(repository fs.FS, command string) error {
	if m := target.FindStringSubmatch(command); m != nil {
		makefile, err := fs.ReadFile(repository, "Makefile")
		if err != nil {
			return err
		}
		if !regexp.MustCompile(`(?m)^` + m[1] + `:`).Match(makefile) {
			return fmt.Errorf("%s: the Makefile has no target %s", command, m[1])
		}
	}
	var names []string
	for _, m := range filePath.FindAllStringSubmatch(command, -1) {
		name := strings.TrimRight(strings.TrimSuffix(m[1], "..."), "/.")
		if _, err := fs.Stat(repository, name); err != nil {
			return fmt.Errorf("%s: there is no %s", command, name)
		}
		names = append(names, name)
	}
	if !strings.Contains(command, "go test ") {
		return nil
	}
	return testsExist(repository, command, names)
}

// testsExist checks that -run and -bench of a go test command select something in its packages.
func testsExist(repository fs.FS, command string, packages []string) error {
	for _, m := range selected.FindAllStringSubmatch(command, -1) {
		if m[2] == "^$" {
			continue
		}
		kind := map[string]string{"run": "Test", "bench": "Benchmark"}[m[1]]
		first, _, _ := strings.Cut(m[2], "/") // what follows selects subtests
		pattern, err := regexp.Compile(first)
		if err != nil {
			return fmt.Errorf("%s: %w", command, err)
		}
		if !slices.ContainsFunc(packages, func(dir string) bool { return selects(repository, dir, kind, pattern) }) {
			return fmt.Errorf("%s: no %s of %s matches %s", command, strings.ToLower(kind), strings.Join(packages, ", "), first)
		}
	}
	return nil
}

// selects reports whether a function of a folder's tests, or of a folder in it, matches.
func selects(repository fs.FS, dir, kind string, pattern *regexp.Regexp) bool {
	found := false
	_ = fs.WalkDir(repository, dir, func(name string, _ fs.DirEntry, err error) error {
		if err != nil || found || !strings.HasSuffix(name, "_test.go") {
			return err
		}
		text, err := fs.ReadFile(repository, name)
		for _, m := range declared.FindAllStringSubmatch(string(text), -1) {
			found = found || strings.HasPrefix(m[1], kind) && pattern.MatchString(m[1])
		}
		return err
	})
	return found
}

// recordedCommands checks the commands in docs/benchmarks/*.json.
func recordedCommands(repository fs.FS) ([]string, error) {
	files, err := fs.Glob(repository, "docs/benchmarks/*.json")
	if err != nil {
		return nil, err
	}
	var problems []string
	for _, file := range files {
		text, err := fs.ReadFile(repository, file)
		if err != nil {
			return nil, err
		}
		var value any
		if err := json.Unmarshal(text, &value); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for _, command := range commandsIn(value) {
			for line := range strings.SplitSeq(command, "\n") {
				if err := commandExists(repository, line); err != nil {
					problems = append(problems, path.Base(file)+": "+err.Error())
				}
			}
		}
	}
	slices.Sort(problems)
	return slices.Compact(problems), nil
}

// commandsIn returns the fields called command, at any depth.
func commandsIn(value any) []string {
	var commands []string
	switch v := value.(type) {
	case map[string]any:
		for key, field := range v {
			if text, ok := field.(string); ok && key == "command" {
				commands = append(commands, text)
			}
			commands = append(commands, commandsIn(field)...)
		}
	case []any:
		for _, field := range v {
			commands = append(commands, commandsIn(field)...)
		}
	}
	return commands
}
