package rawgrpc

import (
	"context"
	"encoding/binary"
	"errors"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/likenessdb/likeness/sidecar/proxy/h2"
	"github.com/likenessdb/likeness/sidecar/proxy/peer"
)

// maxWatchedAnswer limits the bytes of an answer that Reply.Ended of a watched call gets.
const maxWatchedAnswer = 64 << 10

// watched is a call whose frames are forwarded as they come, except that the frame which completes
// its first message waits until Interceptor.Watch has returned: before that the database cannot
// act.
type watched struct {
	link      *link
	client    *h2.Stream
	database  *toDatabase
	intercept Interceptor
	method    string
	ctx       context.Context //nolint:containedctx // context of this call
	cancel    context.CancelFunc

	mu       sync.Mutex
	state    watchState
	header   []byte // what has come of the first message's header
	missing  int64  // bytes of the first message that have not come, once its header is here
	kept     []byte // came while Watch ran
	end      bool   // the client has sent everything
	gone     error  // the client's stream ended by this error
	reply    Reply  // what Watch returned
	outlives bool   // link.outliving counts the call
	answer   []byte // the beginning of the answer's messages
	last     func() // ends the client's stream; set once the database has answered
	err      error  // the status of the database's answer; belongs to last
}

type watchState int

const (
	untold  watchState = iota // the first message is not complete
	telling                   // Watch runs
	told                      // Watch has returned, and Reply.Ended is due
	over
)

var (
	_ h2.Sink = (*watched)(nil)
	_ h2.Sink = (*watchedAnswer)(nil)
)

// watch returns the sink of a call that is watched. isWhole says that the client sends no message.
func (l *link) watch(client *h2.Stream, fields []hpack.HeaderField, isWhole bool, intercept Interceptor) h2.Sink {
	w := &watched{link: l, client: client, intercept: intercept, method: value(fields, ":path")}
	w.ctx, w.cancel = callContext(fields, time.Now())
	w.mu.Lock()
	defer w.mu.Unlock()
	database, ok := l.forwardTo(&watchedAnswer{toClient{client}, w}, client, fields, false).(*toDatabase)
	if !ok {
		w.cancel()
		return nowhere{}
	}
	if w.database = database; isWhole {
		w.tell(nil, true)
	}
	return w
}

// Headers implements h2.Sink. It receives a client's trailers, which gRPC does not have.
func (w *watched) Headers(from *h2.Stream, _ []hpack.HeaderField, end bool) { w.Data(from, nil, end) }

// Data implements h2.Sink.
func (w *watched) Data(from *h2.Stream, b []byte, end bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.state == telling:
		from.CreditConn(len(b)) // the stream's window bounds what is kept
		w.kept, w.end = append(w.kept, b...), end
	case w.state == untold && (end || w.completes(b)):
		from.CreditConn(len(b))
		w.tell(b, end)
	default:
		w.end = end
		w.database.Data(from, b, end)
	}
}

// completes reports whether the first message is complete with b.
func (w *watched) completes(b []byte) bool {
	if n := min(messageHeader-len(w.header), len(b)); n > 0 {
		w.header, b = append(w.header, b[:n]...), b[n:]
		if len(w.header) < messageHeader {
			return false
		}
		w.missing = int64(binary.BigEndian.Uint32(w.header[1:]))
	}
	w.missing -= int64(len(b))
	return len(w.header) == messageHeader && w.missing <= 0
}

// tell calls Watch in a goroutine, and forwards b afterwards. The caller holds mu.
func (w *watched) tell(b []byte, end bool) {
	w.state, w.kept, w.end = telling, append(w.kept, b...), end
	w.client.Retain()
	w.link.server.workers.run(func() {
		defer func() { // a panic would otherwise end the process, and cut the calls of everybody
			if p := recover(); p != nil {
				w.link.server.options.Logger.Error("gRPC: a call panicked", "method", w.method, "panic", p, "stack", string(debug.Stack()))
				w.goOn(Reply{Err: status.Error(codes.Internal, "likeness: the call failed by an internal error")})
			}
		}()
		w.goOn(w.intercept.Watch(w.ctx, w.method))
	})
}

// goOn carries out what Watch returned.
func (w *watched) goOn(reply Reply) {
	if w.forwardKept(reply) {
		w.client.Release()
	}
	w.flush()
}

// forwardKept forwards what was kept, unless the call is over already. isOver reports that Reply.Ended
// is not called.
func (w *watched) forwardKept(reply Reply) (isOver bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reply, w.state = reply, told
	if reply.Err != nil {
		w.state = over
		w.cancel()
		w.database.database.Reset(http2.ErrCodeCancel)
		end(w.client, nil, nil, status.Convert(reply.Err))
		return true
	}
	if reply.Outlives && w.gone == nil {
		w.link.outliving.Add(1)
		w.outlives = true
	}
	switch {
	case w.gone != nil:
		w.database.Reset(w.client, w.gone)
		w.finish(&unsentError{w.gone})
	case w.last != nil: // the database did not wait for the message
		w.finish(w.err)
	default:
		w.database.database.SendData(w.kept, w.end, nil)
		w.client.CreditStream(len(w.kept))
		w.kept = nil
	}
	return false
}

func (w *watched) flush() {
	w.database.leg.Flush()
	w.link.client.Flush()
}

// finish calls Reply.Ended in a goroutine, and then ends the client's stream. The caller holds mu.
func (w *watched) finish(err error) {
	if w.state != told {
		return
	}
	w.state = over
	w.link.server.workers.run(func() {
		defer w.client.Release()
		defer w.cancel()
		if w.outlives {
			defer w.link.outliving.Done()
		}
		if w.reply.Ended != nil {
			w.reply.Ended(w.answer, err)
		}
		if w.last != nil {
			w.last()
		}
		w.flush()
	})
}

// Reset implements h2.Sink. A call that outlives its client gets the database's answer for a
// while.
func (w *watched) Reset(from *h2.Stream, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gone = err
	switch {
	case w.state == telling:
	case w.state == told && w.outlives:
		if !w.end {
			w.end = true
			w.database.database.SendData(nil, true, nil)
		}
		time.AfterFunc(peer.Outlives, func() {
			w.mu.Lock()
			w.leave(from, err)
			w.mu.Unlock()
			w.flush()
		})
	default:
		w.leave(from, err)
	}
}

// leave resets the database's stream, if the call is not over. The caller holds mu.
func (w *watched) leave(from *h2.Stream, err error) {
	if w.state == over {
		return
	}
	w.database.Reset(from, err)
	if w.state == untold {
		w.state = over
		w.cancel()
	}
	w.finish(status.FromContextError(context.Canceled).Err())
}

// watchedAnswer forwards what the database sends to a watched call's client, and ends the call only
// once Reply.Ended has returned.
type watchedAnswer struct {
	toClient
	w *watched
}

// Headers implements h2.Sink.
func (a *watchedAnswer) Headers(from *h2.Stream, fields []hpack.HeaderField, end bool) {
	if !end {
		a.toClient.Headers(from, fields, false)
		return
	}
	err := statusOf(fields).Err()
	if code := value(fields, ":status"); code != "" && code != "200" && !isTrailer(fields) {
		err = statusOfHTTP(code).Err()
	}
	a.ends(err, func() { a.toClient.Headers(from, fields, true) })
}

// Data implements h2.Sink.
func (a *watchedAnswer) Data(from *h2.Stream, b []byte, end bool) {
	a.w.mu.Lock()
	if a.w.state != over { // Ended has the answer from then on
		a.w.answer = append(a.w.answer, b[:min(len(b), maxWatchedAnswer-len(a.w.answer))]...)
	}
	isGone := a.w.gone != nil
	a.w.mu.Unlock()
	if isGone {
		from.Credit(len(b))
	} else {
		a.toClient.Data(from, b, end)
	}
	if end {
		a.ends(errors.New("the answer has no status"), func() {})
	}
}

// Reset implements h2.Sink.
func (a *watchedAnswer) Reset(from *h2.Stream, err error) {
	a.ends(callError(err), func() { a.toClient.Reset(from, err) })
}

// ends notes the end of the answer. last ends the client's stream.
func (a *watchedAnswer) ends(err error, last func()) {
	w := a.w
	w.mu.Lock()
	defer w.mu.Unlock()
	switch w.state {
	case untold:
		w.state = over
		w.cancel()
		last()
	case telling:
		if w.last == nil { // keep the first end: a server may reset a stream after its end
			w.last, w.err = last, err
		}
	case told:
		w.last = last
		w.finish(err)
	case over:
	}
}
