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

// callerRequestID returns the request id that the caller sent, or "".
func callerRequestID(ctx context.Context) string {
	if ids := metadata.ValueFromIncomingContext(ctx, telemetry.RequestIDHeader); len(ids) > 0 {
		return ids[0]
	}
	return ""
}

// Reply makes the reply to a gRPC call on a routed collection, the target, of its Answer. denies
// reports whether an answer of the database without an error refuses the caller; nil:
// none does. A caller whom the database refuses is told nothing of the route.
func Reply(ctx context.Context, r *Router, target Target, x Exchange[rawgrpc.Reply], denies func(answer []byte) bool) rawgrpc.Reply {
	ctx, _ = telemetry.WithRequestID(traceparent.FromIncoming(ctx), callerRequestID(ctx))
	denied := func(a rawgrpc.Reply) bool { return AccessOf(a, denies) == AccessDenied }
	o := Answer(ctx, r, target, x)
	if o.Refused != "" { // the route has no other answer, but the database may refuse the caller
		if own := x.Original(ctx, false); denied(own) {
			return own
		}
	}
	reply := rawgrpc.Reply{Passed: r.Passed, Denies: denies}
	switch {
	case o.Answered && denied(o.Answer):
		return o.Answer
	case o.Answered:
		reply = o.Answer
	case o.Refused != "":
		reply.Err = status.Error(codes.Unavailable, o.Refused)
	}
	if o.Status == "" {
		return reply
	}
	if reply.Trailer == nil {
		reply.Trailer = metadata.MD{}
	}
	reply.Trailer.Append(StatusKey, o.Status)
	return reply
}

// AccessOf says whether an answer of the database shows that its caller may make the call.
// denies reports whether the message of an answer without an error refuses the caller; it
// may be nil.
func AccessOf(a rawgrpc.Reply, denies func(answer []byte) bool) Access {
	switch {
	case rawgrpc.Denied(a.Err), a.Err == nil && denies != nil && denies(a.Message):
		return AccessDenied
	case a.Err != nil:
		return AccessUnknown
	}
	return AccessGranted
}
