package routing

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/likenessdb/likeness/sidecar/proxy/rawgrpc"
)

// StatusKey is the trailer that says what became of a call on a routed collection.
const StatusKey = "likeness-status"

// Answer makes the reply to a gRPC call on a routed collection: that of search,
// within the time of Bound, or what its Pass, Degraded or panic means.
func (r *Router) Answer(ctx context.Context, collection string, search func(context.Context) (rawgrpc.Reply, error)) (reply rawgrpc.Reply) {
	defer func() {
		if p := recover(); p != nil {
			reply = r.decline(r.Panicked(ctx, collection, p))
		}
	}()
	ctx, cancel := r.Bound(ctx, collection)
	defer cancel()
	reply, err := search(ctx)
	if err != nil {
		return r.decline(err)
	}
	return reply
}

// decline lets a call pass, or fails it where the route is fail_closed.
func (r *Router) decline(err error) rawgrpc.Reply {
	reply := rawgrpc.Reply{Trailer: metadata.Pairs(StatusKey, r.NotRescored(err)), Passed: r.Passed}
	if d := (Degraded{}); errors.As(err, &d) && d.Closed {
		reply.Err = status.Error(codes.Unavailable, "likeness: no rescored answer: "+d.Reason)
	}
	return reply
}
