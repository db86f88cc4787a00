package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	first = `{"store":"Qdrant","version":"1.17.0","case":"top k in order","capability":"search","outcome":"pass"}
{"store":"Qdrant","version":"1.17.0","case":"100,000 rows","capability":"100,000 rows","outcome":"not run","detail":"off under the race detector"}
`
	second = `{"store":"embedded","version":"-","case":"100,000 rows","capability":"100,000 rows","outcome":"pass"}

{"store":"Milvus","version":"2.3.5","case":"several vector fields","capability":"several vector fields","outcome":"refused","detail":"limit exceeded"}
{"store":"Milvus","version":"2.3.5","case":"top k in order","capability":"search","outcome":"pass"}
{"store":"Milvus","version":"2.3.5","case":"top k in order","capability":"search","outcome":"fail"}
{"store":"embedded","version":"-","case":"ping","capability":"search","outcome":"pass"}
{"store":"Milvus","version":"2.3.5","case":"ping","capability":"search","outcome":"pass"}
{"store":"Qdrant","version":"1.17.0","case":"ping","capability":"search","outcome":"pass"}
{"store":"Milvus","version":"2.3.5","case":"no probes","capability":"search","outcome":"pass"}
{"store":"embedded","version":"-","case":"no probes","capability":"search","outcome":"pass"}
{"store":"Qdrant","version":"1.17.0","case":"no probes","capability":"search","outcome":"pass"}
`
)

func TestPage(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	for name, text := range map[string]string{a: first, b: second} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var page, again bytes.Buffer
	if err := run(t.Context(), []string{a, b}, nil, &page); err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), nil, strings.NewReader(second+first), &again); err != nil {
		t.Fatal(err)
	}
	if page.String() != again.String() {
		t.Error("the page depends on the order of the lines")
	}
	for _, want := range []string{
		"| case | capability | embedded | Milvus 2.3.5 | Qdrant 1.17.0 |",
		"| top k in order | search | absent | ✗ | ✓ |",
		"| several vector fields | several vector fields | absent | refused (1) | absent |",
		"| 100,000 rows | 100,000 rows | ✓ | absent | not run (2) |",
		"1. limit exceeded\n2. off under the race detector\n",
		"Each of embedded, Milvus 2.3.5, Qdrant 1.17.0 passed all other cases: search (2 cases).\n",
	} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page lacks %q:\n%s", want, page.String())
		}
	}
}

func TestBadInput(t *testing.T) {
	for _, text := range []string{"", "x", `{"store":"Qdrant","case":"c","outcome":"maybe"}`} {
		if err := run(t.Context(), nil, strings.NewReader(text), &bytes.Buffer{}); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
	if err := run(t.Context(), []string{"absent"}, nil, &bytes.Buffer{}); err == nil {
		t.Error("a missing file was taken")
	}
}
