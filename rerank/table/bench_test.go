package table_test

import (
	"fmt"
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
		"text":   func(i int) rerank.ID { return rerank.TextID(fmt.Sprintf("%08x-0000-4000-8000-00000000cafe", i)) },
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
