package pipeline

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/dot"
	"github.com/likenessdb/likeness/rerank/scan"
	"github.com/likenessdb/likeness/rerank/table"
)

// bounded is an Encoded of which only Bound is asked.
type bounded struct {
	rerank.Encoded
	bound rerank.Bound
}

func (b bounded) Bound([]rerank.Probe, []rerank.List) rerank.Bound { return b.bound }

// hits are rows with scores, best first; their ids are their places.
func hits(scores ...float32) []rerank.Scored {
	var all []rerank.Scored
	for i, x := range scores {
		all = append(all, rerank.Scored{ID: rerank.UintID(uint64(i)), Score: x, Index: i})
	}
	return all
}

var infinite = float32(math.Inf(1))

// exactList is a list of φ itself, of a store that searched exhaustively.
func exactList(k int, bound rerank.Bound, scores ...float32) *search {
	return &search{
		opened: &opened{}, r: Request{K: k, Strategy: rerank.Average}, k: k, enc: bounded{bound: bound}, hits: hits(scores...),
		probes: []rerank.Probe{{Target: rerank.TargetScore}}, lists: []rerank.List{{Exact: true}},
	}
}

// TestTied: a list is deepened while a row behind it may score as much as the K-th,
// within what both are off: a tie to the last bit is one.
func TestTied(t *testing.T) {
	for name, c := range map[string]struct {
		max, epsilon float32
		scores       []float32
		inexact      bool
		want         bool
	}{
		"below":                      {1, 0, []float32{3, 2}, false, false},
		"equal":                      {2, 0, []float32{3, 2}, false, true},
		"above":                      {2.5, 0, []float32{3, 2}, false, true},
		"below by both roundings":    {1.5, 0.25, []float32{3, 2}, false, true},
		"below by more than both":    {1.25, 0.25, []float32{3, 2}, false, false},
		"exhausted":                  {-infinite, 0.25, []float32{3, 2}, false, false},
		"fewer than K":               {2, 0, []float32{3}, false, false},
		"approximate":                {2, 0, []float32{3, 2}, true, false},
		"the K-th is no number":      {2, 0, []float32{3, infinite}, false, false},
		"more than K were not asked": {2, 0, []float32{4, 3}, false, false},
	} {
		s := exactList(2, rerank.Bound{Max: c.max, Epsilon: c.epsilon}, c.scores...)
		s.lists[0].Exact = !c.inexact
		if got := s.tied(rerank.Certificate{KthScore: c.scores[len(c.scores)-1]}); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}

// TestSettled: a search goes on while the K-th place is not settled, whatever gap was
// asked, and ends where it is.
func TestSettled(t *testing.T) {
	tie, clear := rerank.Bound{Max: 2}, rerank.Bound{Max: 1}
	gap := float32(100)
	for name, c := range map[string]struct {
		bound  rerank.Bound
		scores []float32
		gap    *float32
		want   rerank.Stop
	}{
		"settled":              {clear, []float32{3, 2}, nil, rerank.StopFixed},
		"a tie":                {tie, []float32{3, 2}, nil, ""},
		"too few":              {clear, []float32{3}, nil, ""},
		"a tie within the gap": {tie, []float32{3, 2}, &gap, ""},
		"within the gap":       {clear, []float32{3, 2}, &gap, rerank.StopGap},
	} {
		s := exactList(2, c.bound, c.scores...)
		s.r.MaxGap, s.MaxRounds, s.MaxDepth = c.gap, 9, 1000
		certificate := rerank.Certificate{KthScore: c.scores[len(c.scores)-1], Gap: 1, Rounds: 1}
		if got := s.stop(context.Background(), Request{Depth: 10}, certificate, rerank.Certificate{}, 0); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestEvidence: what a certificate is made of is what the search has seen, field by
// field: the hits that are numbers, the lists, what a device measured, and what
// rounded rows and writes that are not shown take.
func TestEvidence(t *testing.T) {
	bound := rerank.Bound{Max: 7, Epsilon: 0.25}
	for name, c := range map[string]struct {
		change func(*search)
		want   rerank.Evidence
	}{
		"as found":    {func(*search) {}, rerank.Evidence{Returned: 3, KthScore: 4, Bound: bound, ListsExact: true, SingleInnerProduct: true}},
		"not numbers": {func(s *search) { s.hits = hits(9, 8, infinite, float32(math.NaN())) }, rerank.Evidence{Returned: 2, KthScore: 8, Bound: bound, ListsExact: true, SingleInnerProduct: true}},
		"measured": {func(s *search) { s.r.Strategy, s.measured = rerank.Scan, &rerank.Measured{Pairs: 5} },
			rerank.Evidence{Returned: 3, KthScore: 4, Bound: bound, ListsExact: true, SingleInnerProduct: true, Scanned: true, Measured: &rerank.Measured{Pairs: 5}}},
		"one list is approximate": {func(s *search) { s.lists = append(s.lists, rerank.List{}) }, rerank.Evidence{Returned: 3, KthScore: 4, Bound: bound, SingleInnerProduct: true}},
		"no list":                 {func(s *search) { s.lists = nil }, rerank.Evidence{Returned: 3, KthScore: 4, Bound: bound, SingleInnerProduct: true}},
		"an approximate list ends": {func(s *search) { s.lists = []rerank.List{{Exhausted: true}} },
			rerank.Evidence{Returned: 3, KthScore: 4, Bound: bound, SingleInnerProduct: true}},
		"an exact list ends": {func(s *search) { s.lists = []rerank.List{{}, {Exhausted: true, Exact: true}} },
			rerank.Evidence{Returned: 3, KthScore: 4, Bound: rerank.Bound{Max: -infinite, Epsilon: 0.25}, ListsExact: true, SingleInnerProduct: true}},
		"a probe that only suggests": {func(s *search) { s.probes[0].Target = rerank.TargetNone }, rerank.Evidence{Returned: 3, KthScore: 4, Bound: bound, ListsExact: true}},
		"rounded rows":               {func(s *search) { s.rough.off = 0.5 }, rerank.Evidence{Returned: 3, KthScore: 4, Bound: rerank.Bound{Max: 7, Epsilon: 0.75}, ListsExact: true, SingleInnerProduct: true}},
		"rounded rows of gates": {func(s *search) { s.rough.off, s.spec.SingleInnerProduct = 0.5, false },
			rerank.Evidence{Returned: 3, KthScore: 4, Bound: rerank.Bound{Max: 7, Epsilon: infinite}, ListsExact: true}},
		"writes are not shown":           {func(s *search) { s.behind = true }, rerank.Evidence{Returned: 3, KthScore: 4, Bound: rerank.Bound{Max: 7, Epsilon: infinite}, ListsExact: true, SingleInnerProduct: true}},
		"writes of what is not read":     {func(s *search) { s.behind, s.Placement = true, PlacementStored }, rerank.Evidence{Returned: 3, KthScore: 4, Bound: bound, ListsExact: true, SingleInnerProduct: true}},
		"rows of items under a filter":   {func(s *search) { s.Owner, s.r.Filter = "item", "x" }, rerank.Evidence{Returned: 3, KthScore: 4, Bound: bound, SingleInnerProduct: true}},
		"rows of items in a partition":   {func(s *search) { s.Owner, s.r.Partitions = "item", []string{"p"} }, rerank.Evidence{Returned: 3, KthScore: 4, Bound: bound, SingleInnerProduct: true}},
		"rows of items without a filter": {func(s *search) { s.Owner = "item" }, rerank.Evidence{Returned: 3, KthScore: 4, Bound: bound, ListsExact: true, SingleInnerProduct: true}},
	} {
		s := exactList(3, bound, 9, 8, 4)
		s.spec = rerank.Spec{SingleInnerProduct: true, MaxScore: 20}
		s.Placement = PlacementTable
		c.change(s)
		c.want.K, c.want.MaxScore = 3, 20
		got := s.evidence(s.certifiedK())
		if got.Measured != nil && c.want.Measured != nil && *got.Measured == *c.want.Measured {
			got.Measured = c.want.Measured
		}
		if got != c.want {
			t.Errorf("%s:\n%+v, want\n%+v", name, got, c.want)
		}
	}
}

// TestRough: which candidates of rounded rows are looked at again, against a score
// that K items reach for certain.
func TestRough(t *testing.T) {
	r := rough{by: 1, exact: map[rerank.ID]bool{rerank.UintID(1): true}}
	all := hits(10, 9, 8, 7, infinite)
	for k, want := range map[int]float32{1: 9, 2: 9, 3: 7, 4: 6, 5: -infinite} {
		if got := r.floor(all, k); got != want {
			t.Errorf("%d items reach %v, want %v", k, got, want)
		}
	}
	for floor, want := range map[float32][]uint64{11: {0}, 9: {0, 2}, 8: {0, 2, 3}, 8.5: {0, 2}, 12: nil} {
		var ids []rerank.ID
		for _, n := range want {
			ids = append(ids, rerank.UintID(n))
		}
		if got := r.contenders(all, floor); !slices.Equal(got, ids) {
			t.Errorf("contenders for %v are %v, want %v", floor, got, ids)
		}
	}
	if exact := (&rough{}).keep(10); exact != 10 || r.keep(10) != 74 || r.keep(100) != 400 {
		t.Errorf("of 10 and 100 hits are kept %d exact, %d and %d rounded", exact, r.keep(10), r.keep(100))
	}
}

// TestSplitRemembersWhatIsDropped: the best that is in neither hits nor spare is not
// above the last that is, in any round.
func TestSplitRemembersWhatIsDropped(t *testing.T) {
	s := &search{r: Request{K: 2}, rough: rough{by: 1, dropped: -infinite}}
	s.split(hits(5, 4, 3), 3)
	if s.rough.dropped != -infinite || len(s.hits) != 2 || len(s.rough.spare) != 1 {
		t.Errorf("nothing was dropped: %+v", s.rough)
	}
	s.split(hits(5, 4, 3), 9)
	s.split(hits(9, 8, 1), 12)
	if s.rough.dropped != 3 {
		t.Errorf("dropped is %v, want 3", s.rough.dropped)
	}
}

// told is a Device that is told what became of its answer, and gives none.
type told struct{ verdict error }

func (d *told) Judge(err error) { d.verdict = err }
func (d *told) Rescore(context.Context, *table.Table, rerank.Query, []int32, int) (Selection, error) {
	return Selection{}, nil
}
func (d *told) Scan(context.Context, *table.Table, rerank.Query, *scan.Bitmap, int) (Selection, error) {
	return Selection{}, nil
}

// TestDecides: a device's choice is an answer only if nothing that it left out can
// belong to the best, with the rounding of both machines; a tie may.
func TestDecides(t *testing.T) {
	const own = 0.25
	for name, c := range map[string]struct {
		chosen Selection // scores 9, 8, 7 unless given
		here   []float32 // of the same items, then of the sample
		proved bool      // no measured error may do
		want   error
	}{
		"nothing comes near":              {Selection{Next: 5, Epsilon: 0.125}, []float32{9, 8, 7}, false, nil},
		"near by less than both are off":  {Selection{Next: 6.75, Epsilon: 0.125}, []float32{9, 8, 7}, false, ErrUndecided},
		"a tie with what both are off":    {Selection{Next: 6.625, Epsilon: 0.125}, []float32{9, 8, 7}, false, ErrUndecided},
		"just below what both are off":    {Selection{Next: 6.5, Epsilon: 0.125}, []float32{9, 8, 7}, false, nil},
		"the device is off by more":       {Selection{Next: 6, Epsilon: 0.5}, []float32{9, 8, 7}, false, ErrUndecided},
		"nothing was left out":            {Selection{Next: -infinite, Epsilon: 0.125}, []float32{9, 8, 7}, false, nil},
		"fewer than K":                    {Selection{Next: 5, Epsilon: 0.125, Items: []int32{0, 1}, Scores: []float32{9, 8}}, []float32{9, 8}, false, ErrUndecided},
		"scores differ within both":       {Selection{Next: 5, Epsilon: 0.125}, []float32{9.375, 7.625, 7}, false, nil},
		"a score differs by more":         {Selection{Next: 5, Epsilon: 0.125}, []float32{9, 8.5, 7}, false, ErrContradicted},
		"a score differs by more, below":  {Selection{Next: 5, Epsilon: 0.125}, []float32{9, 7.5, 7}, false, ErrContradicted},
		"a score is no number here":       {Selection{Next: 5, Epsilon: 0.125}, []float32{9, infinite, 7}, false, ErrContradicted},
		"a sample was left out rightly":   {Selection{Next: 5, Epsilon: 0.125}, []float32{9, 8, 7, 5.375}, false, nil},
		"a sample was left out wrongly":   {Selection{Next: 5, Epsilon: 0.125}, []float32{9, 8, 7, 5.5}, false, ErrContradicted},
		"a sample is no number":           {Selection{Next: 5, Epsilon: 0.125}, []float32{9, 8, 7, infinite}, false, nil},
		"nothing is known of its error":   {Selection{Next: 5, Epsilon: infinite}, []float32{9, 8, 7}, false, ErrUndecided},
		"measured":                        {Selection{Next: 5, Epsilon: 0.125, Measured: 9}, []float32{9, 8, 7}, false, nil},
		"measured, where a proof is due":  {Selection{Next: 5, Epsilon: 0.125, Measured: 9}, []float32{9, 8, 7}, true, ErrUndecided},
		"measured, and a sample is above": {Selection{Next: 5, Epsilon: 0.125, Measured: 9}, []float32{9, 8, 7, 6}, false, ErrUndecided},
	} {
		d := &told{}
		s := &search{device: d, enc: bounded{bound: rerank.Bound{Epsilon: own}}}
		if c.chosen.Items == nil {
			c.chosen.Items, c.chosen.Scores = []int32{0, 1, 2}, []float32{9, 8, 7}
		}
		picked := chosen{Selection: c.chosen, items: slices.Clone(c.chosen.Items), scores: c.here, unproved: !c.proved}
		for len(picked.items) < len(c.here) {
			picked.items = append(picked.items, int32(100+len(picked.items)))
		}
		decided := s.decides(context.Background(), picked, 3)
		if !errors.Is(d.verdict, c.want) || decided != (c.want == nil) {
			t.Errorf("%s: decided %t, the device is told %v; want %v", name, decided, d.verdict, c.want)
		}
	}
}

// measuring is a device that answers every scan with one selection.
type measuring struct {
	told
	selection Selection
}

func (d *measuring) Scan(context.Context, *table.Table, rerank.Query, *scan.Bitmap, int) (Selection, error) {
	return d.selection, nil
}

// TestScanRestsOnWhatWasMeasured: an answer of a device that rests on a measured
// error carries it to the certificate, and one that rests on a bound does not.
func TestScanRestsOnWhatWasMeasured(t *testing.T) {
	const rows = minOnDevice
	sim, err := dot.New(dot.Config{Dim: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	features, ids := rerank.NewMatrix(rows, 1), make([]rerank.ID, rows)
	for i := range rows {
		features.Data[i], ids[i] = float32(rows-i), rerank.UintID(uint64(i))
	}
	tab, err := table.FromMemory(table.Meta{}, ids, features, nil)
	if err != nil {
		t.Fatal(err)
	}
	enc, err := sim.Encode(rerank.Query{Vector: []float32{1}})
	if err != nil {
		t.Fatal(err)
	}
	for _, pairs := range []int{0, 500} {
		d := &measuring{selection: Selection{Next: rows - 20, Epsilon: 0.01, Scored: rows, Measured: pairs, MeasuredError: 0.5}}
		for i := range 20 {
			d.selection.Items = append(d.selection.Items, int32(i))
			d.selection.Scores = append(d.selection.Scores, float32(rows-i))
		}
		s := &search{opened: &opened{}, resident: resident{Table: tab}, device: d, enc: enc, r: Request{K: 3}}
		found, ok := s.scanOnDevice(context.Background(), scan.Query{Encoded: enc, K: 3})
		if !ok || len(found.Top) != 3 || found.Top[0].Score != rows {
			t.Fatalf("%+v, %t: %v", found, ok, d.verdict)
		}
		if measured := s.measured != nil; measured != (pairs > 0) || measured && *s.measured != (rerank.Measured{Pairs: pairs, Error: 0.5}) {
			t.Errorf("of %d pairs: the certificate rests on %+v", pairs, s.measured)
		}
	}
}
