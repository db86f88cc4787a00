// Command scorer_go is a scorer for likeness: BM25 of the query's words and a text
// field of the items. It is a template for yours, which is the function score.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"strings"
	"unicode"

	"github.com/likenessdb/likeness/plugin"
)

func main() {
	field := flag.String("field", "text", "the payload field that is read")
	corpus := flag.String("corpus", "", "a file of JSON lines with that field, for the frequencies of words")
	listen := plugin.ListenFlags(flag.CommandLine)
	flag.Parse()
	b, err := newBM25(*field, *corpus)
	if err == nil {
		err = plugin.Serve(plugin.Description{
			Name: "BM25 of " + *field, Version: b.version(), MaxItems: 1024, Parallel: 8, Text: true, PayloadFields: []string{*field},
		}, b.score, listen)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "scorer_go:", err)
		os.Exit(1)
	}
}

// bm25 is Okapi BM25 (Robertson and Zaragoza, 2009) with the usual k1 = 1.2, b = 0.75.
type bm25 struct {
	field, digest         string
	documents, meanLength float64
	holding               map[string]float64 // documents with a word
}

func (b *bm25) score(ctx context.Context, q plugin.Query, items []plugin.Item) ([]float32, error) {
	asked := words(q.Text)
	scores := make([]float32, len(items))
	for i, item := range items {
		if err := ctx.Err(); err != nil {
			return nil, err // the caller does not wait any more
		}
		scores[i] = float32(math.NaN()) // what an item without text has: no score
		var fields map[string]any
		if json.Unmarshal(item.Payload, &fields) != nil {
			continue
		}
		if text, ok := fields[b.field].(string); ok {
			scores[i] = b.match(asked, words(text))
		}
	}
	return scores, nil
}

func (b *bm25) match(asked, text []string) float32 {
	count, sum := map[string]float64{}, 0.0
	for _, w := range text {
		count[w]++
	}
	for _, w := range asked {
		n := b.holding[w]
		idf := math.Log(1 + (b.documents-n+0.5)/(n+0.5))
		sum += idf * count[w] * 2.2 / (count[w] + 1.2*(0.25+0.75*float64(len(text))/b.meanLength))
	}
	return float32(sum)
}

func words(text string) []string {
	return strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
}
