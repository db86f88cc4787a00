package plugin

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pluginv1 "github.com/likenessdb/likeness/proto/gen/likeness/plugin/v1"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/rerank"
)

// FuzzScoreRequest: whatever message comes, the scorer gets items of one shape, as many
// as ids, or the caller a status.
func FuzzScoreRequest(f *testing.F) {
	good, err := toScoreRequest(Query{Vector: []float32{1, 2}, Text: "q"}, []Item{
		{ID: rerank.UintID(1), Payload: []byte(`{}`), Vector: []float32{1, 2, 3}}, {ID: rerank.TextID("a"), Vector: []float32{4, 5, 6}},
	})
	if err != nil {
		f.Fatal(err)
	}
	for _, r := range []*pluginv1.ScoreRequest{good, {}, {Ids: []*likenessv1.ItemId{{}}}, {Vectors: make([]byte, 5)}} {
		b, err := proto.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	s := newScorerService(Description{}, function{Description{Version: "1", MaxItems: 8}, func(_ context.Context, _ Query, items []Item) ([]float32, error) {
		for i := range items {
			if items[i].ID.IsZero() || len(items[i].Vector) != len(items[0].Vector) {
				return nil, errors.New("items of several shapes")
			}
		}
		return make([]float32, len(items)), nil
	}}, nil)
	f.Fuzz(func(t *testing.T, b []byte) {
		var r pluginv1.ScoreRequest
		if proto.Unmarshal(b, &r) != nil {
			return
		}
		answer, err := s.Score(t.Context(), &r)
		switch code := status.Code(err); {
		case code == codes.Internal || code == codes.Unknown:
			t.Errorf("%v", err)
		case err == nil && len(answer.GetScores()) != len(r.GetIds()):
			t.Errorf("%d scores for %d ids", len(answer.GetScores()), len(r.GetIds()))
		}
	})
}

// BenchmarkScoreRequest encodes and decodes the request for 256 items with 64 KiB of payload and
// vectors of 384 elements, without a connection.
func BenchmarkScoreRequest(b *testing.B) {
	items := make([]Item, 256)
	for i := range items {
		items[i] = Item{ID: rerank.UintID(uint64(i)), Payload: make([]byte, 256), Vector: make([]float32, 384)}
		for j := range items[i].Payload {
			items[i].Payload[j] = 'a'
		}
	}
	s := newScorerService(Description{}, function{Description{Version: "1"}, func(_ context.Context, _ Query, items []Item) ([]float32, error) {
		return make([]float32, len(items)), nil
	}}, nil)
	b.ReportAllocs()
	for b.Loop() {
		r, err := toScoreRequest(Query{Text: "q"}, items)
		if err != nil {
			b.Fatal(err)
		}
		wire, err := proto.Marshal(r)
		if err != nil {
			b.Fatal(err)
		}
		var came pluginv1.ScoreRequest
		if err := proto.Unmarshal(wire, &came); err != nil {
			b.Fatal(err)
		}
		if _, err := s.Score(b.Context(), &came); err != nil {
			b.Fatal(err)
		}
	}
}
