// Package model reads, checks and writes model files.
package model

import (
	"errors"

	"github.com/likenessdb/likeness/rerank"
)

// ErrFile: the file is damaged, truncated, or not a model.
var ErrFile = errors.New("model file is not valid")

// Model is a similarity as read from a file.
type Model struct {
	// Name is the file's or directory's base name unless its header says otherwise.
	Name string
	// Version is the first 16 hex digits of the SHA-256 of the content.
	Version string
	// Provenance is free text by key: training data, tool, date, quality.
	Provenance map[string]string
	rerank.Similarity
}
