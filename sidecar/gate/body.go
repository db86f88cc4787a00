package gate

import (
	"bytes"
	"context"
	"errors"
	"io"
	"time"
)

// HTTP/2 windows of a server whose bodies a Gate receives.
const (
	// BodyWindowBytes is how much of a body may come before the body is let in.
	BodyWindowBytes = 64 << 10
	// BodiesWindowBytes is the window of a connection: room for bodies that were let in
	// beside those that wait.
	BodiesWindowBytes = 3 << 20
)

// UnknownLength is the length of a body that does not announce one.
const UnknownLength = -1

// The pace of a body. A server waits at most paceTime for each paceBytes of a body, and at most
// heldPaceTime if the body holds bytes of a Gate. The whole body has no time limit, so a slow
// upload passes, but a body that stops coming is ended.
const (
	paceBytes    = 64 << 10
	paceTime     = 10 * time.Second
	heldPaceTime = 3 * time.Second
)

// ReadDeadliner sets a deadline for reading, as an *http.ResponseController and a net.Conn do.
type ReadDeadliner interface{ SetReadDeadline(at time.Time) error }

// Body is the body of a request. Reading it fails with ErrStalled if fewer than 64 KiB come in ten
// seconds of waiting. The time that the server takes between two reads does not count.
type Body struct {
	reader  io.Reader
	control ReadDeadliner
	limit   time.Duration // the longest wait for paceBytes
	waited  time.Duration // the time waited for the bytes counted so far
	came    int
}

// NewBody returns a Body that reads from reader. control sets the deadlines of these reads.
func NewBody(reader io.Reader, control ReadDeadliner) *Body {
	return &Body{reader: reader, control: control, limit: paceTime}
}

// Read implements io.Reader.
func (b *Body) Read(p []byte) (int, error) {
	began := time.Now()
	late := time.AfterFunc(b.limit-b.waited, func() { _ = b.control.SetReadDeadline(time.Unix(1, 0)) })
	n, err := b.reader.Read(p)
	if !late.Stop() {
		return n, bytesStalled("body", b.limit)
	}
	b.waited += time.Since(began)
	if b.came += n; b.came >= paceBytes {
		b.came, b.waited = 0, 0
	}
	return n, err
}

// hold sets the pace of a body that holds bytes of a Gate.
func (b *Body) hold() { b.limit, b.waited, b.came = heldPaceTime, 0, 0 }

// ReceiveBody lets a body come. The body takes length bytes of the Gate, or, if length is
// UnknownLength, most bytes, unless it ends within BodyWindowBytes. It takes them only after its
// first BodyWindowBytes have come, so that a body that is announced and never comes keeps nobody
// out. ReceiveBody sets the body's read deadline, which the caller resets. It returns the errors of
// Receive, ErrStalled, or the error of reading.
func (g *Gate) ReceiveBody(ctx context.Context, body *Body, length, most int64) (*Grant, error) {
	if !g.CountsBytes() || length >= 0 && length <= UncountedBytes {
		return nil, nil
	}
	if length > g.messages.most {
		return nil, messageTooLarge(length, g.messages.most, ReceivedSetting)
	}
	came, isWhole, err := body.peek()
	if err != nil {
		return nil, err
	}
	if length < 0 && isWhole {
		length = came
	}
	switch {
	case length < 0:
		length = most
	case length <= UncountedBytes:
		return nil, nil
	}
	grant, err := g.Receive(ctx, length, min(length, BodyWindowBytes))
	body.hold()
	_ = body.control.SetReadDeadline(time.Now().Add(messageTime(length)))
	return grant, err
}

// peek reads the first BodyWindowBytes of a body and puts them back. It returns how many
// bytes there were, and whether they are the whole body.
func (b *Body) peek() (came int64, isWhole bool, err error) {
	var window bytes.Buffer
	came, err = io.CopyN(&window, b, BodyWindowBytes)
	if err != nil && !errors.Is(err, io.EOF) {
		return came, false, err
	}
	b.reader = io.MultiReader(&window, b.reader)
	return came, err != nil, nil
}
