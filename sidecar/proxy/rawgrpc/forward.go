package rawgrpc

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/likenessdb/likeness/sidecar/gate"
)

// handle forwards one call of any method.
func (s *Server) handle(_ any, client grpc.ServerStream) error {
	received, end := s.receiver.Stream(client, true)
	defer end()
	return s.forward(received)
}

func (s *Server) forward(client grpc.ServerStream) error {
	method, ok := grpc.MethodFromServerStream(client)
	if !ok {
		return status.Error(codes.Internal, "the call has no method")
	}
	ctx := outgoing(client.Context())
	plain := plainPath(method)
	if !s.unary[plain] {
		return s.stream(ctx, method, client)
	}
	request := &frame{}
	if err := client.RecvMsg(request); errors.Is(err, io.EOF) {
		return s.stream(ctx, method, client) // no message at all: the database says what that means
	} else if err != nil {
		return notReceived(err)
	}
	if s.gzip.IsTooLarge(request.data) {
		return status.Error(codes.ResourceExhausted, "likeness: "+s.gzip.Problem())
	}
	var reply Reply
	if intercept := s.intercept[plain]; intercept != nil {
		reply = intercept(ctx, request.bytes())
		if reply.Err != nil || reply.Message != nil {
			request.free()
			client.SetTrailer(reply.Trailer)
			return s.answer(client, reply)
		}
		if reply.Passed != nil {
			defer func(began time.Time) { reply.Passed(time.Since(began)) }(time.Now())
		}
	}
	return s.unaryCall(ctx, method, client, request, reply)
}

// plainPath is the path of a method as databases read it: Qdrant, which takes a path
// for the target of an HTTP request, ignores a query and a fragment.
func plainPath(method string) string {
	if end := strings.IndexAny(method, "?#"); end >= 0 {
		return method[:end]
	}
	return method
}

// answer sends an interceptor's reply.
func (s *Server) answer(client grpc.ServerStream, r Reply) error {
	if len(r.Header) > 0 {
		if err := client.SetHeader(r.Header); err != nil {
			return err
		}
	}
	if r.Err != nil {
		return readable(client.Context(), r.Err)
	}
	message := &frame{mem.BufferSlice{mem.SliceBuffer(r.Message)}}
	message.holdBytes(s.receiver.Gate)
	defer message.free()
	return client.SendMsg(message)
}

// Call makes a unary call with the outgoing metadata of ctx, and returns the
// end-to-end metadata of its answer.
func (u *Upstream) Call(ctx context.Context, method string, request []byte) (message []byte, header, trailer metadata.MD, err error) {
	l := u.take()
	defer func() { u.release(l, ctx.Err() != nil) }()
	in, out := &frame{mem.BufferSlice{mem.SliceBuffer(request)}}, &frame{}
	err = l.conn.Invoke(ctx, method, in, out, grpc.Header(&header), grpc.Trailer(&trailer))
	if err == nil {
		message = out.bytes()
	}
	out.free()
	return message, endToEnd(header), endToEnd(trailer), err
}

// unaryCall forwards a call of one message each way; it starts no goroutine.
func (s *Server) unaryCall(ctx context.Context, method string, client grpc.ServerStream, request *frame, reply Reply) error {
	l := s.upstream.take()
	if reply.Outlives {
		var cancel context.CancelFunc
		ctx, cancel = outliving(ctx)
		defer cancel()
	}
	defer func() { s.upstream.release(l, ctx.Err() != nil) }()
	var header, trailer metadata.MD
	answer := &frame{}
	err := l.conn.Invoke(ctx, method, request, answer, grpc.Header(&header), grpc.Trailer(&trailer))
	request.free()
	answer.holdBytes(s.receiver.Gate)
	if reply.Ended != nil {
		reply.Ended(answer.bytes(), err)
	}
	if len(reply.Trailer) > 0 && !Denied(err) && (err != nil || reply.Denies == nil || !reply.Denies(answer.bytes())) {
		client.SetTrailer(reply.Trailer)
	}
	if header = endToEnd(header); len(header) > 0 {
		if err := client.SetHeader(header); err != nil {
			answer.free()
			return err
		}
	}
	client.SetTrailer(endToEnd(trailer))
	if err != nil {
		return readable(ctx, err)
	}
	defer answer.free()
	return client.SendMsg(answer)
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

// readable is an error whose text a Node client can read. HTTP/2 permits no
// field that ends in a space (RFC 9113, section 8.2.1), and Node drops one that
// does; a database escapes such a space, which this server's transport does not:
// for those clients the space is left out.
func readable(ctx context.Context, err error) error {
	s := status.Convert(err)
	text := strings.TrimSpace(s.Message())
	if text == s.Message() || !isNode(ctx) {
		return err
	}
	p := s.Proto()
	p.Message = text
	return status.ErrorProto(p)
}

// isNode tells the clients that run on Node: Connect's by their content type,
// grpc-js by its name.
func isNode(ctx context.Context) bool {
	md, _ := metadata.FromIncomingContext(ctx)
	agents := append(md.Get("user-agent"), md.Get("content-type")...)
	return slices.ContainsFunc(agents, func(s string) bool {
		return strings.HasPrefix(s, "grpc-node") || s == "application/grpc+proto"
	})
}

// stream forwards any number of messages both ways.
func (s *Server) stream(ctx context.Context, method string, client grpc.ServerStream) error {
	l := s.upstream.take()
	defer func() { s.upstream.release(l, client.Context().Err() != nil) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	database, err := l.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		return err
	}
	refused := make(chan error, 1)
	go s.upload(database, client, cancel, refused)
	header, err := database.Header()
	if header = endToEnd(header); err == nil && len(header) > 0 {
		if err := client.SendHeader(header); err != nil {
			return err
		}
	}
	for {
		answer := &frame{}
		if err := database.RecvMsg(answer); err != nil {
			select {
			case err := <-refused:
				return err
			default:
			}
			client.SetTrailer(endToEnd(database.Trailer()))
			if errors.Is(err, io.EOF) {
				return nil
			}
			return readable(ctx, err)
		}
		answer.holdBytes(s.receiver.Gate)
		err := client.SendMsg(answer)
		answer.free()
		if err != nil {
			return err
		}
	}
}

// upload forwards the client's messages until it has no more, or either side
// ends the call, which ends RecvMsg too. Why a message is not received it tells refused.
func (s *Server) upload(database grpc.ClientStream, client grpc.ServerStream, cancel context.CancelFunc, refused chan<- error) {
	for {
		f := &frame{}
		if err := client.RecvMsg(f); errors.Is(err, io.EOF) {
			_ = database.CloseSend() // RecvMsg returns the same error
			return
		} else if err != nil {
			refused <- notReceived(err)
			cancel()
			return
		}
		if s.gzip.IsTooLarge(f.data) {
			refused <- status.Error(codes.ResourceExhausted, "likeness: "+s.gzip.Problem())
			cancel()
			return
		}
		err := database.SendMsg(f)
		f.free()
		if err != nil {
			return // RecvMsg says why
		}
	}
}

// notReceived is the status of a message that was not let in; another error is one.
func notReceived(err error) error {
	switch {
	case errors.Is(err, gate.ErrTooLarge), errors.Is(err, gate.ErrFull):
		return status.Error(codes.ResourceExhausted, "likeness: "+err.Error())
	case errors.Is(err, gate.ErrStalled):
		return status.Error(codes.DeadlineExceeded, "likeness: "+err.Error())
	}
	return err
}

// outgoing is a call's context with its own metadata for the database; deadline
// and cancellation are the client's.
func outgoing(ctx context.Context) context.Context {
	md, _ := metadata.FromIncomingContext(ctx)
	return metadata.NewOutgoingContext(ctx, endToEnd(md))
}

// endToEnd removes what belongs to one connection; it changes md.
func endToEnd(md metadata.MD) metadata.MD {
	for _, name := range []string{":authority", "content-type", "user-agent", "grpc-accept-encoding", "grpc-encoding", "te"} {
		delete(md, name)
	}
	return md
}
