package routing

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/likenessdb/likeness/internal/traceparent"
	"github.com/likenessdb/likeness/sidecar/proxy/rawgrpc"
	"github.com/likenessdb/likeness/sidecar/telemetry"
)

// StatusKey is the trailer that says what became of a call on a routed collection.
const StatusKey = "likeness-status"

// given is the id that a caller gave its request; empty is none.
func given(ctx context.Context) string {
	if ids := metadata.ValueFromIncomingContext(ctx, telemetry.RequestIDHeader); len(ids) > 0 {
		return ids[0]
	}
	return ""
}

// Reply makes the reply to a gRPC call on a routed collection, the target, of its Answer.
func Reply(ctx context.Context, r *Router, target Target, x Exchange[rawgrpc.Reply]) rawgrpc.Reply {
	ctx, _ = telemetry.WithRequestID(traceparent.FromIncoming(ctx), given(ctx))
	o := Answer(ctx, r, target, x)
	reply := rawgrpc.Reply{Passed: r.Passed}
	switch {
	case o.Answered:
		reply = o.Answer
	case o.Refused != "":
		reply.Err = status.Error(codes.Unavailable, o.Refused)
	}
	reply.Trailer = metadata.Join(reply.Trailer, metadata.Pairs(StatusKey, o.Status))
	return reply
}
