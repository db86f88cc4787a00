package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Rerank describes calls of a sidecar's rerank API, one after the other.
type Rerank struct {
	// URL is the sidecar's REST address, such as http://127.0.0.1:7602.
	URL string
	// Token is sent as the bearer token, unless it is empty.
	Token string
	// Route is the model of the request, Documents are the ids or texts.
	Route, Query string
	Documents    []json.RawMessage
	// Calls that are measured. A tenth as many before them are not.
	Calls int
}

// Reranked has the times of rerank calls in milliseconds.
type Reranked struct {
	Documents int `json:"documents"`
	// Missing counts the documents that are no items of the collection.
	Missing int `json:"missing"`
	Calls   int `json:"calls"`
	// Whole is the time of a call. Scoring is the time that the sidecar reports for embedding the
	// query, reading the vectors and scoring them. Beyond is the difference: HTTP, JSON, admission
	// and the connection.
	Whole   Quantiles `json:"whole"`
	Scoring Quantiles `json:"scoring"`
	Beyond  Quantiles `json:"beyond"`
}

// maxRerankAnswer bounds the bytes of an answer.
const maxRerankAnswer = 64 << 20

// Run makes the calls. It returns the first error, which holds what the sidecar answered.
func (r Rerank) Run(ctx context.Context, client *http.Client) (Reranked, error) {
	request, err := json.Marshal(map[string]any{"model": r.Route, "query": r.Query, "documents": r.Documents})
	if err != nil {
		return Reranked{}, err
	}
	out := Reranked{Documents: len(r.Documents), Calls: r.Calls}
	var whole, scoring, beyond []time.Duration
	warmUp := 1 + r.Calls/10
	for n := range warmUp + r.Calls {
		began := time.Now()
		header, err := r.call(ctx, client, request)
		took := time.Since(began)
		if err != nil {
			return Reranked{}, err
		}
		scored, err := scoringOf(header)
		if err != nil {
			return Reranked{}, err
		}
		if n < warmUp {
			continue
		}
		whole, scoring, beyond = append(whole, took), append(scoring, scored), append(beyond, took-scored)
		out.Missing, _ = strconv.Atoi(header.Get("Likeness-Missing")) // absent: 0
	}
	out.Whole, out.Scoring, out.Beyond = quantiles(whole), quantiles(scoring), quantiles(beyond)
	return out, nil
}

// call makes one call and returns the header of its answer.
func (r Rerank) call(ctx context.Context, client *http.Client, body []byte) (http.Header, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(r.URL, "/")+"/v2/rerank", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	if r.Token != "" {
		request.Header.Set("Authorization", "Bearer "+r.Token)
	}
	answer, err := client.Do(request)
	switch {
	case err != nil && strings.Contains(err.Error(), "malformed HTTP"):
		return nil, fmt.Errorf("%s: no HTTP server answers there, perhaps a gRPC one; give the URL of listen.rest: %w", request.URL.Host, err)
	case err != nil:
		return nil, err
	}
	defer answer.Body.Close()
	from := io.LimitReader(answer.Body, maxRerankAnswer)
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(from, 1<<10))
		remedy := ""
		if answer.StatusCode == http.StatusNotFound && !json.Valid(text) {
			remedy = "; no sidecar's API is there: give the URL of listen.rest"
		}
		return nil, fmt.Errorf("%s: %s: %s%s", request.URL, answer.Status, bytes.TrimSpace(text), remedy)
	}
	_, err = io.Copy(io.Discard, from)
	return answer.Header, err
}

// scoringOf returns the time that an answer's Server-Timing header gives for embedding and scoring.
func scoringOf(h http.Header) (time.Duration, error) {
	_, after, found := strings.Cut(h.Get("Server-Timing"), "score;dur=")
	ms, err := strconv.ParseFloat(strings.TrimSpace(after), 64)
	if !found || err != nil {
		return 0, fmt.Errorf("the answer's Server-Timing is %q, without the time of scoring: is the URL the REST address of a sidecar?", h.Get("Server-Timing"))
	}
	return time.Duration(ms * float64(time.Millisecond)), nil
}
