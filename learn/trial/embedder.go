package trial

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/url"
	"os"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/learn/dataset"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/embed"
)

// Embedder is the service that turns the texts of queries into vectors.
type Embedder struct {
	// URL is https://host/v1/embeddings, or https://host/embed. Model is the model that
	// requests name. The bearer token is in the environment variable EmbedderKey, if that
	// is set.
	URL, Model string
	// QueryPrefix and DocumentPrefix are put before queries and the texts of rows.
	QueryPrefix, DocumentPrefix string
	// Field is the payload field with the text from which the stored vectors were made.
	// The embedder has to make the same vectors. If empty, that is not checked.
	Field string
}

// EmbedderKey is the environment variable with the bearer token of the embedder.
const EmbedderKey = "EMBEDDER_API_KEY"

const (
	// embedBatch and embedWithin bound one call: an embedder without a GPU may take its
	// time.
	embedBatch  = 16
	embedWithin = time.Minute
	// checkedTexts is the number of rows whose text is embedded again, and leastCosine how
	// much the vector must be like the stored one for both to come from one model. Some
	// models put different words before a query and a row, which changes a vector a little.
	checkedTexts = 8
	leastCosine  = 0.8
)

// taskOfTexts reads a log whose queries are texts.
func (t *trial) taskOfTexts(ctx context.Context) (_ *task, err error) {
	e := t.Embedder
	if e.URL == "" {
		return nil, &RefusalError{fmt.Sprintf("%s holds texts; name with --embedder the service that made the vectors of collection %q", t.Log.Queries, t.Collection), nil}
	}
	client, err := embed.New(embed.Options{
		Name: "--embedder", URL: e.URL, Model: e.Model, QueryPrefix: e.QueryPrefix, DocumentPrefix: e.DocumentPrefix, Token: os.Getenv(EmbedderKey), Batch: embedBatch, Timeout: embedWithin, RetryBudget: 0.1,
	})
	if err != nil {
		return nil, &RefusalError{fmt.Sprintf("--embedder %s: %v", e.host(), err), err}
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	if err := t.checkEmbedder(ctx, client); err != nil {
		return nil, err
	}
	k, err := t.taskOfLog(ctx, client)
	if isEmbedders(err) {
		return nil, e.refusal(err)
	}
	if k != nil {
		k.textQueries = true
	}
	return k, err
}

func isEmbedders(err error) bool {
	return errors.Is(err, embed.ErrUnavailable) || errors.Is(err, embed.ErrText) || errors.Is(err, embed.ErrAnswer)
}

func (e Embedder) refusal(err error) error {
	return &RefusalError{fmt.Sprintf("the embedder at %s gives no vectors (%v); check --embedder URL#MODEL and the token in %s", e.host(), err, EmbedderKey), err}
}

// host returns the host of the URL, which may contain a password elsewhere.
func (e Embedder) host() string {
	u, err := url.Parse(e.URL)
	if err != nil {
		return "its URL"
	}
	return u.Host
}

// checkEmbedder embeds the text of some rows, and compares the vectors with the stored
// ones.
func (t *trial) checkEmbedder(ctx context.Context, client embed.Embedder) error {
	field := t.Embedder.Field
	if field == "" {
		return nil
	}
	rows, err := t.can.Fetch.Fetch(ctx, adapters.FetchRequest{
		Collection: t.Collection, IDs: t.sample.ids[:min(checkedTexts, len(t.sample.ids))],
		Vectors: []string{t.look.field.Name}, Payload: true, PayloadFields: []string{topKey(field)},
	})
	if err != nil {
		return t.explain(ctx, err)
	}
	var texts []string
	var stored [][]float32
	for i := range rows.IDs {
		if text := dataset.PayloadText(rows.Payloads[i], field); text != "" {
			texts, stored = append(texts, text), append(stored, rows.Vectors[0].Row(i))
		}
	}
	if len(texts) == 0 {
		hint := nearestFields(field, t.look.Fields)
		if hint != "" {
			hint += "; "
		}
		return &RefusalError{fmt.Sprintf("none of the first %d rows of collection %q has text in the field %q; %sname the field from which the vectors were made", len(rows.IDs), t.Collection, field, hint), nil}
	}
	vectors, err := client.Embed(ctx, nil, texts...)
	switch {
	case isEmbedders(err):
		return t.Embedder.refusal(err)
	case err != nil:
		return err
	case len(vectors[0]) != t.look.field.Dim:
		return &RefusalError{fmt.Sprintf("the embedder at %s makes vectors of %d dimensions, and %s of collection %q has %d; give the embedder of the model that made them, or another --vector",
			t.Embedder.host(), len(vectors[0]), t.look.Vector.phrase(), t.Collection, t.look.field.Dim), nil}
	}
	var mean float64
	for i, v := range vectors {
		mean += cosine(v, stored[i]) / float64(len(vectors))
	}
	if mean < leastCosine {
		return &RefusalError{fmt.Sprintf("the embedder at %s makes other vectors of field %q than %s of collection %q: their cosine is %.2f in the mean of %d rows; give the embedder of the model that made them, or the field from which they were made",
			t.Embedder.host(), field, t.look.Vector.phrase(), t.Collection, mean, len(texts)), nil}
	}
	t.note("the embedder makes the vectors of the collection: their cosine is %.3f in the mean of %d rows", mean, len(texts))
	return nil
}

func cosine(a, b []float32) float64 {
	var dot float64
	for i, x := range a {
		dot += float64(x) * float64(b[i])
	}
	return dot / math.Max(rerank.Norm(a)*rerank.Norm(b), math.SmallestNonzeroFloat64)
}
