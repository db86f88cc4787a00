package relay

import (
	"context"
	"sync"
	"time"
)

// chunk is the size of one read: a full frame of most peers with its header.
const chunk = 16<<10 + frameHeader

// grpcLink forwards a gRPC connection. Writes to the client hold mu.
type grpcLink struct {
	link

	// The fields below are guarded by mu.

	frames     frames // sent by the database
	leaving    bool   // a drain has begun
	goAwaySent bool
}

// run forwards in both directions until both sides have closed.
func (l *grpcLink) run(ctx context.Context, s *Server) {
	database, err := s.dial(ctx)
	if err != nil {
		s.unreachable(err)
		l.refuse()
		return
	}
	if !l.attach(ctx, database) {
		return
	}
	var up sync.WaitGroup
	up.Go(l.upload)
	l.download()
	up.Wait()
}

// upload forwards the client's bytes. When the client closes, the database is told and has
// lastBytesTimeout to send its last bytes.
func (l *grpcLink) upload() {
	b := make([]byte, chunk)
	for {
		n, err := l.client.Read(b)
		if n > 0 {
			if _, err := l.database.Write(b[:n]); err != nil {
				return // the database has closed; download ends the link
			}
		}
		if err != nil {
			closeWrite(l.database)
			_ = l.database.SetReadDeadline(time.Now().Add(lastBytesTimeout))
			return
		}
	}
}

// download forwards the database's bytes. When the database closes, the client has
// lastBytesTimeout to read the last bytes and close.
func (l *grpcLink) download() {
	b := make([]byte, chunk)
	for {
		n, err := l.database.Read(b)
		if n > 0 {
			if err := l.deliver(b[:n]); err != nil {
				l.cut()
				return
			}
		}
		if err != nil {
			closeWrite(l.client)
			_ = l.client.SetReadDeadline(time.Now().Add(lastBytesTimeout))
			_ = l.database.Close()
			return
		}
	}
}

// deliver writes the database's bytes to the client. During a drain it inserts GOAWAY at the
// first frame boundary.
func (l *grpcLink) deliver(b []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	end := l.frames.advance(b)
	if !l.leaving || l.goAwaySent || end < 0 {
		_, err := l.client.Write(b)
		return err
	}
	if _, err := l.client.Write(b[:end]); err != nil {
		return err
	}
	if err := l.goAway(); err != nil || end == len(b) {
		return err
	}
	_, err := l.client.Write(b[end:])
	return err
}

// leave sends GOAWAY to the client, at once or after the current frame.
func (l *grpcLink) leave() {
	go func() { // mu may be held by a write to a client that does not read
		l.mu.Lock()
		defer l.mu.Unlock()
		l.leaving = true
		if !l.goAwaySent && l.frames.between() {
			_ = l.goAway()
		}
	}()
}

// goAway writes a GOAWAY frame. Every stream that the client has begun is still answered,
// so the frame names the highest possible stream (RFC 9113, section 6.8). The caller holds
// mu.
func (l *grpcLink) goAway() error {
	l.goAwaySent = true
	_, err := l.client.Write([]byte{0, 0, 8, typeGoAway, 0, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0})
	return err
}
