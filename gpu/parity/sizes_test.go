package parity_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/gpu"
	"github.com/likenessdb/likeness/gpu/kernels"
	"github.com/likenessdb/likeness/gpu/parity"
	"github.com/likenessdb/likeness/rerank/model"
)

const (
	sizesBegin = "<!-- Sizes: computed by package gpu, which admits tables by them. -->\n"
	sizesEnd   = "<!-- End of the sizes. -->"
)

// TestSizes: a device reserves the sizes in the table of docs/how-to/gpu.md.
func TestSizes(t *testing.T) {
	const path = "../../docs/how-to/gpu.md"
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(page), sizesBegin)
	_, after, ends := strings.Cut(rest, sizesEnd)
	if !begins || !ends {
		t.Fatalf("%s has no lines %q and %q", path, sizesBegin, sizesEnd)
	}
	want := before + sizesBegin + sizes(t) + sizesEnd + after
	if os.Getenv("LIKENESS_REGENERATE") != "" {
		err = os.WriteFile(path, []byte(want), 0o600)
	} else if want != string(page) {
		t.Errorf("%s is not what is computed; LIKENESS_REGENERATE=1 go test ./gpu/parity -run TestSizes", path)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func sizes(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("\n<!-- figures: go test ./gpu/parity -run TestSizes -->\n| rows | of 100,000 | 1,000,000 | 10,000,000 | a row |\n|---|---|---|---|---|\n")
	add := func(name string, m *model.Model, err error, tensor bool) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		row := gpu.NetworkOf(m).RowBytes(tensor)
		fmt.Fprintf(&b, "| %s |", name)
		for _, rows := range []int{100_000, 1_000_000, 10_000_000} {
			fmt.Fprintf(&b, " %.2f GB |", float64(int64(gpu.Capacity(rows))*row)/1e9)
		}
		fmt.Fprintf(&b, " %d B |\n", row)
	}
	for _, dim := range []int{128, 384, 768} {
		m, err := parity.Dot(dim)
		add(fmt.Sprintf("one vector of %d", dim), m, err, true)
	}
	for _, s := range []parity.Shape{{4, 4, 64, 128}, {8, 4, 64, 128}, {8, 8, 32, 128}, {8, 4, 128, 128}, {4, 4, 768, 128}} {
		m, err := parity.MoL(s, 1)
		add(fmt.Sprintf("%d×%d×%d", s.PairsQuery, s.PairsItem, s.Dim), m, err, kernels.Shape(s).Tensor())
	}
	return b.String() + "\n"
}
