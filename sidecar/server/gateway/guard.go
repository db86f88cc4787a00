package gateway

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/likenessdb/likeness/sidecar/gate"
	"github.com/likenessdb/likeness/sidecar/server"
)

// errEncoding: a body is compressed in another way than by gzip.
var errEncoding = fmt.Errorf("%w: Content-Encoding: gzip and none are read", server.ErrMessage)

// guard handles a request before its path is looked at: it gives the request an id, checks the
// token before the body, and reads the body within its limits.
func (g *Gateway) guard(next http.Handler) http.Handler {
	browsers := server.NewBrowsers(g.options.Private, g.options.AllowedHosts...)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w = answerWriter{w}
		r.Header.Del("Content-Type") // every body is JSON; grpc-gateway prints a type that it cannot parse, however long
		control := http.NewResponseController(w)
		_ = control.SetWriteDeadline(time.Time{})
		_ = control.SetReadDeadline(time.Now().Add(gate.StallTimeout)) // bounds how much of a refused request's body net/http still reads
		id := server.RequestID(r.Header.Get(server.RequestIDHeader))
		r.Header.Set(server.RequestIDHeader, id)
		w.Header().Set(server.RequestIDHeader, id)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		if err := browsers.Check(r); err != nil {
			g.refuse(w, r, 0, err)
			return
		}
		if r.URL.Path == "/openapi.json" || r.URL.Path == healthPath { // public, without a body
			if service := r.URL.Query().Get("service"); !utf8.ValidString(service) {
				g.refuse(w, r, 0, fmt.Errorf("%w: service is not UTF-8: %q", server.ErrMessage, service))
				return
			}
			next.ServeHTTP(w, r)
			return
		}
		caller, err := g.options.Server.Authenticate(r.Header.Values("Authorization"))
		if err != nil {
			g.refuse(w, r, 0, err)
			return
		}
		if !utf8.ValidString(r.URL.Path) { // the name of a route goes into a protobuf message
			g.refuse(w, r, 0, fmt.Errorf("%w: the path is not UTF-8: %q", server.ErrMessage, r.URL.Path))
			return
		}
		_ = control.SetReadDeadline(time.Time{}) // the body is paced
		r = r.WithContext(gate.WithCaller(gate.WithSender(r.Context(), r.RemoteAddr), caller))
		taken, err := g.take(w, r)
		defer taken.Release()
		var data []byte
		if err == nil {
			data, err = g.read(w, r)
		}
		if err != nil {
			_ = control.SetReadDeadline(time.Now().Add(gate.StallTimeout))
			status := 0
			if errors.Is(err, errEncoding) {
				status = http.StatusUnsupportedMediaType
			}
			g.refuse(w, r, status, err)
			return
		}
		_ = control.SetReadDeadline(time.Time{})
		taken.Shrink(int64(len(data)))
		r.Body = &body{Reader: bytes.NewReader(data), data: data, inTurn: func(parse func() error) error {
			return g.options.Gate.Parse(r.Context(), len(data), parse)
		}}
		next.ServeHTTP(w, r)
	})
}

// answerWriter hides from grpc-gateway that a client has left or does not read: it prints a line to standard error for each.
type answerWriter struct{ http.ResponseWriter }

// Write drops what cannot be sent.
func (w answerWriter) Write(data []byte) (int, error) {
	_, _ = w.ResponseWriter.Write(data)
	return len(data), nil
}

// Unwrap is for http.ResponseController.
func (w answerWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// body is the body of a request, decompressed, in memory.
type body struct {
	*bytes.Reader
	data   []byte
	inTurn func(parse func() error) error
}

func (*body) Close() error { return nil }

// mostInflated is the most bytes that one byte of gzip becomes (RFC 1951: 258 bytes for two bits).
const mostInflated = 1032

// take waits until the gate lets a request's body in, and reads it.
func (g *Gateway) take(w http.ResponseWriter, r *http.Request) (*gate.Grant, error) {
	limit, _ := g.options.Gate.MaxMessageBytes(g.options.MaxMessageBytes)
	n, most := r.ContentLength, int64(limit)
	switch packed := r.Header.Get("Content-Encoding") != ""; {
	case packed && n < 0:
		n = most
	case packed:
		n *= mostInflated
	}
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	paced := gate.NewBody(r.Body, http.NewResponseController(w))
	r.Body = struct {
		io.Reader
		io.Closer
	}{paced, r.Body}
	grant, err := g.options.Gate.ReceiveBody(r.Context(), paced, min(n, most), most)
	return grant, unreadable(err)
}

// unreadable converts an error of reading a body to server.ErrMessage. Errors of the gate, and of a
// caller that left, stay as they are.
func unreadable(err error) error {
	for _, known := range []error{nil, gate.ErrTooLarge, gate.ErrFull, gate.ErrStalled, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, known) {
			return err
		}
	}
	return fmt.Errorf("%w: reading the body: %w", server.ErrMessage, err)
}

// read returns a request's body, decompressed. It returns server.ErrMessageSize
// or server.ErrMessage.
func (g *Gateway) read(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	limit, setting := g.options.Gate.MaxMessageBytes(g.options.MaxMessageBytes)
	most := int64(limit)
	tooLarge := func() error {
		return fmt.Errorf("%w: the JSON of the request has more than %d bytes, %s; "+
			"split the batch, speak gRPC, which needs about a third, or raise it", server.ErrMessageSize, most, setting)
	}
	if r.ContentLength > most {
		return nil, tooLarge()
	}
	var from io.Reader = http.MaxBytesReader(w, r.Body, most)
	switch r.Header.Get("Content-Encoding") {
	case "", "identity":
	case "gzip":
		unzipped, err := gzip.NewReader(from)
		if err != nil {
			return nil, fmt.Errorf("%w: not gzip: %w", server.ErrMessage, err)
		}
		from = unzipped
	default:
		return nil, errEncoding
	}
	data, err := g.readAll(io.LimitReader(from, most+1), r)
	var beyond *http.MaxBytesError
	switch {
	case errors.As(err, &beyond), int64(len(data)) > most:
		return nil, tooLarge()
	case err != nil:
		return nil, unreadable(err)
	}
	return data, nil
}

// readAll reads a body. If the body's length was announced and let in, it allocates the memory at
// once: growing would leave several times as much garbage.
func (g *Gateway) readAll(from io.Reader, r *http.Request) ([]byte, error) {
	var b bytes.Buffer
	if g.options.Gate.CountsBytes() && r.ContentLength > 0 {
		b.Grow(int(r.ContentLength) + bytes.MinRead)
	}
	_, err := b.ReadFrom(from)
	return b.Bytes(), err
}
