package edits_test

import (
	"slices"
	"testing"

	"github.com/likenessdb/likeness/internal/edits"
)

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"route", "route", 0}, {"route", "routes", 1}, {"rout", "route", 1},
		{"roote", "route", 1}, {"kitten", "sitting", 3}, {"ab", "ba", 2}, {"flaw", "lawn", 2},
	} {
		if got := edits.Distance([]rune(c.a), []rune(c.b)); got != c.want {
			t.Errorf("%q to %q: %d edits, want %d", c.a, c.b, got, c.want)
		}
	}
}

// TestClose: a name is close if few letters differ, or if the word begins it.
func TestClose(t *testing.T) {
	for word, want := range map[string]string{"itms": "items", "item": "items", "vec": "vectors", "x": "", "ports": "", "": ""} {
		if got := edits.Close(word, []string{"out", "items", "vectors"}); got != want {
			t.Errorf("%q is close to %q, want %q", word, got, want)
		}
	}
}

func TestNearest(t *testing.T) {
	names := []string{"orders", "Goods", "gods", "items"}
	if got := edits.Nearest("goods", names, 2); !slices.Equal(got, []string{"Goods", "gods"}) {
		t.Errorf("%q", got)
	}
	if got := edits.Nearest("goods", names, 9); len(got) != 4 || names[0] != "orders" {
		t.Errorf("%q of %q", got, names)
	}
}
