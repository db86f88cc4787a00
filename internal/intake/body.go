package intake

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// The windows of HTTP/2 of a server whose bodies are taken by a Budget: what of a body may
// come before it is let in, and room beside those that wait for one that was.
const (
	BodyWindow  = 64 << 10
	BodiesRoom  = 3 << 20
	UnknownSize = -1
)

// The pace of a body: a server waits at most stallTime for each stallBytes of it, and at
// most heldStallTime where the body holds room of a Budget. How long the whole takes does
// not matter, so that a slow upload passes and a body that does not come ends.
const (
	stallBytes    = 64 << 10
	stallTime     = 10 * time.Second
	heldStallTime = 3 * time.Second
)

// pacedBody is a body that fails where its client is too slow.
type pacedBody struct {
	io.ReadCloser
	control *http.ResponseController
	limit   time.Duration // how long to wait for stallBytes
	waited  time.Duration // for the bytes that came since it was 0
	came    int
}

// Pace has reading the body of r fail with ErrStalled where less than 64 KiB come in ten
// seconds of waiting for them. What the server itself takes between two reads does not count.
func Pace(w http.ResponseWriter, r *http.Request) { paceBody(w, r) }

// paceBody returns the paced body; nil where r has none.
func paceBody(w http.ResponseWriter, r *http.Request) *pacedBody {
	if r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	p := &pacedBody{ReadCloser: r.Body, control: http.NewResponseController(w), limit: stallTime}
	r.Body = p
	return p
}

// Read implements io.Reader.
func (p *pacedBody) Read(b []byte) (int, error) {
	began := time.Now()
	late := time.AfterFunc(p.limit-p.waited, func() { _ = p.control.SetReadDeadline(time.Unix(1, 0)) })
	n, err := p.ReadCloser.Read(b)
	if !late.Stop() {
		return n, fmt.Errorf("%w: fewer than %d bytes of the body came within %s; send faster", ErrStalled, stallBytes, p.limit)
	}
	p.waited += time.Since(began)
	if p.came += n; p.came >= stallBytes {
		p.came, p.waited = 0, 0
	}
	return n, err
}

// hold makes the pace that of a body which holds room.
func (p *pacedBody) hold() { p.limit, p.waited, p.came = heldStallTime, 0, 0 }

// TakeBody lets the body of a request in that is to be held whole and needs n bytes, or
// UnknownSize; then it needs most, unless it ends within BodyWindow. The first BodyWindow
// bytes have to be here before the body takes any room, so that a body which is announced
// and does not come keeps nobody out. The body is paced, without a Budget too. TakeBody
// sets the deadline of reading the body, which the caller takes back. It returns the errors
// of Take, ErrStalled or the error of reading.
func (b *Budget) TakeBody(w http.ResponseWriter, r *http.Request, n, most int64) (*Grant, error) {
	body := paceBody(w, r)
	if b == nil || body == nil || n >= 0 && n <= Free {
		return nil, nil
	}
	if n > b.most {
		return nil, TooLarge(n, b.most, Setting)
	}
	came, whole, err := peek(r)
	if err != nil {
		return nil, err
	}
	if n < 0 && whole {
		n = came
	}
	switch {
	case n < 0:
		n = most
	case n <= Free:
		return nil, nil
	}
	g, err := b.Take(r.Context(), n, min(n, BodyWindow))
	body.hold()
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(Patience(n)))
	return g, err
}

// peek reads the first BodyWindow bytes of a body, and puts them back. It returns how many
// there were; whole: there are no more.
func peek(r *http.Request) (came int64, whole bool, err error) {
	var b bytes.Buffer
	came, err = io.CopyN(&b, r.Body, BodyWindow)
	if err != nil && !errors.Is(err, io.EOF) {
		return came, false, err
	}
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(&b, r.Body), r.Body}
	return came, err != nil, nil
}
