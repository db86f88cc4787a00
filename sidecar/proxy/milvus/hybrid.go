package milvus

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/milvus-io/milvus-proto/go-api/v2/commonpb"
	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"google.golang.org/protobuf/proto"

	"github.com/likenessdb/likeness/sidecar/proxy/routing"
)

// passesHybrid is the reason why a hybrid search of several lists passes, unless the route rescores
// the rows of such searches.
const passesHybrid = "hybrid"

// fused returns the list of a hybrid search whose field has a route, as one search. A fusion of one
// list keeps its order. With several lists, the database must first find their rows by their own
// filters.
func fused(h *milvuspb.HybridSearchRequest, routed func(field string) bool) (m *milvuspb.SearchRequest, several bool, err error) {
	several = len(h.GetRequests()) > 1
	for _, list := range h.GetRequests() {
		if several && !routed(anns(list)) {
			continue
		}
		if m != nil && (anns(m) != anns(list) || !bytes.Equal(m.GetPlaceholderGroup(), list.GetPlaceholderGroup())) {
			return nil, false, routing.Pass(passesHybrid) // the routed lists have different vectors
		}
		m = list
	}
	switch {
	case m == nil || several && m.GetNq() != 1:
		return nil, false, routing.Pass(passesHybrid)
	case h.GetFunctionScore() != nil:
		return nil, false, routing.Pass("function-score")
	case h.Namespace != nil || h.GetTravelTimestamp() != 0:
		return nil, false, routing.Pass("namespace")
	}
	m = proto.Clone(m).(*milvuspb.SearchRequest)
	if several {
		m.Dsl, m.ExprTemplateValues = "", nil
	}
	m, err = singleSearch(h, m, several)
	return m, several, err
}

// anns returns the field that a search names.
func anns(m *milvuspb.SearchRequest) string {
	for _, p := range m.GetSearchParams() {
		if p.GetKey() == "anns_field" {
			return p.GetValue()
		}
	}
	return ""
}

// singleSearch returns one list of a hybrid search as a search of its own, with the page of
// the whole hybrid search.
func singleSearch(h *milvuspb.HybridSearchRequest, m *milvuspb.SearchRequest, several bool) (*milvuspb.SearchRequest, error) {
	m.Base, m.DbName, m.CollectionName = h.GetBase(), h.GetDbName(), h.GetCollectionName()
	m.PartitionNames, m.OutputFields = h.GetPartitionNames(), h.GetOutputFields()
	m.GuaranteeTimestamp, m.NotReturnAllMeta = h.GetGuaranteeTimestamp(), h.GetNotReturnAllMeta()
	m.ConsistencyLevel, m.UseDefaultConsistency = h.GetConsistencyLevel(), h.GetUseDefaultConsistency()
	rank, err := ranked(h.GetRankParams())
	if err != nil {
		return nil, err
	}
	list, err := length(m.GetSearchParams())
	if err != nil {
		return nil, err
	}
	if wanted, err := length(rank); err != nil || wanted > list && !several {
		return nil, routing.Pass(passesHybrid) // the list is shorter than the answer
	}
	// The fusion, not the list, sets the length and offset of the answer.
	m.SearchParams = append(slices.DeleteFunc(m.GetSearchParams(), isPage), rank...)
	return m, nil
}

// ranked removes the parameters of the fusion method.
func ranked(params []*commonpb.KeyValuePair) (left []*commonpb.KeyValuePair, err error) {
	for _, p := range params {
		switch p.GetKey() {
		case "strategy", "params": // of RRF and of weights
		case "norm_score":
			return nil, routing.Pass(passesHybrid)
		case "limit": // the name of this parameter in a search is topk
			left = append(left, &commonpb.KeyValuePair{Key: "topk", Value: p.GetValue()})
		default:
			left = append(left, p)
		}
	}
	return left, nil
}

func isPage(p *commonpb.KeyValuePair) bool {
	return slices.Contains([]string{"topk", "limit", "offset"}, p.GetKey())
}

// length returns the number of rows that the parameters ask for, plus the offset.
func length(params []*commonpb.KeyValuePair) (rows uint64, err error) {
	for _, p := range params {
		if !isPage(p) {
			continue
		}
		n, err := strconv.ParseUint(p.GetValue(), 10, 32)
		if err != nil {
			return 0, routing.Pass("search-params")
		}
		rows += n
	}
	return rows, nil
}

// idsOnly returns a copy of a hybrid search that asks only for the ids of the best rows.
func idsOnly(h *milvuspb.HybridSearchRequest, rows int) *milvuspb.HybridSearchRequest {
	h = proto.Clone(h).(*milvuspb.HybridSearchRequest)
	h.OutputFields = nil
	h.RankParams = append(slices.DeleteFunc(h.GetRankParams(), isPage), &commonpb.KeyValuePair{Key: "limit", Value: strconv.Itoa(rows)})
	return h
}
