package dataset

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/embed"
)

// embedTogether is how many texts are embedded in one call of an embedder, which sends them in its
// own batches.
const embedTogether = 256

// maxTexts bounds the texts of a file.
const maxTexts = 1 << 24

// HoldsTexts reports whether a file of queries holds their texts, not their vectors.
func HoldsTexts(spec string) bool {
	return slices.Contains([]string{".jsonl", ".ndjson"}, strings.ToLower(filepath.Ext(spec)))
}

// OpenQueries opens a file of query vectors like OpenVectors, or a file of their texts, which the
// embedder turns into vectors: .jsonl or .ndjson with lines like {"query": "…", "id": "q1"}. A
// query without an id has its text as its id, and lines that repeat it count once; all lines have
// ids, or none has. Other fields are ignored, so that a log is a file of queries too. OpenQueries
// returns ErrInput, the embedder's error, or the context's error.
func OpenQueries(ctx context.Context, spec string, by embed.Embedder, p Progress) (*Vectors, error) {
	if !HoldsTexts(spec) {
		return OpenVectors(ctx, spec)
	}
	if by == nil {
		return nil, fmt.Errorf("%w: %s holds texts, of which an embedder makes vectors; name one", ErrInput, spec)
	}
	texts, ids, err := readTexts(spec)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrInput, spec, err)
	}
	m, err := embedTexts(ctx, texts, by, p)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", spec, err)
	}
	return &Vectors{Matrix: m, IDs: ids, name: spec}, nil
}

// readTexts reads the texts and ids of a file's lines.
func readTexts(path string) (texts []string, ids []rerank.ID, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	seen, own := map[string]bool{}, false
	err = eachLine(file, func(_ int, line []byte) error {
		text, id, err := parseText(line)
		switch {
		case err != nil:
			return err
		case len(texts) == maxTexts:
			return fmt.Errorf("the file has more than %d queries; split it", maxTexts)
		case len(texts) > 0 && (id != "") != own:
			return errors.New("some lines have an id and some have none; give all an id, or none")
		}
		own = id != ""
		if !own {
			id = text
		}
		if seen[id] && !own {
			return nil
		}
		seen[id] = true
		texts, ids = append(texts, text), append(ids, rerank.TextID(id))
		return nil
	})
	if err == nil && len(texts) == 0 {
		err = errors.New("there is nothing in it")
	}
	return texts, ids, err
}

// parseText parses a line. id is empty if the line has none.
func parseText(line []byte) (text, id string, err error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(line, &fields); err != nil || fields == nil {
		return "", "", errors.New(`not a JSON object; want {"query": "…"}`)
	}
	if raw := fields["id"]; present(raw) {
		if id, err = idText("id", raw); err != nil {
			return "", "", err
		}
	}
	raw := bytes.TrimSpace(fields[columnQuery])
	if json.Unmarshal(raw, &text) != nil || strings.TrimSpace(text) == "" {
		return "", "", fmt.Errorf(`query is %.80s; want text, as in {"query": "…"}`, raw)
	}
	return text, id, nil
}

// embedTexts returns one vector for each text, in the rows of a matrix.
func embedTexts(ctx context.Context, texts []string, by embed.Embedder, p Progress) (rerank.Matrix, error) {
	done := p.begin("embedding queries", len(texts))
	var m rerank.Matrix
	for some := range slices.Chunk(texts, embedTogether) {
		vectors, err := by.Embed(ctx, some)
		if err != nil {
			return m, err
		}
		for _, v := range vectors {
			if m.Cols == 0 {
				m.Cols, m.Data = len(v), make([]float32, 0, len(texts)*len(v))
			}
			m.Data = append(m.Data, v...)
			m.Rows++
		}
		done(len(some))
	}
	return m, nil
}
