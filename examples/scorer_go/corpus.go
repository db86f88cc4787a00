package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
)

// newBM25 counts the words of a corpus, a file of JSON lines. Without a corpus every word
// has the same weight.
func newBM25(field, corpus string) (*bm25, error) {
	b := &bm25{field: field, documents: 1, meanLength: 12, holding: map[string]float64{}}
	if corpus == "" {
		return b, nil
	}
	file, err := os.Open(corpus)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	digest, total := sha256.New(), 0
	b.documents = 0
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var fields map[string]any
		if err := json.Unmarshal(lines.Bytes(), &fields); err != nil {
			return nil, fmt.Errorf("%s: line %.0f: %w", corpus, b.documents+1, err)
		}
		text, _ := fields[field].(string)
		seen := map[string]bool{}
		for _, w := range words(text) {
			if total++; !seen[w] {
				seen[w] = true
				b.holding[w]++
			}
		}
		b.documents++
		_, _ = digest.Write(lines.Bytes())
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", corpus, err)
	}
	if total == 0 {
		return nil, fmt.Errorf("%s has no words in the field %q", corpus, field)
	}
	b.meanLength = float64(total) / b.documents
	b.digest = fmt.Sprintf("%x", digest.Sum(nil)[:6])
	return b, nil
}

// version identifies everything on which a score depends: the program, the field and
// the corpus.
func (b *bm25) version() string { return fmt.Sprintf("bm25-1-%s-%s", b.field, b.digest) }
