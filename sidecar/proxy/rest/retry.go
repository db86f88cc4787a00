package rest

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"syscall"
)

// retry repeats a request once that a pooled connection left without any
// answer: the database closes some without saying so, and net/http repeats none
// whose bytes were under way.
type retry struct{ transport *http.Transport }

var _ http.RoundTripper = retry{}

// RoundTrip implements http.RoundTripper.
func (t retry) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.GetBody == nil {
		return t.transport.RoundTrip(r)
	}
	var pooled atomic.Bool
	traced := r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		GotConn: func(i httptrace.GotConnInfo) { pooled.Store(i.Reused) },
	}))
	answer, err := t.transport.RoundTrip(traced)
	if err == nil || !pooled.Load() || !broken(err) || r.Context().Err() != nil {
		return answer, err
	}
	again := r.Clone(r.Context())
	if again.Body, err = r.GetBody(); err != nil {
		return nil, err
	}
	t.transport.CloseIdleConnections() // the others may be as stale
	return t.transport.RoundTrip(again)
}

// broken reports whether a connection ended before an answer began.
func broken(err error) bool {
	for _, end := range []error{io.EOF, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, end) {
			return true
		}
	}
	return strings.Contains(err.Error(), "server closed idle connection") // net/http exports no value for it
}
