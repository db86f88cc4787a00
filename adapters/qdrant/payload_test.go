package qdrant

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	client "github.com/qdrant/go-client/qdrant"
	"google.golang.org/protobuf/proto"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
)

// FuzzPayload: a payload that is taken is written as JSON that reads the same.
func FuzzPayload(f *testing.F) {
	f.Add(`{"a": 1, "b": [1.5, -0.0, 1e21, 9007199254740993], "c": {"d": null, "e": "ü\u0000"}}`)
	f.Add(`{"a": 3.0, "": true}`)
	f.Fuzz(func(t *testing.T, text string) {
		payload, err := payloadOf(json.RawMessage(text))
		if err != nil {
			if !errors.Is(err, adapters.ErrStore) {
				t.Fatal(err)
			}
			return
		}
		raw, err := payloadJSON(payload)
		if err != nil {
			t.Fatal(err)
		}
		again, err := payloadOf(raw)
		if err != nil {
			t.Fatalf("%s was written as %s: %v", text, raw, err)
		}
		if !proto.Equal(client.NewValueFromFields(payload), client.NewValueFromFields(again)) {
			t.Fatalf("%s was written as %s, which is another payload", text, raw)
		}
	})
}

// FuzzFilter: what the filter's reader takes can be sent.
func FuzzFilter(f *testing.F) {
	f.Add(`{"must": [{"key": "a", "match": {"any": [1, 2]}}, {"nested": {"key": "b", "filter": {"should": []}}}], "min_should": {"conditions": [{"has_id": [1]}], "min_count": 1}}`)
	f.Add(`{"must": [{"key": "a", "match": {"any": []}, "range": {"gt": "2026-01-01"}}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		p, err := parseFilter(text)
		if err != nil {
			if !errors.Is(err, adapters.ErrFilter) {
				t.Fatal(err)
			}
			return
		}
		if _, err := proto.Marshal(p); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	})
}

func FuzzCursor(f *testing.F) {
	for _, c := range []string{"", "end", "18446744073709551615", `"f47ac10b-58cc-4372-a567-0e02b2c3d479"`, "-1", "null"} {
		f.Add(c)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := readCursor(text)
		if err != nil || p == nil {
			return
		}
		again, err := writeCursor(p)
		if err != nil {
			t.Fatal(err)
		}
		if q, err := readCursor(again); err != nil || !proto.Equal(p, q) {
			t.Fatalf("cursor %q became %q", text, again)
		}
	})
}

// BenchmarkDecode is the answer to one probe of 1,000 rows, from the wire to a list.
func BenchmarkDecode(b *testing.B) {
	batch := &client.BatchResult{}
	for i := range 1000 {
		batch.Result = append(batch.Result, &client.ScoredPoint{Id: client.NewIDNum(uint64(i)), Score: 1 - float32(i)/1000})
	}
	message, err := proto.Marshal(&client.QueryBatchResponse{Result: []*client.BatchResult{batch}})
	if err != nil {
		b.Fatal(err)
	}
	p := probe{Probe: rerank.Probe{Depth: 1000}, field: &field{VectorField: adapters.VectorField{Metric: adapters.InnerProduct}}}
	b.ReportAllocs()
	for b.Loop() {
		answer := newReply(true, "", nil)
		if err := answer.ReadWire(message); err != nil {
			b.Fatal(err)
		}
		l, err := p.makeList(adapters.SearchRequest{}, &info{}, answer, answer.list(0))
		answer.release()
		if err != nil || len(l.IDs) != 1000 {
			b.Fatal(fmt.Sprint(len(l.IDs), err))
		}
	}
}
