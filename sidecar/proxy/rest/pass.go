package rest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/likenessdb/likeness/sidecar/gate"
	"github.com/likenessdb/likeness/sidecar/proxy/peer"
)

// passing is a request that is forwarded to the database, with its answer.
type passing struct {
	*request

	reply     Reply
	wasAsked  bool // an interceptor has seen the request
	told      bool // reply.Ended was called
	uploadErr error
	status    int    // status of the answer, once its head has arrived
	problem   []byte // the beginning of an error's body
}

// pass forwards a request to the database, and its answer to the client. It returns false if it has
// closed the client's connection.
func (c *conn) pass(r *request, reply Reply, wasAsked bool) (goesOn bool) {
	began := time.Now()
	p := &passing{request: r, reply: reply, wasAsked: wasAsked}
	defer func() { p.tell(Ending{Status: p.status, Problem: p.problem}) }()
	ctx, cancel := reply.requestContext(r.ctx)
	defer cancel()
	db, err := c.sendOn(ctx, p)
	if err == nil {
		goesOn, err = c.answer(p, db)
	}
	if err != nil {
		c.unanswered(p, err)
	}
	if reply.Passed != nil {
		reply.Passed(time.Since(began))
	}
	return goesOn
}

// requestContext returns the context in which the database answers a request of a client with
// context ctx. A write whose outcome must be known outlives its client.
func (r Reply) requestContext(ctx context.Context) (context.Context, context.CancelFunc) {
	if r.Ended == nil || !r.Outlives {
		return ctx, func() {}
	}
	return peer.Outlive(ctx)
}

// sendOn sends a request to the database and waits for the first byte of the answer. Meanwhile, and
// until endReading, another goroutine reads from the client.
func (c *conn) sendOn(ctx context.Context, p *passing) (db *databaseConn, err error) {
	as := asked{host: c.server.database.host, length: unknownLength, identity: p.reply.Ended != nil}
	if !p.isWhole {
		return c.sendStream(ctx, p, as)
	}
	as.length = int64(len(p.whole))
	c.out = slices.Grow(p.appendTo(c.out[:0], as), min(len(p.whole), bufferBytes))
	p.received.Store(true)
	if !p.wasAsked { // otherwise startWatching runs already
		c.startWatching(p.request)
	}
	db, err = c.server.database.send(ctx, c.out, p.whole, p.inUse)
	if err != nil {
		c.endReading(p.request)
	}
	return db, err
}

// sendStream sends a request whose body has not arrived yet. Because it cannot be sent twice, it
// uses a new connection, which the database cannot have closed. No other request uses the connection
// afterwards: if the database saw another end of the body, it would read the rest as a part of that request.
func (c *conn) sendStream(ctx context.Context, p *passing, as asked) (*databaseConn, error) {
	db, err := c.server.database.dial(ctx)
	if err != nil {
		return nil, unsentError{err}
	}
	db.endWith(ctx)
	p.inUse(db)
	c.out = p.appendTo(c.out[:0], as)
	if _, err = db.Write(c.out); err != nil {
		c.server.database.release(db, false)
		return nil, err
	}
	go c.uploadThenWatch(p, db)
	if _, err = db.in.Peek(1); err != nil {
		c.server.database.release(db, false)
		c.endReading(p.request)
		return nil, err
	}
	return db, nil
}

// inUse records the connection of a request.
func (p *passing) inUse(db *databaseConn) {
	if !p.wasAsked {
		p.passed.Store(db)
	}
}

// uploadThenWatch sends the body to the database, and then waits for the client to leave.
func (c *conn) uploadThenWatch(p *passing, db *databaseConn) {
	defer func() { c.readerEnded <- struct{}{} }()
	var sent bool
	if sent, p.uploadErr = c.upload(p.request, db); p.uploadErr != nil {
		p.cancel(p.uploadErr)
		_ = db.Close()
		return
	}
	if sent && !p.upgrades() { // a client that changes protocol waits for the answer first
		c.waitForClient(p.request)
	}
}

// answer sends the database's answer to the client. It returns false if it has closed the client's
// connection, and an error if there is no answer.
func (c *conn) answer(p *passing, db *databaseConn) (goesOn bool, err error) {
	for {
		if c.heads, err = readLines(db.in, c.heads[:0]); err != nil {
			return false, c.noAnswer(p, db, err)
		}
		a, err := parseAnswer(c.heads)
		switch {
		case err != nil:
			return false, c.noAnswer(p, db, err)
		case a.status == http.StatusSwitchingProtocols:
			c.tunnel(p, db)
			return false, nil
		case a.status >= http.StatusOK:
			return c.answerFinally(p, db, &a), nil
		case p.isHTTP11(): // HTTP/1.0 has no interim answers
			_, err = c.client.Write(a.appendTo(nil, "", false))
		}
		if err != nil {
			return false, c.noAnswer(p, db, err)
		}
	}
}

// noAnswer ends the exchange with the database, and returns err.
func (c *conn) noAnswer(p *passing, db *databaseConn, err error) error {
	c.server.database.release(db, false)
	c.endReading(p.request)
	return err
}

// answerFinally sends an answer whose head has been read. It returns false if it has closed the
// client's connection.
func (c *conn) answerFinally(p *passing, db *databaseConn, a *answerHead) (goesOn bool) {
	p.answered(a)
	body := newContent(db.in, &a.head)
	if !a.hasBody(p.method) {
		body.left = 0
		body.chunks = nil
	}
	isEndless := body.left < 0 && body.chunks == nil
	isDrained := c.isDraining()
	isLast := isDrained || isEndless || p.closes() || !p.received.Load() || p.upgrades()
	status := p.reply.Status
	if Denied(a.status) { // a refused caller must not learn about the route
		status = ""
	}
	c.out = a.appendTo(c.out[:0], status, isLast)
	err := c.copyAnswer(p, body)
	if err == nil && !p.received.Load() {
		c.finishUpload()
	}
	c.server.database.release(db, err == nil && !a.closes() && !isEndless && p.isHTTP11() && p.isWhole)
	c.endReading(p.request)
	switch {
	case err != nil && isEndless:
		c.reset()
	case err != nil:
		c.close()
	case isDrained:
		c.closeGently(drainTime)
	case isLast:
		c.closeGently(lastBytesTime)
	case p.ctx.Err() == nil:
		return true
	default:
		c.close()
	}
	return false
}

// finishUpload gives a client that has its answer time to send the rest of the body. A database
// that does not want the rest closes its connection, which ends the upload.
func (c *conn) finishUpload() {
	if half, ok := c.client.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // the answer announced the close
	}
	_ = c.client.SetReadDeadline(time.Now().Add(lastBytesTime))
	<-c.readerEnded
	c.readerEnded <- struct{}{} // lets endReading return
}

// copyAnswer writes the head of an answer, which is in c.out, and its body while it arrives.
func (c *conn) copyAnswer(p *passing, body *content) error {
	piece := pieces.Get().(*[32 << 10]byte)
	defer pieces.Put(piece)
	isEnd := body.left == 0
	if !isEnd && body.in.Buffered() == 0 { // sends the head before the body arrives
		if err := c.flush(); err != nil {
			return err
		}
	}
	for !isEnd {
		n, err := body.Read(piece[:])
		isEnd = errors.Is(err, io.EOF)
		p.note(piece[:n], isEnd || err != nil)
		if body.chunks == nil {
			c.out = append(c.out, piece[:n]...)
		} else {
			c.out = appendChunk(c.out, piece[:n])
		}
		if err != nil && !isEnd {
			_ = c.flush()
			return err
		}
		if isEnd && body.chunks != nil {
			c.out = appendLastChunk(c.out, body.trailer)
		}
		if err := c.flush(); err != nil {
			return err
		}
	}
	return c.flush()
}

// flush writes the bytes in c.out.
func (c *conn) flush() (err error) {
	if len(c.out) > 0 {
		_, err = c.client.Write(c.out)
		c.out = c.out[:0]
	}
	return err
}

// tunnel copies in both directions between a client and a database that have switched to another
// protocol, until one of them ends.
func (c *conn) tunnel(p *passing, db *databaseConn) {
	c.endReading(p.request)
	if _, err := c.client.Write(c.heads); err == nil {
		ended := make(chan struct{}, 2)
		for _, way := range []struct {
			to   io.Writer
			from io.Reader
		}{{c.client, db.in}, {db, c.in}} {
			go func() {
				_, _ = io.Copy(way.to, way.from)
				ended <- struct{}{}
			}()
		}
		<-ended
		defer func() { <-ended }()
	}
	c.server.database.release(db, false)
	c.close()
}

// unanswered answers a request that the database did not answer, and closes the connection.
func (c *conn) unanswered(p *passing, err error) {
	var dial unsentError
	p.tell(Ending{Unsent: errors.As(err, &dial) || p.uploadErr != nil})
	var wrong *malformedError
	switch {
	case errors.Is(p.uploadErr, gate.ErrStalled), errors.As(p.uploadErr, &wrong):
		c.refuse(p.request, p.uploadErr)
	case p.ctx.Err() != nil: // the client left, or the proxy ends
		c.close()
	default:
		c.server.log.WarnContext(c.ctx, "the database does not answer", "error", err)
		c.writeAnswer(p.request, Answer{Status: http.StatusBadGateway, Header: lastHeader(), Body: unreachable(c.server.database.host)}, p.reply.Status)
		c.closeGently(lastBytesTime)
	}
}

// tell calls reply.Ended, once.
func (p *passing) tell(e Ending) {
	if p.reply.Ended != nil && !p.told {
		p.told = true
		p.reply.Ended(e)
	}
}

// answered processes the head of the answer. It calls reply.Ended, unless the answer is an error
// whose body is still to be read.
func (p *passing) answered(a *answerHead) {
	if p.status = a.status; a.status < http.StatusBadRequest {
		p.tell(Ending{Status: a.status})
	}
}

// note keeps the beginning of an error's body. isEnd marks its last piece.
func (p *passing) note(piece []byte, isEnd bool) {
	if p.reply.Ended == nil || p.told {
		return
	}
	p.problem = append(p.problem, piece[:min(len(piece), maxProblem-len(p.problem))]...)
	if isEnd || len(p.problem) == maxProblem {
		p.tell(Ending{Status: p.status, Problem: p.problem})
	}
}
