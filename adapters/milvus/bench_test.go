package milvus_test

import (
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/adapters/milvus"
	"github.com/likenessdb/likeness/rerank"
)

// BenchmarkLite measures the adapter with milvus-lite behind it, on 5,000 items:
// 32 probes of 200 over four columns of 64 and over eight components that are
// rows, and a fetch of 1,000 vectors.
func BenchmarkLite(b *testing.B) {
	server := servers.MilvusLiteForTest(b, servers.Options{})
	s, err := milvus.New(b.Context(), milvus.Options{Address: server.Address})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	for _, fields := range []int{4, 8} {
		schema, rows := benchRows("bench"+strconv.Itoa(fields), fields)
		if err := s.Create(b.Context(), schema); err != nil {
			b.Fatal(err)
		}
		if err := s.Write(b.Context(), schema.Collection, schema, rows); err != nil {
			b.Fatal(err)
		}
		request := adapters.SearchRequest{Collection: schema.Collection, UnitVectors: true}
		for i := range 32 {
			request.Probes = append(request.Probes, rerank.Probe{Field: schema.Fields[i%fields].Name, Vector: rows.Vectors[i%fields].Row(i), Depth: 200})
		}
		b.Run("search/fields="+strconv.Itoa(fields), func(b *testing.B) {
			for b.Loop() {
				if _, err := s.Search(b.Context(), request); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("fetch/fields="+strconv.Itoa(fields), func(b *testing.B) {
			for b.Loop() {
				if _, err := s.Fetch(b.Context(), adapters.FetchRequest{Collection: schema.Collection, IDs: rows.IDs[:1000], Vectors: []string{"c0"}}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func benchRows(name string, fields int) (adapters.Schema, adapters.Rows) {
	const n, dim = 5000, 64
	rng := rand.New(rand.NewPCG(1, 2))
	s := adapters.Schema{Collection: name}
	var rows adapters.Rows
	for i := range n {
		rows.IDs = append(rows.IDs, rerank.UintID(uint64(i)))
	}
	for f := range fields {
		s.Fields = append(s.Fields, adapters.VectorField{Name: "c" + strconv.Itoa(f), Dim: dim, Metric: adapters.InnerProduct})
		m := rerank.NewMatrix(n, dim)
		for i := range m.Data {
			m.Data[i] = float32(rng.NormFloat64())
		}
		for r := range n {
			rerank.Normalise(m.Row(r))
		}
		rows.Vectors = append(rows.Vectors, m)
	}
	return s, rows
}
