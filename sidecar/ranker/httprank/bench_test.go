package httprank_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/plugin"
	"github.com/likenessdb/likeness/sidecar/ranker"
	"github.com/likenessdb/likeness/sidecar/ranker/httprank"
)

// BenchmarkHTTP is a call of 256 items with 64 KiB of payload to a service on this
// machine that reads all and scores nothing: texts, JSON both ways, the connection and
// the ranker's own part.
func BenchmarkHTTP(b *testing.B) {
	texts := make([]string, 256)
	var teiAnswer, results []string
	for i := range texts {
		texts[i] = strings.Repeat("word ", 48)
		teiAnswer = append(teiAnswer, fmt.Sprintf(`{"index":%d,"score":-3.25}`, i))
		results = append(results, fmt.Sprintf(`{"index":%d,"relevance_score":0.73298}`, i))
	}
	items := itemsOf(texts...)
	answers := map[string]string{
		httprank.TEI:    "[" + strings.Join(teiAnswer, ",") + "]",
		httprank.Cohere: `{"results":[` + strings.Join(results, ",") + `]}`,
		httprank.Jina:   `{"results":[` + strings.Join(results, ",") + `]}`,
	}
	for dialect, answer := range answers {
		b.Run(dialect, func(b *testing.B) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				_, _ = io.WriteString(w, answer)
			}))
			defer server.Close()
			s, err := httprank.New(httprank.Options{URL: server.URL + "/score", Dialect: dialect, Model: "m", Fields: []string{"text"}})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			c := ranker.New(s, ranker.Options{RetryBudget: .1})
			size := 0
			for _, item := range items {
				size += len(item.Payload)
			}
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Rank(b.Context(), plugin.Query{Text: "word"}, items); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
