package scan

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/table"
)

// items lists the set by Has alone.
func items(b *Bitmap, n int) (all []int32) {
	for i := range n {
		if b.Has(i) {
			all = append(all, int32(i))
		}
	}
	return all
}

// drawn returns a set of about a share of the numbers below n, and the same as a list.
func drawn(rng *rand.Rand, n int, share float64) (*Bitmap, []int32) {
	b, all := NewBitmap(n), []int32(nil)
	for i := range n {
		if rng.Float64() < share {
			all = append(all, int32(i))
		}
	}
	b.Add(all...)
	b.Add(all...) // what is in the set already changes nothing
	return b, all
}

// isSet reports whether a set has exactly these items, by each way of asking.
func isSet(b *Bitmap, n int, want []int32) bool {
	again, err := ParseBitmap(b.Bytes(n), n)
	return slices.Equal(items(b, n), want) && b.Len() == len(want) && slices.Equal(b.appendRange(nil, 0, n), want) &&
		err == nil && slices.Equal(items(again, n), want) && again.Len() == len(want)
}

// TestBitmaps: each operation agrees with lists of numbers, whatever the lengths are.
func TestBitmaps(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, n := range []int{0, 1, 7, 8, 9, 15, 56, 57, 63, 64, 65, 127, 128, 129, 200} {
		for _, share := range []float64{0, 0.1, 0.5, 1} {
			a, inA := drawn(rng, n, share)
			b, inB := drawn(rng, n, 0.5)
			if !isSet(a, n, inA) {
				t.Errorf("%d of %d items: %v with the length %d", len(inA), n, items(a, n), a.Len())
			}
			both := slices.DeleteFunc(slices.Clone(inA), func(i int32) bool { return !slices.Contains(inB, i) })
			if and := a.And(b); !isSet(and, n, both) || !isSet(a, n, inA) || !isSet(b, n, inB) {
				t.Errorf("of %d: %v and %v are both in %v", n, inA, inB, items(and, n))
			}
			for _, more := range []int{0, 1, 63, 64, 100} {
				grown := slices.Clone(inA)
				for i := range more {
					grown = append(grown, int32(n+i))
				}
				if g := a.Grown(n, n+more); !isSet(g, n+more, grown) || !isSet(a, n, inA) {
					t.Errorf("%v of %d grown by %d: %v", inA, n, more, items(g, n+more))
				}
			}
			for i := range n {
				c := a.And(a)
				c.Remove(i)
				if without := slices.DeleteFunc(slices.Clone(inA), func(x int32) bool { return x == int32(i) }); !isSet(c, n, without) {
					t.Errorf("%v without %d: %v", inA, i, items(c, n))
				}
			}
			for range 50 {
				from := rng.IntN(n + 1)
				to := from + rng.IntN(n-from+1)
				within := slices.DeleteFunc(slices.Clone(inA), func(i int32) bool { return int(i) < from || int(i) >= to })
				if got := a.appendRange(nil, from, to); !slices.Equal(got, within) || a.empty(from, to) != (len(within) == 0) {
					t.Errorf("%v from %d to %d: %v, empty %t", inA, from, to, got, a.empty(from, to))
				}
			}
		}
	}
}

// TestBitmapsThatAreRefused: a set that was made for another table.
func TestBitmapsThatAreRefused(t *testing.T) {
	for _, c := range []struct {
		b  []byte
		n  int
		ok bool
	}{{[]byte{0xff}, 8, true}, {[]byte{0xff}, 9, false}, {[]byte{0xff, 0}, 8, false}, {[]byte{0xff, 1}, 9, true}, {[]byte{0xff, 2}, 9, false}, {nil, 0, true}} {
		if _, err := ParseBitmap(c.b, c.n); (err == nil) != c.ok || err != nil && !errors.Is(err, rerank.ErrItems) {
			t.Errorf("%v for %d items: %v", c.b, c.n, err)
		}
	}
}

// TestAliveItems: those of a table that are not deleted, in tables longer than a word.
func TestAliveItems(t *testing.T) {
	const n = 150
	path := t.TempDir() + "/table"
	w, err := table.NewWriter(path, table.Meta{Features: 1})
	if err != nil {
		t.Fatal(err)
	}
	var ids []rerank.ID
	var want []int32
	for i := range n {
		ids = append(ids, rerank.UintID(uint64(i)))
	}
	if err := errors.Join(w.Append(ids, rerank.NewMatrix(n, 1)), w.Close()); err != nil {
		t.Fatal(err)
	}
	live, err := table.OpenLive(path, table.Expect{}, table.LiveOptions{CompactShare: 10})
	if err != nil {
		t.Fatal(err)
	}
	defer live.Close()
	of := func() *Bitmap {
		snapshot := live.Snapshot()
		defer snapshot.Release()
		return aliveItems(snapshot)
	}
	if b := of(); b != nil {
		t.Errorf("nothing is deleted: %v", items(b, n))
	}
	for i := range n {
		if i%7 == 3 {
			err = errors.Join(err, live.Delete(ids[i:i+1]))
		} else {
			want = append(want, int32(i))
		}
	}
	if b := of(); err != nil || b == nil || !isSet(b, n, want) {
		t.Errorf("alive are %v, %v; want %v", b, err, want)
	}
}
