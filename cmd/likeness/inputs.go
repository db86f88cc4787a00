package main

import (
	"cmp"
	"errors"
	"io/fs"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/maxsim"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/sidecar/route"
)

// openModel reads a model file or directory. fittedTo is the name and version of the ranker that
// the model was fitted to, or empty.
func openModel(path string) (m route.Model, fittedTo string, err error) {
	read, err := model.Open(path)
	if err != nil {
		return m, "", err
	}
	return route.Model{Name: read.Name, Version: read.Version, Similarity: read.Similarity, FirstStages: read.FirstStages()}, read.Provenance[rankerKey], nil
}

// openVectors opens the behavioural vectors of a model, or returns nil if it has none. given is the
// common prefix of their files; if it is empty, they lie beside the model.
func openVectors(path, given string, s rerank.Similarity) (*maxsim.Vectors, error) {
	m, ok := s.(*maxsim.Similarity)
	if !ok || m.VectorsDigest() == "" {
		if given != "" {
			return nil, usagef("--behaviour %s: the model has no behavioural vectors", given)
		}
		return nil, nil //nolint:nilnil // the model has no vectors
	}
	v, err := maxsim.OpenVectors(cmp.Or(given, maxsim.Beside(path)), m.VectorsDigest())
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, maxsim.ErrVectors) {
		return nil, usagef("the behavioural vectors of model %s: %w; `likeness fit maxsim` writes them beside the model", path, err)
	}
	return v, err
}
