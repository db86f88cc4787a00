package main

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestPinned: the files of the repository pin each client and server that the tests run, the newest one of Qdrant's
// Python client beside an older one.
func TestPinned(t *testing.T) {
	packages, err := pinned(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range packages {
		framework := slices.Contains([]string{"langchain-core", "llama-index-core", "haystack-ai"}, p.Name)
		if len(p.Ran) == 0 && !framework {
			t.Errorf("no file pins %s", p.Name)
		}
		if (p.Name == "qdrant-client" || p.Name == "pymilvus" || p.Name == "milvus-lite") && len(p.Ran) < 2 {
			t.Errorf("of %s only %q is run, want an old and a new one", p.Name, p.Ran)
		}
	}
	if _, err := pinned(os.DirFS(t.TempDir())); err == nil {
		t.Error("a folder without pins is taken for the repository")
	}
}

func TestVersionsIn(t *testing.T) {
	for text, want := range map[string]string{
		"a-client==1.20.0\n":                                        "1.20.0",
		"a-client==1.2.0 \\\n    --hash=sha256:12":                  "1.2.0",
		"{\n  \"a-client\": \"1.19.0\"\n}":                          "1.19.0",
		"install x-1 npm_package a-client@0.1.10 \\\n":              "0.1.10",
		"require (\n\ta-client v1.18.3\n)":                          "1.18.3",
		"not-a-client==1.0\na-client-too==2.0\na-client>=3.0":       "",
		"install y wheel a-client==2.5.1 \\\na-client==3.2.2\n":     "2.5.1 3.2.2",
		"# Remade by pip freeze after pip install a-client==3.2.2.": "3.2.2",
	} {
		if got := strings.Join(versionsIn(text, "a-client"), " "); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestCompareVersions(t *testing.T) {
	versions := []string{"1.20.0", "1.3", "1.17.1", "3.0", "1.17"}
	if slices.SortFunc(versions, compareVersions); strings.Join(versions, " ") != "1.3 1.17 1.17.1 1.20.0 3.0" {
		t.Errorf("%q", versions)
	}
}

// TestParse: what pip, npm and go print.
func TestParse(t *testing.T) {
	for _, c := range []struct {
		registry     registry
		output, want string
	}{
		{python, "qdrant-client (1.20.0)\nAvailable versions: 1.20.0, 1.19.1\n", "1.20.0"},
		{node, "1.19.0\n", "1.19.0"},
		{golang, "v1.18.3\n", "1.18.3"},
		{python, "ERROR: No matching distribution found\n", ""},
		{node, "", ""},
		{golang, "none", ""},
	} {
		if got := c.registry.parse(c.output); got != c.want {
			t.Errorf("%s prints %q: %q, want %q", c.registry, c.output, got, c.want)
		}
	}
}

func TestPage(t *testing.T) {
	var out bytes.Buffer
	err := writePage(&out, []pkg{
		{Name: "a", Ran: []string{"1.0", "1.2"}, Newest: "1.2"}, {Name: "b", Ran: []string{"1.0"}, Newest: "2.0"},
		{Name: "c", Newest: "3.0"}, {Name: "d", Ran: []string{"1.0"}, Newest: "4.0", Frozen: "it is old"},
	}, time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"2026-01-02", "| a | 1.0, 1.2 | 1.2 |\n", "| b | 1.0 | 2.0, newer than what was run |", "| c | not run | 3.0, newer", "| d | 1.0 | 4.0, it is old |"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the page lacks %q:\n%s", want, &out)
		}
	}
}
