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

// StatusKey is the trailer with the outcome of a call on a routed collection.
const StatusKey = "likeness-status"

// callerRequestID returns the request id that the caller sent, or "".
func callerRequestID(ctx context.Context) string {
	if ids := metadata.ValueFromIncomingContext(ctx, telemetry.RequestIDHeader); len(ids) > 0 {
		return ids[0]
	}
	return ""
}

// Reply converts the Answer to a gRPC call on a routed collection into a reply. denies reports
// whether an answer of the database without an error refuses the caller; nil means that none does.
// A refused caller learns nothing about the route.
func Reply(ctx context.Context, r *Router, target Target, x Exchange[rawgrpc.Reply], denies func(answer []byte) bool) rawgrpc.Reply {
	ctx, _ = telemetry.WithRequestID(traceparent.FromIncoming(ctx), callerRequestID(ctx))
	denied := func(a rawgrpc.Reply) bool { return AccessOf(a, denies) == AccessDenied }
	o := Answer(ctx, r, target, x)
	if o.Refused != "" { // the route permits no other answer, but the database may refuse the caller
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

// AccessOf returns the access that an answer of the database shows. denies reports whether a
// message without an error refuses the caller; it may be nil.
func AccessOf(a rawgrpc.Reply, denies func(answer []byte) bool) Access {
	switch {
	case rawgrpc.Denied(a.Err), a.Err == nil && denies != nil && denies(a.Message):
		return AccessDenied
	case a.Err != nil:
		return AccessUnknown
	}
	return AccessGranted
}
