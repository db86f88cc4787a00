package rest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/likenessdb/likeness/sidecar/gate"
)

// statusHeader reports what the proxy did with a request.
const statusHeader = "Likeness-Status"

// Interceptor may answer a request in place of the database. body is empty for requests without a
// body and for streamed ones.
type Interceptor func(r *http.Request, body []byte, forward Forward) Reply

// Forward sends the request to the database as the same caller, with another body, and asks for an
// answer without content encoding. With a nil body it sends the request unchanged. A non-empty
// path, escaped, replaces the request's own; the query stays. Forward may be called after the
// request has ended.
type Forward func(ctx context.Context, path string, body []byte) Answer

// Answer is a whole answer of the database.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
	// Cut reports that the database broke off the answer.
	Cut bool
}

// Reply is an interceptor's decision. Without an Answer the request goes on to
// the database as it came. Status, if not empty, becomes the header Likeness-Status.
type Reply struct {
	Answer *Answer
	Status string
	// Passed, if set, is called with the time that the database took for a forwarded request.
	Passed func(took time.Duration)
	// Ended, if set, is called once with the outcome of a forwarded request, as soon as the head of
	// its answer has arrived, however slowly the client reads the rest.
	Ended func(Ending)
	// Outlives lets a forwarded request go on for a while when its client leaves, so that Ended
	// gets the database's answer.
	Outlives bool
}

// Ending is the outcome of a request that was forwarded to the database.
type Ending struct {
	// Status is the HTTP status of the answer, or 0 if the database did not answer.
	Status int
	// Problem is the beginning of the body of an answer with status 400 or above.
	Problem []byte
	// Unsent reports that the database did not get the whole request: it could not be reached, or
	// the client did not send the whole body.
	Unsent bool
}

// maxProblem bounds Ending.Problem.
const maxProblem = 4 << 10

// Denied reports whether the database refuses the caller by an answer with that status.
func Denied(status int) bool {
	return status == http.StatusUnauthorized || status == http.StatusForbidden
}

// intercepted lets the interceptor answer a request, or forwards it. It returns false if it has
// closed the client's connection.
func (c *conn) intercepted(r *request) (goesOn bool) {
	in, err := r.parsed()
	var grant *gate.Grant
	if err == nil && !r.isWhole && !r.isStreamed() && r.length <= c.server.maxBody {
		grant, err = c.receive(r)
		defer grant.Release()
	}
	if err != nil {
		c.refuse(r, err)
		return false
	}
	if r.isWhole {
		c.startWatching(r)
	}
	reply := c.server.intercept(in.WithContext(r.ctx), r.whole, func(ctx context.Context, path string, body []byte) Answer {
		return c.server.ask(ctx, &r.requestHead, path, r.whole, body)
	})
	if reply.Answer == nil {
		return c.pass(r, reply, true)
	}
	if r.isWhole {
		c.endReading(r)
	}
	return c.reply(r, reply)
}

// receive reads the whole body of a request for the interceptor. A body of unknown length that
// proves too long is left to be streamed.
func (c *conn) receive(r *request) (*gate.Grant, error) {
	if !r.content.isHere() && strings.EqualFold(r.get("Expect"), "100-continue") {
		if _, err := io.WriteString(c.client, "HTTP/1.1 100 Continue\r\n\r\n"); err != nil {
			return nil, err
		}
	}
	paced := gate.NewBody(r.content, c.client)
	r.body = paced
	length := r.length
	if r.isChunked {
		length = gate.UnknownLength
	}
	grant, err := c.server.gate.ReceiveBody(r.ctx, paced, length, c.server.maxBody)
	if err != nil {
		return grant, err
	}
	if length >= 0 && (length <= gate.BodyWindowBytes || c.server.gate.CountsBytes()) {
		r.whole = make([]byte, length)
		err = c.readInto(r, r.whole)
	} else { // memory grows with the bytes that arrive, not with the length that is announced
		err = c.readUnknown(r)
	}
	if c.server.gate.CountsBytes() {
		_ = c.client.SetReadDeadline(time.Time{})
	}
	grant.Shrink(int64(len(r.whole)))
	return grant, err
}

// readUnknown reads a body of unknown length.
func (c *conn) readUnknown(r *request) error {
	b, err := io.ReadAll(io.LimitReader(r.body, c.server.maxBody+1))
	switch {
	case err != nil:
		return err
	case int64(len(b)) > c.server.maxBody:
		r.body = io.MultiReader(bytes.NewReader(b), r.body)
	default:
		r.whole, r.isWhole = b, true
	}
	return nil
}

// reply carries out the interceptor's decision.
func (c *conn) reply(r *request, reply Reply) (goesOn bool) {
	a := *reply.Answer
	if a.Cut || r.ctx.Err() != nil { // the client's answer must be cut as well
		c.close()
		return false
	}
	held := c.server.gate.Hold(int64(len(a.Body))) // until the client has read it
	defer held.Release()
	isDrained := c.isDraining()
	isLast := isDrained || r.closes() || !r.isWhole
	if isLast {
		a.Header = a.Header.Clone()
		a.Header.Set("Connection", "close")
	}
	switch {
	case !c.writeAnswer(r, a, reply.Status):
		c.close()
	case isDrained:
		c.closeGently(drainTime)
	case isLast:
		c.closeGently(lastBytesTime)
	default:
		return true
	}
	return false
}

// ask sends a client's request to the database. If path is not empty, it replaces the request's
// path; if body is not nil, it replaces the body.
func (s *Server) ask(ctx context.Context, r *requestHead, path string, own, other []byte) Answer {
	as, body := asked{host: s.database.host, path: path}, own
	if other != nil {
		as.identity, body = true, other
	}
	as.length = int64(len(body))
	answer, err := s.database.ask(ctx, r.method, r.appendTo(nil, as), body)
	if err == nil {
		return answer
	}
	if ctx.Err() == nil {
		s.log.WarnContext(ctx, "the database does not answer", "error", err)
	}
	problem := unreachable(s.database.host)
	if errors.Is(err, gate.ErrTooLarge) {
		problem = errorBody(err.Error())
	}
	return Answer{Status: http.StatusBadGateway, Header: http.Header{"Content-Type": {"application/json"}}, Body: problem}
}
