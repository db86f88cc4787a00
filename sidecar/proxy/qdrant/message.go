package qdrant

import (
	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/protobuf/proto"

	adapter "github.com/likenessdb/likeness/adapters/qdrant"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/proxy/routing"
)

// searchesOf reads the searches of a request, or why it passes.
func searchesOf(m proto.Message) ([]routing.Search, error) {
	switch m := m.(type) {
	case *qdrant.SearchPoints:
		s, err := searchOf(m)
		return []routing.Search{s}, err
	case *qdrant.QueryPoints:
		s, err := queryOf(m)
		return []routing.Search{s}, err
	case *qdrant.SearchBatchPoints:
		if m.GetReadConsistency() != nil {
			return nil, routing.Pass("consistency")
		}
		return each(m.GetSearchPoints(), m.GetCollectionName(), searchOf)
	case *qdrant.QueryBatchPoints:
		if m.GetReadConsistency() != nil {
			return nil, routing.Pass("consistency")
		}
		return each(m.GetQueryPoints(), m.GetCollectionName(), queryOf)
	}
	return nil, routing.Pass("method")
}

func each[M interface{ GetCollectionName() string }](all []M, collection string, read func(M) (routing.Search, error)) ([]routing.Search, error) {
	out := make([]routing.Search, len(all))
	for i, m := range all {
		if name := m.GetCollectionName(); name != "" && name != collection {
			return nil, routing.Pass("collection")
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

func commonOf(m common, threshold *float32) (s routing.Search, err error) {
	switch {
	case threshold != nil:
		return s, routing.Pass("score-threshold")
	case m.GetReadConsistency() != nil:
		return s, routing.Pass("consistency")
	case m.GetShardKeySelector() != nil:
		return s, routing.Pass("shard-key")
	case m.GetParams().GetIndexedOnly():
		return s, routing.Pass("indexed-only")
	}
	s.Offset, s.Exact = m.GetOffset(), m.GetParams().GetExact()
	if s.Filter, err = adapter.FilterText(m.GetFilter()); err != nil {
		return s, routing.Pass("filter")
	}
	return s, nil
}

func searchOf(m *qdrant.SearchPoints) (routing.Search, error) {
	if m.GetSparseIndices() != nil {
		return routing.Search{}, routing.Pass("not-nearest")
	}
	s, err := commonOf(m, m.ScoreThreshold)
	s.Vector, s.Query, s.Limit = m.GetVectorName(), m.GetVector(), m.GetLimit()
	return s, err
}

func queryOf(m *qdrant.QueryPoints) (routing.Search, error) {
	nearest, ok := m.GetQuery().GetVariant().(*qdrant.Query_Nearest)
	switch {
	case len(m.GetPrefetch()) > 0:
		return routing.Search{}, routing.Pass("prefetch")
	case !ok || nearest.Nearest.GetDense() == nil:
		return routing.Search{}, routing.Pass("not-nearest")
	case m.GetLookupFrom() != nil:
		return routing.Search{}, routing.Pass("lookup")
	}
	s, err := commonOf(m, m.ScoreThreshold)
	s.Vector, s.Query, s.Limit = m.GetUsing(), nearest.Nearest.GetDense().GetData(), 10
	if m.Limit != nil {
		s.Limit = m.GetLimit()
	}
	return s, err
}

// narrow makes the request one for the hits alone: same payload, vectors, filter
// and caller, so that the database says what this caller may see of them.
func narrow(m proto.Message, all []routing.Ranked) {
	switch m := m.(type) {
	case *qdrant.SearchPoints:
		n := uint64(len(all[0].Hits))
		m.Filter, m.Limit, m.Offset, m.Params = only(m.GetFilter(), all[0]), n, nil, exactly()
	case *qdrant.QueryPoints:
		n := uint64(len(all[0].Hits))
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

func only(f *qdrant.Filter, r routing.Ranked) *qdrant.Filter {
	ids := make([]*qdrant.PointId, len(r.Hits))
	for i, h := range r.Hits {
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
func reorder(points []*qdrant.ScoredPoint, r routing.Ranked) bool {
	if len(points) != len(r.Hits) {
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
	for i, h := range r.Hits {
		p := found[h.ID]
		if p == nil {
			return false
		}
		p.Score = h.Score
		points[i] = p
	}
	return true
}
