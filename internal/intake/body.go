package intake

import (
	"bytes"
	"errors"
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

// TakeBody lets the body of a request in that is to be held whole and needs n bytes, or
// UnknownSize; then it needs most, unless it ends within Free bytes. It sets the
// deadline of reading the body, which the caller takes back. It returns the errors of
// Take, or of reading.
func (b *Budget) TakeBody(w http.ResponseWriter, r *http.Request, n, most int64) (*Grant, error) {
	if b == nil || r.Body == nil || n >= 0 && n <= Free {
		return nil, nil
	}
	control := http.NewResponseController(w)
	if n < 0 {
		_ = control.SetReadDeadline(time.Now().Add(Patience(Free)))
		if whole, err := peek(r); err != nil || whole {
			return nil, err
		}
		n = most
	}
	g, err := b.Take(r.Context(), n, min(n, BodyWindow))
	_ = control.SetReadDeadline(time.Now().Add(Patience(n)))
	return g, err
}

// peek reads the first Free bytes of a body, and puts them back; whole: there are no more.
func peek(r *http.Request) (whole bool, err error) {
	var b bytes.Buffer
	n, err := io.CopyN(&b, r.Body, Free+1)
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(&b, r.Body), r.Body}
	return n <= Free, nil
}
