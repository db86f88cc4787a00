package milvus

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"sync"

	"github.com/milvus-io/milvus-proto/go-api/v2/commonpb"
	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"github.com/milvus-io/milvus-proto/go-api/v2/schemapb"
	"google.golang.org/protobuf/proto"

	adapter "github.com/likenessdb/likeness/adapters/milvus"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/proxy/rawgrpc"
	"github.com/likenessdb/likeness/sidecar/proxy/routing"
)

// errConfirm: the database did not answer the request that confirms the hits. errFind: it did not
// answer the request for the candidates; its answer to the original call will say why.
var (
	errConfirm = routing.Degraded{Reason: "confirm"}
	errFind    = routing.Pass("refused")
)

// call is a client's call that is being answered.
type call struct {
	*Router
	upstream *rawgrpc.Upstream
	method   string
	target   routing.Target
	raw      []byte
	lists    []int // how many searches of each list of a hybrid search Locate found

	request *milvuspb.SearchRequest       // raw, read
	hybrid  *milvuspb.HybridSearchRequest // finds the candidates; nil if the route does
	query   query
	shape   shape
}

var _ routing.Exchange[rawgrpc.Reply] = (*call)(nil)

// Read implements routing.Exchange.
func (c *call) Read(ctx context.Context) (asked routing.Asked, err error) {
	if c.request, err = c.decode(); err != nil {
		return asked, err
	}
	if c.query, err = read(c.request); err != nil {
		return asked, err
	}
	if c.shape, err = c.Router.shape(ctx, c.upstream, c.target.Own, c.request); err != nil {
		return asked, err
	}
	if wantsStricterReads(c.request, c.shape.level) {
		c.query.needs = append(c.query.needs, "consistency")
	}
	if c.hybrid != nil {
		c.query.needs = append(c.query.needs, passesHybrid)
	}
	asked.Searches = c.query.searches(searchedField(c.query.field, c.shape))
	if c.hybrid != nil {
		asked.Searches[0].Find = c.find
	}
	return asked, nil
}

// find asks the database, as the caller, what a hybrid search finds.
func (c *call) find(ctx context.Context, rows int) ([]rerank.ID, error) {
	h := idsOnly(c.hybrid, rows)
	if c.target.Aliased() {
		h.CollectionName = c.target.Own
		for _, list := range h.GetRequests() {
			list.CollectionName = c.target.Own
		}
	}
	request, err := proto.Marshal(h)
	if err != nil {
		return nil, errFind
	}
	var r rawgrpc.Reply
	r.Message, _, _, r.Err = c.upstream.Call(ctx, c.method, request)
	lists, ok := c.IDs(r)
	if !ok || len(lists) != 1 {
		return nil, errFind
	}
	return lists[0], nil
}

// decode decodes the request. For a hybrid search it returns the one search that a route may
// answer.
func (c *call) decode() (*milvuspb.SearchRequest, error) {
	m, h := &milvuspb.SearchRequest{}, &milvuspb.HybridSearchRequest{}
	hybrid := c.method == milvuspb.MilvusService_HybridSearch_FullMethodName
	var whole proto.Message = m
	if hybrid {
		whole = h
	}
	if err := routing.Decode(c.raw, whole); err != nil {
		return nil, err
	}
	if !hybrid {
		return m, nil
	}
	m, several, err := fused(h, func(field string) bool {
		return c.Names.CoversField(c.target.Routed, field) || c.Names.CoversField(c.target.Routed, "") // a route without a field serves the collection's only one
	})
	if several {
		c.hybrid = h
	}
	return m, err
}

// Original implements routing.Exchange.
func (c *call) Original(ctx context.Context, _ bool) (r rawgrpc.Reply) {
	r.Message, r.Header, r.Trailer, r.Err = c.upstream.Call(ctx, c.method, c.raw)
	return r
}

// Access implements routing.Exchange.
func (c *call) Access(r rawgrpc.Reply) routing.Access {
	access := routing.AccessOf(r, denies)
	if s, err := readStatus(r.Message); access == routing.AccessGranted && (err != nil || failed(s)) {
		return routing.AccessUnknown
	}
	return access
}

// Confirm implements routing.Exchange.
func (c *call) Confirm(ctx context.Context, all []routing.Ranked) (r rawgrpc.Reply, err error) {
	readable := c.readable(ctx)
	request, err := narrow(c.request, c.target, c.query, c.shape.primary, distinct(all), all[0].StoreScores)
	if err != nil {
		return r, errConfirm
	}
	message, header, trailer, err := c.upstream.Call(ctx, milvuspb.MilvusService_Search_FullMethodName, request)
	answer := &milvuspb.SearchResults{}
	if !readable() || err != nil || proto.Unmarshal(message, answer) != nil || failed(answer.GetStatus()) {
		return r, errConfirm
	}
	if answer.GetCollectionName() == c.target.Own {
		answer.CollectionName = c.target.Name // a search by an alias is answered with the alias
	}
	if err := rebuild(ctx, answer.GetResults(), all, c.query); err != nil {
		return r, err
	}
	if message, err = proto.Marshal(answer); err != nil {
		return r, errConfirm
	}
	return rawgrpc.Reply{Message: message, Header: header, Trailer: trailer}, nil
}

// readable asks the database whether the caller may describe the collection by the alias
// that the call names: the caller may have rights for the collection's own name alone, or
// for the alias alone. The returned function waits for the answer. Without an alias nothing
// is asked.
func (c *call) readable(ctx context.Context) (wait func() bool) {
	if !c.target.Aliased() {
		return func() bool { return true }
	}
	read := make(chan bool, 1)
	go func() {
		_, err := c.describe(ctx, c.upstream, c.target.Name, c.request)
		read <- err == nil
	}()
	return sync.OnceValue(func() bool { return <-read })
}

// IDs implements routing.Exchange.
func (c *call) IDs(r rawgrpc.Reply) (lists [][]rerank.ID, ok bool) {
	answer := &milvuspb.SearchResults{}
	if r.Err != nil || proto.Unmarshal(r.Message, answer) != nil || failed(answer.GetStatus()) {
		return nil, false
	}
	return split(idsOf(answer.GetResults().GetIds()), answer.GetResults().GetTopks())
}

// split divides all into consecutive lists of the given lengths.
func split[T any](all []T, lengths []int64) (lists [][]T, ok bool) {
	for _, n := range lengths {
		if n < 0 || n > int64(len(all)) {
			return nil, false
		}
		lists, all = append(lists, all[:n:n]), all[n:]
	}
	return lists, len(all) == 0
}

// distinct returns the ids of the hits of all queries, each once.
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

// narrow restricts a request to the given ids, in the collection in which they were found. The
// request keeps its expression and template values, and searches by its first vector only, because
// the scores do not matter.
func narrow(m *milvuspb.SearchRequest, target routing.Target, q query, primary string, ids []rerank.ID, scores bool) ([]byte, error) {
	among, err := adapter.Among(primary, ids)
	if err != nil {
		return nil, err
	}
	if err := adapter.CheckFilter(m.GetDsl()); err != nil {
		return nil, err
	}
	n := proto.Clone(m).(*milvuspb.SearchRequest)
	if target.Aliased() {
		n.CollectionName = target.Own
	}
	if n.Dsl = among; m.GetDsl() != "" {
		n.Dsl = "(" + m.GetDsl() + ") and (" + among + ")"
	}
	if first := q.group.GetPlaceholders()[0]; !scores {
		n.Nq = 1
		if n.PlaceholderGroup, err = proto.Marshal(&commonpb.PlaceholderGroup{Placeholders: []*commonpb.PlaceholderValue{{
			Tag: first.GetTag(), Type: first.GetType(), Values: first.GetValues()[:1],
		}}}); err != nil {
			return nil, err
		}
	}
	for _, p := range n.GetSearchParams() {
		switch p.GetKey() {
		case "topk", "limit":
			p.Value = strconv.Itoa(len(ids))
		case "offset":
			p.Value = "0"
		case "params":
			p.Value = searchAllLists(p.GetValue(), len(ids))
		}
	}
	return proto.Marshal(n)
}

// searchAllLists returns search parameters that make the database look at every row which passes
// the filter. Otherwise an IVF index finds only rows in the lists that it probes.
func searchAllLists(text string, rows int) string {
	params := map[string]any{}
	if json.Unmarshal([]byte(text), &params) != nil {
		return text
	}
	for key, value := range map[string]int{"nprobe": 65536, "ef": max(rows, 64), "search_list": max(rows, 64), "reorder_k": rows, "offset": 0} {
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

// rebuild puts the rows of d (one list for each query, or one for all queries) in the order of the
// hits, and gives them the hits' scores unless the answer keeps the database's. It returns the
// errors of Ranked.Page, or errConfirm.
func rebuild(ctx context.Context, d *schemapb.SearchResultData, all []routing.Ranked, q query) error {
	ids := idsOf(d.GetIds())
	lists, ok := split(ids, d.GetTopks())
	if !ok || len(d.GetScores()) != len(ids) || len(lists) != 1 && len(lists) != len(all) {
		return errConfirm
	}
	var at []map[rerank.ID]int // position of each id in a list
	next := 0
	for _, list := range lists {
		row := make(map[rerank.ID]int, len(list))
		for _, id := range list {
			row[id] = next
			next++
		}
		at = append(at, row)
	}
	var rows []int
	var scores []float32
	var lengths []int64
	for i := range all {
		r, row := &all[i], at[min(i, len(at)-1)]
		page, err := r.Page(ctx, func(id rerank.ID) routing.Row {
			at, ok := row[id]
			return routing.Row{IsThere: ok, Vector: vectorAt(d, r.Vector, at)}
		})
		if err != nil {
			return err
		}
		for _, h := range page {
			score := q.rounded(h.Score)
			if r.StoreScores {
				score = d.GetScores()[row[h.ID]]
			}
			rows, scores = append(rows, row[h.ID]), append(scores, score)
		}
		lengths = append(lengths, int64(len(page)))
	}
	for i, f := range d.GetFieldsData() {
		if d.FieldsData[i], ok = pickField(f, rows, len(ids)); !ok {
			return errConfirm
		}
	}
	d.Ids = pickIDs(d.GetIds(), rows)
	d.NumQueries, d.TopK, d.Topks, d.Scores = int64(len(all)), int64(q.limit), lengths, scores
	if len(d.GetDistances()) > 0 {
		d.Distances = slices.Clone(scores)
	}
	d.Recalls = nil
	return nil
}

// vectorAt returns a row's vector of a float field, or nil if the answer has none.
func vectorAt(d *schemapb.SearchResultData, field string, row int) []float32 {
	for _, f := range d.GetFieldsData() {
		v := f.GetVectors()
		data, dim := v.GetFloatVector().GetData(), int(v.GetDim())
		if f.GetFieldName() == field && dim > 0 && (row+1)*dim <= len(data) {
			return data[row*dim : (row+1)*dim]
		}
	}
	return nil
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
