// Package model reads, checks and writes model files. A model is either a native file with
// a JSON header, or a directory with tensors under their RAILS names.
// docs/reference/model-format.md describes both.
package model

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
	"github.com/likenessdb/likeness/rerank/safetensors"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// ErrFile: the file is damaged, truncated, or not a model.
var ErrFile = errors.New("model file is not valid")

// Model is a similarity that was read from a file. It is read-only and safe for concurrent
// use.
type Model struct {
	// Name is the name in the file's header, or the base name of the file or directory.
	Name string
	// Version is the first 16 hex digits of a SHA-256 over everything that decides a score:
	// the kind, its configuration and its tensors. Models of the same version give the same
	// scores, whatever their file names and whether or not they were imported.
	Version string
	// Provenance is free text, by key: training data, tool, date, quality.
	Provenance map[string]string
	rerank.Similarity

	config  json.RawMessage
	tensors tensor.Set
	native  bool // read from a native file whose digest was correct
}

// Parameters are the inputs of New.
type Parameters struct {
	Kind rerank.Kind
	Name string
	// Config is the JSON of the kind's Config.
	Config json.RawMessage
	// Tensors holds the kind's tensors and the tensors of learned probes (prefix "probe.").
	Tensors    tensor.Set
	Provenance map[string]string
}

// New builds a model. It returns ErrFile, which wraps rerank.ErrModel or tensor.ErrShape if
// the kind refuses its parameters.
func New(p Parameters) (*Model, error) {
	config, err := canonicalJSON(p.Config)
	if err != nil {
		return nil, fmt.Errorf("%w: config: %w", ErrFile, err)
	}
	similarity, err := build(p.Kind, config, p.Tensors)
	if err != nil {
		return nil, fmt.Errorf("%w: kind %s: %w", ErrFile, p.Kind, err)
	}
	version, err := version(p.Kind, config, p.Tensors)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFile, err)
	}
	return &Model{
		Name: p.Name, Version: version, Provenance: maps.Clone(p.Provenance),
		Similarity: similarity, config: config, tensors: maps.Clone(p.Tensors),
	}, nil
}

// Parameters returns parameters from which New builds the same model. They share the
// tensors' numbers.
func (m *Model) Parameters() Parameters {
	return Parameters{
		Kind: m.Spec().Kind, Name: m.Name, Config: m.config,
		Tensors: maps.Clone(m.tensors), Provenance: maps.Clone(m.Provenance),
	}
}

// Open reads a native file or a directory. It returns ErrFile, which names the fault, its
// place and the remedy, or the system's error.
func Open(path string) (*Model, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("opening model: %w", err)
	}
	open := openNative
	if info.IsDir() {
		open = openDirectory
	}
	m, err := open(path)
	if err != nil {
		return nil, fmt.Errorf("opening model %s: %w", path, err)
	}
	return m, nil
}

// WithKernels returns a copy of the model that computes with the given kernels instead of
// the fastest. Name and version stay the same.
func (m *Model) WithKernels(k *kernel.Set) *Model {
	other := *m
	if s, ok := m.Similarity.(interface {
		WithKernels(k *kernel.Set) rerank.Similarity
	}); ok {
		other.Similarity = s.WithKernels(k)
	}
	return &other
}

// version computes the digest of everything that decides a score, encoded as safetensors.
func version(kind rerank.Kind, config json.RawMessage, tensors tensor.Set) (string, error) {
	digest := sha256.New()
	err := safetensors.Write(digest, &safetensors.File{
		Metadata: map[string]string{"kind": string(kind), "config": string(config)},
		Tensors:  tensors,
	})
	if err != nil {
		return "", err
	}
	return hex.EncodeToString(digest.Sum(nil))[:16], nil
}
