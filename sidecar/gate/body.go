package gate

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"time"
)

// HTTP/2 windows of a server whose bodies a Gate receives.
const (
	// BodyWindowBytes of a body may come before the body is let in.
	BodyWindowBytes = 64 << 10
	// BodiesWindowBytes is the window of a connection: room for bodies that were let in
	// beside those that wait.
	BodiesWindowBytes = 3 << 20
)

// UnknownLength is the length of a body that does not announce one.
const UnknownLength = -1

// The pace of a body. A server waits at most paceTime for each paceBytes of a body, and at
// most heldPaceTime where the body holds bytes of a Gate. The time of the whole body has no
// limit, so that a slow upload passes and a body that does not come ends.
const (
	paceBytes    = 64 << 10
	paceTime     = 10 * time.Second
	heldPaceTime = 3 * time.Second
)

// pacedBody is a body whose reading fails where its client is too slow.
type pacedBody struct {
	io.ReadCloser
	control *http.ResponseController
	limit   time.Duration // most time to wait for paceBytes
	waited  time.Duration // for the bytes that came since the count began
	came    int
}

// PaceBody makes reading the body of r fail with ErrStalled where fewer than 64 KiB come in
// ten seconds of waiting. The time that the server takes between two reads does not count.
func PaceBody(w http.ResponseWriter, r *http.Request) { paceBody(w, r) }

// paceBody returns the paced body, nil where r has none.
func paceBody(w http.ResponseWriter, r *http.Request) *pacedBody {
	if r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	p := &pacedBody{ReadCloser: r.Body, control: http.NewResponseController(w), limit: paceTime}
	r.Body = p
	return p
}

// Read implements io.Reader.
func (p *pacedBody) Read(b []byte) (int, error) {
	began := time.Now()
	late := time.AfterFunc(p.limit-p.waited, func() { _ = p.control.SetReadDeadline(time.Unix(1, 0)) })
	n, err := p.ReadCloser.Read(b)
	if !late.Stop() {
		return n, bytesStalled("body", p.limit)
	}
	p.waited += time.Since(began)
	if p.came += n; p.came >= paceBytes {
		p.came, p.waited = 0, 0
	}
	return n, err
}

// hold sets the pace of a body that holds bytes of a Gate.
func (p *pacedBody) hold() { p.limit, p.waited, p.came = heldPaceTime, 0, 0 }

// ReceiveBody lets the body of a request come. The body needs length bytes; if that is
// UnknownLength, it needs most bytes, unless it ends within BodyWindowBytes. The first
// BodyWindowBytes have to be here before the body takes any bytes of the Gate, so that a
// body that is announced and does not come keeps nobody out. The body is paced, on a nil
// Gate too. ReceiveBody sets the read deadline of the body, which the caller takes back. It
// returns the errors of Receive, ErrStalled, or the error of reading.
func (g *Gate) ReceiveBody(w http.ResponseWriter, r *http.Request, length, most int64) (*Grant, error) {
	body := paceBody(w, r)
	if !g.CountsBytes() || body == nil || length >= 0 && length <= UncountedBytes {
		return nil, nil
	}
	if length > g.messages.most {
		return nil, messageTooLarge(length, g.messages.most, ReceivedSetting)
	}
	came, isWhole, err := peekBody(r)
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
	grant, err := g.Receive(r.Context(), length, min(length, BodyWindowBytes))
	body.hold()
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(messageTime(length)))
	return grant, err
}

// peekBody reads the first BodyWindowBytes of a body and puts them back. It returns how many
// bytes there were, and whether they are the whole body.
func peekBody(r *http.Request) (came int64, isWhole bool, err error) {
	var b bytes.Buffer
	came, err = io.CopyN(&b, r.Body, BodyWindowBytes)
	if err != nil && !errors.Is(err, io.EOF) {
		return came, false, err
	}
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(&b, r.Body), r.Body}
	return came, err != nil, nil
}
