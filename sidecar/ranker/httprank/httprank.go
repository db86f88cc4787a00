// Package httprank implements a heavy ranker that calls a rerank service over HTTP, in the
// format of Text Embeddings Inference, Cohere or Jina.
package httprank

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"

	"github.com/likenessdb/likeness/internal/jsonhttp"
	"github.com/likenessdb/likeness/plugin"
	"github.com/likenessdb/likeness/sidecar/ranker"
)

// DefaultParallel is the default of Options.Parallel.
const DefaultParallel = 4

// answerBytes bounds an answer, together with twice the size of the request: a service may repeat
// the request in its answer.
const answerBytes = 1 << 20

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
	options  Options
	dialect  dialect
	service  *jsonhttp.Client
	infoPath string // TEI's information method; empty without one
}

var _ plugin.Scorer = (*Scorer)(nil)

// New returns a scorer without connecting yet. An error tells the operator which option is
// invalid.
func New(o Options) (*Scorer, error) {
	d, ok := dialects[o.Dialect]
	if !ok {
		return nil, fmt.Errorf("dialect %q: want %s, %s or %s", o.Dialect, TEI, Cohere, Jina)
	}
	switch {
	case d.named && o.Model == "":
		return nil, fmt.Errorf("model is empty: a request in the form of %s names one", o.Dialect)
	case len(o.Fields) == 0:
		return nil, errors.New("fields is empty: name the payload fields that make an item's text")
	}
	o.Parallel = cmp.Or(max(o.Parallel, 0), DefaultParallel)
	service, err := jsonhttp.New(jsonhttp.Options{
		URL: o.URL, Token: o.Token, Parallel: o.Parallel, Transport: o.Transport,
		Errors: jsonhttp.Errors{Unavailable: ranker.ErrUnavailable, TooLarge: ranker.ErrTooLarge, Request: ranker.ErrQuery, Answer: ranker.ErrAnswer},
	})
	if err != nil {
		return nil, err
	}
	s := &Scorer{options: o, dialect: d, service: service}
	if base, ok := strings.CutSuffix(service.Path(), "/rerank"); ok && o.Dialect == TEI {
		s.infoPath = base + "/info"
	}
	return s, nil
}

// Close closes idle connections.
func (s *Scorer) Close() error { return s.service.Close() }

// Describe implements plugin.Scorer. It asks TEI for its model and its batch limit. The
// limits of other services become known when they refuse a call. Describe returns
// ErrUnavailable if only TEI could tell the version and TEI does not answer.
func (s *Scorer) Describe(ctx context.Context) (plugin.Description, error) {
	d := plugin.Description{
		Name: cmp.Or(s.options.Model, s.options.Dialect), Version: s.options.Version, Parallel: s.options.Parallel,
		Cost: s.options.Cost, Text: true, PayloadFields: s.options.Fields,
	}
	if s.infoPath != "" {
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
	status, body, err := s.service.Get(ctx, s.infoPath, answerBytes)
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
	answer, err := s.service.Post(ctx, s.dialect.request(s.options.Model, query, texts), len(texts), func(size int) int { return answerBytes + 2*size })
	if err != nil {
		return nil, err
	}
	return s.dialect.scores(answer, len(texts))
}
