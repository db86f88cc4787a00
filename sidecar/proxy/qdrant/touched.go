package qdrant

import (
	"slices"

	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	adapter "github.com/likenessdb/likeness/adapters/qdrant"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/follow/journal"
	"github.com/likenessdb/likeness/sidecar/proxy/routing"
)

// touched gathers the rows that a request names.
type touched struct {
	kind    journal.Kind
	ids     []rerank.ID
	filters []string
	all     bool
}

// rows returns the rows that the operations change. If there are several filters, or a filter and
// ids, that is any row.
func (t *touched) rows(waited bool) routing.Rows {
	rows := routing.Rows{Kind: t.kind, Waited: waited}
	switch {
	case t.all || len(t.filters) > 1 || len(t.filters) == 1 && len(t.ids) > 0:
		rows.All = true
	case len(t.filters) == 1:
		rows.Filter = t.filters[0]
	default:
		seen := make(map[rerank.ID]bool, len(t.ids))
		rows.IDs = slices.DeleteFunc(t.ids, func(id rerank.ID) bool {
			again := seen[id]
			seen[id] = true
			return again
		})
	}
	return rows
}

// also adds the kind of an operation of a batch. Operations of different kinds count as an
// upsert.
func (t *touched) also(kind journal.Kind) {
	if t.kind == "" {
		t.kind = kind
	}
	if t.kind != kind {
		t.kind = journal.Upsert
	}
}

// uuid adds a text id in Qdrant's canonical form. After a text that is no UUID any row counts as
// changed.
func (t *touched) uuid(text string) {
	canonical, ok := rerank.CanonicalUUID(text)
	if !ok {
		t.all = true
		return
	}
	t.ids = append(t.ids, rerank.TextID(canonical))
}

// message is a protobuf message of the type M.
type message[M any] interface {
	*M
	proto.Message
}

// readPoints reads the ids of points in a field, and not their vectors, which are
// most of a request.
func readPoints[M any, P message[M]](field protowire.Number) func(b []byte, t *touched) {
	known := P(new(M)).ProtoReflect().Descriptor().Fields()
	return func(b []byte, t *touched) {
		t.all = !routing.Fields(b, func(number protowire.Number, value []byte) bool {
			if known.ByNumber(number) == nil {
				return false // its content is unknown
			}
			return number != field || t.point(value)
		}) || t.all
	}
}

// point reads the id of a PointStruct or PointVectors, which is field 1 of both.
func (t *touched) point(b []byte) bool {
	before := len(t.ids)
	return routing.Fields(b, func(number protowire.Number, value []byte) bool {
		return number != 1 || t.pointID(value)
	}) && len(t.ids) > before
}

// The fields of a PointId, which is a oneof.
const (
	numberField = 1
	uuidField   = 2
)

// pointID reads a PointId without decoding it, since a decoded id takes many times its length. It
// returns false for an id that it cannot read, and after maxTouchedIDs ids.
func (t *touched) pointID(b []byte) bool {
	var number uint64
	var text []byte
	kindOf := protowire.Number(0)
	for len(b) > 0 {
		field, wire, n := protowire.ConsumeTag(b)
		if n < 0 {
			return false
		}
		b = b[n:]
		switch {
		case field == numberField && wire == protowire.VarintType:
			number, n = protowire.ConsumeVarint(b)
		case field == uuidField && wire == protowire.BytesType:
			text, n = protowire.ConsumeBytes(b)
		default:
			return false
		}
		if n < 0 {
			return false
		}
		kindOf, b = field, b[n:]
	}
	switch {
	case kindOf == 0 || len(t.ids) >= maxTouchedIDs:
		return false
	case kindOf == uuidField:
		t.uuid(string(text))
	default:
		t.ids = append(t.ids, rerank.UintID(number))
	}
	return true
}

// The fields of a PointsSelector and of its list of ids.
const (
	selectorIDsField    = 1
	selectorFilterField = 2
	idsField            = 1
)

// selector reads a PointsSelector id by id, since a decoded selector takes many times its length.
// It returns false if the selector may select any row.
func (t *touched) selector(b []byte) bool {
	selects := false
	return routing.Fields(b, func(number protowire.Number, value []byte) bool {
		selects = true
		switch {
		case value == nil: // the field is not a message
			return false
		case number == selectorIDsField:
			return routing.Fields(value, func(number protowire.Number, value []byte) bool {
				return number == idsField && value != nil && t.pointID(value)
			})
		case number == selectorFilterField:
			return t.filter(value)
		}
		return false
	}) && selects
}

// filter reads the filter of a selector.
func (t *touched) filter(b []byte) bool {
	f := &qdrant.Filter{}
	if len(t.filters) > 1 || routing.Decode(b, f) != nil { // two filters count as any row
		return false
	}
	text, err := adapter.FilterText(f)
	if err != nil || text == "" {
		return false
	}
	t.filters = append(t.filters, text)
	return true
}

// readSelector reads the selector of a request of the type M.
func readSelector[M any, P message[M]](b []byte, t *touched) {
	t.all = !t.selectorOf(b, P(new(M)).ProtoReflect().Descriptor()) || t.all
}

// selectorOf reads the PointsSelector in an encoded message of type d, which may be PointsSelector
// itself. It returns false if the message has none, or has a field that this build does not know.
func (t *touched) selectorOf(b []byte, d protoreflect.MessageDescriptor) bool {
	selectorType := (*qdrant.PointsSelector)(nil).ProtoReflect().Descriptor().FullName()
	if d.FullName() == selectorType {
		return t.selector(b)
	}
	selects := false
	return routing.Fields(b, func(number protowire.Number, value []byte) bool {
		field := d.Fields().ByNumber(number)
		if field == nil {
			return false
		}
		if field.Message() == nil || field.Message().FullName() != selectorType {
			return true
		}
		selects = true
		return value != nil && t.selector(value)
	}) && selects
}

func readAll(_ []byte, t *touched) { t.all = true }

// The fields of a batch and of its operations that are read without decoding.
const (
	operationsField    = 3
	upsertField        = 1
	updateVectorsField = 7
)

func readBatch(b []byte, t *touched) {
	t.kind = ""
	known := (&qdrant.UpdateBatchPoints{}).ProtoReflect().Descriptor().Fields()
	t.all = !routing.Fields(b, func(number protowire.Number, value []byte) bool {
		if known.ByNumber(number) == nil {
			return false
		}
		return number != operationsField || routing.Fields(value, func(number protowire.Number, value []byte) bool {
			return t.batched(number, value)
		})
	})
	if t.kind == "" || t.all { // the unread operations may be of any kind
		t.kind = journal.Upsert
	}
}

// batched reads one operation. It returns false if the operation may change any row.
func (t *touched) batched(number protowire.Number, value []byte) bool {
	switch number { //nolint:exhaustive // the others are read below
	case upsertField:
		t.also(journal.Upsert)
		readPoints[qdrant.PointsUpdateOperation_PointStructList](1)(value, t)
		return !t.all
	case updateVectorsField:
		t.also(journal.Vectors)
		readPoints[qdrant.PointsUpdateOperation_UpdateVectors](1)(value, t)
		return !t.all
	}
	operation := (*qdrant.PointsUpdateOperation)(nil).ProtoReflect().Descriptor().Fields().ByNumber(number)
	if operation == nil {
		return false
	}
	switch operation.Name() {
	case "delete_points", "delete_deprecated":
		t.also(journal.Delete)
	case "delete_vectors":
		t.also(journal.Vectors)
	case "set_payload", "overwrite_payload", "delete_payload", "clear_payload", "clear_payload_deprecated":
		t.also(journal.Payload)
	default:
		return false
	}
	return t.selectorOf(value, operation.Message())
}

// waits reports whether the database answers once a write is applied.
func waits(b []byte) (waited bool) {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return false
		}
		if v, _ := protowire.ConsumeVarint(b[n:]); number == waitField && kind == protowire.VarintType {
			waited = v != 0
		}
		size := protowire.ConsumeFieldValue(number, kind, b[n:])
		if size < 0 {
			return false
		}
		b = b[n+size:]
	}
	return waited
}
