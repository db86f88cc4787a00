package gateway

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/likenessdb/likeness/internal/edits"
	"github.com/likenessdb/likeness/sidecar/gate"
	"github.com/likenessdb/likeness/sidecar/server"
)

// refuse answers a request that does not become a call. code is the HTTP status; 0 selects the
// status that fits err.
func (g *Gateway) refuse(w http.ResponseWriter, r *http.Request, code int, err error) {
	st := server.StatusOf(err)
	g.count(r.Context(), st.Code())
	g.options.Server.LogRefused(r, w.Header().Get(server.RequestIDHeader), err)
	if r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close") // the body may not have been read to its end
	}
	write(w, code, st)
}

// count counts requests that were refused before they became a call of a method.
func (g *Gateway) count(ctx context.Context, code codes.Code) {
	g.options.Recorder.CallStarted(ctx, "rest")(code)
}

// refusePath answers a request for a path, or a method on a path, that does not exist.
func (g *Gateway) refusePath(ctx context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, r *http.Request, code int) {
	const near = 3
	st := server.StatusOf(fmt.Errorf("%w: there is no %s %q; the nearest paths are %s; GET /openapi.json lists all", server.ErrPath, r.Method, r.URL.Path,
		strings.Join(edits.Nearest(r.Method+" "+r.URL.Path, g.paths, near), ", ")))
	if code == http.StatusBadRequest {
		st = server.StatusOf(fmt.Errorf("%w: the path is not escaped as URLs are", server.ErrMessage))
	}
	g.count(ctx, st.Code())
	write(w, code, st)
}

// refuseCall answers a call that failed, or a request that could not become a call.
func (g *Gateway) refuseCall(ctx context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, _ *http.Request, err error) {
	st := status.Convert(err)
	var refused *gate.RefusedError
	if errors.As(err, &refused) { // the answer's JSON
		st = server.StatusOf(refused)
	}
	if len(st.Details()) == 0 { // the server itself always says why; this error is from the connection
		st = g.gatewayStatus(ctx, st)
	}
	write(w, 0, st)
}

// gatewayStatus returns the status of an error that the gateway or its connection raised, not the
// server.
func (g *Gateway) gatewayStatus(ctx context.Context, st *status.Status) *status.Status {
	switch {
	case st.Code() == codes.InvalidArgument:
		g.count(ctx, st.Code())
		return server.StatusOf(fmt.Errorf("%w: %s", server.ErrMessage, st.Message()))
	case st.Code() == codes.DeadlineExceeded, errors.Is(ctx.Err(), context.DeadlineExceeded):
		return server.StatusOf(context.DeadlineExceeded)
	case st.Code() == codes.Canceled:
		return server.StatusOf(context.Canceled)
	}
	return st
}

// write writes a status as google.rpc.Status in JSON.
func write(w http.ResponseWriter, code int, st *status.Status) {
	text, err := newCodec().Marshal(st.Proto())
	if err != nil { // the details may be of a newer version; the status itself matters more
		text, _ = newCodec().Marshal(status.New(st.Code(), st.Message()).Proto())
	}
	writeText(w, code, st, text)
}

// writeText writes a status in the words of text.
func writeText(w http.ResponseWriter, code int, st *status.Status, text []byte) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(gate.StallTimeout))
	if code == 0 {
		code = runtime.HTTPStatusFromCode(st.Code())
	}
	for _, detail := range st.Details() {
		switch d := detail.(type) {
		case *errdetails.RetryInfo:
			w.Header().Set("Retry-After", strconv.Itoa(int(max(1, math.Ceil(d.GetRetryDelay().AsDuration().Seconds())))))
		case *errdetails.ErrorInfo:
			if d.GetReason() == "MESSAGE_TOO_LARGE" {
				code = http.StatusRequestEntityTooLarge
			}
		}
	}
	if code == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(text)
}
