package routing

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/likenessdb/likeness/sidecar/proxy/rawgrpc"
)

// diagnosticMethods lists the methods of gRPC's own services, which change no data.
func diagnosticMethods() []string {
	return []string{
		"/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/List", "/grpc.health.v1.Health/Watch",
		"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
	}
}

// InterceptOthers adds an interceptor for every method that interceptors does not have yet, so that its writes are
// followed. reads names the methods that change neither rows nor names of collections: their calls are forwarded
// unread. Every other method counts as a write of every collection, because a newer database has methods that are
// unknown here. outcome, if not nil, derives the outcome of a call from an answer without an error.
func (w *Writes) InterceptOthers(interceptors map[string]rawgrpc.Interceptor, reads []string, outcome func(answer []byte) WriteOutcome) {
	for _, method := range append(reads, diagnosticMethods()...) {
		if _, ok := interceptors[method]; !ok {
			interceptors[method] = rawgrpc.Interceptor{}
		}
	}
	interceptors[rawgrpc.AnyOther] = rawgrpc.Interceptor{Watch: func(ctx context.Context, method string) rawgrpc.Reply {
		ended, outlives, err := w.Begin(ctx, func() Writing { return AnyWrite(method) })
		switch {
		case err != nil:
			return rawgrpc.Reply{Err: status.Error(codes.Unavailable, err.Error())}
		case ended == nil:
			return rawgrpc.Reply{}
		}
		return rawgrpc.Reply{Outlives: outlives, Ended: func(frames []byte, err error) { ended(outcomeOfOther(frames, err, outcome), nil) }}
	}}
}

// outcomeOfOther derives the outcome of a call of an unknown method from the beginning of its answer's frames. Only a
// refusal of the caller, or of the method, says that nothing was changed.
func outcomeOfOther(frames []byte, err error, outcome func(answer []byte) WriteOutcome) WriteOutcome {
	const frameHeader = 5
	switch {
	case rawgrpc.Unsent(err), rawgrpc.Denied(err), status.Code(err) == codes.Unimplemented:
		return Refused
	case err != nil:
		return Unknown
	case outcome != nil && len(frames) > frameHeader:
		return outcome(frames[frameHeader:])
	}
	return Answered
}
