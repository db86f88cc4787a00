package qdrant

import (
	"slices"

	"github.com/google/uuid"
	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	adapter "github.com/likenessdb/likeness/adapters/qdrant"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/journal"
	"github.com/likenessdb/likeness/sidecar/proxy/routing"
)

// touched gathers the rows that a request names.
type touched struct {
	kind    journal.Kind
	ids     []rerank.ID
	filters []string
	all     bool
}

// rows are what was gathered. Ids and a filter, or two filters, are any row.
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

// also notes an operation of a batch; different kinds are an upsert.
func (t *touched) also(kind journal.Kind) {
	if t.kind == "" {
		t.kind = kind
	}
	if t.kind != kind {
		t.kind = journal.Upsert
	}
}

// uuid notes a text id as Qdrant writes it; what is none may be anything.
func (t *touched) uuid(text string) {
	u, err := uuid.Parse(text)
	if err != nil || len(text) == 38 { // in braces: not Qdrant's
		t.all = true
		return
	}
	t.ids = append(t.ids, rerank.TextID(u.String()))
}

func (t *touched) id(p *qdrant.PointId) {
	switch v := p.GetPointIdOptions().(type) {
	case *qdrant.PointId_Num:
		t.ids = append(t.ids, rerank.UintID(v.Num))
	case *qdrant.PointId_Uuid:
		t.uuid(v.Uuid)
	default:
		t.all = true
	}
}

func (t *touched) selector(s *qdrant.PointsSelector) {
	switch v := s.GetPointsSelectorOneOf().(type) {
	case *qdrant.PointsSelector_Points:
		for _, id := range v.Points.GetIds() {
			t.id(id)
		}
	case *qdrant.PointsSelector_Filter:
		text, err := adapter.FilterText(v.Filter)
		if err != nil || text == "" {
			t.all = true
			return
		}
		t.filters = append(t.filters, text)
	default:
		t.all = true
	}
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
				return false // it may say anything
			}
			return number != field || t.point(value)
		}) || t.all
	}
}

// point reads the id of a PointStruct or PointVectors, which is field 1 of both.
func (t *touched) point(b []byte) bool {
	before := len(t.ids)
	return routing.Fields(b, func(number protowire.Number, value []byte) bool {
		if number != 1 {
			return true
		}
		id := &qdrant.PointId{}
		if proto.Unmarshal(value, id) != nil {
			return false
		}
		t.id(id)
		return true
	}) && len(t.ids) > before
}

// selects is a request with a selector of points.
type selects interface{ GetPointsSelector() *qdrant.PointsSelector }

// selected is one that calls it points.
type selected interface{ GetPoints() *qdrant.PointsSelector }

func readSelector[M any, P message[M]](b []byte, t *touched) {
	m := P(new(M))
	if proto.Unmarshal(b, m) != nil || routing.HasUnknown(m.ProtoReflect()) {
		t.all = true
		return
	}
	t.operation(m)
}

// operation reads the selector of a request, or of an operation in a batch.
func (t *touched) operation(m any) {
	switch m := m.(type) {
	case selects:
		t.selector(m.GetPointsSelector())
	case selected:
		t.selector(m.GetPoints())
	default:
		t.all = true
	}
}

func readAll(_ []byte, t *touched) { t.all = true }

// The fields of an operation in a batch, and of a batch, that are read without
// decoding them.
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
	}) || t.all
	if t.kind == "" {
		t.kind = journal.Upsert
	}
}

// batched reads one operation.
func (t *touched) batched(number protowire.Number, value []byte) bool {
	switch number { //nolint:exhaustive // the others are read below
	case upsertField:
		t.also(journal.Upsert)
		readPoints[qdrant.PointsUpdateOperation_PointStructList](1)(value, t)
		return true
	case updateVectorsField:
		t.also(journal.Vectors)
		readPoints[qdrant.PointsUpdateOperation_UpdateVectors](1)(value, t)
		return true
	}
	o := &qdrant.PointsUpdateOperation{}
	raw := protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), value)
	if proto.Unmarshal(raw, o) != nil || routing.HasUnknown(o.ProtoReflect()) {
		return false
	}
	switch v := o.GetOperation().(type) {
	case *qdrant.PointsUpdateOperation_DeletePoints_:
		t.also(journal.Delete)
		t.operation(v.DeletePoints)
	case *qdrant.PointsUpdateOperation_DeleteDeprecated:
		t.also(journal.Delete)
		t.selector(v.DeleteDeprecated) //nolint:staticcheck // older clients send it
	case *qdrant.PointsUpdateOperation_DeleteVectors_:
		t.also(journal.Vectors)
		t.operation(v.DeleteVectors)
	case *qdrant.PointsUpdateOperation_SetPayload_:
		t.also(journal.Payload)
		t.operation(v.SetPayload)
	case *qdrant.PointsUpdateOperation_OverwritePayload_:
		t.also(journal.Payload)
		t.operation(v.OverwritePayload)
	case *qdrant.PointsUpdateOperation_DeletePayload_:
		t.also(journal.Payload)
		t.operation(v.DeletePayload)
	case *qdrant.PointsUpdateOperation_ClearPayload_:
		t.also(journal.Payload)
		t.operation(v.ClearPayload)
	case *qdrant.PointsUpdateOperation_ClearPayloadDeprecated:
		t.also(journal.Payload)
		t.selector(v.ClearPayloadDeprecated) //nolint:staticcheck // as above
	default:
		return false
	}
	return true
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
