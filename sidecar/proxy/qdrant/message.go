package qdrant

import (
	"context"
	"slices"

	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/protobuf/proto"

	adapter "github.com/likenessdb/likeness/adapters/qdrant"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/proxy/routing"
)

// searchesOf returns the searches of a request, or the Pass with the reason why it is not answered.
func searchesOf(m proto.Message) ([]routing.Search, error) {
	switch m := m.(type) {
	case *qdrant.SearchPoints:
		s, err := searchOf(m)
		return []routing.Search{s}, err
	case *qdrant.QueryPoints:
		s, err := queryOf(m)
		return []routing.Search{s}, err
	case *qdrant.SearchBatchPoints:
		return each(m.GetSearchPoints(), m, searchOf)
	case *qdrant.QueryBatchPoints:
		return each(m.GetQueryPoints(), m, queryOf)
	}
	return nil, routing.Pass("method")
}

// queriesOf returns the queries of a request of the query interface.
func queriesOf(m proto.Message) []*qdrant.QueryPoints {
	switch m := m.(type) {
	case *qdrant.QueryPoints:
		return []*qdrant.QueryPoints{m}
	case *qdrant.QueryBatchPoints:
		return m.GetQueryPoints()
	}
	return nil
}

// batch is a request for several searches, with the fields that apply to all of them.
type batch interface {
	GetCollectionName() string
	GetReadConsistency() *qdrant.ReadConsistency
}

func each[M interface{ GetCollectionName() string }](all []M, of batch, read func(M) (routing.Search, error)) ([]routing.Search, error) {
	if len(all) > routing.MaxBatch {
		return nil, routing.Pass("batch")
	}
	out := make([]routing.Search, len(all))
	for i, m := range all {
		if name := m.GetCollectionName(); name != "" && name != of.GetCollectionName() {
			return nil, routing.Pass("collection")
		}
		var err error
		if out[i], err = read(m); err != nil {
			return nil, err
		}
		if of.GetReadConsistency() != nil {
			out[i].NeedConsistency()
		}
	}
	return out, nil
}

// common has the getters that search requests and query requests share.
type common interface {
	GetFilter() *qdrant.Filter
	GetParams() *qdrant.SearchParams
	GetOffset() uint64
	GetReadConsistency() *qdrant.ReadConsistency
	GetShardKeySelector() *qdrant.ShardKeySelector
	GetWithPayload() *qdrant.WithPayloadSelector
	GetWithVectors() *qdrant.WithVectorsSelector
}

func commonOf(m common, threshold *float32) (s routing.Search, err error) {
	if m.GetShardKeySelector() != nil {
		return s, routing.Pass("shard-key")
	}
	s.Threshold, s.IDsOnly = threshold, wantsIDsOnly(m.GetWithPayload(), m.GetWithVectors())
	if m.GetReadConsistency() != nil {
		s.NeedConsistency()
	}
	if m.GetParams().GetIndexedOnly() {
		s.Needs = append(s.Needs, "indexed-only")
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
	field, vector := nearestOf(m)
	vectors := vectorsOf(m)
	switch {
	case vector == nil && len(m.GetPrefetch()) > 0: // a query by several vectors has no vector either
		return routing.Search{}, routing.Pass(passesPrefetch)
	case vector == nil && vectors.Rows == 0:
		return routing.Search{}, routing.Pass("not-nearest")
	case m.GetLookupFrom() != nil:
		return routing.Search{}, routing.Pass("lookup")
	}
	s, err := commonOf(m, m.ScoreThreshold)
	s.Vector, s.Query, s.Vectors, s.Limit = field, vector, vectors, 10
	if m.Limit != nil {
		s.Limit = m.GetLimit()
	}
	if len(m.GetPrefetch()) > 0 {
		s.Needs = append(s.Needs, passesPrefetch)
	}
	return s, err
}

// nearestOf returns the dense vector that a query searches by, and its field. For a fusion
// it returns the vector of the prefetches, if all prefetches with a dense vector have the
// same one. It returns nil for other queries.
func nearestOf(m *qdrant.QueryPoints) (field string, vector []float32) {
	switch q := m.GetQuery().GetVariant().(type) {
	case *qdrant.Query_Nearest:
		return m.GetUsing(), q.Nearest.GetDense().GetData()
	case *qdrant.Query_Fusion, *qdrant.Query_Rrf:
		for _, p := range m.GetPrefetch() {
			dense := p.GetQuery().GetNearest().GetDense().GetData()
			switch {
			case dense == nil:
			case vector != nil && (field != p.GetUsing() || !slices.Equal(vector, dense)):
				return "", nil
			default:
				field, vector = p.GetUsing(), dense
			}
		}
	}
	return field, vector
}

// vectorsOf returns the vectors of a query that searches by several of one length, or no rows.
func vectorsOf(m *qdrant.QueryPoints) (out rerank.Matrix) {
	all := m.GetQuery().GetNearest().GetMultiDense().GetVectors()
	for _, v := range all {
		if !appendVector(&out, v.GetData()) {
			return rerank.Matrix{}
		}
	}
	return out
}

// appendVector appends a row. It returns false if the row has another length than those before, or is one
// too many for a query.
func appendVector(m *rerank.Matrix, v []float32) bool {
	if m.Rows == 0 {
		m.Cols = len(v)
	}
	if len(v) == 0 || len(v) != m.Cols || m.Rows == rerank.MaxQueryVectors {
		return false
	}
	m.Rows, m.Data = m.Rows+1, append(m.Data, v...)
	return true
}

// idsOnly returns a copy of a query with prefetches that asks only for the ids of the best rows. The request is the query
// itself or the batch around it, whose read consistency holds for all its queries.
func idsOnly(m *qdrant.QueryPoints, request proto.Message, collection string, rows int) *qdrant.QueryPoints {
	m = proto.Clone(m).(*qdrant.QueryPoints)
	m.CollectionName = collection // in a batch it may be omitted
	if of, ok := request.(batch); ok && of.GetReadConsistency() != nil {
		m.ReadConsistency = of.GetReadConsistency()
	}
	m.Limit, m.Offset, m.ScoreThreshold = qdrant.PtrOf(uint64(rows)), nil, nil
	m.WithPayload, m.WithVectors = qdrant.NewWithPayload(false), qdrant.NewWithVectors(false)
	return m
}

// narrow restricts a request to the hits, in the collection in which they were found. The request
// keeps its payload and vector selectors, filter and caller, so that the database returns what this
// caller may see.
func narrow(m proto.Message, collection string, all []routing.Ranked) {
	switch m := m.(type) {
	case *qdrant.SearchPoints:
		m.CollectionName = collection
		n := hitLimit(all[0])
		m.Filter, m.Limit, m.Offset, m.Params = filterByHits(m.GetFilter(), all[0]), n, nil, exactParams()
		if !all[0].StoreScores {
			m.ScoreThreshold = nil
		}
	case *qdrant.QueryPoints:
		m.CollectionName = collection
		n := hitLimit(all[0])
		m.Filter, m.Limit, m.Offset, m.Params = filterByHits(m.GetFilter(), all[0]), &n, nil, exactParams()
		if !all[0].StoreScores {
			m.ScoreThreshold = nil
		}
		if len(m.GetPrefetch()) > 0 { // the hits replace the candidates of its prefetches
			field, vector := nearestOf(m)
			m.Prefetch, m.Query, m.Using = nil, qdrant.NewQueryDense(vector), &field
			if field == "" {
				m.Using = nil
			}
		}
	case *qdrant.SearchBatchPoints:
		m.CollectionName = collection
		for i, s := range m.GetSearchPoints() {
			narrow(s, collection, all[i:i+1])
		}
	case *qdrant.QueryBatchPoints:
		m.CollectionName = collection
		for i, s := range m.GetQueryPoints() {
			narrow(s, collection, all[i:i+1])
		}
	}
}

// hitLimit returns the limit of a request for the hits, which must be at least 1.
func hitLimit(r routing.Ranked) uint64 { return uint64(max(1, len(r.Hits))) }

func exactParams() *qdrant.SearchParams { return &qdrant.SearchParams{Exact: qdrant.PtrOf(true)} }

func filterByHits(f *qdrant.Filter, r routing.Ranked) *qdrant.Filter {
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

// results returns the lists of points in an answer, which the caller may replace.
func results(m proto.Message) (lists []*[]*qdrant.ScoredPoint) {
	switch m := m.(type) {
	case *qdrant.SearchResponse:
		lists = append(lists, &m.Result)
	case *qdrant.QueryResponse:
		lists = append(lists, &m.Result)
	case *qdrant.SearchBatchResponse:
		for _, r := range m.GetResult() {
			lists = append(lists, &r.Result)
		}
	case *qdrant.QueryBatchResponse:
		for _, r := range m.GetResult() {
			lists = append(lists, &r.Result)
		}
	}
	return lists
}

func idOf(id *qdrant.PointId) rerank.ID {
	if u, ok := id.GetPointIdOptions().(*qdrant.PointId_Uuid); ok {
		return rerank.TextID(u.Uuid)
	}
	return rerank.UintID(id.GetNum())
}

// pointVector returns a point's dense vector of a field, or nil if the point came without it.
func pointVector(p *qdrant.ScoredPoint, field string) []float32 {
	v := p.GetVectors().GetVector()
	if field != "" {
		v = p.GetVectors().GetVectors().GetVectors()[field]
	}
	if dense := v.GetDense(); dense != nil {
		return dense.GetData()
	}
	return nil
}

// reorder returns the points of the requested page in the order of the hits, with the hits' scores
// unless the answer keeps the store's scores. It returns the errors of Ranked.Page.
func reorder(ctx context.Context, points []*qdrant.ScoredPoint, r *routing.Ranked) ([]*qdrant.ScoredPoint, error) {
	found := make(map[rerank.ID]*qdrant.ScoredPoint, len(points))
	for _, p := range points {
		found[idOf(p.GetId())] = p
	}
	page, err := r.Page(ctx, func(id rerank.ID) routing.Row {
		p := found[id]
		return routing.Row{IsThere: p != nil, Vector: pointVector(p, r.Vector)}
	})
	if err != nil {
		return nil, err
	}
	out := make([]*qdrant.ScoredPoint, len(page))
	for i, h := range page {
		out[i] = found[h.ID]
		if !r.StoreScores {
			out[i].Score = h.Score
		}
	}
	return out, nil
}
