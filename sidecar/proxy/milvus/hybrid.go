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

// passesHybrid is why a hybrid search of several lists passes, unless the route
// takes what they find.
const passesHybrid = "hybrid"

// fused makes a hybrid search the search of its list on a routed field, to whose
// vector the similarity's order is near. Whatever fuses one list keeps its order; of
// several, the database has to be asked what they find, by their own filters.
func fused(h *milvuspb.HybridSearchRequest, routed func(field string) bool) (m *milvuspb.SearchRequest, several bool, err error) {
	several = len(h.GetRequests()) > 1
	for _, list := range h.GetRequests() {
		if several && !routed(anns(list)) {
			continue
		}
		if m != nil && (anns(m) != anns(list) || !bytes.Equal(m.GetPlaceholderGroup(), list.GetPlaceholderGroup())) {
			return nil, false, routing.Pass(passesHybrid) // near to which?
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

// anns is the field of a search.
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
		return nil, routing.Pass(passesHybrid) // the list ends before the answer does
	}
	// The answer's length and offset are the fusion's, the list's own is read.
	m.SearchParams = append(slices.DeleteFunc(m.GetSearchParams(), isPage), rank...)
	return m, nil
}

// ranked leaves out of a fusion's parameters what says how lists are fused.
func ranked(params []*commonpb.KeyValuePair) (left []*commonpb.KeyValuePair, err error) {
	for _, p := range params {
		switch p.GetKey() {
		case "strategy", "params": // RRF and weights
		case "norm_score":
			return nil, routing.Pass(passesHybrid)
		case "limit": // as a search names it
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

// length is the number of rows that parameters ask for, an offset among them.
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

// idsOnly returns a copy of a hybrid search that asks for the ids of the best rows alone.
func idsOnly(h *milvuspb.HybridSearchRequest, rows int) *milvuspb.HybridSearchRequest {
	h = proto.Clone(h).(*milvuspb.HybridSearchRequest)
	h.OutputFields = nil
	h.RankParams = append(slices.DeleteFunc(h.GetRankParams(), isPage), &commonpb.KeyValuePair{Key: "limit", Value: strconv.Itoa(rows)})
	return h
}
