// Package httprank is a rerank service behind likeness: a heavy ranker that is asked
// over HTTP, in the form of Text Embeddings Inference, of Cohere or of Jina.
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

// DefaultParallel is the calls at a time where Options do not say.
const DefaultParallel = 4

// Bounds of what is read of an answer: a service may repeat what it was asked.
const (
	answerBytes = 1 << 20 // and twice the request
	errorBytes  = 4 << 10
)

// Options of New.
type Options struct {
	// URL is that of the rerank method, http or https, without a user.
	URL string
	// Dialect is TEI, Cohere or Jina.
	Dialect string
	// Model is what a request names; TEI serves one and names none.
	Model string
	// Token is sent as a bearer token, to the URL's host alone; empty is none.
	Token string
	// Fields of the payload are an item's text, joined by a newline.
	Fields []string
	// Version names the scores; empty is the model that TEI says it serves, or Model.
	Version string
	// Cost of one item.
	Cost float64
	// Parallel calls at a time; 0 is DefaultParallel.
	Parallel int
	// Transport replaces the connections that the scorer keeps; nil does not.
	Transport http.RoundTripper
}

// Scorer is a rerank service. It is safe for concurrent use.
type Scorer struct {
	options Options
	dialect dialect
	client  *http.Client
	infoURL string // of TEI; empty: nothing to ask
}

var _ plugin.Scorer = (*Scorer)(nil)

// New returns a scorer that has not connected yet. An error says which option does not
// fit; it is the operator's to read.
func New(o Options) (*Scorer, error) {
	d, ok := dialects[o.Dialect]
	if !ok {
		return nil, fmt.Errorf("dialect %q: want %s, %s or %s", o.Dialect, TEI, Cohere, Jina)
	}
	u, err := url.Parse(o.URL)
	switch {
	case err != nil:
		return nil, errors.New("url does not parse; want https://host/rerank") // the error would repeat it
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, fmt.Errorf("url %q: want http:// or https:// and a host", u.Redacted())
	case u.User != nil:
		return nil, fmt.Errorf("url %q holds a user; put a token in token_file or token_env", u.Redacted())
	case d.named && o.Model == "":
		return nil, fmt.Errorf("model is empty: a request in the form of %s names one", o.Dialect)
	case len(o.Fields) == 0:
		return nil, errors.New("fields is empty: name the payload fields that make an item's text")
	case strings.ContainsFunc(o.Token, func(r rune) bool { return r < ' ' || r > '~' }):
		return nil, errors.New("the token holds a character that no header can")
	}
	o.Parallel = cmp.Or(max(o.Parallel, 0), DefaultParallel)
	s := &Scorer{options: o, dialect: d, client: &http.Client{
		Transport: o.Transport,
		// A redirect would take the token, or the texts, to where nobody configured.
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

// newTransport are kept, one a parallel call, and HTTP/2 where TLS offers it.
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

// Close closes the connections that no call uses.
func (s *Scorer) Close() error {
	s.client.CloseIdleConnections()
	return nil
}

// Describe implements plugin.Scorer. It asks TEI what it serves, and how much of it in
// one call; other services are found to have limits when they refuse a call. It returns
// ErrUnavailable where that is the only one to know the version and does not answer.
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

// info is what TEI says of itself.
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

// info asks. A server that speaks the dialect and not this part of it says nothing.
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
		if json.Unmarshal(body, &i) != nil { // another server's, of the same path
			i = info{}
		}
		return i, nil
	case status == http.StatusTooManyRequests || status >= http.StatusInternalServerError:
		return i, fmt.Errorf("%w: status %d to what it serves", ranker.ErrUnavailable, status)
	default:
		return i, nil
	}
}

// Score implements plugin.Scorer. An item without text has no score, and is not sent.
// It returns ErrQuery for a query without text, or that the service cannot read;
// ErrTooLarge for more than it takes at once; ErrUnavailable, with RetryAfter where the
// service says when to come back; ErrAnswer; or the context's error.
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

// rerank asks for the scores of some texts, in order.
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
	// Not sent, being empty: it has the transport ask again where a kept connection was
	// closed meanwhile.
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

// do sends a request and reads so many bytes of the answer; of one that is an error,
// few.
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

// connectionError is the error of a connection, without the URL, which may hold a secret.
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
