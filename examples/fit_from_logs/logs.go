package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/likenessdb/likeness/examples/banking77"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
)

// choice is one line of the log: the topic that somebody chose for a question.
type choice struct {
	Query  string    `json:"query"`
	Item   string    `json:"item"`
	Weight float64   `json:"weight"`
	Time   time.Time `json:"time"`
}

// The log covers October 2026, and the questions that judge the model November.
var (
	october  = time.Date(2026, time.October, 1, 8, 0, 0, 0, time.UTC)
	november = time.Date(2026, time.November, 1, 8, 0, 0, 0, time.UTC)
)

// writeLogs writes what a help desk would have: ids, two months of choices, and
// the configuration of its store.
func (w *walk) writeLogs(context.Context) error {
	w.title("The log")
	topics, err := banking77.Rows(filepath.Join(w.data, "items.jsonl"))
	if err != nil {
		return err
	}
	var names []string
	for _, t := range topics {
		names = append(names, t.Name)
	}
	if err := w.writeLines("topics.txt", names); err != nil {
		return err
	}
	for _, part := range []struct {
		source, ids, log, prefix string
		from                     time.Time
	}{
		{"train.jsonl", "questions.txt", "log.jsonl", "q", october},
		{"test.jsonl", "later.txt", "later.jsonl", "later-q", november},
	} {
		questions, err := banking77.Rows(filepath.Join(w.data, part.source))
		if err != nil {
			return err
		}
		if err := w.writeLog(part.ids, part.log, part.prefix, part.from, questions, names); err != nil {
			return err
		}
	}
	return w.writeConfig()
}

// writeLog spreads the questions over a month. Every third was opened and read,
// which counts twice as much as a click.
func (w *walk) writeLog(ids, log, prefix string, from time.Time, questions []banking77.Row, topics []string) error {
	var names []string
	step := 28 * 24 * time.Hour / time.Duration(len(questions))
	var lines []string
	for i, q := range questions {
		c := choice{Query: fmt.Sprintf("%s%d", prefix, q.ID), Item: topics[q.Item], Weight: 1, Time: from.Add(time.Duration(i*7919%len(questions)) * step)}
		if i%3 == 0 {
			c.Weight = 2
		}
		names = append(names, c.Query)
		line, err := json.Marshal(c)
		if err != nil {
			return err
		}
		lines = append(lines, string(line))
	}
	_, _ = fmt.Fprintf(w.stdout, "%s: %d choices, such as\n  %s\n", log, len(lines), lines[0])
	return errors.Join(w.writeLines(ids, names), w.writeLines(log, lines))
}

func (w *walk) writeLines(name string, lines []string) (err error) {
	f, err := os.Create(filepath.Join(w.dir, name))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	b := bufio.NewWriter(f)
	for _, line := range lines {
		_, _ = b.WriteString(line + "\n") // Flush has the error
	}
	return b.Flush()
}

// writeConfig writes a configuration with the store and plain cosine, the usual state
// before a fit.
func (w *walk) writeConfig() error {
	cosine, err := model.New(model.Parameters{Kind: rerank.KindDot, Name: "cosine", Config: json.RawMessage(`{"dim": 384, "normalise": true}`)})
	if err != nil {
		return err
	}
	if err := model.Write(filepath.Join(w.dir, "cosine.safetensors"), cosine); err != nil {
		return err
	}
	return os.WriteFile(w.config(), fmt.Appendf(nil, configText, w.data, w.data), 0o600)
}

func (w *walk) config() string { return filepath.Join(w.dir, "likeness.yaml") }

const configText = `listen:
  grpc: 127.0.0.1:0
  admin: ""
log:
  level: warn
stores:
  db:
    kind: embedded
    collections:
      topics:
        vectors: %s/items_vectors.npy
        ids: topics.txt
        payload: %s/items.jsonl
        metric: cosine
models:
  cosine: {path: cosine.safetensors}
routes:
  before: {store: db, collection: topics, model: cosine, placement: stored, depth: 20, exact_search: true}
`

// fittedText holds the lines that a fit of each kind adds to the configuration.
var fittedText = map[string]string{
	"bilinear": "  after: {store: db, collection: topics, model: topics, placement: stored, depth: 20, exact_search: true}\n",
	"maxsim":   "  after: {store: db, collection: topics, model: topics, table: topics.table}\n",
}
