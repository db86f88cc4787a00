package main

import (
	"strings"
	"testing"
)

func TestPage(t *testing.T) {
	const lines = `{"client":"b","server":"Qdrant","version":"2","steps":["x","0001 y"],"requests":3,"differences":1,"bytes":4,"direct":16}
{"client":"a","server":"Qdrant","version":"2","steps":["x","z"],"requests":2}
{"client":"a","server":"Qdrant","version":"3","steps":["x","y","z"],"requests":2}
`
	var one, other strings.Builder
	if err := run(strings.NewReader(lines), &one); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| b | Qdrant 2 | 2 | 21 |\n| a | Qdrant 2, Qdrant 3 | 2 to 3 | 0 |\n"} {
		if !strings.Contains(one.String(), want) {
			t.Errorf("no %q in\n%s", want, &one)
		}
	}
	first, second, _ := strings.Cut(lines, "\n")
	if err := run(strings.NewReader(second+first), &other); err != nil || one.String() != other.String() {
		t.Errorf("the page depends on the order of the lines: %v", err)
	}
	for _, bad := range []string{"", "{}", "x"} {
		if err := run(strings.NewReader(bad), &other); err == nil {
			t.Errorf("%q is no record", bad)
		}
	}
}
