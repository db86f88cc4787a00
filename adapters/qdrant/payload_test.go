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
		raw := payloadJSON(payload)
		again, err := payloadOf(raw)
		if err != nil {
			t.Fatalf("%s was written as %s: %v", text, raw, err)
		}
		if !proto.Equal(client.NewValueFromFields(payload), client.NewValueFromFields(again)) {
			t.Fatalf("%s was written as %s, which is another payload", text, raw)
		}
	})
}

// TestFiltersBothWays: every kind of condition is read from JSON and written as the same JSON.
func TestFiltersBothWays(t *testing.T) {
	ring := `{"points":[{"lat":0.5,"lon":0.5},{"lat":1.5,"lon":0.5},{"lat":1.5,"lon":1.5},{"lat":0.5,"lon":0.5}]}`
	for _, condition := range []string{
		`{"key":"a","match":{"value":true}}`,
		`{"key":"a","match":{"value":false}}`,
		`{"key":"a","match":{"value":"x"}}`,
		`{"key":"a","match":{"value":-7}}`,
		`{"key":"a","match":{"any":["x","y"]}}`,
		`{"key":"a","match":{"except":[1,2]}}`,
		`{"key":"a","match":{"text":"x"}}`,
		`{"key":"a","range":{"gt":0.25,"gte":0.5,"lt":1.5,"lte":2.5}}`,
		`{"key":"a","range":{"gte":"2026-01-01T00:00:00Z"}}`,
		`{"key":"a","values_count":{"gte":1,"lt":3}}`,
		`{"geo_bounding_box":{"bottom_right":{"lat":0.5,"lon":3.5},"top_left":{"lat":2.5,"lon":1.5}},"key":"a"}`,
		`{"geo_radius":{"center":{"lat":0.5,"lon":1.5},"radius":2.5},"key":"a"}`,
		`{"geo_polygon":{"exterior":` + ring + `},"key":"a"}`,
		`{"geo_polygon":{"exterior":` + ring + `,"interiors":[` + ring + `]},"key":"a"}`,
		`{"is_empty":{"key":"a"}}`,
		`{"is_null":{"key":"a"}}`,
		`{"has_id":[7,"5c56c793-69f3-4fbf-87e6-c4bf54c28c26"]}`,
		`{"has_vector":"v"}`,
		`{"nested":{"filter":{"should":[{"is_null":{"key":"b"}}]},"key":"a"}}`,
		`{"min_should":{"conditions":[{"is_null":{"key":"b"}}],"min_count":1}}`,
	} {
		want := `{"must":[` + condition + `]}`
		f, err := parseFilter(want)
		if err != nil {
			t.Errorf("%s: %v", condition, err)
			continue
		}
		if got, err := FilterText(f); err != nil || got != want {
			t.Errorf("%s is written as %s, %v", want, got, err)
		}
	}
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
		again := writeCursor(p)
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
