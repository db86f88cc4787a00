package rest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"strconv"
	"sync/atomic"
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
	// Ended, if set, is told once what became of a request that went on: as soon as the
	// head of its answer is there, however slowly the client reads the rest.
	Ended func(Ending)
	// Outlives lets a request go on for a while when its client goes away, so that
	// Ended is told what the database says to it.
	Outlives bool
}

// Ending is the outcome of a request that was forwarded to the database.
type Ending struct {
	// Status is the HTTP status of the answer, or 0 if the database did not answer.
	Status int
	// Problem is the beginning of the body of an answer with a status from 400 on.
	Problem []byte
	// Unsent says that the database did not get the whole request: it was not reached,
	// or the client did not send all of the body.
	Unsent bool
}

const (
	// maxProblem bounds Ending.Problem.
	maxProblem = 4 << 10
	// outlives is how long a request goes on after its client went away.
	outlives = time.Second
)

// passing is a request of an interceptor's that goes on to the database.
type passing struct {
	reply Reply
	told  bool // Ended was told
	body  *watchedBody
}

// passingKey is the context's key of a *passing.
type passingKey struct{}

func passingOf(ctx context.Context) *passing {
	p, _ := ctx.Value(passingKey{}).(*passing)
	return p
}

// end tells Ended once.
func (p *passing) end(e Ending) {
	if p.reply.Ended != nil && !p.told {
		p.told = true
		p.reply.Ended(e)
	}
}

// answered is told of the head of an answer: it ends the request, and adds the status
// header, unless the database refuses the caller, whom the header would tell that
// there is a route.
func (p *passing) answered(a *http.Response) error {
	if p.reply.Status != "" && !Denied(a.StatusCode) {
		a.Header[StatusHeader] = []string{p.reply.Status}
	}
	if p.reply.Ended == nil {
		return nil
	}
	e := Ending{Status: a.StatusCode}
	if a.StatusCode >= http.StatusBadRequest {
		var err error
		e.Problem, err = io.ReadAll(io.LimitReader(a.Body, maxProblem))
		a.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(e.Problem), failing{err}, a.Body), a.Body}
	}
	p.end(e)
	return nil
}

// failing is a reader that returns err, or io.EOF if err is nil.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) {
	if f.err != nil {
		return 0, f.err
	}
	return 0, io.EOF
}

// Denied reports whether the database refuses the caller by an answer of that status.
func Denied(status int) bool {
	return status == http.StatusUnauthorized || status == http.StatusForbidden
}

// watchedBody notes whether the client did not send all of a body.
type watchedBody struct {
	io.ReadCloser
	cut atomic.Bool
}

func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		b.cut.Store(true)
	}
	return n, err
}

// outliving returns a context with the values of ctx that is cancelled one second after ctx.
func outliving(ctx context.Context) (context.Context, context.CancelFunc) {
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(outlives, cancel) })
	return own, func() {
		stop()
		cancel()
	}
}

// intercepted lets the interceptor answer, or forwards the request.
func (s *Server) intercepted(w http.ResponseWriter, r *http.Request, body []byte) {
	reply := s.intercept(r, body, func(ctx context.Context, path string, other []byte) Answer {
		return s.ask(ctx, r, path, body, other)
	})
	if reply.Answer == nil {
		s.pass(w, r, reply)
		return
	}
	if reply.Status != "" {
		w.Header()[StatusHeader] = []string{reply.Status}
	}
	if reply.Answer.Cut {
		panic(http.ErrAbortHandler) // so does the client's: net/http ends the connection and logs nothing
	}
	held := s.gate.Hold(int64(len(reply.Answer.Body))) // until the client has read it
	defer held.Release()
	maps.Copy(w.Header(), reply.Answer.Header)
	w.Header().Set("Content-Length", strconv.Itoa(len(reply.Answer.Body)))
	w.WriteHeader(reply.Answer.Status)
	_, _ = w.Write(reply.Answer.Body)
}

// pass forwards a request, and tells the interceptor what becomes of it.
func (s *Server) pass(w http.ResponseWriter, r *http.Request, reply Reply) {
	p := &passing{reply: reply}
	ctx := r.Context()
	if reply.Ended != nil {
		defer p.end(Ending{}) // ReverseProxy panics where an answer is cut
		if reply.Outlives {
			var cancel context.CancelFunc
			ctx, cancel = outliving(ctx)
			defer cancel()
		}
	}
	r = r.WithContext(context.WithValue(ctx, passingKey{}, p))
	if reply.Ended != nil {
		r.Header = r.Header.Clone()
		r.Header.Set("Accept-Encoding", "identity") // an error has to be read
		if r.GetBody == nil && r.Body != nil {
			p.body = &watchedBody{ReadCloser: r.Body}
			r.Body = p.body
		}
	}
	began := time.Now()
	s.proxy.ServeHTTP(w, r)
	if reply.Passed != nil {
		reply.Passed(time.Since(began))
	}
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
