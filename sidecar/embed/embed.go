// Package embed turns texts into vectors by a service over HTTP, in the format of OpenAI's
// /v1/embeddings or of /embed of Text Embeddings Inference.
package embed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/likenessdb/likeness/internal/breaker"
	"github.com/likenessdb/likeness/internal/budget"
	"github.com/likenessdb/likeness/internal/jsonhttp"
)

// Sentinel errors of Embed, wrapped with the embedder's name and message.
var (
	// ErrUnavailable: the service is down or busy, refuses this caller, or its breaker is open.
	ErrUnavailable = errors.New("embedder unavailable")
	// ErrText: the service cannot embed this text.
	ErrText = errors.New("text not embeddable")
	// ErrAnswer: the service gave an invalid answer, such as a wrong number of vectors.
	ErrAnswer = errors.New("embedder's answer not valid")
)

// errTooLarge: the call has too many texts or bytes. Client splits such a call.
var errTooLarge = errors.New("call too large")

// errSlow: the call took longer than Options.Timeout.
var errSlow = errors.New("no answer within")

// Embedder turns texts into vectors. It is safe for concurrent use.
type Embedder interface {
	// Embed returns one vector for each query and then for each document, in order. Callers share
	// the vectors and do not change them. It returns ErrUnavailable, ErrText, ErrAnswer, or the
	// context's error.
	Embed(ctx context.Context, queries []string, documents ...string) ([][]float32, error)
}

// Options configures New. Zero values select the stated defaults.
type Options struct {
	// Name is the operator's name for the embedder, in errors and metrics.
	Name string
	// URL is the URL of the method, http or https, without a user.
	URL string
	// Form is OpenAI or TEI. Empty means TEI if the path of URL ends in /embed, and OpenAI
	// otherwise.
	Form string
	// Model is the model name in requests. TEI serves a single model and needs none.
	Model string
	// Token is sent as a bearer token, only to the host of URL. Empty means none.
	Token string
	// QueryPrefix and DocumentPrefix are put before queries and documents, for a model that was
	// trained with them.
	QueryPrefix, DocumentPrefix string
	// Dimension is the length of every vector. 0 means the length of the first.
	Dimension int
	// Shorten asks the service, in the form of OpenAI, for vectors of the length Dimension.
	Shorten bool
	// Batch limits the texts of a call, Parallel the concurrent calls. 0 means 32, and 4.
	Batch    int
	Parallel int
	// Timeout limits a call. 0 means 5 s.
	Timeout time.Duration
	// CacheBytes bounds the memory for texts that were embedded before. 0 keeps none.
	CacheBytes int64
	// After BreakAfter failures in a row, and one for a text of our own, the service is not called
	// for BreakFor, plus or minus a fifth. Then single calls are tried until one succeeds. 0 means
	// 5, and 500 ms.
	BreakAfter int
	BreakFor   time.Duration
	// RetryBudget is the share of calls, over ten seconds, that may be retried after temporary
	// failures. If it is above 0, one retry is always allowed.
	RetryBudget float64
	// Transport, if not nil, replaces the client's own connection pool.
	Transport http.RoundTripper
	// Observer may be nil.
	Observer Observer
	// Logger gets the changes of the breaker; it may be nil.
	Logger *slog.Logger
}

// Outcomes of a call.
const (
	OK          = "ok"
	Unavailable = "unavailable"
	Timeout     = "timeout"
	TooLarge    = "too_large" // split and sent again
	Text        = "text"      // refused
	Answer      = "answer"    // not valid
	Broken      = "broken"    // not sent, because the breaker is open
)

// Observer is notified of calls to an embedder. Its methods are called concurrently.
type Observer interface {
	// EmbedderCalled reports the start of a call. ended must be called once, with the outcome.
	EmbedderCalled(ctx context.Context, embedder string, texts int) (ended func(outcome string))
	// EmbedderCached reports texts that were found in the cache, and texts that were not.
	EmbedderCached(embedder string, found, missed int)
	// EmbedderBroken reports whether the breaker is open or half-open.
	EmbedderBroken(embedder string, broken bool)
}

// Client is an Embedder that calls one service. Texts that wait at the same time share calls.
type Client struct {
	options Options
	form    form
	service *jsonhttp.Client
	breaker *breaker.Breaker
	retries budget.Budget
	life    context.Context //nolint:containedctx // ends the calls in flight when the client is closed
	end     context.CancelFunc
	calls   sync.WaitGroup

	mu      sync.Mutex
	cache   cache
	asked   map[string]*asked // texts that wait or are being embedded
	waiting queue             // texts of asked that no call has taken yet
	flying  int               // calls in flight
	held    map[string]int    // those of each caller
	most    int               // limit on the texts of a call that was learned; see mostTexts
	learned time.Time         // when it was learned
	dim     int               // length of the vectors; 0 if not known
	tally   tally
}

var _ Embedder = (*Client)(nil)

// New returns a client without connecting yet. An error tells the operator which option is
// invalid.
func New(o Options) (*Client, error) {
	o = o.withDefaults()
	f, ok := forms[o.Form]
	switch {
	case !ok:
		return nil, fmt.Errorf("form %q: want %s or %s", o.Form, OpenAI, TEI)
	case f.named && o.Model == "":
		return nil, fmt.Errorf("model is empty: a request in the form of %s names one", o.Form)
	case o.Dimension < 0 || o.Dimension > maxDimension:
		return nil, fmt.Errorf("dimension %d is not between 0 and %d", o.Dimension, maxDimension)
	case o.Shorten && (o.Dimension == 0 || o.Form != OpenAI):
		return nil, fmt.Errorf("shorten asks for vectors of the length dimension in the form of %s; give both", OpenAI)
	}
	service, err := jsonhttp.New(jsonhttp.Options{
		URL: o.URL, Token: o.Token, Parallel: o.Parallel, Transport: o.Transport,
		Errors: jsonhttp.Errors{Unavailable: ErrUnavailable, TooLarge: errTooLarge, Request: ErrText, Answer: ErrAnswer},
	})
	if err != nil {
		return nil, err
	}
	if strings.Trim(service.Path(), "/") == "" {
		return nil, errors.New("url names no method; want https://host/v1/embeddings or https://host/embed")
	}
	c := &Client{
		options: o, form: f, service: service, retries: budget.Budget{Share: o.RetryBudget},
		cache: newCache(o.CacheBytes), asked: map[string]*asked{}, held: map[string]int{}, dim: o.Dimension,
	}
	c.life, c.end = context.WithCancel(context.Background())
	c.breaker = breaker.New(breaker.Options{After: o.BreakAfter, For: o.BreakFor, Changed: func(_, to breaker.State) {
		o.Observer.EmbedderBroken(o.Name, to != breaker.Closed)
		if to != breaker.HalfOpen {
			o.Logger.Warn("embedder breaker changed", "embedder", o.Name, "state", string(to))
		}
	}})
	return c, nil
}

func (o Options) withDefaults() Options {
	if o.Form == "" {
		o.Form = formOf(o.URL)
	}
	o.Batch, o.Parallel = cmp.Or(max(o.Batch, 0), 32), cmp.Or(max(o.Parallel, 0), 4)
	o.Timeout = cmp.Or(max(o.Timeout, 0), 5*time.Second)
	o.BreakAfter, o.BreakFor = cmp.Or(max(o.BreakAfter, 0), 5), cmp.Or(max(o.BreakFor, 0), 500*time.Millisecond)
	if o.Observer == nil {
		o.Observer = unobserved{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Close ends the calls in flight and closes idle connections. Embed then returns ErrUnavailable.
func (c *Client) Close() error {
	c.end()
	c.calls.Wait()
	return c.service.Close()
}

// withName adds the embedder's name to an error.
func (c *Client) withName(err error) error {
	return fmt.Errorf("embedder %q: %w", c.options.Name, err)
}

// unobserved is an Observer that does nothing.
type unobserved struct{}

func (unobserved) EmbedderCalled(context.Context, string, int) func(string) { return func(string) {} }
func (unobserved) EmbedderCached(string, int, int)                          {}
func (unobserved) EmbedderBroken(string, bool)                              {}
