package main

import (
	"cmp"
	"errors"
	"io/fs"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/maxsim"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/sidecar/pipeline"
)

// openModel reads a model file or directory.
func openModel(path string) (pipeline.Model, error) {
	m, err := model.Open(path)
	if err != nil {
		return pipeline.Model{}, err
	}
	return pipeline.Model{Name: m.Name, Version: m.Version, Similarity: m.Similarity}, nil
}

// openVectors opens the behavioural vectors of a model, which lie beside it unless a
// common name of their files is given; nil if it has none.
func openVectors(path, given string, s rerank.Similarity) (*maxsim.Vectors, error) {
	m, ok := s.(*maxsim.Similarity)
	if !ok || m.VectorsDigest() == "" {
		if given != "" {
			return nil, usagef("--behaviour %s: the model has no behavioural vectors", given)
		}
		return nil, nil //nolint:nilnil // none, and no failure
	}
	v, err := maxsim.OpenVectors(cmp.Or(given, maxsim.Beside(path)), m.VectorsDigest())
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, maxsim.ErrVectors) {
		return nil, usagef("the behavioural vectors of model %s: %w; `likeness fit maxsim` writes them beside the model", path, err)
	}
	return v, err
}
