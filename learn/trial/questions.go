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

const (
	// mostQuestions is the number of different questions that are embedded.
	mostQuestions = 10_000
	// embedWithin limits one call: an embedder without a GPU may take its time.
	embedBatch  = 16
	embedWithin = time.Minute
	// checkedTexts is the number of rows whose text is embedded again, and leastCosine how
	// much the vector must be like the stored one for both to come from one model. Some
	// models put different words before a query and a row, which changes a vector a little.
	checkedTexts = 8
	leastCosine  = 0.8
)

// taskOfQuestions embeds the questions of a log.
func (t *trial) taskOfQuestions(ctx context.Context) (_ *task, err error) {
	q := t.Questions
	texts, err := dataset.LoggedQueries(ctx, q.Log, mostQuestions)
	if errors.Is(err, dataset.ErrInput) {
		return nil, &Refusal{err.Error() + "; each line has a question in its column query, and in item the id of a row that answers it", err}
	}
	if err != nil {
		return nil, err
	}
	client, err := embed.New(embed.Options{Name: "--embedder", URL: q.Embedder, Model: q.Model, Token: os.Getenv(EmbedderKey), Batch: embedBatch, Timeout: embedWithin, RetryBudget: 0.1})
	if err != nil {
		return nil, &Refusal{fmt.Sprintf("--embedder %s: %v", hostOf(q.Embedder), err), err}
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	if err := t.checkEmbedder(ctx, client); err != nil {
		return nil, err
	}
	queries := &dataset.Vectors{Matrix: rerank.NewMatrix(len(texts), t.look.field.Dim)}
	done := t.progress("embedding questions", len(texts))
	for from := 0; from < len(texts); from += embedBatch {
		part := texts[from:min(from+embedBatch, len(texts))]
		vectors, err := t.embed(ctx, client, part)
		if err != nil {
			return nil, err
		}
		for i, v := range vectors {
			copy(queries.Row(from+i), v)
		}
		done(len(part))
	}
	for _, text := range texts {
		queries.IDs = append(queries.IDs, rerank.TextID(text))
	}
	k, err := t.taskOfLog(ctx, dataset.Sources{ReadQueries: queries, Pairs: q.Log})
	if k != nil {
		k.textQueries = true
	}
	return k, err
}

// hostOf returns the host of a URL, which may contain a password elsewhere.
func hostOf(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return "URL"
	}
	return u.Host
}

// embed embeds texts, and returns a *Refusal where the user can do something.
func (t *trial) embed(ctx context.Context, client embed.Embedder, texts []string) ([][]float32, error) {
	vectors, err := client.Embed(ctx, texts)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, &Refusal{fmt.Sprintf("the embedder at %s gives no vectors (%v); check --embedder URL#MODEL and the token in EMBEDDER_API_KEY", hostOf(t.Questions.Embedder), err), err}
	case len(vectors[0]) != t.look.field.Dim:
		return nil, &Refusal{fmt.Sprintf("the embedder at %s makes vectors of %d dimensions, and %s of collection %q has %d; give the embedder of the model that made them, or another --vector",
			hostOf(t.Questions.Embedder), len(vectors[0]), t.look.Vector.phrase(), t.Collection, t.look.field.Dim), nil}
	}
	return vectors, nil
}

// checkEmbedder embeds the text of some rows, and compares the vectors with the stored
// ones.
func (t *trial) checkEmbedder(ctx context.Context, client embed.Embedder) error {
	field := t.Questions.Field
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
		if text := textAt(rows.Payloads[i], field); text != "" {
			texts, stored = append(texts, text), append(stored, rows.Vectors[0].Row(i))
		}
	}
	if len(texts) == 0 {
		return &Refusal{fmt.Sprintf("none of the first %d rows of collection %q has text in the field %q; name the field from which the vectors were made", len(rows.IDs), t.Collection, field), nil}
	}
	vectors, err := t.embed(ctx, client, texts)
	if err != nil {
		return err
	}
	var mean float64
	for i, v := range vectors {
		mean += cosine(v, stored[i]) / float64(len(vectors))
	}
	if mean < leastCosine {
		return &Refusal{fmt.Sprintf("the embedder at %s makes other vectors of field %q than %s of collection %q: their cosine is %.2f in the mean of %d rows; give the embedder of the model that made them, or the field from which they were made",
			hostOf(t.Questions.Embedder), field, t.look.Vector.phrase(), t.Collection, mean, len(texts)), nil}
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
