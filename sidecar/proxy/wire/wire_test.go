package wire_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/likenessdb/likeness/internal/cost"
	"github.com/likenessdb/likeness/sidecar/proxy/wire"
)

// The paths to the vectors of a SearchPoints and of a QueryPoints.
var (
	searchPath = []protowire.Number{2}
	queryPath  = []protowire.Number{3, 1, 2, 1}
)

func marshal(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func numbers(n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(i) + 0.5
	}
	return v
}

// unknown is a field that no message of these tests knows.
var unknown = protowire.AppendString(protowire.AppendTag(nil, 1000, protowire.BytesType), "unknown")

// A vector is replaced by one of any length, and everything else stays, even if the length of a
// message around it takes another number of bytes.
func TestReplaceVector(t *testing.T) {
	for _, was := range []int{1, 5, 30, 40, 5000} {
		for _, becomes := range []int{1, 5, 30, 40, 5000} {
			query := func(n int) *qdrant.QueryPoints {
				return &qdrant.QueryPoints{CollectionName: "c", Query: qdrant.NewQueryDense(numbers(n)), Using: proto.String("v"), Limit: proto.Uint64(7)}
			}
			got, err := wire.ReplaceVector(append(marshal(t, query(was)), unknown...), queryPath, numbers(becomes))
			if want := append(marshal(t, query(becomes)), unknown...); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d numbers by %d: %x, %v, want %x", was, becomes, got, err, want)
			}
		}
	}
}

// A vector in several pieces, packed or not, becomes one piece in the place of the first.
func TestReplaceVectorInPieces(t *testing.T) {
	pieces := wire.AppendPacked(nil, 2, numbers(3))
	pieces = append(pieces, "\x0a\x01c"...)
	pieces = wire.AppendFloat(pieces, 2, 9)
	pieces = wire.AppendPacked(pieces, 2, nil)
	got, err := wire.ReplaceVector(pieces, searchPath, []float32{1, 2})
	want := append(wire.AppendPacked(nil, 2, []float32{1, 2}), "\x0a\x01c"...)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%x, %v, want %x", got, err, want)
	}
}

func TestReplaceVectorRefuses(t *testing.T) {
	message := func(numbers ...protowire.Number) []byte {
		b := wire.AppendPacked(nil, numbers[len(numbers)-1], []float32{1})
		for _, n := range slices.Backward(numbers[:len(numbers)-1]) {
			b = protowire.AppendBytes(protowire.AppendTag(nil, n, protowire.BytesType), b)
		}
		return b
	}
	for name, tc := range map[string]struct {
		message []byte
		want    error
	}{
		"an id in place of a vector": {marshal(t, &qdrant.QueryPoints{Query: qdrant.NewQueryID(qdrant.NewIDNum(1))}), wire.ErrMissing},
		"nothing":                    {nil, wire.ErrMissing},
		"two queries":                {append(message(queryPath...), message(queryPath...)...), wire.ErrRepeated},
		"a number as a vector":       {[]byte("\x1a\x06\x0a\x04\x12\x02\x08\x01"), wire.ErrMalformed},
		"cut":                        {message(queryPath...)[:5], wire.ErrMalformed},
		"three bytes of a float":     {[]byte("\x1a\x09\x0a\x07\x12\x05\x0a\x03\x00\x00\x00"), wire.ErrMalformed},
		"a group":                    {[]byte("\x1b\x0a\x00\x1c"), wire.ErrMalformed},
	} {
		if _, err := wire.ReplaceVector(tc.message, queryPath, []float32{1}); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
}

// FuzzReplaceVector compares with decoding: if a message decodes, the edited message decodes to the
// same with the vector replaced.
func FuzzReplaceVector(f *testing.F) {
	f.Add([]byte("\x0a\x01c\x12\x04\x00\x00\x80\x3f\x20\x0a"), []byte("\x00\x00\x00\x40"))
	f.Add(append(wire.AppendFloat([]byte("\x0a\x01c"), 2, 3), unknown...), []byte("\x00\x00\x00\x40\x00\x00\x80\x3f"))
	f.Fuzz(func(t *testing.T, message, numbers []byte) {
		vector, err := wire.Field{Type: protowire.BytesType, Value: numbers}.AppendFloats(nil)
		if err != nil {
			return
		}
		want := &qdrant.SearchPoints{}
		if proto.Unmarshal(message, want) != nil {
			return
		}
		mended, err := wire.ReplaceVector(message, searchPath, vector)
		if err != nil {
			if len(want.GetVector()) > 0 && !errors.Is(err, wire.ErrMalformed) {
				t.Errorf("%x has a vector: %v", message, err)
			}
			return
		}
		want.Vector = vector
		got := &qdrant.SearchPoints{}
		if err := proto.Unmarshal(mended, got); err != nil || !bytes.Equal(marshal(t, got), marshal(t, want)) {
			t.Errorf("%x: got %v (%v), want %v", message, got, err, want)
		}
	})
}

// FuzzReplaceNestedVector is FuzzReplaceVector of a vector inside other messages.
func FuzzReplaceNestedVector(f *testing.F) {
	f.Add([]byte("\x1a\x0a\x0a\x08\x12\x06\x0a\x04\x00\x00\x80\x3f\x40\x0a"), []byte("\x00\x00\x00\x40"))
	f.Fuzz(func(t *testing.T, message, numbers []byte) {
		vector, err := wire.Field{Type: protowire.BytesType, Value: numbers}.AppendFloats(nil)
		want := &qdrant.QueryPoints{}
		if err != nil || proto.Unmarshal(message, want) != nil || want.GetQuery().GetNearest().GetDense() == nil {
			return
		}
		mended, err := wire.ReplaceVector(message, queryPath, vector)
		if err != nil {
			return
		}
		got := &qdrant.QueryPoints{}
		if err := proto.Unmarshal(mended, got); err != nil {
			t.Fatalf("%x: %v", message, err)
		}
		if got.GetQuery().GetNearest().GetDense() == nil {
			t.Fatalf("%x: got %v", message, got)
		}
		want.GetQuery().GetNearest().GetDense().Data = vector
		if !bytes.Equal(marshal(t, got), marshal(t, want)) {
			t.Errorf("%x: got %v, want %v", message, got, want)
		}
	})
}

// Replacing takes memory in proportion to the message.
func TestCostOfReplaceVector(t *testing.T) {
	for name, input := range map[string]func(length int) []byte{
		"one vector":     func(n int) []byte { return wire.AppendPacked(nil, 2, make([]float32, n/4)) },
		"single numbers": func(n int) []byte { return bytes.Repeat(wire.AppendFloat(nil, 2, 1), n/5) },
		"other fields": func(n int) []byte {
			return append(wire.AppendFloat(nil, 2, 1), bytes.Repeat([]byte("\x20\x01"), n/2)...)
		},
		"empty pieces": func(n int) []byte { return bytes.Repeat([]byte("\x12\x00"), n/2) },
		"one long filter": func(n int) []byte {
			return append(wire.AppendFloat(nil, 2, 1), protowire.AppendBytes([]byte("\x1a"), make([]byte, n))...)
		},
	} {
		cost.Linear(t, name, cost.Bound{Fixed: 64 << 10, PerByte: 4}, input, func(b []byte) {
			_, _ = wire.ReplaceVector(b, searchPath, []float32{1, 2, 3})
		})
	}
}
