// Package jsonhttp calls services that take and return JSON over HTTP, such as those that rank or
// embed texts. It bounds what a reply may cost, and sends a token to no other host.
package jsonhttp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/likenessdb/likeness/internal/traceparent"
)

// errorBytes bounds how much of an error's body is read.
const errorBytes = 4 << 10

// Errors are the caller's sentinels, which the errors of calls wrap.
type Errors struct {
	Unavailable error // the service is down, busy, or refuses this caller
	TooLarge    error // the call has too many texts or bytes; a smaller one may work
	Request     error // the service cannot read this call
	Answer      error // the service gave an invalid answer
}

// Options configures New.
type Options struct {
	// URL is the URL of the method, http or https, without a user.
	URL string
	// Token is sent as a bearer token, only to the host of URL. Empty means none.
	Token string
	// Parallel is how many idle connections are kept.
	Parallel int
	// Transport, if not nil, replaces the client's own connection pool.
	Transport http.RoundTripper
	// Errors are the sentinels of the client's errors.
	Errors Errors
}

// Client calls one service. It is safe for concurrent use.
type Client struct {
	options Options
	url     url.URL
	http    *http.Client
}

// New returns a client without connecting yet. An error tells the operator which option is
// invalid.
func New(o Options) (*Client, error) {
	u, err := url.Parse(o.URL)
	switch {
	case err != nil:
		return nil, errors.New("url does not parse; want https://host/path") // the parser's error would repeat the URL
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, fmt.Errorf("url %q: want http:// or https:// and a host", u.Redacted())
	case u.User != nil:
		return nil, fmt.Errorf("url %q holds a user; put a token in token_file or token_env", u.Redacted())
	case strings.ContainsFunc(o.Token, func(r rune) bool { return r < ' ' || r > '~' }):
		return nil, errors.New("the token has a character that an HTTP header cannot carry")
	}
	c := &Client{options: o, url: *u, http: &http.Client{
		Transport: o.Transport,
		// Following a redirect would send the token or the texts to a host that nobody
		// configured.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	if c.http.Transport == nil {
		c.http.Transport = newTransport(o.Parallel)
	}
	return c, nil
}

// newTransport returns a transport that keeps one connection for each parallel call and
// uses HTTP/2 if TLS offers it.
func newTransport(parallel int) *http.Transport {
	return &http.Transport{
		DialContext:            (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
		TLSHandshakeTimeout:    5 * time.Second,
		ForceAttemptHTTP2:      true,
		MaxIdleConns:           parallel,
		MaxIdleConnsPerHost:    parallel,
		IdleConnTimeout:        90 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
	}
}

// Close closes idle connections.
func (c *Client) Close() error {
	c.http.CloseIdleConnections()
	return nil
}

// Host returns the host and port of the method's URL, which has no password.
func (c *Client) Host() string { return c.url.Host }

// Path returns the path of the method's URL.
func (c *Client) Path() string { return c.url.Path }

// Post sends a call that has n texts and returns the reply, which must have the status 200 and at
// most maxBytes(size) bytes, where size is the length of the request. It returns the sentinels of
// Options.Errors, where Unavailable may have a RetryAfter method, or the context's error.
func (c *Client) Post(ctx context.Context, body any, n int, maxBytes func(size int) int) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(body); err != nil {
		return nil, fmt.Errorf("%w: %w", c.options.Errors.Request, err)
	}
	size := b.Len()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.options.URL, &b)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", c.options.Errors.Unavailable, err)
	}
	request.Header.Set("Content-Type", "application/json")
	// An empty header is not sent, but lets the transport repeat the request if a kept
	// connection was closed.
	request.Header["Idempotency-Key"] = nil
	status, header, reply, err := c.do(request, maxBytes(size))
	switch {
	case err != nil:
		return nil, err
	case status != http.StatusOK:
		return nil, c.refusal(status, header, reply, n)
	default:
		return reply, nil
	}
}

// Get reads another path of the service. It returns the status, the errors of a connection, and
// Answer for a reply of more than maxBytes.
func (c *Client) Get(ctx context.Context, path string, maxBytes int) (status int, reply []byte, err error) {
	u := c.url
	u.Path = path
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return 0, nil, fmt.Errorf("%w: %w", c.options.Errors.Answer, err)
	}
	status, _, reply, err = c.do(request, maxBytes)
	return status, reply, err
}

// do sends a request and reads at most `most` bytes of the reply, or errorBytes of an
// error.
func (c *Client) do(request *http.Request, most int) (status int, header http.Header, body []byte, err error) {
	request.Header.Set("Accept", "application/json")
	traceparent.ToHeader(request)
	if c.options.Token != "" {
		request.Header.Set("Authorization", "Bearer "+c.options.Token)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return 0, nil, nil, c.connectionError(request.Context(), err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		most = errorBytes
	}
	body, err = io.ReadAll(io.LimitReader(response.Body, int64(most)+1))
	switch {
	case err != nil:
		return 0, nil, nil, c.connectionError(request.Context(), err)
	case len(body) > most && response.StatusCode == http.StatusOK:
		return 0, nil, nil, fmt.Errorf("%w: the answer is longer than %d bytes", c.options.Errors.Answer, most)
	}
	return response.StatusCode, response.Header, body, nil
}

// connectionError converts a connection error. It omits the URL, which may contain a secret.
func (c *Client) connectionError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("no answer in time: %w", ctx.Err())
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return fmt.Errorf("%w: %w", c.options.Errors.Unavailable, err)
}

// Decode decodes exactly one JSON value. It ignores unknown fields, which belong to the
// service.
func Decode(reply []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(reply))
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more after the JSON of the answer")
	}
	return nil
}
