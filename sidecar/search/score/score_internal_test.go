package score

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/likenessdb/likeness/internal/turns"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/dot"
	"github.com/likenessdb/likeness/rerank/scan"
	"github.com/likenessdb/likeness/rerank/table"
)

// bounded is an Encoded with only Bound.
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

// TestRounding: which candidates are looked at again, against a score that K items
// reach for certain.
func TestRounding(t *testing.T) {
	r := rounding{wide: true, rows: 1, max: 1, exact: map[rerank.ID]bool{rerank.UintID(1): true}, wideError: 0.25}
	all := hits(10, 9, 8, 7, infinite)
	for k, want := range map[int]float32{1: 9, 2: 8.75, 3: 7, 4: 6, 5: -infinite} {
		if got := r.floor(all, k); !(got <= want && got >= want-1e-5) && got != want {
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
	if plain, wide := (&rounding{}).keep(10), (&rounding{wide: true}).keep(10); plain != 11 || wide != 26 || r.keep(10) != 74 || r.keep(100) != 400 {
		t.Errorf("of 10 hits are kept %d, in float64 %d; of 10 and 100 rounded ones %d and %d", plain, wide, r.keep(10), r.keep(100))
	}
}

// TestOutside: what candidates behind the first rows can score: as much as they scored, and the
// error of that.
func TestOutside(t *testing.T) {
	all := hits(10, 9, 8, 7, infinite)
	for name, c := range map[string]struct {
		k     int
		exact []uint64 // scored in float64, off by 0.25
		want  float32
	}{
		"none was scored again":     {2, nil, 8 + 1},
		"the next was":              {2, []uint64{2}, 8.25},
		"the best behind it was":    {1, []uint64{1}, 9.25},
		"one further behind was":    {2, []uint64{3}, 8 + 1},
		"only what was not kept":    {5, nil, 6 + 1},
		"what was not kept is best": {3, []uint64{3}, 7.25},
	} {
		f := Found{Hits: all[:3], rounding: rounding{spare: all[3:], dropped: 6, wideError: 0.25, exact: map[rerank.ID]bool{}}}
		for _, n := range c.exact {
			f.rounding.exact[rerank.UintID(n)] = true
		}
		if name == "only what was not kept" {
			f.Hits, f.rounding.spare = all, nil
		}
		if got := f.Outside(c.k, 1); got < c.want || got > c.want+1e-5 {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestFromList: a list of φ's own inner product is an answer. Its scores are off by two
// roundings: the store's, of the scores in the list, and one of their conversion.
func TestFromList(t *testing.T) {
	l := rerank.List{IDs: []rerank.ID{rerank.UintID(1), rerank.UintID(2), rerank.UintID(3)}, Scores: []float32{400, -500, infinite}}
	f := FromList(l, rerank.Probe{Scale: 2, Offset: 1})
	if f.Scored != 3 || f.NotFinite != 1 || f.Hits[0].Score != 802 || f.Hits[1].Score != -998 || f.Finite() != 2 {
		t.Errorf("%+v", f)
	}
	if got, want := f.RoundingError(), float32(998*0x1p-23); got < want || got > 1.01*want {
		t.Errorf("scores up to 998 are off by %v, want %v", got, want)
	}
}

// TestDroppedIsRemembered: the best candidate that is neither a hit nor spare scores at
// most as much as the last that is, in any round.
func TestDroppedIsRemembered(t *testing.T) {
	f := &Found{rounding: rounding{max: 1, dropped: -infinite}}
	f.setBest(hits(5, 4, 3), 3, 2)
	if f.rounding.dropped != -infinite || len(f.Hits) != 2 || len(f.rounding.spare) != 1 {
		t.Errorf("nothing was dropped: %+v", f.rounding)
	}
	f.setBest(hits(5, 4, 3), 9, 2)
	f.setBest(hits(9, 8, 1), 12, 2)
	if f.rounding.dropped != 3 {
		t.Errorf("dropped is %v, want 3", f.rounding.dropped)
	}
}

// oneColumn returns a table whose rows are one number each and whose ids are their
// places, and the encoded query whose scores are those numbers.
func oneColumn(t *testing.T, scores ...float32) (*table.Table, rerank.Encoded) {
	t.Helper()
	sim, err := dot.New(dot.Config{Dim: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := sim.Encode(rerank.Query{Vector: []float32{1}})
	if err != nil {
		t.Fatal(err)
	}
	ids := make([]rerank.ID, len(scores))
	for i := range ids {
		ids[i] = rerank.UintID(uint64(i))
	}
	tab, err := table.FromMemory(table.Meta{}, ids, rerank.Matrix{Rows: len(scores), Cols: 1, Data: scores}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return tab, encoded
}

// TestFinite: a hit whose score is no finite number does not count as found.
func TestFinite(t *testing.T) {
	nan := float32(math.NaN())
	for want, scores := range [][]float32{{-infinite, nan}, {3, -infinite}, {3, 2, nan}, {3, 2, 1}} {
		if got := (&Found{Hits: hits(scores...)}).Finite(); got != want {
			t.Errorf("%d of the scores %v are finite, want %d", got, scores, want)
		}
	}
}

// TestClosest: the least difference among the first k hits that are finite numbers.
func TestClosest(t *testing.T) {
	for k, want := range map[int]float32{1: infinite, 2: 4, 3: 2, 4: 1, 9: 1} {
		if got := (&Found{Hits: hits(9, 5, 3, 2, -infinite)}).Closest(k); got != want {
			t.Errorf("of %d hits the closest are %v apart, want %v", k, got, want)
		}
	}
}

// TestRefine: refining ends with the order of full precision. Nothing is settled if a
// candidate that was dropped may reach the last hit, or if there is no full precision.
func TestRefine(t *testing.T) {
	tab, encoded := oneColumn(t, 9.25, 9.5, 8) // rounded to 10, 9, 8
	for name, c := range map[string]struct {
		dropped float32
		rounds  bool // the table's format does
		settled bool
		last    float32 // the last score that was rounded
	}{
		"nothing was dropped":                {-infinite, true, true, 8},
		"what was dropped is far below":      {8.125, true, true, 8},
		"what was dropped may tie":           {8.25, true, false, 8},
		"what was dropped may score more":    {9, true, false, 8},
		"rows that no format rounded":        {9, false, false, 8},
		"the last cannot reach the K-th hit": {-infinite, true, true, 6},
	} {
		q := Query{Encoded: encoded, K: 2}
		f := &Found{Hits: hits(10, 9), rounding: rounding{wide: c.rounds, dropped: c.dropped, exact: map[rerank.ID]bool{}}}
		if c.rounds {
			f.rounding.rows, f.rounding.remaining = 1, 1
		}
		f.rounding.spare = []rerank.Scored{{ID: rerank.UintID(2), Score: c.last}}
		if err := (&Scorer{Turns: turns.New(1), Table: tab}).refine(t.Context(), q, f, nil); err != nil {
			t.Fatal(name, err)
		}
		off, first := float32(6*9.5*0x1p-24), []float32{9.5, 9.25}
		switch {
		case !c.rounds:
			off, first = 0, []float32{10, 9}
		case !c.settled:
			off = 1
		}
		if f.Refined() != c.settled || f.RoundingError() > off || !c.settled && f.RoundingError() != off {
			t.Errorf("%s: settled %t, the scores can still be off by %v, want %t, %v", name, f.Refined(), f.RoundingError(), c.settled, off)
		}
		if f.Hits[0].Score != first[0] || f.Hits[1].Score != first[1] || f.rounding.exact[rerank.UintID(2)] != (c.rounds && c.last == 8) {
			t.Errorf("%s: hits %+v, in full precision %v", name, f.Hits, f.rounding.exact)
		}
	}
	partial, _ := oneColumn(t, 9.25)
	for _, settle := range []bool{false, true} {
		want := float32(1)
		if settle {
			want = infinite // of gates nothing is known then
		}
		f := &Found{Hits: hits(10, 9), rounding: rounding{wide: true, rows: 1, dropped: -infinite, exact: map[rerank.ID]bool{}}}
		if err := (&Scorer{Turns: turns.New(1), Table: partial}).refine(t.Context(), Query{Encoded: encoded, K: 2, Settle: settle}, f, nil); err != nil || f.RoundingError() != want {
			t.Errorf("rows that the table lacks leave an error of %v, %v; want %v", f.RoundingError(), err, want)
		}
	}
}

// doubtful counts the scores that it computes, which may all be off by as much as off.
type doubtful struct {
	rerank.Encoded
	off    float32
	scored *atomic.Int64
}

func (d doubtful) Score(dst []float32, items rerank.Items) error {
	d.scored.Add(int64(len(dst)))
	return d.Encoded.Score(dst, items)
}

func (d doubtful) Bound(probes []rerank.Probe, lists []rerank.List) rerank.Bound {
	b := d.Encoded.Bound(probes, lists)
	b.Epsilon += d.off
	return b
}

// TestASecondScan: a scan that kept too few items to settle the answer is repeated and keeps
// more, unless the table has no rows in full precision, which a second scan would need too.
func TestASecondScan(t *testing.T) {
	const items = 300
	features, ids := rerank.NewMatrix(items, 1), make([]rerank.ID, items)
	for i := range ids {
		ids[i], features.Data[i] = rerank.UintID(uint64(i)), 1+float32(i)/1e4
	}
	_, encoded := oneColumn(t, 1)
	for format, want := range map[rerank.Format]struct {
		scored  int64
		settled bool
	}{rerank.FormatFloat32: {2 * items, true}, rerank.FormatBFloat16: {items, false}} {
		tab, err := table.FromMemory(table.Meta{Format: format}, ids, features, nil)
		if err != nil {
			t.Fatal(err)
		}
		var scored atomic.Int64
		q := Query{Encoded: doubtful{encoded, 1, &scored}, K: 10, Settle: true}
		f := NewFound(tab, true, false, rerank.EncodedAbilitiesOf(encoded))
		s := &Scorer{Turns: turns.New(1), Table: tab, Scanner: scan.New(tab, rerank.Spec{Features: 1})}
		if err := s.All(t.Context(), q, nil, &f); err != nil {
			t.Fatal(err)
		}
		if scored.Load() != want.scored || f.Refined() != want.settled || len(f.Hits) != 10 || f.Scored != items {
			t.Errorf("%s: %d scores, settled %t, want %+v; hits %v of %d", format, scored.Load(), f.Refined(), want, f.Hits, f.Scored)
		}
	}
}

// ascending is a device with a table of one feature that rises with the number of the row.
type ascending struct {
	Device

	tab   *table.Table
	asked []int
}

func (d *ascending) Scan(_ context.Context, _ *table.Table, _ rerank.Query, _ *scan.Bitmap, k int) (Selection, error) {
	d.asked = append(d.asked, k)
	n := d.tab.Len()
	if k >= n {
		return Selection{}, errors.New("so many rows are too many")
	}
	out := Selection{Scored: n, Next: d.tab.Features().Row(n - 1 - k)[0]}
	for i := range k {
		out.Items, out.Scores = append(out.Items, int32(n-1-i)), append(out.Scores, d.tab.Features().Row(n - 1 - i)[0])
	}
	return out, nil
}

// Rescore expects to be asked about every row.
func (d *ascending) Rescore(ctx context.Context, tab *table.Table, q rerank.Query, _ []int32, k int) (Selection, error) {
	return d.Scan(ctx, tab, q, nil, k)
}

func (*ascending) Judge(error) {}

// TestASecondScanIsMadeHere: a device makes the first scan, and this machine the second, because a
// second scan keeps more items than a device returns.
func TestASecondScanIsMadeHere(t *testing.T) {
	const items = 300
	features, ids := rerank.NewMatrix(items, 1), make([]rerank.ID, items)
	for i := range ids {
		ids[i], features.Data[i] = rerank.UintID(uint64(i)), 1+float32(i)/1e4
	}
	_, encoded := oneColumn(t, 1)
	tab, err := table.FromMemory(table.Meta{Format: rerank.FormatFloat32}, ids, features, nil)
	if err != nil {
		t.Fatal(err)
	}
	var scored atomic.Int64
	// Enough for the device's choice to be certain, and too much for the order of the best.
	q := Query{Encoded: doubtful{encoded, 1.6e-3, &scored}, K: 10, Settle: true}
	f := NewFound(tab, true, false, rerank.EncodedAbilitiesOf(encoded))
	device := &ascending{tab: tab}
	s := &Scorer{Turns: turns.New(1), Table: tab, Scanner: scan.New(tab, rerank.Spec{Features: 1}), Device: device}
	if err := s.All(t.Context(), q, nil, &f); err != nil || len(device.asked) != 1 || !f.Refined() || len(f.Hits) != 10 || f.Hits[0].ID != ids[items-1] {
		t.Errorf("%v: the device was asked for %v rows, settled %t, hits %v", err, device.asked, f.Refined(), f.Hits)
	}
	if scored.Load() < items {
		t.Errorf("%d scores here, want every item's", scored.Load())
	}
}

// TestRefineFromBatches: rows that no table holds are scored again from the batch in which
// they came.
func TestRefineFromBatches(t *testing.T) {
	_, encoded := oneColumn(t, 1)
	rows := rerank.Matrix{Rows: 3, Cols: 1, Data: []float32{9.25, 9.5, 8}}
	b := Batch{IDs: []rerank.ID{rerank.UintID(0), rerank.UintID(1), rerank.UintID(2)}, Items: rerank.Items{Features: rows}}
	f := NewFound(nil, false, true, rerank.EncodedAbilities{})
	if err := (&Scorer{Turns: turns.New(1)}).Candidates(t.Context(), Query{Encoded: encoded, K: 2}, []Batch{b}, &f); err != nil {
		t.Fatal(err)
	}
	if !f.Refined() || f.Hits[0].Score != 9.5 || f.Closest(2) != 0.25 || f.Outside(2, 0.5) != 8.5 || f.Outside(1, 0.5) < 9.25 || f.Outside(1, 0.5) > 9.2501 {
		t.Errorf("refined %t: %+v, closest %v, outside %v and %v", f.Refined(), f.Hits, f.Closest(2), f.Outside(2, 0.5), f.Outside(1, 0.5))
	}
}

// told is a Device that is told what became of its answer, and gives none. It notes the items that it is asked about.
type told struct {
	verdict error
	asked   []int32
}

func (d *told) Judge(err error) { d.verdict = err }
func (d *told) Rescore(_ context.Context, _ *table.Table, _ rerank.Query, items []int32, _ int) (Selection, error) {
	d.asked = items
	return Selection{}, nil
}
func (d *told) Scan(context.Context, *table.Table, rerank.Query, *scan.Bitmap, int) (Selection, error) {
	return Selection{}, nil
}

// TestADeviceIsAsked about the candidates of a batch, unless they are few.
func TestADeviceIsAsked(t *testing.T) {
	tab, _ := oneColumn(t, make([]float32, minOnDevice)...)
	for n, want := range map[int]int{minOnDevice - 1: 0, minOnDevice: minOnDevice} {
		ids, numbers := make([]rerank.ID, n), make([]int32, n)
		for i := range n {
			ids[i], numbers[i] = tab.ID(i), int32(i)
		}
		b := NewBatch(ids, nil, n, 1)
		if b.Numbers = numbers; len(b.IDs) != n || b.Items.Features.Rows != n {
			t.Errorf("a batch of %d rows is %+v", n, b)
		}
		device := &told{}
		s := &Scorer{Device: device, Table: tab}
		if _, _, ok := s.rescoreOnDevice(t.Context(), Query{K: 5}, b, &Found{}); ok != (want > 0) || len(device.asked) != want {
			t.Errorf("the device was asked about %d of %d candidates, want %d", len(device.asked), n, want)
		}
		b.Free()
	}
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
		s, q := &Scorer{Device: d}, Query{Encoded: bounded{bound: rerank.Bound{Epsilon: own}}}
		if c.chosen.Items == nil {
			c.chosen.Items, c.chosen.Scores = []int32{0, 1, 2}, []float32{9, 8, 7}
		}
		picked := checked{Selection: c.chosen, items: slices.Clone(c.chosen.Items), scores: c.here, unproved: !c.proved}
		for len(picked.items) < len(c.here) {
			picked.items = append(picked.items, int32(100+len(picked.items)))
		}
		decided := s.decides(context.Background(), q, picked, 3)
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
	scores := make([]float32, rows)
	for i := range rows {
		scores[i] = float32(rows - i)
	}
	tab, enc := oneColumn(t, scores...)
	for _, pairs := range []int{0, 500} {
		d := &measuring{selection: Selection{Next: rows - 20, Epsilon: 0.01, Scored: rows, Measured: pairs, MeasuredError: 0.5}}
		for i := range 20 {
			d.selection.Items = append(d.selection.Items, int32(i))
			d.selection.Scores = append(d.selection.Scores, float32(rows-i))
		}
		s, f := &Scorer{Device: d, Table: tab}, &Found{}
		found, ok := s.scanOnDevice(context.Background(), Query{Encoded: enc, K: 3}, scan.Query{Encoded: enc, K: 3}, f)
		if !ok || len(found.Top) != 3 || found.Top[0].Score != rows {
			t.Fatalf("%+v, %t: %v", found, ok, d.verdict)
		}
		some := scan.NewBitmap(rows)
		for i := range int32(30) {
			some.Add(i)
		}
		within, ok := s.scanOnDevice(context.Background(), Query{Encoded: enc, K: 3}, scan.Query{Encoded: enc, K: 3, Within: some}, f)
		if !ok || found.Items != rows || within.Items != 30 {
			t.Errorf("%d and %d items are scanned, %t; want %d, and the 30 that the filter lets through", found.Items, within.Items, ok, rows)
		}
		if measured := f.Measured != nil; measured != (pairs > 0) || measured && *f.Measured != (rerank.Measured{Pairs: pairs, Error: 0.5}) {
			t.Errorf("of %d pairs: the certificate rests on %+v", pairs, f.Measured)
		}
	}
}

// unsure is an Encoded that scores nothing, and whose float64 scores may be off by as much as the first
// feature of their batch says.
type unsure struct{ rerank.Encoded }

func (unsure) ScoreWide(scores []float64, items rerank.Items) (float64, error) {
	if clear(scores); items.Features.Data[0] < 0 {
		return 0, rerank.ErrItems
	}
	return float64(items.Features.Data[0]), nil
}

// TestWideError: the error of float64 scores is the greatest of all batches.
func TestWideError(t *testing.T) {
	batch := func(off float32) Batch {
		return Batch{IDs: []rerank.ID{rerank.UintID(uint64(off))}, Items: rerank.Items{Features: rerank.Matrix{Rows: 1, Cols: 1, Data: []float32{off}}}}
	}
	s, f := &Scorer{Turns: turns.New(1)}, &Found{}
	for i, c := range []struct {
		batches []Batch
		want    float64
	}{{[]Batch{batch(2), batch(3), batch(1)}, 3}, {[]Batch{batch(1)}, 3}, {[]Batch{batch(4)}, 4}} {
		if got, err := s.scoreWide(t.Context(), unsure{}, c.batches, f); err != nil || len(got) != len(c.batches) || f.rounding.wideError != c.want {
			t.Errorf("call %d: %d scores, off by %v, %v; want %v", i, len(got), f.rounding.wideError, err, c.want)
		}
	}
	if got, epsilon, err := s.Wide(t.Context(), unsure{}, batch(2)); err != nil || len(got) != 1 || epsilon != 2 {
		t.Errorf("%v, off by %v, %v", got, epsilon, err)
	}
	if got, _, err := s.Wide(t.Context(), unsure{}, batch(-1)); !errors.Is(err, rerank.ErrItems) {
		t.Errorf("rows that cannot be scored have the scores %v, %v", got, err)
	}
}

// TestRowsFromTheStore: rows in full precision that neither a batch nor the table has are read from the store
// only for a proof, and only those.
func TestRowsFromTheStore(t *testing.T) {
	tab, encoded := oneColumn(t, 5)
	ids := []rerank.ID{rerank.UintID(0), rerank.UintID(1)}
	one := Batch{IDs: ids[1:], Items: rerank.Items{Features: rerank.Matrix{Rows: 1, Cols: 1, Data: []float32{7}}}}
	rounded := one
	rounded.Rounded = true
	for name, c := range map[string]struct {
		proof   bool
		batches []Batch
		read    []rerank.ID
		scores  int
	}{
		"a proof":            {true, nil, ids, 1}, // the store gives one row only
		"no proof":           {false, nil, nil, 0},
		"rows of a batch":    {false, []Batch{one}, nil, 2},
		"rounded, a proof":   {true, []Batch{rounded}, ids, 1},
		"rounded, no proof":  {false, []Batch{rounded}, nil, 0},
		"of a batch, proved": {true, []Batch{one}, nil, 2},
	} {
		var read []rerank.ID
		s := &Scorer{Turns: turns.New(1), Table: tab, ReadExact: func(_ context.Context, asked []rerank.ID) (Batch, error) {
			read = asked
			return one, nil
		}}
		scores, err := s.inFullPrecision(t.Context(), Query{Encoded: encoded, Proof: c.proof}, ids, c.batches, &Found{})
		if err != nil || len(scores) != c.scores || !slices.Equal(read, c.read) {
			t.Errorf("%s: %v of %v read from the store, %v; want %d scores, %v read", name, scores, read, err, c.scores, c.read)
		}
	}
	if scores, err := (&Scorer{Turns: turns.New(1)}).inFullPrecision(t.Context(), Query{Encoded: encoded, Proof: true}, ids, nil, &Found{}); err != nil || scores != nil {
		t.Errorf("without a store: %v, %v", scores, err)
	}
}

// TestMerge: candidates of later rounds join the hits and those kept after them, which rounding may have put there.
func TestMerge(t *testing.T) {
	f := NewFound(nil, false, true, rerank.EncodedAbilities{})
	all := hits(9, 8, 7, 6)
	f.Hits, f.rounding.spare, f.Scored = all[:2], all[2:], 4
	next := Batch{IDs: []rerank.ID{rerank.UintID(4), rerank.UintID(5)}}
	f.merge([]Batch{next}, [][]float32{{8.5, infinite}}, Query{K: 2})
	var scores []float32
	for _, h := range slices.Concat(f.Hits, f.rounding.spare) {
		scores = append(scores, h.Score)
	}
	if !slices.Equal(scores, []float32{9, 8.5, 8, 7, 6, infinite}) || len(f.Hits) != 2 || f.Scored != 6 || f.NotFinite != 1 || f.Kept != nil {
		t.Errorf("%v, %d hits of %d, %d not finite, %d kept", scores, len(f.Hits), f.Scored, f.NotFinite, len(f.Kept))
	}
}

// TestCandidatesOfADevice: candidates that only a device scored count, too.
func TestCandidatesOfADevice(t *testing.T) {
	scores := make([]float32, 2*minOnDevice)
	for i := range scores {
		scores[i] = float32(i)
	}
	tab, encoded := oneColumn(t, scores...)
	b := Batch{IDs: make([]rerank.ID, len(scores)), Numbers: make([]int32, len(scores))}
	for i := range scores {
		b.IDs[i], b.Numbers[i] = tab.ID(i), int32(i)
	}
	s, f := &Scorer{Turns: turns.New(1), Table: tab, Device: &ascending{tab: tab}}, NewFound(tab, false, false, rerank.EncodedAbilities{})
	if err := s.Candidates(t.Context(), Query{Encoded: encoded, K: 2}, []Batch{b}, &f); err != nil {
		t.Fatal(err)
	}
	if f.Hits[0].Score != scores[len(scores)-1] || f.Spared == 0 || f.Scored+f.Spared != len(scores) {
		t.Errorf("%+v: %d scored here and %d on the device, want %d in all", f.Hits, f.Scored, f.Spared, len(scores))
	}
}

// unscorable is an Encoded that scores nothing.
type unscorable struct{ rerank.Encoded }

func (unscorable) Score([]float32, rerank.Items) error { return errors.New("broken") }

// TestAChoiceThatCannotBeScored here decides nothing, and is no fault of the device.
func TestAChoiceThatCannotBeScored(t *testing.T) {
	tab, encoded := oneColumn(t, 1, 2)
	s, c := &Scorer{Table: tab}, checked{items: []int32{1}}
	if err := s.scoreChecked(&c, Query{Encoded: unscorable{encoded}}, nil); !errors.Is(err, ErrUndecided) {
		t.Errorf("%v", err)
	}
}
