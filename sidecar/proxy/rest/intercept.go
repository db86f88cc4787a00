package rest

import (
	"bytes"
	"context"
	"maps"
	"net/http"
	"strconv"
	"time"
)

// StatusHeader tells what the proxy did with a request that it looked at.
const StatusHeader = "Likeness-Status"

// Interceptor may answer a request in the database's stead. A body that is
// streamed, or that a request does not have, is empty.
type Interceptor func(r *http.Request, body []byte, forward Forward) Reply

// Forward sends the request with another body to the database, as the same
// caller, and asks for an answer that is not encoded; with a nil body it sends
// the request as it came. A path, escaped, stands in place of the request's own where
// it is not empty; the query stays. It may be called after the request has ended.
type Forward func(ctx context.Context, path string, body []byte) Answer

// Answer is a whole answer of the database.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
	// Cut: the database ended it before its end.
	Cut bool
}

// Reply is what an interceptor says. Without an Answer the request goes on to
// the database as it came. Status, if not empty, goes into StatusHeader.
type Reply struct {
	Answer *Answer
	Status string
	// Passed, if set, is told how long the database took for a request that went on.
	Passed func(took time.Duration)
	// Ended, if set, is told when a request that went on has ended, and whether the
	// database answered it.
	Ended func(answered bool)
}

// silentKey is the context's key of a bool that is set where the database does not
// answer a request.
type silentKey struct{}

// intercepted lets the interceptor answer, or forwards the request.
func (s *Server) intercepted(w http.ResponseWriter, r *http.Request, body []byte) {
	reply := s.intercept(r, body, func(ctx context.Context, path string, other []byte) Answer {
		return s.ask(ctx, r, path, body, other)
	})
	if reply.Status != "" {
		w.Header()[StatusHeader] = []string{reply.Status}
	}
	if reply.Answer == nil {
		if reply.Ended != nil {
			silent := false
			r = r.WithContext(context.WithValue(r.Context(), silentKey{}, &silent))
			defer func() { reply.Ended(!silent) }() // ReverseProxy panics where an answer is cut
		}
		began := time.Now()
		s.proxy.ServeHTTP(w, r)
		if reply.Passed != nil {
			reply.Passed(time.Since(began))
		}
		return
	}
	if reply.Answer.Cut {
		panic(http.ErrAbortHandler) // so does the client's: net/http ends the connection and logs nothing
	}
	held := s.intake.Count(int64(len(reply.Answer.Body))) // until the client has read it
	defer held.Release()
	maps.Copy(w.Header(), reply.Answer.Header)
	w.Header().Set("Content-Length", strconv.Itoa(len(reply.Answer.Body)))
	w.WriteHeader(reply.Answer.Status)
	_, _ = w.Write(reply.Answer.Body)
}

// ask sends a request with another path, if not empty, and body, if not nil. An
// answer that is cut ReverseProxy tells by a panic.
func (s *Server) ask(ctx context.Context, r *http.Request, path string, own, other []byte) (a Answer) {
	defer func() {
		if recover() != nil {
			a = Answer{Status: http.StatusBadGateway, Cut: true}
		}
	}()
	again := r.Clone(ctx)
	if path != "" {
		again.RequestURI = path // which rewrite sends
	}
	if other == nil {
		replace(again, own)
	} else {
		replace(again, other)
		again.Header.Set("Accept-Encoding", "identity")
	}
	c := &capture{header: http.Header{}, status: http.StatusOK}
	s.proxy.ServeHTTP(c, again)
	return Answer{Status: c.status, Header: c.header, Body: c.body.Bytes()}
}

// capture keeps an answer.
type capture struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (c *capture) Header() http.Header         { return c.header }
func (c *capture) WriteHeader(status int)      { c.status = status }
func (c *capture) Write(b []byte) (int, error) { return c.body.Write(b) }
