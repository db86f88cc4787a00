package score

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

// TestRounding: which candidates of rounded rows are looked at again, against a score
// that K items reach for certain.
func TestRounding(t *testing.T) {
	r := rounding{max: 1, exact: map[rerank.ID]bool{rerank.UintID(1): true}}
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
	if exact := (&rounding{}).keep(10); exact != 10 || r.keep(10) != 74 || r.keep(100) != 400 {
		t.Errorf("of 10 and 100 hits are kept %d exact, %d and %d rounded", exact, r.keep(10), r.keep(100))
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
		s, f := &Scorer{Device: d, Table: tab}, &Found{}
		found, ok := s.scanOnDevice(context.Background(), Query{Encoded: enc, K: 3}, scan.Query{Encoded: enc, K: 3}, f)
		if !ok || len(found.Top) != 3 || found.Top[0].Score != rows {
			t.Fatalf("%+v, %t: %v", found, ok, d.verdict)
		}
		if measured := f.Measured != nil; measured != (pairs > 0) || measured && *f.Measured != (rerank.Measured{Pairs: pairs, Error: 0.5}) {
			t.Errorf("of %d pairs: the certificate rests on %+v", pairs, f.Measured)
		}
	}
}
