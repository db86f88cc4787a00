package judge

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/samples"
	"github.com/likenessdb/likeness/learn/verdict"
	"github.com/likenessdb/likeness/rerank"
)

// manyQueries returns a judge of n queries, each with a relevant item of its own. Their vectors are zero:
// the tests' rivals state ranks, and rank nothing.
func manyQueries(n int) *Judge {
	l := &samples.Log{Items: rerank.NewMatrix(n, 1), Queries: rerank.NewMatrix(n, 1)}
	queries := make([]int32, n)
	for q := range queries {
		queries[q] = int32(q)
		l.Relevant = append(l.Relevant, []int32{int32(q)})
	}
	return New(l, fit.MRR, queries, nil)
}

// finding returns a rival that ranks each query's item first, except for every misses-th query.
func finding(name string, numbers, misses int) Rival {
	return Rival{Name: name, Numbers: numbers, Marks: func(j *Judge) ([]float64, error) {
		ranks := make([]float64, len(j.Queries))
		for i, q := range j.Queries {
			if int(q)%misses != 0 {
				ranks[i] = 1
			}
		}
		return ranks, nil
	}}
}

// TestDecideLooksUntilItIsClear: a clear case needs the first look only, an unclear one all
// queries. Rivals are ordered by the numbers that they store.
func TestDecideLooksUntilItIsClear(t *testing.T) {
	all := manyQueries(10000)
	for name, c := range map[string]struct {
		rivals  []Rival
		queries int
		choice  string
	}{
		"one is far better":         {[]Rival{finding("full", 16384, 1000)}, 1000, "full"},
		"the smaller is as good":    {[]Rival{finding("rank 103", 26368, 1000), finding("full", 16384, 1000)}, 1000, "full"},
		"the smaller is worse":      {[]Rival{finding("full", 16384, 1000), finding("diagonal", 128, 4)}, 1000, "full"},
		"no better than plain":      {[]Rival{finding("full", 16384, 2)}, 1000, ""},
		"hardly better":             {[]Rival{{Name: "full", Numbers: 1, Marks: noisy}}, 10000, ""},
		"hardly better, two rivals": {[]Rival{{Name: "full", Numbers: 1, Marks: noisy}, {Name: "large", Numbers: 2, Marks: noisy}}, 10000, ""},
	} {
		o, err := Decide(all, finding("plain", 0, 2), c.rivals, verdict.DefaultRule())
		if err != nil {
			t.Fatal(err)
		}
		choice := ""
		if o.Decision.Choice >= 0 {
			choice = o.Rivals[o.Decision.Choice].Name
		}
		if o.Queries != c.queries || choice != c.choice || o.Plain != 0.5 {
			t.Errorf("%s: %q after %d queries, want %q after %d: %q", name, choice, o.Queries, c.choice, c.queries, o.Decision.Text)
		}
		looks := lookEnds(10000, FirstLook)
		confidence := fmt.Sprintf("(%.4g %%", 100*confidenceAt(slices.Index(looks, o.Queries), len(looks), 0.95))
		if text := strings.Join(o.Decision.Text, " "); !strings.Contains(text, confidence) {
			t.Errorf("%s: %q, want the confidence of one look among several, %s", name, text, confidence)
		}
		for i, g := range o.Gains {
			if g.Value != o.Values[i] || g.Queries != o.Queries {
				t.Errorf("%s: %+v", name, g)
			}
		}
	}
	if o, err := DecideOnce(all, finding("plain", 0, 2), []Rival{finding("full", 16384, 1000)}, verdict.DefaultRule()); err != nil || o.Queries != 10000 || o.Choice() != "full" {
		t.Errorf("one look at all took %d queries, %v", o.Queries, err)
	}
	o, err := DecideQuickly(all, finding("plain", 0, 2), []Rival{{Name: "full", Numbers: 1, Marks: noisy}}, verdict.DefaultRule())
	if err != nil || o.Queries != 1000 {
		t.Errorf("a quick decision took %d queries, %v", o.Queries, err)
	}
}

// noisy returns the ranks of a rival that finds other items than the plain similarity, and a few more.
func noisy(j *Judge) ([]float64, error) {
	ranks := make([]float64, len(j.Queries))
	for i, q := range j.Queries {
		if q%4 < 2 || q%200 == 3 {
			ranks[i] = 1
		}
	}
	return ranks, nil
}

// TestTheRisksOfAllLooks: the risks of all looks add up to the risk of the rule, and the last look has half
// of it.
func TestTheRisksOfAllLooks(t *testing.T) {
	for looks := 1; looks < 8; looks++ {
		var risk float64
		for i := range looks {
			risk += 1 - confidenceAt(i, looks, 0.95)
		}
		if last := 1 - confidenceAt(looks-1, looks, 0.95); !(math.Abs(risk-0.05) <= 1e-12) || last < 0.025 {
			t.Errorf("%d looks risk %g, the last one %g", looks, risk, last)
		}
	}
	for n, want := range map[int][]int{500: {500}, 1000: {1000}, 1001: {1000, 1001}, 9000: {1000, 2000, 4000, 8000, 9000}} {
		if got := lookEnds(n, FirstLook); !slices.Equal(got, want) {
			t.Errorf("of %d queries the looks are after %v, want %v", n, got, want)
		}
	}
}
