package table_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/table"
)

// million builds a table of a million rows of 64 numbers.
func million(b *testing.B, id func(i int) rerank.ID) string {
	b.Helper()
	big := meta
	big.Features = 64
	path := filepath.Join(b.TempDir(), "t")
	w, err := table.NewWriter(path, big)
	if err != nil {
		b.Fatal(err)
	}
	const batch = 10_000
	rows, ids := rerank.NewMatrix(batch, big.Features), make([]rerank.ID, batch)
	for at := 0; at < 1_000_000; at += batch {
		for i := range ids {
			ids[i] = id(at + i)
		}
		if err := w.Append(ids, rows); err != nil {
			b.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
	return path
}

func forms() map[string]func(i int) rerank.ID {
	return map[string]func(i int) rerank.ID{
		"dense":  func(i int) rerank.ID { return rerank.UintID(uint64(i)) },
		"sparse": func(i int) rerank.ID { return rerank.UintID(uint64(i) * 7919) },
		"uuid":   func(i int) rerank.ID { return rerank.TextID(fmt.Sprintf("%08x-0000-4000-8000-00000000cafe", i)) },
		"text":   func(i int) rerank.ID { return rerank.TextID(fmt.Sprintf("item-%020d", i)) },
	}
}

func BenchmarkOpenMillion(b *testing.B) {
	for name, id := range forms() {
		b.Run(name, func(b *testing.B) {
			path := million(b, id)
			for b.Loop() {
				t, err := table.Open(path, table.Expect{})
				if err != nil {
					b.Fatal(err)
				}
				if err := t.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkOpenPacked opens a million items of 8 components of 32 numbers, by format, and checks
// every byte. It reports the file's size relative to the rows.
func BenchmarkOpenPacked(b *testing.B) {
	for _, f := range rerank.Formats()[1:] {
		for name, id := range forms() {
			b.Run(string(f)+"/"+name, func(b *testing.B) {
				m := meta
				m.Features, m.Block, m.Format = 256, 32, f
				path, raw := filled(b, m, id), 0
				for b.Loop() {
					t, err := table.Open(path, table.Expect{})
					if err != nil {
						b.Fatal(err)
					}
					raw = 4 * len(t.Packed().Words)
					if err := t.Close(); err != nil {
						b.Fatal(err)
					}
				}
				info, err := os.Stat(path)
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(info.Size())/1e6, "MB")
				b.ReportMetric(float64(info.Size())/float64(raw), "of-the-rows")
			})
		}
	}
}

// filled builds a table of a million rows of random numbers.
func filled(b *testing.B, m table.Meta, id func(i int) rerank.ID) string {
	b.Helper()
	path := filepath.Join(b.TempDir(), "t")
	w, err := table.NewWriter(path, m)
	if err != nil {
		b.Fatal(err)
	}
	const batch = 10_000
	rows, ids := rerank.NewMatrix(batch, m.Features), make([]rerank.ID, batch)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range rows.Data {
		rows.Data[i] = rng.Float32() - 0.5
	}
	for at := 0; at < 1_000_000; at += batch {
		for i := range ids {
			ids[i] = id(at + i)
		}
		if err := w.Append(ids, rows); err != nil {
			b.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
	return path
}

// BenchmarkLive measures a write of one item, and a search's reading of a
// snapshot while nobody writes.
func BenchmarkLive(b *testing.B) {
	c := liveCase{meta: meta}
	c.meta.Features, c.meta.Format = 256, rerank.FormatBFloat16
	for name, unsynced := range map[string]bool{"upsert synced": false, "upsert unsynced": true} {
		b.Run(name, func(b *testing.B) {
			path, _ := c.base(b, rand.New(rand.NewPCG(1, 2)), 1000)
			l := openLive(b, path, table.LiveOptions{Unsynced: unsynced})
			row, n := rerank.NewMatrix(1, 256), 0
			b.ReportAllocs()
			for b.Loop() {
				if err := l.Upsert([]rerank.ID{rerank.UintID(uint64(n % 5000))}, row, nil); err != nil {
					b.Fatal(err)
				}
				n++
			}
			if err := l.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
	b.Run("snapshot", func(b *testing.B) {
		path, _ := c.base(b, rand.New(rand.NewPCG(1, 2)), 1000)
		l := openLive(b, path, table.LiveOptions{})
		b.ReportAllocs()
		for b.Loop() {
			l.Snapshot().Release()
		}
		if err := l.Close(); err != nil {
			b.Fatal(err)
		}
	})
}

// BenchmarkLookup finds 1,000 candidates of a million.
func BenchmarkLookup(b *testing.B) {
	for name, id := range forms() {
		b.Run(name, func(b *testing.B) {
			t := open(b, million(b, id))
			ids, items, missing := make([]rerank.ID, 1000), make([]int32, 0, 1000), make([]int, 0, 1000)
			for i := range ids {
				ids[i] = id(i * 991)
			}
			b.ReportAllocs()
			for b.Loop() {
				items, missing = t.Lookup(ids, items[:0], missing[:0])
			}
			if len(items) != len(ids) || len(missing) > 0 {
				b.Fatalf("%d found, %d missing", len(items), len(missing))
			}
		})
	}
}
