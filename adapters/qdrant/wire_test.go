package qdrant

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/internal/wire"
	"github.com/likenessdb/likeness/internal/bomb"
	"github.com/likenessdb/likeness/rerank"
)

// wireFields are the vectors that the tests read.
var wireFields = []*field{
	{VectorField: adapters.VectorField{Name: "", Dim: 3}},
	{VectorField: adapters.VectorField{Name: "c0", Dim: 2}},
}

// decoded is the content of a point that a search needs, however the point was read.
type decoded struct {
	id, owner rerank.ID
	owned     bool
	score     float32
	version   uint64
	hasKey    bool // a shard key
	vectors   [2][3]float32
}

// viaProtobuf is the reference.
func viaProtobuf(b []byte) ([][]decoded, error) {
	var m qdrant.QueryBatchResponse
	if err := proto.Unmarshal(b, &m); err != nil {
		return nil, err
	}
	lists := make([][]decoded, len(m.GetResult()))
	for i, list := range m.GetResult() {
		for _, p := range list.GetResult() {
			d := decoded{id: idOf(p.GetId()), score: p.GetScore(), version: p.GetVersion(), hasKey: p.GetShardKey() != nil}
			d.owner, d.owned = ownerOf(p.GetPayload(), "item")
			for j, f := range wireFields {
				copyVector(d.vectors[j][:f.Dim], p.GetVectors(), f.Name)
			}
			lists[i] = append(lists[i], d)
		}
	}
	return lists, nil
}

func viaWire(b []byte) ([][]decoded, error) {
	r := newReply(true, "item", wireFields)
	defer r.release()
	if err := wire.Codec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, r); err != nil {
		return nil, err
	}
	lists := make([][]decoded, len(r.ends))
	for i := range r.ends {
		for _, p := range r.list(i) {
			d := decoded{id: r.idOf(p.id), score: p.score, version: p.version, hasKey: p.hasKey, owned: p.owner.kind != noValue}
			if d.owned {
				d.owner = r.idOf(p.owner)
			}
			for j, f := range wireFields {
				r.copyVector(d.vectors[j][:f.Dim], p, j)
			}
			lists[i] = append(lists[i], d)
		}
	}
	return lists, nil
}

// same compares bit by bit, so that NaN equals NaN.
func same(a, b [][]decoded) bool {
	bits := math.Float32bits
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if len(a[i]) != len(b[i]) {
			return false
		}
		for j, x := range a[i] {
			y := b[i][j]
			for v := range x.vectors {
				for e := range x.vectors[v] {
					if bits(x.vectors[v][e]) != bits(y.vectors[v][e]) {
						return false
					}
				}
			}
			if x.id != y.id || x.owner != y.owner || x.owned != y.owned || x.version != y.version || x.hasKey != y.hasKey || bits(x.score) != bits(y.score) {
				return false
			}
		}
	}
	return true
}

// answers are messages of every shape that servers send.
func answers() []*qdrant.QueryBatchResponse {
	dense := func(v ...float32) *qdrant.VectorOutput {
		return &qdrant.VectorOutput{Vector: &qdrant.VectorOutput_Dense{Dense: &qdrant.DenseVector{Data: v}}}
	}
	unnamed := func(v *qdrant.VectorOutput) *qdrant.VectorsOutput {
		return &qdrant.VectorsOutput{VectorsOptions: &qdrant.VectorsOutput_Vector{Vector: v}}
	}
	named := func(m map[string]*qdrant.VectorOutput) *qdrant.VectorsOutput {
		return &qdrant.VectorsOutput{VectorsOptions: &qdrant.VectorsOutput_Vectors{Vectors: &qdrant.NamedVectorsOutput{Vectors: m}}}
	}
	points := []*qdrant.ScoredPoint{
		{Id: qdrant.NewIDNum(math.MaxUint64), Score: 1.5, Version: 7, Vectors: unnamed(dense(1, 2, 3))},
		{Id: qdrant.NewIDUUID("5c56c793-69f3-4fbf-87e6-c4bf54c28c26"), Score: float32(math.NaN()), Vectors: unnamed(&qdrant.VectorOutput{Data: []float32{4, 5, 6}})},
		{Id: qdrant.NewIDNum(0), Score: float32(math.Inf(-1)), Vectors: named(map[string]*qdrant.VectorOutput{"c0": dense(7, 8), "c1": dense(9)})},
		{Id: qdrant.NewIDNum(1), Payload: map[string]*qdrant.Value{"item": qdrant.NewValueInt(-3), "other": qdrant.NewValueString("x")}},
		{Id: qdrant.NewIDNum(2), Payload: map[string]*qdrant.Value{"item": qdrant.NewValueString("häuser")}},
		{Id: qdrant.NewIDNum(3), Payload: map[string]*qdrant.Value{"item": qdrant.NewValueDouble(3)}, Vectors: unnamed(dense(1))},
		{ShardKey: qdrant.NewShardKeyKeyword("a"), OrderValue: &qdrant.OrderValue{Variant: &qdrant.OrderValue_Int{Int: 3}}},
	}
	return []*qdrant.QueryBatchResponse{
		{},
		{Result: []*qdrant.BatchResult{{}}, Time: 0.25},
		{Result: []*qdrant.BatchResult{{Result: points}, {}, {Result: points[1:3]}}, Usage: &qdrant.Usage{}},
	}
}

func TestAnswersReadOffTheWire(t *testing.T) {
	for i, m := range answers() {
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		want, err := viaProtobuf(b)
		if err != nil {
			t.Fatal(err)
		}
		got, err := viaWire(b)
		if err != nil || !same(got, want) {
			t.Errorf("answer %d: %+v, %v; protobuf reads %+v", i, got, err, want)
		}
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
						_, err := viaWire(b)
						return err
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
	for _, m := range answers() {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		want, err := viaProtobuf(b)
		got, wireErr := viaWire(b)
		if err == nil && wireErr != nil {
			t.Fatalf("protobuf reads what the wire reader refuses: %v", wireErr)
		}
		// What the reader passes over may be malformed, and a message that comes
		// in parts is not put together: no server sends it so.
		if err != nil || !canonical(b) {
			return
		}
		if wireErr == nil && !same(got, want) {
			t.Fatalf("read %+v, protobuf reads %+v", got, want)
		}
	})
}

// canonical: the message is as a server writes it, each field once.
func canonical(b []byte) bool {
	var m qdrant.QueryBatchResponse
	if proto.Unmarshal(b, &m) != nil {
		return false
	}
	again, err := proto.Marshal(&m)
	return err == nil && len(again) == len(b)
}

// BenchmarkAnswer reads an answer of 1,000 points by both.
func BenchmarkAnswer(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	list := &qdrant.BatchResult{}
	for range 1000 {
		list.Result = append(list.Result, &qdrant.ScoredPoint{Id: qdrant.NewIDNum(rng.Uint64()), Score: rng.Float32(), Version: 12})
	}
	data, err := proto.Marshal(&qdrant.QueryBatchResponse{Result: []*qdrant.BatchResult{list}, Time: 0.1})
	if err != nil {
		b.Fatal(err)
	}
	b.Run("reader=protobuf", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var m qdrant.QueryBatchResponse
			if err := proto.Unmarshal(data, &m); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("reader=wire", func(b *testing.B) {
		b.ReportAllocs()
		r, c, slice := newReply(true, "", nil), wire.Codec(), mem.BufferSlice{mem.SliceBuffer(data)}
		for b.Loop() {
			if err := c.Unmarshal(slice, r); err != nil {
				b.Fatal(err)
			}
		}
	})
}
