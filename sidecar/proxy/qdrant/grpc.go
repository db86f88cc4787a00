package qdrant

import (
	"context"
	"sync"
	"time"

	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

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

// The reasons why searches of methods that are never answered pass.
const (
	passesGroups = "groups"
	passesOther  = "not-nearest"
)

// passesPrefetch is the reason why a query with prefetches passes, unless the route rescores the
// rows of such queries.
const passesPrefetch = "prefetch"

// Intercept returns the interceptors of the methods that search, and of those that
// write if writes are followed.
func (r *Router) Intercept(upstream *rawgrpc.Upstream) map[string]rawgrpc.Interceptor {
	out, rewritable := r.writes(), layouts()
	for method, m := range map[string]struct {
		request, answer proto.Message
		passes          routing.Pass
	}{
		qdrant.Points_Search_FullMethodName:          {request: &qdrant.SearchPoints{}, answer: &qdrant.SearchResponse{}},
		qdrant.Points_SearchBatch_FullMethodName:     {request: &qdrant.SearchBatchPoints{}, answer: &qdrant.SearchBatchResponse{}},
		qdrant.Points_SearchGroups_FullMethodName:    {request: &qdrant.SearchPointGroups{}, answer: &qdrant.SearchGroupsResponse{}},
		qdrant.Points_Query_FullMethodName:           {request: &qdrant.QueryPoints{}, answer: &qdrant.QueryResponse{}},
		qdrant.Points_QueryBatch_FullMethodName:      {request: &qdrant.QueryBatchPoints{}, answer: &qdrant.QueryBatchResponse{}},
		qdrant.Points_QueryGroups_FullMethodName:     {request: &qdrant.QueryPointGroups{}, answer: &qdrant.QueryGroupsResponse{}},
		qdrant.Points_RecommendGroups_FullMethodName: {passes: passesGroups},
		qdrant.Points_Recommend_FullMethodName:       {passes: passesOther},
		qdrant.Points_RecommendBatch_FullMethodName:  {passes: passesOther},
		qdrant.Points_Discover_FullMethodName:        {passes: passesOther},
		qdrant.Points_DiscoverBatch_FullMethodName:   {passes: passesOther},
	} {
		out[method] = rawgrpc.Interceptor{Ignores: r.ignores, Answer: func(ctx context.Context, request []byte) rawgrpc.Reply {
			name, _ := routing.Text(request, 1)
			target, ok := r.Names.Target(ctx, name)
			if !ok {
				return rawgrpc.Reply{}
			}
			c := &call{target: target, upstream: upstream, method: method, layout: rewritable[method], raw: request, began: time.Now(), passes: m.passes,
				routed: func(field string) bool { return r.Names.CoversField(target.Routed, field) }}
			if m.passes == "" {
				c.request, c.answer = m.request.ProtoReflect().New().Interface(), m.answer.ProtoReflect().Type()
			}
			return routing.Reply(ctx, r.Router, target, c, nil)
		}}
	}
	return out
}

// ignores reports whether a search is known to address a collection without a route.
func (r *Router) ignores(request []byte) bool {
	name, _ := routing.Text(request, 1)
	return r.Names.Ignores(name)
}

// call is a client's call that is being answered.
type call struct {
	target   routing.Target
	upstream *rawgrpc.Upstream
	method   string
	layout   layout // of raw
	raw      []byte
	request  proto.Message // raw, read
	answer   protoreflect.MessageType
	began    time.Time
	passes   routing.Pass // why calls of this method always pass; empty: some are answered
	routed   func(field string) bool
	located  located // set by Locate
}

var _ routing.Exchange[rawgrpc.Reply] = (*call)(nil)

// Read implements routing.Exchange.
func (c *call) Read(context.Context) (asked routing.Asked, err error) {
	if c.passes != "" {
		return asked, c.passes
	}
	if c.layout.groups {
		return asked, routing.Pass(passesGroups)
	}
	if err := routing.Decode(c.raw, c.request); err != nil {
		return asked, err
	}
	asked.Timeout = seconds(c.request.(interface{ GetTimeout() uint64 }).GetTimeout())
	if asked.Searches, err = searchesOf(c.request); err != nil {
		return asked, err
	}
	for i, q := range queriesOf(c.request) {
		if len(q.GetPrefetch()) > 0 {
			asked.Searches[i].Find = func(ctx context.Context, rows int) ([]rerank.ID, error) {
				return c.find(ctx, idsOnly(q, c.request, c.target.Own, rows))
			}
		}
	}
	return asked, nil
}

// find asks the database, as the caller, what a query finds.
func (c *call) find(ctx context.Context, q *qdrant.QueryPoints) (ids []rerank.ID, err error) {
	request, err := proto.Marshal(q)
	if err != nil {
		return nil, errFind
	}
	message, _, _, err := c.upstream.Call(ctx, qdrant.Points_Query_FullMethodName, request)
	answer := &qdrant.QueryResponse{}
	if err != nil || proto.Unmarshal(message, answer) != nil {
		return nil, errFind
	}
	for _, p := range answer.GetResult() {
		ids = append(ids, idOf(p.GetId()))
	}
	return ids, nil
}

// seconds converts Qdrant's timeout. 0 means no timeout.
func seconds(n uint64) time.Duration { return time.Duration(min(n, 1<<30)) * time.Second }

// Original implements routing.Exchange.
func (c *call) Original(ctx context.Context, _ bool) rawgrpc.Reply { return c.send(ctx, c.raw) }

// send asks the database, as the caller, by the method of the call.
func (c *call) send(ctx context.Context, request []byte) (r rawgrpc.Reply) {
	r.Message, r.Header, r.Trailer, r.Err = c.upstream.Call(ctx, c.method, request)
	return r
}

// Access implements routing.Exchange.
func (c *call) Access(r rawgrpc.Reply) routing.Access { return routing.AccessOf(r, nil) }

// Confirm implements routing.Exchange.
func (c *call) Confirm(ctx context.Context, all []routing.Ranked) (r rawgrpc.Reply, err error) {
	if routing.AllShown(all) {
		return c.makeAnswer(ctx, all)
	}
	readable := c.readable(ctx)
	request := proto.Clone(c.request)
	narrow(request, c.target.Own, all)
	b, err := proto.Marshal(request)
	if err != nil {
		return r, errConfirm
	}
	if r = c.send(ctx, b); !readable() || r.Err != nil {
		return rawgrpc.Reply{}, errConfirm
	}
	return c.rebuild(ctx, r, all)
}

// rebuild returns the database's reply with the rows in the order of the hits and with their scores. Everything else of the reply
// stays.
func (c *call) rebuild(ctx context.Context, r rawgrpc.Reply, all []routing.Ranked) (rawgrpc.Reply, error) {
	answer := c.answer.New().Interface()
	if proto.Unmarshal(r.Message, answer) != nil {
		return rawgrpc.Reply{}, errConfirm
	}
	lists := results(answer)
	if len(lists) != len(all) {
		return rawgrpc.Reply{}, errConfirm
	}
	var err error
	for i, points := range lists {
		if *points, err = reorder(ctx, *points, &all[i]); err != nil {
			return rawgrpc.Reply{}, err
		}
	}
	elapsed := answer.ProtoReflect()
	elapsed.Set(elapsed.Descriptor().Fields().ByName("time"), protoreflect.ValueOfFloat64(time.Since(c.began).Seconds()))
	if r.Message, err = proto.Marshal(answer); err != nil {
		return rawgrpc.Reply{}, errConfirm
	}
	return r, nil
}

// readable asks the database whether the caller may read the collection by the alias that the call
// names, since rights can be limited to that name. The returned function waits for the answer.
// Without an alias no request is made.
func (c *call) readable(ctx context.Context) (wait func() bool) {
	if !c.target.Aliased() {
		return func() bool { return true }
	}
	read := make(chan bool, 1)
	go func() {
		request, err := proto.Marshal(&qdrant.GetPoints{CollectionName: c.target.Name, WithPayload: qdrant.NewWithPayload(false)})
		if err == nil {
			_, _, _, err = c.upstream.Call(ctx, qdrant.Points_Get_FullMethodName, request)
		}
		read <- err == nil
	}()
	return sync.OnceValue(func() bool { return <-read })
}

// IDs implements routing.Exchange.
func (c *call) IDs(r rawgrpc.Reply) (lists [][]rerank.ID, ok bool) {
	answer := c.answer.New().Interface()
	if r.Err != nil || proto.Unmarshal(r.Message, answer) != nil {
		return nil, false
	}
	for _, points := range results(answer) {
		lists = append(lists, idsOf(*points))
	}
	if groups, ok := answer.(interface{ GetResult() *qdrant.GroupsResult }); ok {
		var all []rerank.ID
		for _, g := range groups.GetResult().GetGroups() {
			all = append(all, idsOf(g.GetHits())...)
		}
		lists = append(lists, all)
	}
	return lists, true
}

func idsOf(points []*qdrant.ScoredPoint) []rerank.ID {
	ids := make([]rerank.ID, len(points))
	for i, p := range points {
		ids[i] = idOf(p.GetId())
	}
	return ids
}
