package server

import (
	"bytes"
	"errors"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/likenessdb/likeness/internal/cost"
	"github.com/likenessdb/likeness/internal/wirecount"
	"github.com/likenessdb/likeness/internal/wirecount/families"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
)

// requestCost bounds the memory for decoding a request.
var requestCost = cost.Bound{Fixed: 32 << 20, PerByte: 12}

// Every request of the API is decoded in memory in proportion to its length, whichever of
// its fields it repeats without content.
func TestCostOfRequests(t *testing.T) {
	c := newCodec(nil)
	for _, file := range []protoreflect.FileDescriptor{
		likenessv1.File_likeness_v1_search_proto, likenessv1.File_likeness_v1_catalog_proto, likenessv1.File_likeness_v1_admin_proto,
	} {
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for j := range methods.Len() {
				request := methods.Get(j).Input()
				kind, err := protoregistry.GlobalTypes.FindMessageByName(request.FullName())
				if err != nil {
					t.Fatal(err)
				}
				for family, input := range families.Messages(request, 2) {
					cost.Linear(t, family, requestCost, func(length int) []byte { return input(16 * length) }, func(b []byte) {
						r := received{message: kind.New().Interface()}
						_ = c.Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, &r)
					})
				}
			}
		}
	}
}

// The greatest requests that the rules of the API allow are decoded.
func TestLimitsLetRequestsThrough(t *testing.T) {
	ids := make([]*likenessv1.ItemId, 16384)
	for i := range ids {
		ids[i] = &likenessv1.ItemId{Id: &likenessv1.ItemId_Text{Text: "an item"}}
	}
	searches := make([]*likenessv1.SearchRequest, 1024)
	for i := range searches {
		searches[i] = &likenessv1.SearchRequest{Route: "r", K: 10, Payload: &likenessv1.PayloadSelector{Fields: make([]string, 64)},
			Query: &likenessv1.Query{Vector: make([]float32, 1536), Context: map[string]float32{"a": 1, "b": 2, "c": 3}}}
	}
	for _, m := range []proto.Message{
		&likenessv1.ScoreRequest{Route: "r", Items: &likenessv1.ScoreRequest_Ids{Ids: &likenessv1.ItemIds{Ids: ids}}},
		&likenessv1.SearchBatchRequest{Searches: searches},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		r := received{message: m.ProtoReflect().New().Interface()}
		if err := newCodec(nil).Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, &r); err != nil || r.err != nil || !proto.Equal(m, r.message) {
			t.Errorf("%T: %v %v", m, err, r.err)
		}
		r = received{message: m.ProtoReflect().New().Interface()}
		empty := bytes.Repeat([]byte{0x0a, 0}, requestLimits.Fields+1)
		if err := newCodec(nil).Unmarshal(mem.BufferSlice{mem.SliceBuffer(empty)}, &r); err != nil || !errors.Is(r.err, wirecount.ErrLimit) {
			t.Errorf("%T of empty fields: %v %v", m, err, r.err)
		}
	}
}
