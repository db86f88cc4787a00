package qdrant

import (
	"context"
	"time"

	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/likenessdb/likeness/sidecar/proxy/rawgrpc"
	"github.com/likenessdb/likeness/sidecar/proxy/routing"
)

// Intercept returns the interceptors of the methods that search, and of those that
// write if writes are followed.
func (r *Router) Intercept(upstream *rawgrpc.Upstream) map[string]rawgrpc.Interceptor {
	out := r.writes()
	for method, types := range map[string]struct{ request, answer proto.Message }{
		qdrant.Points_Search_FullMethodName:      {&qdrant.SearchPoints{}, &qdrant.SearchResponse{}},
		qdrant.Points_SearchBatch_FullMethodName: {&qdrant.SearchBatchPoints{}, &qdrant.SearchBatchResponse{}},
		qdrant.Points_Query_FullMethodName:       {&qdrant.QueryPoints{}, &qdrant.QueryResponse{}},
		qdrant.Points_QueryBatch_FullMethodName:  {&qdrant.QueryBatchPoints{}, &qdrant.QueryBatchResponse{}},
	} {
		out[method] = func(ctx context.Context, request []byte) rawgrpc.Reply {
			name, ok := routing.Text(request, 1)
			if !ok || !r.Covers(name) {
				return rawgrpc.Reply{}
			}
			return r.Answer(ctx, name, func(ctx context.Context) (rawgrpc.Reply, error) {
				c := call{upstream, method, types.request.ProtoReflect().New().Interface(), types.answer.ProtoReflect().New().Interface()}
				return r.answer(ctx, c, name, request)
			})
		}
	}
	return out
}

// call is a call on its way.
type call struct {
	upstream        *rawgrpc.Upstream
	method          string
	request, answer proto.Message
}

func (r *Router) answer(ctx context.Context, c call, name string, request []byte) (rawgrpc.Reply, error) {
	began := time.Now()
	if err := proto.Unmarshal(request, c.request); err != nil {
		return rawgrpc.Reply{}, routing.Pass("malformed")
	}
	if routing.HasUnknown(c.request.ProtoReflect()) {
		return rawgrpc.Reply{}, routing.Pass("unknown-field")
	}
	searches, err := searchesOf(c.request)
	if err != nil {
		return rawgrpc.Reply{}, err
	}
	ctx, cancel := withSeconds(ctx, c.request.(interface{ GetTimeout() uint64 }).GetTimeout())
	defer cancel()
	all, err := r.RankAll(ctx, name, searches)
	if err != nil {
		return rawgrpc.Reply{}, err
	}
	return c.confirm(ctx, r, all, began)
}

// withSeconds bounds a context by Qdrant's timeout; 0 is none.
func withSeconds(ctx context.Context, seconds uint64) (context.Context, context.CancelFunc) {
	if seconds == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Duration(min(seconds, 1<<30))*time.Second)
}

// confirm asks the database for the hits, as the caller, and makes the answer of that.
func (c call) confirm(ctx context.Context, r *Router, all []routing.Ranked, began time.Time) (rawgrpc.Reply, error) {
	narrow(c.request, all)
	b, err := proto.Marshal(c.request)
	if err != nil {
		return rawgrpc.Reply{}, routing.Degraded{Reason: "confirm"}
	}
	message, header, trailer, err := c.upstream.Call(ctx, c.method, b)
	if err != nil || proto.Unmarshal(message, c.answer) != nil {
		return rawgrpc.Reply{}, routing.Degraded{Reason: "confirm"}
	}
	lists := results(c.answer)
	if len(lists) != len(all) {
		return rawgrpc.Reply{}, routing.Degraded{Reason: "confirm"}
	}
	for i, points := range lists {
		if !reorder(points, all[i]) {
			return rawgrpc.Reply{}, routing.Degraded{Reason: "confirm"}
		}
	}
	elapsed := c.answer.ProtoReflect()
	elapsed.Set(elapsed.Descriptor().Fields().ByName("time"), protoreflect.ValueOfFloat64(time.Since(began).Seconds()))
	if message, err = proto.Marshal(c.answer); err != nil {
		return rawgrpc.Reply{}, routing.Degraded{Reason: "confirm"}
	}
	return rawgrpc.Reply{Message: message, Header: header, Trailer: metadata.Join(trailer, metadata.Pairs(routing.StatusKey, r.Rescored(all)))}, nil
}
