package httprank

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/likenessdb/likeness/internal/jsonhttp"
	"github.com/likenessdb/likeness/sidecar/ranker"
)

// The dialects, as named in the configuration.
const (
	TEI    = "tei"
	Cohere = "cohere"
	Jina   = "jina"
)

// dialect is a format of requests and answers.
type dialect struct {
	named   bool // requests contain the name of a model
	request func(model, query string, texts []string) any
	ranks   func(answer []byte) ([]rank, error)
}

// rank is the result for one text.
type rank struct {
	index *int
	score json.RawMessage // null if there is no score
}

var dialects = map[string]dialect{
	TEI:    {false, teiRequest, teiRanks},
	Cohere: {true, cohereRequest, resultRanks},
	Jina:   {true, jinaRequest, resultRanks},
}

// teiRequest requests scores before the sigmoid. After the sigmoid, all of the best scores
// would be 1.
func teiRequest(_, query string, texts []string) any {
	return struct {
		Query      string   `json:"query"`
		Texts      []string `json:"texts"`
		RawScores  bool     `json:"raw_scores"`
		ReturnText bool     `json:"return_text"`
		Truncate   bool     `json:"truncate"`
	}{query, texts, true, false, true}
}

// cohereRequest contains only fields that version 2 of the API knows, because it refuses
// others.
func cohereRequest(model, query string, texts []string) any {
	return struct {
		Model     string   `json:"model"`
		Query     string   `json:"query"`
		Documents []string `json:"documents"`
		TopN      int      `json:"top_n"`
	}{model, query, texts, len(texts)}
}

func jinaRequest(model, query string, texts []string) any {
	return struct {
		Model           string   `json:"model"`
		Query           string   `json:"query"`
		Documents       []string `json:"documents"`
		TopN            int      `json:"top_n"`
		ReturnDocuments bool     `json:"return_documents"`
	}{model, query, texts, len(texts), false}
}

func teiRanks(answer []byte) ([]rank, error) {
	var all []struct {
		Index *int            `json:"index"`
		Score json.RawMessage `json:"score"`
	}
	if err := jsonhttp.Decode(answer, &all); err != nil {
		return nil, err
	}
	ranks := make([]rank, len(all))
	for i, r := range all {
		ranks[i] = rank{r.Index, r.Score}
	}
	return ranks, nil
}

func resultRanks(answer []byte) ([]rank, error) {
	var all struct {
		Results []struct {
			Index *int            `json:"index"`
			Score json.RawMessage `json:"relevance_score"`
		} `json:"results"`
	}
	if err := jsonhttp.Decode(answer, &all); err != nil {
		return nil, err
	}
	ranks := make([]rank, len(all.Results))
	for i, r := range all.Results {
		ranks[i] = rank{r.Index, r.Score}
	}
	return ranks, nil
}

// scores decodes an answer for n texts, in any order. Each text must have one score, finite
// or null (no score). It returns ErrAnswer.
func (d dialect) scores(answer []byte, n int) ([]float32, error) {
	ranks, err := d.ranks(answer)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ranker.ErrAnswer, err)
	}
	if len(ranks) != n {
		return nil, fmt.Errorf("%w: %d scores for %d texts", ranker.ErrAnswer, len(ranks), n)
	}
	scores, seen := make([]float32, n), make([]bool, n)
	for i, r := range ranks {
		switch {
		case r.index == nil:
			return nil, fmt.Errorf("%w: result %d has no index", ranker.ErrAnswer, i)
		case *r.index < 0 || *r.index >= n:
			return nil, fmt.Errorf("%w: result %d has index %d of %d texts", ranker.ErrAnswer, i, *r.index, n)
		case seen[*r.index]:
			return nil, fmt.Errorf("%w: two results have index %d", ranker.ErrAnswer, *r.index)
		}
		if scores[*r.index], err = number(r.score); err != nil {
			return nil, fmt.Errorf("%w: the score of result %d: %w", ranker.ErrAnswer, i, err)
		}
		seen[*r.index] = true
	}
	return scores, nil
}

// number decodes a finite float32, or null as NaN.
func number(raw json.RawMessage) (float32, error) {
	if string(raw) == "null" {
		return float32(math.NaN()), nil
	}
	var f float64
	if err := json.Unmarshal(raw, &f); err != nil {
		return 0, errors.New("no number")
	}
	if math.Abs(f) > math.MaxFloat32 {
		return 0, fmt.Errorf("%g is beyond float32", f)
	}
	return float32(f), nil
}
