package reembed_test

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/derive"
	"github.com/likenessdb/likeness/sidecar/follow"
	"github.com/likenessdb/likeness/sidecar/follow/journal"
	"github.com/likenessdb/likeness/sidecar/reembed"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
	"github.com/likenessdb/likeness/sidecar/search/retrieve"
)

// closest returns the ids of the texts that the new model finds closest to one, of the first n.
func closest(text string, k int) []rerank.ID {
	type scored struct {
		id    int
		score float64
	}
	var all []scored
	for i := range rows {
		all = append(all, scored{i, dot(newVector(text), newVector(textOf(i)))})
	}
	slices.SortFunc(all, func(a, b scored) int { return int(math.Copysign(1, b.score-a.score)) })
	var out []rerank.ID
	for _, s := range all[:k] {
		out = append(out, ids(s.id)...)
	}
	return out
}

func number(id rerank.ID) int {
	n, _ := id.Uint64()
	return int(n)
}

func dot(a, b []float32) (sum float64) {
	for i := range a {
		sum += float64(a[i]) * float64(b[i])
	}
	return sum
}

func idsOf(a search.Answer) (out []rerank.ID) {
	for _, h := range a.Hits {
		out = append(out, h.ID)
	}
	return out
}

// TestAllItems: the walk gives every item its new vector. The route then answers as a new index would,
// and its certificate stays proved; in a restart nothing is embedded twice.
func TestAllItems(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) store{"Qdrant": openQdrant, "milvus-lite": openMilvusLite} {
		t.Run(name, func(t *testing.T) { embedAll(t, newWorld(t, open(t))) })
	}
}

func embedAll(t *testing.T, w *world) {
	t.Helper()
	s := w.start(t, 1e5, time.Millisecond)
	until(t, func() bool { return s.state().Whole && s.state().New == rows })
	for i := range 20 {
		text := "question " + textOf(i)
		a := s.search(t, text)
		if got, want := idsOf(a), closest(text, 10); !slices.Equal(got, want) || !a.Certificate.Proved() || a.Reembedded.Share() != 1 {
			t.Errorf("%s: found %v, %s, share %g; a new index finds %v", text, got, a.Certificate.Status, a.Reembedded.Share(), want)
		}
		if best := dot(newVector(text), newVector(textOf(number(a.Hits[0].ID)))); !(math.Abs(best-float64(a.Hits[0].Score)) <= 1e-5) {
			t.Errorf("%s: score %g, want the cosine %g", text, a.Hits[0].Score, best)
		}
	}
	version, err := s.engine.Find(t.Context(), "r")
	must(t, err)
	view := version.Current().View()
	exact, err := (&retrieve.Reader{View: view}).Exact(t.Context(), ids(1, 2))
	if must(t, err); dot(exact.Items.Features.Row(1), newVector(textOf(2))) < 0.9999 {
		t.Error("scores are made exact from what the bridge makes of an item, not from its new vector")
	}
	view.Release()
	version.Release()
	s.agrees(t, rows)
	s.filler.Searched(t.Context(), "r", search.Request{}, search.Answer{Reembedded: &search.Reembedded{Bridged: ids(1, 2, 3)}}, nil)
	until(t, func() bool { return s.state().Waiting == 0 }) // as if another sidecar had embedded them meanwhile
	for range 2 {                                           // one walk may have ended before they were looked at
		seen := s.state().Seen
		until(t, func() bool { return s.state().Seen.After(seen) })
	}
	s.stop()
	before := len(w.embedder.embedded())
	if before != rows {
		t.Errorf("%d texts were embedded for %d items", before, rows)
	}
	again := w.start(t, 1e5, time.Millisecond)
	until(t, func() bool { return again.state().Whole })
	if n := len(w.embedder.embedded()); n != before || again.state().New != rows {
		t.Errorf("after a restart %d more texts were embedded: %+v", n-before, again.state())
	}
}

// TestTouchedItemsFirst: at a rate at which the walk hardly begins, an answer's items get new vectors
// before the others do, and the share says so.
func TestTouchedItemsFirst(t *testing.T) {
	w := newWorld(t, openQdrant(t))
	w.embedder.down.Store(true)
	s := w.start(t, 20, time.Millisecond)
	first := s.search(t, textOf(7))
	if first.Reembedded.Share() != 0 || len(first.Reembedded.Bridged) != 10 {
		t.Fatalf("%+v", first.Reembedded)
	}
	until(t, func() bool { return s.state().Failures > 0 && s.state().Error != "" })
	if !s.search(t, textOf(7)).Certificate.Proved() {
		t.Error("a failing embedder spoils a certificate")
	}
	w.embedder.down.Store(false)
	until(t, func() bool { return len(s.search(t, textOf(7)).Reembedded.Bridged) == 0 })
	a := s.search(t, textOf(7))
	if share := a.Reembedded.Share(); !(share > 0 && share < 1) || a.Hits[0].ID != ids(7)[0] || !(math.Abs(float64(a.Hits[0].Score)-1) <= 1e-5) {
		t.Errorf("share %g, %+v", share, a.Hits[0])
	}
	for _, h := range first.Hits[:5] {
		if !slices.Contains(w.embedder.embedded(), textOf(number(h.ID))) {
			t.Errorf("item %s of the first answer was not embedded", h.ID)
		}
	}
	if s.state().Error != "" {
		t.Errorf("%+v", s.state())
	}
}

// TestNewVectorWithinASearch: a candidate gets its new vector after the search has read its list and before
// it reads the candidate's features. Other items may have got one too, so that nothing is proved.
func TestNewVectorWithinASearch(t *testing.T) {
	db := openDelayed(t)
	w := newWorld(t, db)
	w.embedder.down.Store(true)
	s := w.start(t, 1, time.Hour)
	text := textOf(7)
	first := s.search(t, text)
	if !first.Certificate.Proved() {
		t.Fatalf("%+v", first.Certificate)
	}
	between := func() {
		id := first.Hits[3].ID
		own := textOf(number(id))
		n, err := s.follower.Reembed(t.Context(), s.route, []follow.NewVector{{ID: id, Vector: newVector(own), Source: derive.SourceDigest(oldVector(own), own)}})
		if n != 1 || err != nil {
			t.Errorf("%d written, %v", n, err)
		}
	}
	db.before.Store(&between)
	if c := s.search(t, text).Certificate; c.Proved() {
		t.Errorf("%+v", c)
	}
	if c := s.search(t, text).Certificate; !c.Proved() {
		t.Errorf("afterwards: %+v", c)
	}
}

// TestFollows: a written item loses its new vector until it is embedded again, and keeps it if neither its
// text nor its old vector changed. A deleted item is gone.
func TestFollows(t *testing.T) {
	w := newWorld(t, openQdrant(t))
	s := w.start(t, 1e5, time.Millisecond)
	until(t, func() bool { return s.state().Whole && s.state().New == rows })
	s.put(t, 3, textOf(3), 2)
	if v, p := s.row(t, 3); dot(v, newVector(textOf(3))) < 0.9999 || derive.MarkOf(p) == "" || !strings.Contains(string(p), `"price":2`) {
		t.Errorf("after another price: cosine %g, %s", dot(v, newVector(textOf(3))), p)
	}
	w.embedder.down.Store(true)
	s.put(t, 4, "another text", 1)
	if v, p := s.row(t, 4); dot(v, newVector(textOf(4))) > 0.999 || derive.MarkOf(p) != "" {
		t.Errorf("after another text: cosine %g with its old text, %s", dot(v, newVector(textOf(4))), p)
	}
	s.agrees(t, rows)
	w.embedder.down.Store(false)
	until(t, func() bool { _, p := s.row(t, 4); return derive.MarkOf(p) != "" })
	if v, _ := s.row(t, 4); dot(v, newVector("another text")) < 0.9999 {
		t.Errorf("embedded again: cosine %g with its text", dot(v, newVector("another text")))
	}
	s.agrees(t, rows)

	// A write past the proxy leaves a new vector of the earlier text behind, until all rows are compared.
	w.embedder.down.Store(true)
	must(t, s.store.Write(t.Context(), items, s.schema, adapters.Rows{
		IDs: ids(8), Payloads: []json.RawMessage{payload("past the proxy", 1)}, Vectors: []rerank.Matrix{{Rows: 1, Cols: oldDim, Data: oldVector("past the proxy")}},
	}))
	c, err := reembed.CountItems(t.Context(), s.route, func(int) {})
	if must(t, err); c.Items != rows || c.New != rows-1 || c.Changed != 1 {
		t.Errorf("%+v", c)
	}
	_, err = s.follower.Reconcile(t.Context(), items)
	must(t, err)
	if _, p := s.row(t, 8); derive.MarkOf(p) != "" {
		t.Errorf("after a comparison of all rows the vector of an earlier text is still there: %s", p)
	}

	end := s.follower.Begin(t.Context(), journal.Write{Collection: items, Kind: journal.Delete, IDs: ids(9)})
	must(t, s.store.Delete(t.Context(), items, ids(9)))
	end(true, nil)
	until(t, s.route.Freshness.Fresh)
	if v, _ := s.row(t, 9); v != nil {
		t.Error("a deleted item is still in the companion")
	}
	s.agrees(t, rows-1)
}

// TestRefusedTexts: an item without a text, and one whose text the embedder refuses, stay bridged. The
// others of their batch do not, and an answer that shows it does not send the text again.
func TestRefusedTexts(t *testing.T) {
	w := newWorld(t, openQdrant(t))
	w.embedder.down.Store(true)
	s := w.start(t, 1e5, time.Hour)
	s.put(t, 5, "bad text", 1)
	s.put(t, 6, "", 1)
	w.embedder.down.Store(false)
	until(t, func() bool { return s.state().Whole })
	if state := s.state(); state.Refused != 2 || state.New != rows-2 {
		t.Errorf("%+v", state)
	}
	c, err := reembed.CountItems(t.Context(), s.route, func(int) {})
	if must(t, err); c.New != rows-2 || c.Bridged != 1 || c.NoText != 1 || !slices.Equal(c.Untold, ids(6)) {
		t.Errorf("%+v", c)
	}
	s.put(t, 7, "another text", 1)
	s.filler.Searched(t.Context(), "r", search.Request{}, search.Answer{Reembedded: &search.Reembedded{Bridged: ids(5, 6, 7)}}, nil)
	until(t, func() bool { _, p := s.row(t, 7); return derive.MarkOf(p) != "" })
	s.stop()
	if state := s.state(); state.Refused != 2 {
		t.Errorf("%+v", state)
	}
	s.agrees(t, rows)
}

// TestRefusedTextsAreRemembered: walks do not send a refused text again before its time, unless the item changes.
func TestRefusedTextsAreRemembered(t *testing.T) {
	w := newWorld(t, openQdrant(t))
	w.embedder.down.Store(true)
	s := w.start(t, 1e5, time.Millisecond)
	s.put(t, 5, "bad text", 1)
	w.embedder.down.Store(false)
	walks := func(s *sidecar) {
		for range 3 {
			seen := s.state().Seen
			until(t, func() bool { return s.state().Seen.After(seen) })
		}
	}
	walks(s)
	sent := w.embedder.refused.Load()
	walks(s)
	if n := w.embedder.refused.Load(); sent == 0 || n != sent || s.state().Refused != 1 {
		t.Errorf("%d calls refused in three walks, and %d in the next: %+v", sent, n-sent, s.state())
	}
	s.put(t, 5, "a good text", 1)
	until(t, func() bool { return s.state().New == rows })
	s.put(t, 5, "bad text", 1)
	walks(s)
	s.stop()
	again := w.startWith(t, 1e5, reembed.Options{Rest: time.Millisecond, RetryRefused: time.Millisecond})
	until(t, func() bool { return again.state().Refused > 2 })
	w.embedder.lenient.Store(true)
	until(t, func() bool { return again.state().New == rows })
}

// TestReembedRefuses: a new vector of a text that the item no longer has is not written, and a vector of
// another length is an error.
func TestReembedRefuses(t *testing.T) {
	w := newWorld(t, openQdrant(t))
	w.embedder.down.Store(true)
	s := w.start(t, 1, time.Hour)
	source := derive.SourceDigest(oldVector(textOf(1)), textOf(1))
	for _, c := range []struct {
		id     int
		source string
		want   int
	}{{1, source, 1}, {1, derive.SourceDigest(oldVector(textOf(1)), "earlier"), 0}, {2, source, 0}, {rows + 1, source, 0}} {
		n, err := s.follower.Reembed(t.Context(), s.route, []follow.NewVector{{ID: ids(c.id)[0], Vector: newVector(textOf(c.id)), Source: c.source}})
		if must(t, err); n != c.want {
			t.Errorf("item %d: %d vectors written, want %d", c.id, n, c.want)
		}
	}
	n, err := reembed.Put(t.Context(), s.route, reembed.Vectors{IDs: ids(3, rows+1), Rows: rerank.Matrix{Rows: 2, Cols: newDim, Data: append(newVector("x"), newVector("y")...)}}, s.follower.Reembed, func(int) {})
	if must(t, err); n != 1 {
		t.Errorf("%d vectors were put, want that of the item that is there", n)
	}
	if v, p := s.row(t, 3); dot(v, newVector("x")) < .9999 || derive.MarkOf(p) != derive.SourceDigest(oldVector(textOf(3)), textOf(3)) {
		t.Errorf("the item that Put wrote has %v, %s", v, p)
	}
	long := newVector(textOf(2))
	for i := range long {
		long[i] *= 7
	}
	n, err = s.follower.Reembed(t.Context(), s.route, []follow.NewVector{{ID: ids(2)[0], Vector: long, Source: derive.SourceDigest(oldVector(textOf(2)), textOf(2))}})
	must(t, err)
	if v, _ := s.row(t, 2); n != 1 || !(math.Abs(dot(v, v)-1) <= 1e-5) {
		t.Errorf("a new vector of norm 7 has the norm %g in the companion", math.Sqrt(dot(v, v)))
	}
	for name, v := range map[string]follow.NewVector{"length": {Vector: newVector("x")[:3]}, "zero": {Vector: make([]float32, newDim)}} {
		v.ID, v.Source = ids(1)[0], source
		if n, err := s.follower.Reembed(t.Context(), s.route, []follow.NewVector{v}); n != 0 || err == nil {
			t.Errorf("%s: %d written, %v", name, n, err)
		}
	}
	for what, change := range map[string]func(*route.Route){
		"a route that does not embed again": func(r *route.Route) { r.Name = "none" },
		"another version's companion":       func(r *route.Route) { r.Companion = "earlier" },
		"another version's embedder":        func(r *route.Route) { r.EmbedderName = "earlier" },
	} {
		other := *s.route
		change(&other)
		if _, err := s.follower.Reembed(t.Context(), &other, nil); !errors.Is(err, follow.ErrRoute) {
			t.Errorf("%s: %v, want ErrRoute", what, err)
		}
	}
	s.agrees(t, rows)
}
