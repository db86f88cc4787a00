package milvus

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/milvus-io/milvus-proto/go-api/v2/commonpb"
	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"github.com/milvus-io/milvus-proto/go-api/v2/schemapb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/likenessdb/likeness/internal/bomb"
)

// searchReplies are messages of every shape that servers send.
func searchReplies() []*milvuspb.SearchResults {
	names := &schemapb.FieldData{FieldName: "name", Type: schemapb.DataType_VarChar, Field: &schemapb.FieldData_Scalars{Scalars: &schemapb.ScalarField{
		Data: &schemapb.ScalarField_StringData{StringData: &schemapb.StringArray{Data: []string{"ä", ""}}},
	}}}
	return []*milvuspb.SearchResults{
		{},
		{Status: &commonpb.Status{Code: 65535, Reason: "no", ErrorCode: commonpb.ErrorCode_UnexpectedError}},
		{Results: &schemapb.SearchResultData{
			NumQueries: 2, TopK: 3, Scores: []float32{1, float32(math.NaN())}, Topks: []int64{1, 1}, FieldsData: []*schemapb.FieldData{names},
			Ids: &schemapb.IDs{IdField: &schemapb.IDs_IntId{IntId: &schemapb.LongArray{Data: []int64{math.MinInt64, math.MaxInt64}}}},
		}, CollectionName: "c"},
		{Results: &schemapb.SearchResultData{
			Scores: []float32{1, 2}, Topks: []int64{2},
			Ids: &schemapb.IDs{IdField: &schemapb.IDs_StrId{StrId: &schemapb.StringArray{Data: []string{"", "häuser"}}}},
		}},
	}
}

// agree compares a reply with protobuf's reading of the same bytes.
func agree(t *testing.T, b []byte) {
	t.Helper()
	var want milvuspb.SearchResults
	err := proto.Unmarshal(b, &want)
	got := newReply()
	defer got.release()
	wireErr := got.ReadWire(b)
	if err != nil {
		return // what the reader passes over may be malformed
	}
	if wireErr != nil {
		t.Fatalf("protobuf reads what the wire reader refuses: %v", wireErr)
	}
	if again, err := proto.Marshal(&want); err != nil || len(again) != len(b) {
		return // a message in parts is not put together: no server sends it so
	}
	data := want.GetResults()
	bits := func(v []float32) (out []uint32) {
		for _, x := range v {
			out = append(out, math.Float32bits(x))
		}
		return out
	}
	keys := keysOf(data.GetIds())
	if !slices.Equal(got.keys, keys) || !slices.Equal(bits(got.scores), bits(data.GetScores())) || !slices.Equal(got.topks, data.GetTopks()) {
		t.Errorf("read %v %v %v; protobuf reads %v %v %v", got.keys, got.scores, got.topks, keys, data.GetScores(), data.GetTopks())
	}
	if got.GetStatus().GetCode() != want.GetStatus().GetCode() || got.GetStatus().GetReason() != want.GetStatus().GetReason() {
		t.Errorf("status %v; protobuf reads %v", got.GetStatus(), want.GetStatus())
	}
	if !slices.EqualFunc(got.fields, data.GetFieldsData(), func(a, b *schemapb.FieldData) bool { return proto.Equal(a, b) }) {
		t.Errorf("fields %v; protobuf reads %v", got.fields, data.GetFieldsData())
	}
}

func TestAnswersReadOffTheWire(t *testing.T) {
	for _, m := range searchReplies() {
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		agree(t, b)
	}
}

// TestDeclaredLengths: an answer whose fields claim more than it has is refused in little
// memory, at whatever depth the claim stands.
func TestDeclaredLengths(t *testing.T) {
	for first := protowire.Number(1); first <= 8; first++ {
		for second := protowire.Number(1); second <= 16; second++ {
			for _, claim := range []uint64{100, math.MaxInt32, 1 << 40, math.MaxInt64, math.MaxUint64} {
				inner := protowire.AppendVarint(protowire.AppendTag(nil, second, protowire.BytesType), claim)
				b := protowire.AppendBytes(protowire.AppendTag(nil, first, protowire.BytesType), inner)
				flat := protowire.AppendVarint(protowire.AppendTag(nil, first, protowire.BytesType), claim)
				for _, b := range [][]byte{b, flat, append(b, flat...)} {
					name := fmt.Sprintf("%x", b)
					err := bomb.Bounded(t, name, func() error {
						r := newReply()
						defer r.release()
						return r.ReadWire(b)
					})
					if err == nil && len(b) == len(flat) {
						t.Errorf("%s is read", name)
					}
				}
			}
		}
	}
}

// FuzzAnswer holds the reader to protobuf on whatever bytes come.
func FuzzAnswer(f *testing.F) {
	for _, m := range searchReplies() {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(agree)
}

// BenchmarkAnswer reads an answer of 1,000 rows by both.
func BenchmarkAnswer(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	data := &schemapb.SearchResultData{NumQueries: 1, TopK: 1000, Topks: []int64{1000}}
	texts := &schemapb.StringArray{}
	for range 1000 {
		data.Scores = append(data.Scores, rng.Float32())
		texts.Data = append(texts.Data, strconv.FormatUint(rng.Uint64(), 16))
	}
	data.Ids = &schemapb.IDs{IdField: &schemapb.IDs_StrId{StrId: texts}}
	message, err := proto.Marshal(&milvuspb.SearchResults{Results: data})
	if err != nil {
		b.Fatal(err)
	}
	b.Run("reader=protobuf", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var m milvuspb.SearchResults
			if err := proto.Unmarshal(message, &m); err != nil {
				b.Fatal(err)
			}
			keysOf(m.GetResults().GetIds())
		}
	})
	b.Run("reader=wire", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			r := newReply()
			if err := r.ReadWire(message); err != nil {
				b.Fatal(err)
			}
			r.release()
		}
	})
}
