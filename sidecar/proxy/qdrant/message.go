package qdrant

import (
	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	adapter "github.com/likenessdb/likeness/adapters/qdrant"
	"github.com/likenessdb/likeness/rerank"
)

// collection reads the name of the collection, field 1 of every request here,
// and decodes nothing else. The last one counts.
func collection(b []byte) (name string, ok bool) {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return "", false
		}
		b = b[n:]
		if number == 1 && kind == protowire.BytesType {
			v, n := protowire.ConsumeBytes(b)
			if n < 0 {
				return "", false
			}
			name, ok, b = string(v), true, b[n:]
			continue
		}
		if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
			return "", false
		}
		b = b[n:]
	}
	return name, ok
}

// hasUnknown reports whether a message holds a field that this build does not
// know, at any depth.
func hasUnknown(m protoreflect.Message) bool {
	if len(m.GetUnknown()) > 0 {
		return true
	}
	found := false
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap():
			if f.MapValue().Message() != nil {
				v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
					found = hasUnknown(v.Message())
					return !found
				})
			}
		case f.Message() == nil:
		case f.IsList():
			for i := 0; i < v.List().Len() && !found; i++ {
				found = hasUnknown(v.List().Get(i).Message())
			}
		default:
			found = hasUnknown(v.Message())
		}
		return !found
	})
	return found
}

// searchesOf reads the searches of a request, or why it passes.
func searchesOf(m proto.Message) ([]search, error) {
	switch m := m.(type) {
	case *qdrant.SearchPoints:
		s, err := searchOf(m)
		return []search{s}, err
	case *qdrant.QueryPoints:
		s, err := queryOf(m)
		return []search{s}, err
	case *qdrant.SearchBatchPoints:
		if m.GetReadConsistency() != nil {
			return nil, pass("consistency")
		}
		return each(m.GetSearchPoints(), m.GetCollectionName(), searchOf)
	case *qdrant.QueryBatchPoints:
		if m.GetReadConsistency() != nil {
			return nil, pass("consistency")
		}
		return each(m.GetQueryPoints(), m.GetCollectionName(), queryOf)
	}
	return nil, pass("method")
}

func each[M interface{ GetCollectionName() string }](all []M, collection string, read func(M) (search, error)) ([]search, error) {
	out := make([]search, len(all))
	for i, m := range all {
		if name := m.GetCollectionName(); name != "" && name != collection {
			return nil, pass("collection")
		}
		var err error
		if out[i], err = read(m); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// common are the parts that both kinds of request have.
type common interface {
	GetFilter() *qdrant.Filter
	GetParams() *qdrant.SearchParams
	GetOffset() uint64
	GetReadConsistency() *qdrant.ReadConsistency
	GetShardKeySelector() *qdrant.ShardKeySelector
}

func commonOf(m common, threshold *float32) (s search, err error) {
	switch {
	case threshold != nil:
		return s, pass("score-threshold")
	case m.GetReadConsistency() != nil:
		return s, pass("consistency")
	case m.GetShardKeySelector() != nil:
		return s, pass("shard-key")
	case m.GetParams().GetIndexedOnly():
		return s, pass("indexed-only")
	}
	s.offset, s.exact = m.GetOffset(), m.GetParams().GetExact()
	if s.filter, err = adapter.FilterText(m.GetFilter()); err != nil {
		return s, pass("filter")
	}
	return s, nil
}

func searchOf(m *qdrant.SearchPoints) (search, error) {
	if m.GetSparseIndices() != nil {
		return search{}, pass("not-nearest")
	}
	s, err := commonOf(m, m.ScoreThreshold)
	s.vector, s.query, s.limit = m.GetVectorName(), m.GetVector(), m.GetLimit()
	return s, err
}

func queryOf(m *qdrant.QueryPoints) (search, error) {
	nearest, ok := m.GetQuery().GetVariant().(*qdrant.Query_Nearest)
	switch {
	case len(m.GetPrefetch()) > 0:
		return search{}, pass("prefetch")
	case !ok || nearest.Nearest.GetDense() == nil:
		return search{}, pass("not-nearest")
	case m.GetLookupFrom() != nil:
		return search{}, pass("lookup")
	}
	s, err := commonOf(m, m.ScoreThreshold)
	s.vector, s.query, s.limit = m.GetUsing(), nearest.Nearest.GetDense().GetData(), 10
	if m.Limit != nil {
		s.limit = m.GetLimit()
	}
	return s, err
}

// narrow makes the request one for the hits alone: same payload, vectors, filter
// and caller, so that the database says what this caller may see of them.
func narrow(m proto.Message, all []ranked) {
	switch m := m.(type) {
	case *qdrant.SearchPoints:
		n := uint64(len(all[0].hits))
		m.Filter, m.Limit, m.Offset, m.Params = only(m.GetFilter(), all[0]), n, nil, exactly()
	case *qdrant.QueryPoints:
		n := uint64(len(all[0].hits))
		m.Filter, m.Limit, m.Offset, m.Params = only(m.GetFilter(), all[0]), &n, nil, exactly()
	case *qdrant.SearchBatchPoints:
		for i, s := range m.GetSearchPoints() {
			narrow(s, all[i:i+1])
		}
	case *qdrant.QueryBatchPoints:
		for i, s := range m.GetQueryPoints() {
			narrow(s, all[i:i+1])
		}
	}
}

func exactly() *qdrant.SearchParams { return &qdrant.SearchParams{Exact: qdrant.PtrOf(true)} }

func only(f *qdrant.Filter, r ranked) *qdrant.Filter {
	ids := make([]*qdrant.PointId, len(r.hits))
	for i, h := range r.hits {
		ids[i] = pointID(h.ID)
	}
	out := &qdrant.Filter{Must: []*qdrant.Condition{qdrant.NewHasID(ids...)}}
	if f != nil {
		out.Must = append(out.Must, qdrant.NewFilterAsCondition(f))
	}
	return out
}

func pointID(id rerank.ID) *qdrant.PointId {
	if n, ok := id.Uint64(); ok {
		return qdrant.NewIDNum(n)
	}
	text, _ := id.Text()
	return qdrant.NewIDUUID(text)
}

// results are the lists of points in an answer; set puts others in their place.
func results(m proto.Message) (lists [][]*qdrant.ScoredPoint) {
	switch m := m.(type) {
	case *qdrant.SearchResponse:
		lists = append(lists, m.GetResult())
	case *qdrant.QueryResponse:
		lists = append(lists, m.GetResult())
	case *qdrant.SearchBatchResponse:
		for _, r := range m.GetResult() {
			lists = append(lists, r.GetResult())
		}
	case *qdrant.QueryBatchResponse:
		for _, r := range m.GetResult() {
			lists = append(lists, r.GetResult())
		}
	}
	return lists
}

// reorder gives the confirmed points the order and the scores of the hits, in
// place. It reports whether every hit was confirmed.
func reorder(points []*qdrant.ScoredPoint, r ranked) bool {
	if len(points) != len(r.hits) {
		return false
	}
	found := make(map[rerank.ID]*qdrant.ScoredPoint, len(points))
	for _, p := range points {
		id := rerank.UintID(p.GetId().GetNum())
		if u, ok := p.GetId().GetPointIdOptions().(*qdrant.PointId_Uuid); ok {
			id = rerank.TextID(u.Uuid)
		}
		found[id] = p
	}
	for i, h := range r.hits {
		p := found[h.ID]
		if p == nil {
			return false
		}
		p.Score = h.Score
		points[i] = p
	}
	return true
}
