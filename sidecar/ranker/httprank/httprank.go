// Package httprank implements a heavy ranker that calls a rerank service over HTTP, in the
// format of Text Embeddings Inference, Cohere or Jina.
package httprank

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/likenessdb/likeness/internal/traceparent"
	"github.com/likenessdb/likeness/plugin"
	"github.com/likenessdb/likeness/sidecar/ranker"
)

// DefaultParallel is the default of Options.Parallel.
const DefaultParallel = 4

// Limits on the size of answers. A service may repeat the request in its answer.
const (
	answerBytes = 1 << 20 // plus twice the size of the request
	errorBytes  = 4 << 10
)

// Options configures New.
type Options struct {
	// URL is the URL of the rerank method, http or https, without a user.
	URL string
	// Dialect is TEI, Cohere or Jina.
	Dialect string
	// Model is the model name in requests. TEI serves a single model and needs none.
	Model string
	// Token is sent as a bearer token, only to the host of URL. Empty means none.
	Token string
	// Fields are the payload fields that make up an item's text, joined by newlines.
	Fields []string
	// Version identifies the scores. If empty, it is the model that TEI reports, or Model.
	Version string
	// Cost is the cost of scoring one item.
	Cost float64
	// Parallel limits the concurrent calls. 0 means DefaultParallel.
	Parallel int
	// Transport, if not nil, replaces the scorer's own connection pool.
	Transport http.RoundTripper
}

// Scorer calls a rerank service. It is safe for concurrent use.
type Scorer struct {
	options Options
	dialect dialect
	client  *http.Client
	infoURL string // TEI's information method; empty without one
}

var _ plugin.Scorer = (*Scorer)(nil)

// New returns a scorer without connecting yet. An error tells the operator which option is
// invalid.
func New(o Options) (*Scorer, error) {
	d, ok := dialects[o.Dialect]
	if !ok {
		return nil, fmt.Errorf("dialect %q: want %s, %s or %s", o.Dialect, TEI, Cohere, Jina)
	}
	u, err := url.Parse(o.URL)
	switch {
	case err != nil:
		return nil, errors.New("url does not parse; want https://host/rerank") // the parser's error would repeat the URL
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, fmt.Errorf("url %q: want http:// or https:// and a host", u.Redacted())
	case u.User != nil:
		return nil, fmt.Errorf("url %q holds a user; put a token in token_file or token_env", u.Redacted())
	case d.named && o.Model == "":
		return nil, fmt.Errorf("model is empty: a request in the form of %s names one", o.Dialect)
	case len(o.Fields) == 0:
		return nil, errors.New("fields is empty: name the payload fields that make an item's text")
	case strings.ContainsFunc(o.Token, func(r rune) bool { return r < ' ' || r > '~' }):
		return nil, errors.New("the token has a character that an HTTP header cannot carry")
	}
	o.Parallel = cmp.Or(max(o.Parallel, 0), DefaultParallel)
	s := &Scorer{options: o, dialect: d, client: &http.Client{
		Transport: o.Transport,
		// Following a redirect would send the token or the texts to a host that nobody
		// configured.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	if s.client.Transport == nil {
		s.client.Transport = newTransport(o.Parallel)
	}
	if base, ok := strings.CutSuffix(u.Path, "/rerank"); ok && o.Dialect == TEI {
		u.Path = base + "/info"
		s.infoURL = u.String()
	}
	return s, nil
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
func (s *Scorer) Close() error {
	s.client.CloseIdleConnections()
	return nil
}

// Describe implements plugin.Scorer. It asks TEI for its model and its batch limit. The
// limits of other services become known when they refuse a call. Describe returns
// ErrUnavailable if only TEI could tell the version and TEI does not answer.
func (s *Scorer) Describe(ctx context.Context) (plugin.Description, error) {
	d := plugin.Description{
		Name: cmp.Or(s.options.Model, s.options.Dialect), Version: s.options.Version, Parallel: s.options.Parallel,
		Cost: s.options.Cost, Text: true, PayloadFields: s.options.Fields,
	}
	if s.infoURL != "" {
		i, err := s.info(ctx)
		if err != nil && d.Version == "" {
			return plugin.Description{}, err
		}
		d.MaxItems, d.Name = max(i.MaxClientBatchSize, 0), cmp.Or(i.ModelID, d.Name)
		d.Version = cmp.Or(d.Version, i.version())
	}
	d.Version = cmp.Or(d.Version, strings.TrimSuffix(s.options.Dialect+" "+s.options.Model, " "))
	return d, nil
}

// info is TEI's description of itself.
type info struct {
	ModelID            string `json:"model_id"`
	ModelSHA           string `json:"model_sha"`
	MaxClientBatchSize int    `json:"max_client_batch_size"`
}

func (i info) version() string {
	if i.ModelSHA == "" {
		return i.ModelID
	}
	return i.ModelID + "@" + i.ModelSHA
}

// info requests TEI's description. It is empty for a server that supports the dialect but
// not this method.
func (s *Scorer) info(ctx context.Context) (i info, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.infoURL, http.NoBody)
	if err != nil {
		return i, fmt.Errorf("%w: %w", ranker.ErrAnswer, err)
	}
	status, _, body, err := s.do(request, answerBytes)
	switch {
	case err != nil:
		return i, err
	case status == http.StatusOK:
		if json.Unmarshal(body, &i) != nil { // the path belongs to another kind of server
			i = info{}
		}
		return i, nil
	case status == http.StatusTooManyRequests || status >= http.StatusInternalServerError:
		return i, fmt.Errorf("%w: it answered with status %d when asked what it serves", ranker.ErrUnavailable, status)
	default:
		return i, nil
	}
}

// Score implements plugin.Scorer. Items without text are not sent and have no score. Score
// returns ErrQuery for a query that has no text or that the service cannot read,
// ErrTooLarge for too many items or bytes, ErrUnavailable (with RetryAfter if the service
// says when to retry), ErrAnswer, or the context's error.
func (s *Scorer) Score(ctx context.Context, q plugin.Query, items []plugin.Item) ([]float32, error) {
	if q.Text == "" {
		return nil, fmt.Errorf("%w: it reads the query's text, which is empty; send text", ranker.ErrQuery)
	}
	scores, texts, places := make([]float32, len(items)), make([]string, 0, len(items)), make([]int, 0, len(items))
	for i, item := range items {
		scores[i] = float32(math.NaN())
		text, err := textOf(item.Payload, s.options.Fields)
		if err != nil {
			return nil, fmt.Errorf("%w: the payload of item %s: %w", ranker.ErrQuery, item.ID, err)
		}
		if text != "" {
			texts, places = append(texts, text), append(places, i)
		}
	}
	if len(texts) == 0 {
		return scores, nil
	}
	got, err := s.rerank(ctx, q.Text, texts)
	if err != nil {
		return nil, err
	}
	for i, place := range places {
		scores[place] = got[i]
	}
	return scores, nil
}

// rerank requests the scores of texts and returns them in order.
func (s *Scorer) rerank(ctx context.Context, query string, texts []string) ([]float32, error) {
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(s.dialect.request(s.options.Model, query, texts)); err != nil {
		return nil, fmt.Errorf("%w: %w", ranker.ErrQuery, err)
	}
	size := body.Len()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.options.URL, &body)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ranker.ErrUnavailable, err)
	}
	request.Header.Set("Content-Type", "application/json")
	// An empty header is not sent, but lets the transport repeat the request if a kept
	// connection was closed.
	request.Header["Idempotency-Key"] = nil
	status, header, answer, err := s.do(request, answerBytes+2*size)
	if err != nil {
		return nil, err
	}
	if status != http.StatusOK {
		return nil, refusal(status, header, answer, len(texts))
	}
	return s.dialect.scores(answer, len(texts))
}

// do sends a request and reads at most `most` bytes of the answer, or errorBytes of an
// error.
func (s *Scorer) do(request *http.Request, most int) (status int, header http.Header, body []byte, err error) {
	request.Header.Set("Accept", "application/json")
	traceparent.ToHeader(request)
	if s.options.Token != "" {
		request.Header.Set("Authorization", "Bearer "+s.options.Token)
	}
	response, err := s.client.Do(request)
	if err != nil {
		return 0, nil, nil, connectionError(request.Context(), err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		most = errorBytes
	}
	body, err = io.ReadAll(io.LimitReader(response.Body, int64(most)+1))
	switch {
	case err != nil:
		return 0, nil, nil, connectionError(request.Context(), err)
	case len(body) > most && response.StatusCode == http.StatusOK:
		return 0, nil, nil, fmt.Errorf("%w: the answer is longer than %d bytes", ranker.ErrAnswer, most)
	}
	return response.StatusCode, response.Header, body, nil
}

// connectionError converts a connection error. It omits the URL, which may contain a secret.
func connectionError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("no answer in time: %w", ctx.Err())
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return fmt.Errorf("%w: %w", ranker.ErrUnavailable, err)
}
