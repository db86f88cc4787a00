package rank

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/plugin"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/sidecar/ranker"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search/failure"
	"github.com/likenessdb/likeness/sidecar/search/plan"
	"github.com/likenessdb/likeness/sidecar/search/retrieve"
)

// described is a ranker with only a description.
type described struct {
	ranker.Ranker

	readsText bool
	err       error
}

func (d described) Describe(context.Context) (plugin.Description, error) {
	return plugin.Description{Version: "1", Text: d.readsText}, d.err
}

// supports is a model whose query vectors are scores of support items.
type supports struct{ rerank.SupportAsker }

func (supports) Supports() []rerank.ID { return nil }

func (supports) Ask(_ context.Context, _ rerank.Relevance, q rerank.Query) (rerank.Query, error) {
	q.Vector = append(q.Vector, 7)
	return q, nil
}

// TestVectorOfScores: a ranker gets the query's vector, unless the vector consists of scores.
func TestVectorOfScores(t *testing.T) {
	calls := 5
	r := plan.Request{Query: rerank.Query{Vector: []float32{1, 2}, Text: "t"}, Calls: &calls, Rounds: 1}
	for _, ofScores := range []bool{false, true} {
		var v route.View
		v.Checked = &route.Checked{Route: route.Route{}}
		v.Ranker = described{}
		if ofScores {
			v.ModelCan.Supports = supports{}
		}
		s, out, err := Begin(t.Context(), v, r, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if (len(s.query.Vector) == 0) != ofScores || s.query.Text != "t" || s.MadeVector() != ofScores || len(out.Query.Vector) != 2 {
			t.Errorf("a vector of scores (%t): the ranker sees %+v, the search %+v", ofScores, s.query, out.Query)
		}
	}
}

// TestBegin: a ranker that reads text wants some. Without a vector, its scores make one, beside the query's own numbers.
// Feature rows are kept for an explanation and for a later round.
func TestBegin(t *testing.T) {
	none, five := 0, 5
	words := rerank.Query{Text: "t"}
	for name, c := range map[string]struct {
		ranker    described
		supports  bool
		r         plan.Request
		bad       bool // the request is refused
		degraded  bool
		vector    []float32
		keepsRows bool
		explains  bool
	}{
		"no text, and none is read": {ranker: described{}, r: plan.Request{Calls: &five, Rounds: 1}},
		"no text":                   {ranker: described{readsText: true}, r: plan.Request{Calls: &five, Rounds: 1}, bad: true},
		"no text, and no call":      {ranker: described{readsText: true}, r: plan.Request{Calls: &none, Rounds: 1}},
		"one round":                 {ranker: described{readsText: true}, r: plan.Request{Query: words, Calls: &five, Rounds: 1}},
		"two rounds":                {ranker: described{}, r: plan.Request{Query: words, Calls: &five, Rounds: 2}, keepsRows: true},
		"explained":                 {ranker: described{}, r: plan.Request{Query: words, Calls: &five, Rounds: 1, Explain: true}, keepsRows: true, explains: true},
		"a vector of scores":        {ranker: described{}, supports: true, r: plan.Request{Query: words, StoredVector: []float32{3}, Calls: &five, Rounds: 1}, vector: []float32{3, 7}},
		"no description":            {ranker: described{err: ranker.ErrUnavailable}, supports: true, r: plan.Request{Query: words, Calls: &five, Rounds: 1}, degraded: true},
	} {
		v := route.View{Checked: &route.Checked{}}
		v.Ranker = c.ranker
		if c.supports {
			v.ModelCan.Supports = supports{}
		}
		s, out, err := Begin(t.Context(), v, c.r, slog.New(slog.DiscardHandler))
		if errors.Is(err, plan.ErrRequest) != c.bad || errors.Is(err, failure.ErrDegraded) != c.degraded || err != nil && !c.bad && !c.degraded {
			t.Errorf("%s: %v", name, err)
		}
		if !slices.Equal(out.Query.Vector, c.vector) || s.KeepsRows() != c.keepsRows || s.explains != c.explains {
			t.Errorf("%s: the vector is %v, want %v; rows are kept %t, scores explained %t", name, out.Query.Vector, c.vector, s.KeepsRows(), s.explains)
		}
	}
}

// waiting is a model whose support items take a second to score, unless the search ends before.
type waiting struct{ supports }

func (waiting) Ask(ctx context.Context, _ rerank.Relevance, q rerank.Query) (rerank.Query, error) {
	select {
	case <-time.After(time.Second):
		return q, nil
	case <-ctx.Done():
		return q, ctx.Err()
	}
}

// TestSupportsTakeTime: the ranker's time has that of the support items. A caller that goes away meanwhile is no
// failure of the ranker.
func TestSupportsTakeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		v := route.View{Checked: &route.Checked{}}
		v.Ranker, v.ModelCan.Supports = described{}, waiting{}
		five := 5
		begin := func(ctx context.Context) (*Spending, error) {
			s, _, err := Begin(ctx, v, plan.Request{Query: rerank.Query{Text: "t"}, Calls: &five, Rounds: 1}, slog.New(slog.NewTextHandler(&log, nil)))
			return s, err
		}
		if s, err := begin(t.Context()); err != nil || s.Time != time.Second {
			t.Errorf("the support items took %s, want a second; %v", s.Time, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		if _, err := begin(ctx); !errors.Is(err, context.Canceled) || errors.Is(err, failure.ErrDegraded) || log.Len() > 0 {
			t.Errorf("a caller that goes away: %v, logged as %q", err, log.String())
		}
	})
}

// TestRoundsGoOn: another round can change the answer if fewer rows than requested were scored, or
// if the last round changed it.
func TestRoundsGoOn(t *testing.T) {
	s := &Spending{Ranking: Ranking{Budget: 9}, scores: map[rerank.ID]float32{}, asked: map[rerank.ID]bool{}, gone: map[rerank.ID]bool{}}
	s.candidates = retrieve.NewIDSet(0)
	rounds := func(k int, want ...bool) {
		t.Helper()
		for i, w := range want {
			if more := s.Round(t.Context(), Candidates{}, 0, k); more != w {
				t.Errorf("round %d of %d rows: another can change the answer: %t, want %t", i, k, more, w)
			}
		}
	}
	rounds(2, true, true) // no row was scored
	for n := range uint64(2) {
		id := rerank.UintID(n)
		s.candidates.Add(id, 0)
		s.scores[id] = float32(n)
	}
	rounds(3, true, true) // one row is missing
	rounds(2, false)      // the same two rows
	s.scores[rerank.UintID(0)] = 5
	rounds(2, true, false) // in another order, then unchanged
	s.Calls, s.scores[rerank.UintID(1)] = 9, 7
	rounds(2, false) // no calls are left
}

// rows is a store of rows, and of feature rows that are their vectors. It records the ids that were fetched.
type rows struct {
	adapters.Fetcher
	adapters.Rows

	fetched [][]rerank.ID
	request adapters.FetchRequest // the last one
}

func (r *rows) Fetch(_ context.Context, f adapters.FetchRequest) (adapters.Rows, error) {
	r.fetched, r.request = append(r.fetched, f.IDs), f
	return r.Rows, nil
}

// spending returns a search of one round by a ranker that scores an item by its number, and records the
// items and the limits of its calls.
func spending(store *rows, budget int) (s *Spending, items *[][]plugin.Item, limits *[]int) {
	items, limits = new([][]plugin.Item), new([]int)
	v := route.View{Checked: &route.Checked{Route: route.Route{StoreCan: adapters.Abilities{Fetch: store}}}}
	v.RankWithin = func(_ context.Context, _ plugin.Query, asked []plugin.Item, limit int) (ranker.Result, error) {
		*items, *limits = append(*items, asked), append(*limits, limit)
		got := ranker.Result{Calls: len(asked), Version: "1"}
		for _, it := range asked {
			n, _ := it.ID.Uint64()
			got.Scores = append(got.Scores, float32(n))
		}
		return got, nil
	}
	return &Spending{
		Ranking: Ranking{Version: "1", Budget: budget}, view: v, log: slog.New(slog.DiscardHandler), maxRounds: 1, wants: plugin.Description{Payload: true},
		scores: map[rerank.ID]float32{}, asked: map[rerank.ID]bool{}, gone: map[rerank.ID]bool{}, candidates: retrieve.NewIDSet(0), rows: map[rerank.ID]rerank.Items{},
	}, items, limits
}

// hits are items with these numbers as ids, best first.
func hits(numbers ...uint64) (all []rerank.Scored) {
	for i, n := range numbers {
		all = append(all, rerank.Scored{ID: rerank.UintID(n), Score: float32(-i)})
	}
	return all
}

func idsOf(all []rerank.Scored) (ids []rerank.ID) {
	for _, h := range all {
		ids = append(ids, h.ID)
	}
	return ids
}

// TestTheBudget: each round may ask for what the earlier ones left over, and items that are gone are
// not asked for again, nor scored, nor shown.
func TestTheBudget(t *testing.T) {
	store := &rows{Rows: adapters.Rows{IDs: idsOf(hits(1, 3)), Payloads: make([]json.RawMessage, 2)}}
	s, asked, limits := spending(store, 5)
	s.Round(t.Context(), Candidates{Hits: hits(1, 2, 3)}, 3, 3)
	store.IDs = idsOf(hits(4, 5))
	s.Round(t.Context(), Candidates{Hits: hits(1, 2, 3, 4, 5, 6)}, 4, 3)
	if s.err != nil || s.Calls != 4 || fmt.Sprint(*limits) != "[5 3]" || len(*asked) != 2 {
		t.Errorf("%d calls of at most %v for %v, %v; want 2 of 5, then 2 of 3", s.Calls, *limits, *asked, s.err)
	}
	if want := [][]rerank.ID{idsOf(hits(1, 2, 3)), idsOf(hits(4, 5))}; fmt.Sprint(store.fetched) != fmt.Sprint(want) {
		t.Errorf("rows of %v were read, want %v: item 2 is gone", store.fetched, want)
	}
}

// TestRowsForTheRanker: of an item with several rows the ranker reads the first, with its own payload and
// vector.
func TestRowsForTheRanker(t *testing.T) {
	owners := idsOf(hits(7, 7, 8, 9, 9, 9))
	store := &rows{Rows: adapters.Rows{IDs: idsOf(hits(1, 2, 3, 4, 5, 6)), Owners: owners, Vectors: []rerank.Matrix{rerank.NewMatrix(6, 1)}}}
	for i := range 6 {
		store.Vectors[0].Data[i] = float32(i)
		store.Payloads = append(store.Payloads, json.RawMessage(strconv.Itoa(i)))
	}
	s, _, _ := spending(store, 5)
	s.view.Owner, s.wants.Vectors = "owner", true
	items, err := s.readItems(t.Context(), idsOf(hits(7, 8, 9)))
	if err != nil || len(items) != 3 {
		t.Fatalf("%+v, %v", items, err)
	}
	for i, row := range []int{0, 2, 3} {
		if got := items[i]; got.ID != owners[row] || string(got.Payload) != strconv.Itoa(row) || !slices.Equal(got.Vector, []float32{float32(row)}) {
			t.Errorf("item %d is read as %+v, want row %d", i, got, row)
		}
	}
	store.Payloads = store.Payloads[:5]
	if _, err := s.readItems(t.Context(), idsOf(hits(7, 8, 9))); !errors.Is(err, adapters.ErrStore) {
		t.Errorf("a payload too few: %v", err)
	}
}

// tableOf returns a table of items with these numbers as ids.
func tableOf(t *testing.T, numbers ...uint64) *table.Table {
	t.Helper()
	tab, err := table.FromMemory(table.Meta{}, idsOf(hits(numbers...)), rerank.NewMatrix(len(numbers), 1), nil)
	if err != nil {
		t.Fatal(err)
	}
	return tab
}

// TestSupportItemsInTheAnswer: a support item that no round found belongs to the answer if the ranker puts
// it among the first rows, and only where the whole collection is searched: nobody knows which filter it
// passes.
func TestSupportItemsInTheAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		unrestricted bool
		k            int
		want         []rerank.ID
	}{
		"the whole collection": {true, 2, idsOf(hits(9, 5))},
		"it ties with no row":  {true, 1, idsOf(hits(9))},
		"too few were found":   {true, 3, idsOf(hits(9, 5, 4))},
		"under a filter":       {false, 2, idsOf(hits(5, 4))},
	} {
		s, _, _ := spending(&rows{}, 5)
		s.view.Placement = route.PlacementTable
		s.view.Table = tableOf(t, 1, 9)
		for _, h := range hits(4, 5) {
			s.candidates.Add(h.ID, 0)
		}
		for _, n := range []uint64{1, 4, 5, 9} {
			s.scores[rerank.UintID(n)] = float32(n)
		}
		got, err := s.Order(t.Context(), hits(4, 5), c.k, c.unrestricted)
		if err != nil || !slices.Equal(idsOf(got), c.want) {
			t.Errorf("%s: %v, %v; want %v", name, got, err, c.want)
		}
	}
}

// TestSupportItemThatTies: a support item with the ranker's score of the last row is in the answer if its id comes first.
func TestSupportItemThatTies(t *testing.T) {
	for id, want := range map[uint64][]rerank.ID{3: idsOf(hits(3)), 7: idsOf(hits(5))} {
		s, _, _ := spending(&rows{}, 5)
		s.view.Placement, s.view.Table = route.PlacementTable, tableOf(t, id)
		s.candidates.Add(rerank.UintID(5), 0)
		s.scores[rerank.UintID(5)], s.scores[rerank.UintID(id)] = 1, 1
		if got, err := s.Order(t.Context(), hits(5), 1, true); err != nil || !slices.Equal(idsOf(got), want) {
			t.Errorf("items 5 and %d have one score: %v, %v; want %v", id, got, err, want)
		}
	}
}

// TestOrder: items that the ranker scored come first, then the others by φ, without those that are gone.
func TestOrder(t *testing.T) {
	s, _, _ := spending(&rows{}, 5)
	for _, h := range hits(1, 2, 3, 4) {
		s.candidates.Add(h.ID, 0)
		s.asked[h.ID] = true
	}
	s.scores[rerank.UintID(2)], s.scores[rerank.UintID(4)], s.gone[rerank.UintID(3)] = 2, 4, true
	got, err := s.Order(t.Context(), hits(3, 1, 2, 4), 3, false)
	if err != nil || !slices.Equal(idsOf(got), idsOf(hits(4, 2, 1))) || s.Cut != 1 || s.Reason != CutFailed {
		t.Errorf("%v, %v, cut %d because of %q; want items 4, 2 and 1, and 1 cut: the ranker gave it no score", got, err, s.Cut, s.Reason)
	}
}

// TestTheRankerGetsWhatItReads and nothing else: of a payload only the fields that it names, and vectors only if it
// reads them.
func TestTheRankerGetsWhatItReads(t *testing.T) {
	store := &rows{Rows: adapters.Rows{IDs: idsOf(hits(1)), Payloads: make([]json.RawMessage, 1)}}
	for _, wants := range []plugin.Description{{Payload: true}, {PayloadFields: []string{"title"}}, {Vectors: true}} {
		if wants.Vectors {
			store.Vectors = []rerank.Matrix{rerank.NewMatrix(1, 2)}
		}
		s, _, _ := spending(store, 5)
		s.wants, s.view.Collection, s.view.Vector, s.view.Consistency = wants, "items", "v", "Strong"
		items, err := s.readItems(t.Context(), idsOf(hits(1)))
		r := store.request
		if err != nil || len(items) != 1 || r.Collection != "items" || r.Consistency != "Strong" || !slices.Equal(r.PayloadFields, wants.PayloadFields) ||
			r.Payload == wants.Vectors || (len(r.Vectors) == 1) != wants.Vectors || (items[0].Vector != nil) != wants.Vectors {
			t.Errorf("%+v: the rows are read by %+v as %+v, %v", wants, r, items, err)
		}
	}
}

// fitted is a model that records what a query is fitted to.
type fitted struct {
	rows   rerank.Matrix
	scores []float32
}

func (f *fitted) Refine(q rerank.Encoded, rows rerank.Matrix, scores []float32) (rerank.Encoded, error) {
	f.rows, f.scores = rows, scores
	return q, nil
}

// TestWhatAQueryIsFittedTo: the feature rows of the items that the ranker scored, each beside its score. Items without rows are
// left out, and without any there is nothing to fit.
func TestWhatAQueryIsFittedTo(t *testing.T) {
	s, _, _ := spending(&rows{}, 5)
	model := &fitted{}
	s.view.ModelCan.Refine, s.view.Spec.Features = model, 2
	if _, err := s.Refine(t.Context(), nil); !errors.Is(err, rerank.ErrStrategy) {
		t.Errorf("without a score: %v", err)
	}
	all := rerank.Matrix{Rows: 2, Cols: 2, Data: []float32{1, 2, 3, 4}}
	for i, n := range []uint64{7, 8} {
		s.scores[rerank.UintID(n)], s.rows[rerank.UintID(n)] = float32(n), rerank.Items{Features: all.Slice(i, i+1)}
	}
	s.scores[rerank.UintID(9)], s.rows[rerank.UintID(9)] = 9, rerank.Items{}
	if _, err := s.Refine(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if model.rows.Rows != 2 || !slices.Equal(model.rows.Data, []float32{3, 4, 1, 2}) || !slices.Equal(model.scores, []float32{8, 7}) {
		t.Errorf("%+v with scores %v", model.rows, model.scores)
	}
}

// TestRowsToExplain: to explain an answer, the rows of items that came from the store's order are read.
func TestRowsToExplain(t *testing.T) {
	for _, explains := range []bool{false, true} {
		s, _, _ := spending(&rows{}, 5)
		s.view.Placement, s.view.Table, s.explains = route.PlacementTable, tableOf(t, 4), explains
		s.candidates.Add(rerank.UintID(4), 0)
		s.scores[rerank.UintID(4)] = 1
		if _, err := s.Order(t.Context(), nil, 1, false); err != nil {
			t.Fatal(err)
		}
		if _, ok := s.Rows(rerank.UintID(4)); ok != explains {
			t.Errorf("explains %t: the rows are there: %t", explains, ok)
		}
	}
}
