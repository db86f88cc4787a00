package rawgrpc

import (
	"errors"
	"math"
	"net"
	"strings"
	"sync"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/likenessdb/likeness/sidecar/gate"
	"github.com/likenessdb/likeness/sidecar/proxy/h2"
)

// maxLegs limits the connections to the database for one connection of a client. Usually there is
// one; another is opened when the database accepts no more calls on it.
const maxLegs = 4

// link is a client's connection, and its connections to the database.
type link struct {
	server *Server
	sender string // the client's address
	client *h2.Conn
	legs   *pool
	// outliving counts the watched calls whose answers are awaited even if the client leaves.
	outliving sync.WaitGroup
}

func newLink(s *Server, sender string) *link {
	l := &link{server: s, sender: sender}
	l.client = h2.New(h2.Options{
		StreamWindow: gate.StreamWindowBytes, ConnWindow: connectionWindow, MaxHeaderBytes: maxHeaderBytes,
		MaxStreams: s.options.MaxStreams, Accept: l.accept, BeforeRead: l.beforeClientRead, Hold: l.hold, HoldAbove: gate.UncountedBytes,
	})
	l.legs = newPool(s.options.Upstream.dialer, math.MaxInt, maxLegs, h2.Options{Hold: l.hold, HoldAbove: gate.UncountedBytes}, l.client)
	return l
}

// hold counts bytes that wait for a peer, until they are released.
func (l *link) hold(bytes int64) h2.Releaser { return l.server.options.Gate.Hold(bytes) }

// run serves the client until its connection ends.
func (l *link) run(conn net.Conn) error {
	defer l.legs.close()
	defer l.outliving.Wait()
	secure := l.server.secure
	if l.server.options.TLS == nil {
		secure = nil
	}
	return l.client.Run(conn, secure)
}

// beforeClientRead flushes the frames that the client's frames led to.
func (l *link) beforeClientRead() {
	legs := l.legs.all()
	for _, leg := range legs {
		leg.Flush()
	}
	l.client.Flush()
	for _, leg := range legs {
		leg.AwaitRoom()
	}
	l.client.AwaitRoom()
}

// accept receives the header list of a call.
func (l *link) accept(s *h2.Stream, fields []hpack.HeaderField, isWhole bool) h2.Sink {
	method := value(fields, ":path")
	if !strings.HasPrefix(method, "/") { // some databases read it as if it had the slash
		end(s, nil, nil, status.New(codes.Unimplemented, "likeness: the path of the method has no leading slash"))
		return nowhere{}
	}
	switch intercept := l.interceptor(plainPath(method)); {
	case intercept.Watch != nil:
		return l.watch(s, fields, isWhole, intercept)
	case !isWhole && (intercept.Answer != nil || intercept.Ignores != nil):
		return l.intercept(s, fields, intercept)
	}
	return l.forward(s, fields, isWhole)
}

// interceptor returns the interceptor of a method.
func (l *link) interceptor(method string) Interceptor {
	if i, ok := l.server.options.Intercept[method]; ok {
		return i
	}
	return l.server.options.Intercept[AnyOther]
}

// plainPath returns the path of a method as databases read it. Qdrant treats the path as the target
// of an HTTP request, and ignores a query and a fragment.
func plainPath(method string) string {
	if end := strings.IndexAny(method, "?#"); end >= 0 {
		return method[:end]
	}
	return method
}

// forward opens a stream to the database for a client's stream, and returns the sink of the
// client's frames.
func (l *link) forward(client *h2.Stream, fields []hpack.HeaderField, end bool) h2.Sink {
	return l.forwardTo(toClient{client}, client, fields, end)
}

// forwardTo is forward with a sink of its own for the database's frames.
func (l *link) forwardTo(answer h2.Sink, client *h2.Stream, fields []hpack.HeaderField, end bool) h2.Sink {
	l.server.options.Upstream.readdress(fields)
	database, leg, err := l.legs.open(fields, end, answer)
	if err != nil {
		toClient{client}.Reset(nil, err)
		return nowhere{}
	}
	return &toDatabase{database, leg, l.legs}
}

// toDatabase forwards what a client sends on a stream.
type toDatabase struct {
	database *h2.Stream
	leg      *leg
	legs     *pool
}

var _ h2.Sink = (*toDatabase)(nil)

// Headers implements h2.Sink.
func (d *toDatabase) Headers(_ *h2.Stream, fields []hpack.HeaderField, end bool) {
	d.database.SendHeaders(fields, end)
}

// Data implements h2.Sink.
func (d *toDatabase) Data(client *h2.Stream, b []byte, end bool) {
	d.database.SendData(b, end, client)
}

// Reset implements h2.Sink.
func (d *toDatabase) Reset(_ *h2.Stream, err error) {
	code := http2.ErrCodeCancel
	if reset := (http2.StreamError{}); errors.As(err, &reset) {
		code = reset.Code
	}
	d.database.Reset(code)
	d.legs.countReset(d.leg)
}

// toClient forwards what the database sends on a stream.
type toClient struct{ client *h2.Stream }

var _ h2.Sink = toClient{}

// Headers implements h2.Sink.
func (c toClient) Headers(_ *h2.Stream, fields []hpack.HeaderField, end bool) {
	c.client.SendHeaders(fields, end)
}

// Data implements h2.Sink.
func (c toClient) Data(database *h2.Stream, b []byte, end bool) {
	c.client.SendData(b, end, database)
}

// Reset implements h2.Sink.
func (c toClient) Reset(_ *h2.Stream, err error) {
	reset := http2.StreamError{}
	switch {
	case errors.As(err, &reset):
		c.client.Reset(reset.Code)
	case errors.Is(err, h2.ErrUnprocessed), errors.Is(err, h2.ErrFull):
		c.client.Reset(http2.ErrCodeRefusedStream) // the client may retry
	default:
		end(c.client, nil, nil, unavailable(err))
	}
}

// unavailable returns the status of a call that the database could not answer.
func unavailable(err error) *status.Status {
	if lost := (*unsentError)(nil); errors.As(err, &lost) {
		return lost.GRPCStatus()
	}
	return status.New(codes.Unavailable, "likeness: the connection to the database ended: "+err.Error())
}

// nowhere is the sink of a stream that has been answered already.
type nowhere struct{}

var _ h2.Sink = nowhere{}

// Headers implements h2.Sink.
func (nowhere) Headers(*h2.Stream, []hpack.HeaderField, bool) {}

// Data implements h2.Sink.
func (nowhere) Data(from *h2.Stream, b []byte, _ bool) { from.Credit(len(b)) }

// Reset implements h2.Sink.
func (nowhere) Reset(*h2.Stream, error) {}
