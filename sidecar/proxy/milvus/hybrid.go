package milvus

import (
	"slices"
	"strconv"

	"github.com/milvus-io/milvus-proto/go-api/v2/commonpb"
	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"google.golang.org/protobuf/proto"

	"github.com/likenessdb/likeness/sidecar/proxy/routing"
)

// alone makes a hybrid search of one list a search: whatever fuses one list keeps
// its order. One of several is in the order of a fusion, which no similarity is.
func alone(h *milvuspb.HybridSearchRequest) (*milvuspb.SearchRequest, error) {
	switch {
	case len(h.GetRequests()) != 1:
		return nil, routing.Pass("hybrid")
	case h.GetFunctionScore() != nil:
		return nil, routing.Pass("function-score")
	case h.Namespace != nil || h.GetTravelTimestamp() != 0:
		return nil, routing.Pass("namespace")
	}
	m := proto.Clone(h.GetRequests()[0]).(*milvuspb.SearchRequest)
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
	if wanted, err := length(rank); err != nil || wanted > list {
		return nil, routing.Pass("hybrid") // the list ends before the answer does
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
			return nil, routing.Pass("hybrid")
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
