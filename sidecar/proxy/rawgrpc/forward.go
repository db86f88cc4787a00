package rawgrpc

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// handle forwards one call of any method.
func (s *Server) handle(_ any, client grpc.ServerStream) error {
	method, ok := grpc.MethodFromServerStream(client)
	if !ok {
		return status.Error(codes.Internal, "the call has no method")
	}
	ctx := outgoing(client.Context())
	l := s.upstream.take()
	defer func() { s.upstream.release(l, client.Context().Err() != nil) }()
	if !s.unary[method] {
		return stream(ctx, l.conn, method, client)
	}
	request := &frame{}
	if err := client.RecvMsg(request); errors.Is(err, io.EOF) {
		return stream(ctx, l.conn, method, client) // no message at all: the database says what that means
	} else if err != nil {
		return err
	}
	return unary(ctx, l.conn, method, client, request)
}

// unary forwards a call of one message each way; it starts no goroutine.
func unary(ctx context.Context, conn *grpc.ClientConn, method string, client grpc.ServerStream, request *frame) error {
	var header, trailer metadata.MD
	answer := &frame{}
	err := conn.Invoke(ctx, method, request, answer, grpc.Header(&header), grpc.Trailer(&trailer))
	request.free()
	if header = endToEnd(header); len(header) > 0 {
		if err := client.SetHeader(header); err != nil {
			answer.free()
			return err
		}
	}
	client.SetTrailer(endToEnd(trailer))
	if err != nil {
		return err
	}
	defer answer.free()
	return client.SendMsg(answer)
}

// stream forwards any number of messages both ways.
func stream(ctx context.Context, conn *grpc.ClientConn, method string, client grpc.ServerStream) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	database, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		return err
	}
	go upload(database, client, cancel)
	header, err := database.Header()
	if header = endToEnd(header); err == nil && len(header) > 0 {
		if err := client.SendHeader(header); err != nil {
			return err
		}
	}
	for {
		answer := &frame{}
		if err := database.RecvMsg(answer); err != nil {
			client.SetTrailer(endToEnd(database.Trailer()))
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		err := client.SendMsg(answer)
		answer.free()
		if err != nil {
			return err
		}
	}
}

// upload forwards the client's messages until it has no more, or either side
// ends the call, which ends RecvMsg too.
func upload(database grpc.ClientStream, client grpc.ServerStream, cancel context.CancelFunc) {
	for {
		f := &frame{}
		if err := client.RecvMsg(f); errors.Is(err, io.EOF) {
			_ = database.CloseSend() // its result is that of RecvMsg
			return
		} else if err != nil {
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
