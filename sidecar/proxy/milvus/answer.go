package milvus

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"

	"github.com/milvus-io/milvus-proto/go-api/v2/commonpb"
	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"github.com/milvus-io/milvus-proto/go-api/v2/schemapb"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	adapter "github.com/likenessdb/likeness/adapters/milvus"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/proxy/rawgrpc"
	"github.com/likenessdb/likeness/sidecar/proxy/routing"
)

// errConfirm: the database did not show this caller every hit.
var errConfirm = routing.Degraded{Reason: "confirm"}

// confirm asks the database for the hits, as the caller and with the caller's
// filter and output fields, and makes the answer of that.
func (r *Router) confirm(ctx context.Context, upstream *rawgrpc.Upstream, m *milvuspb.SearchRequest, q query, of shape, all []routing.Ranked) (rawgrpc.Reply, error) {
	ids := distinct(all)
	request, err := narrow(m, q, of.primary, ids)
	if err != nil {
		return rawgrpc.Reply{}, errConfirm
	}
	message, header, trailer, err := upstream.Call(ctx, milvuspb.MilvusService_Search_FullMethodName, request)
	answer := &milvuspb.SearchResults{}
	if err != nil || proto.Unmarshal(message, answer) != nil || failed(answer.GetStatus()) {
		return rawgrpc.Reply{}, errConfirm
	}
	if !rebuild(answer.GetResults(), all, int64(q.limit)) {
		return rawgrpc.Reply{}, errConfirm
	}
	if message, err = proto.Marshal(answer); err != nil {
		return rawgrpc.Reply{}, errConfirm
	}
	return rawgrpc.Reply{Message: message, Header: header, Trailer: metadata.Join(trailer, metadata.Pairs(routing.StatusKey, r.Rescored(all)))}, nil
}

// distinct are the ids of the hits of all queries.
func distinct(all []routing.Ranked) []rerank.ID {
	seen := map[rerank.ID]bool{}
	var ids []rerank.ID
	for _, r := range all {
		for _, h := range r.Hits {
			if !seen[h.ID] {
				seen[h.ID] = true
				ids = append(ids, h.ID)
			}
		}
	}
	return ids
}

// narrow makes the request one for those ids alone, by its first vector: the
// scores do not matter.
func narrow(m *milvuspb.SearchRequest, q query, primary string, ids []rerank.ID) ([]byte, error) {
	among, err := adapter.Among(primary, ids)
	if err != nil {
		return nil, err
	}
	n := proto.Clone(m).(*milvuspb.SearchRequest)
	if n.Dsl = among; q.filter != "" {
		n.Dsl = "(" + q.filter + ") and (" + among + ")"
	}
	first := q.group.GetPlaceholders()[0]
	n.Nq = 1
	if n.PlaceholderGroup, err = proto.Marshal(&commonpb.PlaceholderGroup{Placeholders: []*commonpb.PlaceholderValue{{
		Tag: first.GetTag(), Type: first.GetType(), Values: first.GetValues()[:1],
	}}}); err != nil {
		return nil, err
	}
	for _, p := range n.GetSearchParams() {
		switch p.GetKey() {
		case "topk", "limit":
			p.Value = strconv.Itoa(len(ids))
		case "offset":
			p.Value = "0"
		case "params":
			p.Value = wide(p.GetValue(), len(ids))
		}
	}
	return proto.Marshal(n)
}

// wide makes the database's own search look at every row that the filter leaves:
// an index of lists finds only what lies in those it probes.
func wide(text string, rows int) string {
	params := map[string]any{}
	if text != "" && json.Unmarshal([]byte(text), &params) != nil {
		return text
	}
	for key, value := range map[string]int{"nprobe": 65536, "ef": max(rows, 64), "search_list": max(rows, 64), "reorder_k": rows} {
		if _, given := params[key]; given {
			params[key] = value
		}
	}
	b, err := json.Marshal(params)
	if err != nil {
		return text
	}
	return string(b)
}

// rebuild puts the rows of the one list of d in the order of every query's hits,
// with their scores. It reports whether every hit was there.
func rebuild(d *schemapb.SearchResultData, all []routing.Ranked, limit int64) bool {
	row := map[rerank.ID]int{}
	for i, id := range idsOf(d.GetIds()) {
		row[id] = i
	}
	var rows []int
	var scores []float32
	var lengths []int64
	for _, r := range all {
		for _, h := range r.Hits {
			at, ok := row[h.ID]
			if !ok {
				return false
			}
			rows, scores = append(rows, at), append(scores, h.Score)
		}
		lengths = append(lengths, int64(len(r.Hits)))
	}
	d.Ids = pickIDs(d.GetIds(), rows)
	for i, f := range d.GetFieldsData() {
		picked, ok := pickField(f, rows, len(row))
		if !ok {
			return false
		}
		d.FieldsData[i] = picked
	}
	d.NumQueries, d.TopK, d.Topks, d.Scores = int64(len(all)), limit, lengths, scores
	if len(d.GetDistances()) > 0 {
		d.Distances = slices.Clone(scores)
	}
	d.Recalls = nil
	return true
}

func idsOf(ids *schemapb.IDs) (out []rerank.ID) {
	for _, n := range ids.GetIntId().GetData() {
		out = append(out, rerank.IntID(n))
	}
	for _, s := range ids.GetStrId().GetData() {
		out = append(out, rerank.TextID(s))
	}
	return out
}

func pickIDs(ids *schemapb.IDs, rows []int) *schemapb.IDs {
	if texts := ids.GetStrId(); texts != nil {
		return &schemapb.IDs{IdField: &schemapb.IDs_StrId{StrId: &schemapb.StringArray{Data: pick(texts.GetData(), rows, 1)}}}
	}
	return &schemapb.IDs{IdField: &schemapb.IDs_IntId{IntId: &schemapb.LongArray{Data: pick(ids.GetIntId().GetData(), rows, 1)}}}
}
