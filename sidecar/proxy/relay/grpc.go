package relay

import (
	"context"
	"sync"
	"time"
)

// chunk is what is read at once: a full frame of most peers and its header.
const chunk = 16<<10 + frameHeader

// grpcLink is a link on which gRPC is spoken. What is written to the client is under mu.
type grpcLink struct {
	link

	// Under mu.
	frames  frames // of the database
	leaving bool
	said    bool // that the client is to go elsewhere
}

// run forwards both ways until both have ended.
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

// upload forwards what the client says. Where it ends the link does, as soon as the
// database has heard of it.
func (l *grpcLink) upload() {
	b := make([]byte, chunk)
	for {
		n, err := l.client.Read(b)
		if n > 0 {
			if _, err := l.database.Write(b[:n]); err != nil {
				return // the database has ended; download says so
			}
		}
		if err != nil {
			closeWrite(l.database)
			_ = l.database.SetReadDeadline(time.Now().Add(lastWords))
			return
		}
	}
}

// download forwards what the database says. Where it ends the link does, as soon as
// the client has read the last of it.
func (l *grpcLink) download() {
	b := make([]byte, chunk)
	for {
		n, err := l.database.Read(b)
		if n > 0 {
			if err := l.say(b[:n]); err != nil {
				l.cut()
				return
			}
		}
		if err != nil {
			closeWrite(l.client)
			_ = l.client.SetReadDeadline(time.Now().Add(lastWords))
			_ = l.database.Close()
			return
		}
	}
}

// say writes what the database said to the client.
func (l *grpcLink) say(b []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	end := l.frames.advance(b)
	if !l.leaving || l.said || end < 0 {
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

// leave tells the client to go elsewhere, now or behind the frame that is under way.
func (l *grpcLink) leave() {
	go func() { // who writes to a client that does not read holds mu
		l.mu.Lock()
		defer l.mu.Unlock()
		l.leaving = true
		if !l.said && l.frames.between() {
			_ = l.goAway()
		}
	}()
}

// goAway writes the frame; the caller holds mu. All that the client has begun is still
// answered, so the last stream is the last that there can be (RFC 9113, section 6.8).
func (l *grpcLink) goAway() error {
	l.said = true
	_, err := l.client.Write([]byte{0, 0, 8, typeGoAway, 0, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0})
	return err
}
