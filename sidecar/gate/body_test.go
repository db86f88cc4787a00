package gate

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// client is a body that comes through a pipe, with the writer of its answer.
type client struct {
	http.ResponseWriter
	body *io.PipeReader
	send *io.PipeWriter
}

func newClient() (*client, *http.Request) {
	c := &client{ResponseWriter: httptest.NewRecorder()}
	c.body, c.send = io.Pipe()
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	r.Body = c.body
	return c, r
}

// SetReadDeadline makes reads fail after the deadline, as a connection does.
func (c *client) SetReadDeadline(at time.Time) error {
	if !at.IsZero() && at.Before(time.Now()) {
		_ = c.body.CloseWithError(os.ErrDeadlineExceeded)
	}
	return nil
}

// sendSlowly sends parts of a length with a pause before each.
func (c *client) sendSlowly(parts, length int, pause time.Duration) {
	defer c.send.Close()
	for range parts {
		time.Sleep(pause) //nolint:forbidigo // of the bubble
		if _, err := c.send.Write(make([]byte, length)); err != nil {
			return
		}
	}
}

// A slow body passes, however long it takes. A body that stops or drips does not.
func TestPace(t *testing.T) {
	for name, tc := range map[string]struct {
		parts, length int
		pause         time.Duration
		stalls        bool
	}{
		"slow":   {500, paceBytes, paceTime - time.Second, false},
		"drips":  {500, 1, time.Second, true},
		"silent": {1, 100, 2 * paceTime, true},
		"short":  {3, 10, time.Second, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			c, r := newClient()
			body := NewBody(r.Body, c)
			var senders sync.WaitGroup
			senders.Go(func() { c.sendSlowly(tc.parts, tc.length, tc.pause) })
			began := time.Now()
			n, err := io.Copy(io.Discard, body)
			if errors.Is(err, ErrStalled) != tc.stalls || !tc.stalls && (err != nil || n != int64(tc.parts*tc.length)) {
				t.Errorf("%s: %d bytes, %v", name, n, err)
			}
			if tc.stalls && time.Since(began) > paceTime {
				t.Errorf("%s: ended after %s", name, time.Since(began))
			}
			_ = c.body.Close()
			senders.Wait()
		})
	}
}

// Bodies that are announced and do not arrive take no room, and a body that arrives is let in.
func TestAnnouncedBodiesTakeNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(Options{ReceivedBytes: 4 << 20})
		ended := make(chan error)
		var senders sync.WaitGroup
		const silent = 100
		for range silent {
			c, r := newClient()
			senders.Go(func() { c.sendSlowly(2, 100, 2*paceTime) })
			go func() {
				g, err := b.ReceiveBody(t.Context(), NewBody(r.Body, c), 1<<20, 32<<20)
				g.Release()
				_ = c.body.Close()
				ended <- err
			}()
		}
		synctest.Wait()
		if b.ReceivedBytes() != 0 {
			t.Errorf("%d bytes are taken for nothing", b.ReceivedBytes())
		}
		c, r := newClient()
		senders.Go(func() { c.sendSlowly(16, 64<<10, 0) })
		body := NewBody(r.Body, c)
		g, err := b.ReceiveBody(t.Context(), body, 1<<20, 32<<20)
		if n, readErr := io.Copy(io.Discard, body); err != nil || readErr != nil || n != 1<<20 || b.ReceivedBytes() != 1<<20 {
			t.Errorf("%d bytes came, %d are taken: %v %v", n, b.ReceivedBytes(), err, readErr)
		}
		g.Release()
		for range silent {
			if err := <-ended; !errors.Is(err, ErrStalled) {
				t.Error(err)
			}
		}
		// A body that stops midway soon gives its room back.
		c, r = newClient()
		senders.Go(func() { c.sendSlowly(2, 64<<10, 2*heldPaceTime) })
		began := time.Now()
		body = NewBody(r.Body, c)
		g, err = b.ReceiveBody(t.Context(), body, 1<<20, 32<<20)
		let := time.Now()
		if _, readErr := io.Copy(io.Discard, body); err != nil || !errors.Is(readErr, ErrStalled) || time.Since(let) > heldPaceTime {
			t.Errorf("%v %v after %s, %s", err, readErr, let.Sub(began), time.Since(let))
		}
		g.Release()
		_ = c.body.Close()
		senders.Wait()
	})
}
