package routing

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/route"
)

// rows returns ids, one for each letter.
func rows(letters string) (ids []rerank.ID) {
	for _, l := range letters {
		ids = append(ids, rerank.TextID(string(l)))
	}
	return ids
}

// TestHowListsAreCompared: the overlap is a share of the longer list, and the rank-biased one
// weighs the first rows more. Neither depends on which list was served.
func TestHowListsAreCompared(t *testing.T) {
	const p = persistence
	for _, c := range []struct {
		a, b                string
		overlap, rankBiased float64
	}{
		{"", "", 1, 1},
		{"a", "a", 1, 1},
		{"abc", "abc", 1, 1},
		{"a", "b", 0, 0},
		{"abc", "", 0, 0},
		// p·0/1 + p²·2/2 for the depths 1 and 2, and 2/2 beyond: 1 − p + …
		{"ab", "ba", 1, p*p + (1-p)/p*(p*p)},
		// One of two rows agrees at every depth from 2 on, and it is the first.
		{"ax", "ay", 0.5, 0.5*p*p + (1-p)/p*(p+p*p/2)},
		// The same, and it is the last.
		{"xa", "ya", 0.5, 0.5*p*p + (1-p)/p*(p*p/2)},
		{"abcd", "ab", 0.5, 0.5*math.Pow(p, 4) + (1-p)/p*(p+p*p+math.Pow(p, 3)*2/3+math.Pow(p, 4)/2)},
	} {
		for _, lists := range [][2]string{{c.a, c.b}, {c.b, c.a}} {
			a, b := rows(lists[0]), rows(lists[1])
			if got := overlap(a, b); got != c.overlap {
				t.Errorf("%q and %q overlap by %g, want %g", lists[0], lists[1], got, c.overlap)
			}
			if got := rankBiasedOverlap(a, b); !(math.Abs(got-c.rankBiased) <= 1e-12) {
				t.Errorf("%q and %q overlap by rank by %g, want %g", lists[0], lists[1], got, c.rankBiased)
			}
		}
	}
}

// TestLaterPagesAreNotCompared: they lack the first rows. Of stages it is not known which list is
// later, so that an offset of any of them counts.
func TestLaterPagesAreNotCompared(t *testing.T) {
	for name, c := range map[string]struct {
		searches []Search
		later    []bool
	}{
		"first pages":         {[]Search{{}, {}}, []bool{false, false}},
		"one later page":      {[]Search{{Offset: 1}, {}}, []bool{true, false}},
		"stages":              {[]Search{{Staged: true}, {Staged: true}}, []bool{false, false}},
		"a later stage":       {[]Search{{Staged: true, Offset: 1}, {Staged: true}}, []bool{true, true}},
		"a stage beside it":   {[]Search{{Offset: 1}, {Staged: true}}, []bool{true, true}},
		"a search beside one": {[]Search{{}, {Staged: true, Offset: 1}}, []bool{true, true}},
	} {
		of := call[int]{asked: Asked{Searches: c.searches}}
		for i, want := range c.later {
			if got := of.isLaterPage(i); got != want {
				t.Errorf("%s: list %d is a later page: %t", name, i, got)
			}
		}
	}
}

// TestWhyShadowsFail: the reason of what the call would have become, or that the answers have
// another form.
func TestWhyShadowsFail(t *testing.T) {
	for want, err := range map[string]error{
		"filter": fmt.Errorf("in a batch: %w", Pass("filter")), "deadline": fmt.Errorf("in a batch: %w", Degraded{Reason: "deadline"}), "answer": nil,
	} {
		if got := reasonOf(err); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
	if got := reasonOf(errors.New("other")); got != "answer" {
		t.Errorf("another error: %q", got)
	}
}

// TestWhatARampDependsOn: the vector, its field and the filter of each search, and nothing that
// differs from page to page.
func TestWhatARampDependsOn(t *testing.T) {
	half := &route.Route{Policy: route.Policy{Ramp: 50}}
	passes := func(s Search) bool {
		return (&call[int]{routes: []*route.Route{half}, asked: Asked{Searches: []Search{s}}}).ramped()
	}
	differ := map[string]int{}
	const queries = 400
	passed := 0
	for i := range queries {
		s := Search{Vector: "v", Query: []float32{float32(i), 1}, Filter: "f", Limit: 10}
		was := passes(s)
		if was {
			passed++
		}
		for name, change := range map[string]func(s *Search){
			"offset": func(s *Search) { s.Offset = 10 }, "limit": func(s *Search) { s.Limit = 3 },
			"vector": func(s *Search) { s.Query = []float32{float32(i), 2} }, "field": func(s *Search) { s.Vector = "w" }, "filter": func(s *Search) { s.Filter = "g" },
		} {
			other := s
			if change(&other); passes(other) != was {
				differ[name]++
			}
		}
	}
	if passed < queries/3 || passed > queries*2/3 {
		t.Errorf("%d of %d pass at a ramp of 50", passed, queries)
	}
	for name, is := range map[string]bool{"offset": false, "limit": false, "vector": true, "field": true, "filter": true} {
		if (differ[name] > queries/4) != is || !is && differ[name] > 0 {
			t.Errorf("another %s: %d of %d decisions differ", name, differ[name], queries)
		}
	}
	all, none := &route.Route{Policy: route.Policy{Ramp: 0}}, &route.Route{Policy: route.Policy{Ramp: 100}}
	for _, c := range []struct {
		routes []*route.Route
		want   bool
	}{{[]*route.Route{all}, true}, {[]*route.Route{none}, false}, {[]*route.Route{none, all}, true}} {
		if got := (&call[int]{routes: c.routes}).ramped(); got != c.want {
			t.Errorf("%d routes: passes %t", len(c.routes), got)
		}
	}
}
