package fieldrules_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"buf.build/go/protovalidate"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/durationpb"

	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/sidecar/server/fieldrules"
)

// skipped are fields that neither side checks.
var skipped = []protoreflect.FullName{"likeness.v1.SearchBatchRequest.searches"}

// protovalidate and this package find the same first violation in messages whose fields lie on both sides
// of every rule.
func TestSameAsProtovalidate(t *testing.T) {
	const rounds = 500
	reference, err := protovalidate.New(protovalidate.WithFailFast())
	if err != nil {
		t.Fatal(err)
	}
	checked := func(_ protoreflect.Message, d protoreflect.Descriptor) bool {
		return !slices.Contains(skipped, d.FullName())
	}
	random := rand.New(rand.NewPCG(1, 2))
	broken := map[string]bool{}
	for _, kind := range []proto.Message{
		&likenessv1.SearchRequest{}, &likenessv1.ScoreRequest{}, &likenessv1.ExplainRequest{}, &likenessv1.SearchBatchRequest{},
		&likenessv1.ListVersionsRequest{}, &likenessv1.FeedbackRequest{},
	} {
		rules, err := fieldrules.Compile([]protoreflect.MessageDescriptor{kind.ProtoReflect().Descriptor()}, skipped...)
		if err != nil {
			t.Fatal(err)
		}
		messages := []proto.Message{kind}
		for range rounds {
			m := kind.ProtoReflect().New()
			fill(random, m, 0)
			messages = append(messages, m.Interface())
		}
		if _, ok := kind.(*likenessv1.SearchRequest); ok {
			messages = append(messages, largeSearches()...)
		}
		for _, m := range messages {
			want := violationOf(t, reference.Validate(m, protovalidate.WithFilter(protovalidate.FilterFunc(checked))))
			var got *fieldrules.ViolationError
			_ = errors.As(rules.Validate(m), &got)
			if (got == nil) != (want == nil) || got != nil && *got != *want {
				t.Fatalf("%s: %+v, want %+v, of %.500v", kind.ProtoReflect().Descriptor().Name(), got, want, m)
			}
			if got != nil {
				broken[got.Rule] = true
			}
		}
	}
	for _, rule := range []string{
		"required", "string.min_len", "string.max_bytes", "int32.gt", "int32.gte", "sint64.lt", "float.finite", "float.gte", "float.gte_lte", "double.gte",
		"enum.defined_only", "duration.gt", "repeated.min_items", "repeated.max_items", "map.max_pairs",
	} {
		if !broken[rule] {
			t.Errorf("no message broke %s", rule)
		}
	}
}

// largeSearches returns requests whose lists and map are at their limits, and one above.
func largeSearches() (all []proto.Message) {
	for _, n := range []int{1000, 1001, 1024, 1025} {
		weights := map[string]float32{}
		for i := range n {
			weights[strconv.Itoa(i)] = 1
		}
		items := slices.Repeat([]*likenessv1.WeightedItem{{Id: &likenessv1.ItemId{Id: &likenessv1.ItemId_Number{Number: 1}}}}, n)
		for _, q := range []*likenessv1.Query{{Context: weights}, {ItemIds: items}} {
			all = append(all, &likenessv1.SearchRequest{Route: "r", K: 1, Query: q})
		}
	}
	return all
}

// violationOf converts protovalidate's error.
func violationOf(t *testing.T, err error) *fieldrules.ViolationError {
	t.Helper()
	var invalid *protovalidate.ValidationError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &invalid):
		t.Fatal(err)
	}
	v := invalid.Violations[0].Proto
	return &fieldrules.ViolationError{Field: protovalidate.FieldPathString(v.GetField()), Rule: v.GetRuleId(), Text: v.GetMessage()}
}

// fill fills fields of a message at random, most of them with valid values.
func fill(random *rand.Rand, m protoreflect.Message, depth int) {
	if d, ok := m.Interface().(*durationpb.Duration); ok {
		d.Seconds, d.Nanos = pick(random, int64(1), -1, 0), pick(random, int32(1), 0)
		return
	}
	for i := range m.Descriptor().Fields().Len() {
		fd := m.Descriptor().Fields().Get(i)
		switch {
		case random.IntN(4) == 0 || depth > 4:
		case fd.IsMap():
			key := protoreflect.ValueOfString("key").MapKey()
			m.Mutable(fd).Map().Set(key, value(random, m, fd.MapValue(), depth))
		case fd.IsList():
			for range pick(random, 1, 0, 2) {
				m.Mutable(fd).List().Append(element(random, m, fd, depth))
			}
		default:
			m.Set(fd, value(random, m, fd, depth))
		}
	}
}

func element(random *rand.Rand, m protoreflect.Message, fd protoreflect.FieldDescriptor, depth int) protoreflect.Value {
	if fd.Message() == nil {
		return value(random, m, fd, depth)
	}
	e := m.NewField(fd).List().NewElement()
	fill(random, e.Message(), depth+1)
	return e
}

func value(random *rand.Rand, m protoreflect.Message, fd protoreflect.FieldDescriptor, depth int) protoreflect.Value {
	switch fd.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(pick(random, "é", "", strings.Repeat("é", 33), strings.Repeat("é", 129), strings.Repeat("x", 1025), strings.Repeat("x", 65536)))
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(pick(random, protoreflect.EnumNumber(1), 99))
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(pick(random, 0.5, 0, 1, -1, 2, float32(math.NaN()), float32(math.Inf(1))))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(pick(random, 0.5, 0, -1, math.NaN(), math.Inf(-1)))
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(pick(random, int32(1), 0, -1))
	case protoreflect.Int64Kind, protoreflect.Sint64Kind:
		return protoreflect.ValueOfInt64(pick(random, int64(-1), 0, 1))
	case protoreflect.MessageKind:
		v := m.NewField(fd)
		fill(random, v.Message(), depth+1)
		return v
	default:
		return fd.Default()
	}
}

// pick returns the first value mostly, and otherwise any.
func pick[T any](random *rand.Rand, values ...T) T {
	if random.IntN(10) > 0 {
		return values[0]
	}
	return values[random.IntN(len(values))]
}

// A rule without a check here is refused, so that a request that breaks it cannot pass.
func TestUnknownRulesAreRefused(t *testing.T) {
	text := descriptorpb.FieldDescriptorProto_TYPE_STRING.Enum()
	for name, rules := range map[string]*validate.FieldRules{
		"string.pattern": {Type: &validate.FieldRules_String_{String_: &validate.StringRules{Pattern: proto.String("a")}}},
		"bytes":          {Type: &validate.FieldRules_Bytes{Bytes: &validate.BytesRules{MinLen: proto.Uint64(1)}}},
		"cel":            {Cel: []*validate.Rule{{Id: proto.String("x"), Expression: proto.String("true")}}},
		"repeated.unique of items": {Type: &validate.FieldRules_Repeated{Repeated: &validate.RepeatedRules{Items: &validate.FieldRules{
			Type: &validate.FieldRules_Repeated{Repeated: &validate.RepeatedRules{Unique: proto.Bool(true)}},
		}}}},
	} {
		options := &descriptorpb.FieldOptions{}
		proto.SetExtension(options, validate.E_Field, rules)
		file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
			Name: proto.String("x.proto"), Syntax: proto.String("proto3"),
			MessageType: []*descriptorpb.DescriptorProto{{Name: proto.String("M"), Field: []*descriptorpb.FieldDescriptorProto{{
				Name: proto.String("f"), Number: proto.Int32(1), Type: text, Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(), Options: options,
			}}}},
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fieldrules.Compile([]protoreflect.MessageDescriptor{file.Messages().Get(0)}); !errors.Is(err, fieldrules.ErrRule) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
