package wirecount_test

import (
	"bytes"
	"errors"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/likenessdb/likeness/internal/wirecount"
)

// encoded is a list of three texts in a list: a Value, which holds a ListValue, which holds
// a Value, which holds a ListValue of three Values.
func encoded(t *testing.T) []byte {
	t.Helper()
	list := func(values ...*structpb.Value) *structpb.Value {
		return structpb.NewListValue(&structpb.ListValue{Values: values})
	}
	b, err := proto.Marshal(list(list(structpb.NewStringValue("a"), structpb.NewStringValue("b"), structpb.NewStringValue("c"))))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestLimits(t *testing.T) {
	whole := wirecount.Limits{Messages: 6, Fields: 9, Depth: 4}
	fewer := func(change func(*wirecount.Limits)) wirecount.Limits {
		l := whole
		change(&l)
		return l
	}
	for name, tc := range map[string]struct {
		limits wirecount.Limits
		want   error
	}{
		"all of it": {whole, nil},
		"messages":  {fewer(func(l *wirecount.Limits) { l.Messages-- }), wirecount.ErrLimit},
		"fields":    {fewer(func(l *wirecount.Limits) { l.Fields-- }), wirecount.ErrLimit},
		"depth":     {fewer(func(l *wirecount.Limits) { l.Depth-- }), wirecount.ErrLimit},
	} {
		b := encoded(t)
		if err := wirecount.Check(b, (*structpb.Value)(nil).ProtoReflect().Descriptor(), tc.limits); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
		m := &structpb.Value{}
		halves := mem.BufferSlice{mem.SliceBuffer(b[:5]), mem.SliceBuffer(b[5:])}
		if err := wirecount.NewCodec(tc.limits).Unmarshal(halves, m); !errors.Is(err, tc.want) || err == nil && len(m.GetListValue().GetValues()) != 1 {
			t.Errorf("%s, by the codec: %v %v, want %v", name, err, m, tc.want)
		}
	}
}

// Checking allocates nothing, however long the message is.
func TestCheckAllocatesNothing(t *testing.T) {
	d := (*structpb.ListValue)(nil).ProtoReflect().Descriptor()
	b := bytes.Repeat([]byte{0x0a, 0}, 1<<16)
	limits := wirecount.Limits{Messages: 1 << 16, Fields: 1 << 16, Depth: 1}
	if n := testing.AllocsPerRun(10, func() {
		if err := wirecount.Check(b, d, limits); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// What is not a message is left for the decoder to refuse.
func FuzzCheck(f *testing.F) {
	f.Add([]byte{0x0a, 0})
	f.Add([]byte{0x0b, 0x0b, 0x0c})
	f.Fuzz(func(t *testing.T, b []byte) {
		_ = wirecount.Check(b, (*structpb.Struct)(nil).ProtoReflect().Descriptor(), wirecount.Limits{Messages: 100, Fields: 100, Depth: 10})
	})
}
