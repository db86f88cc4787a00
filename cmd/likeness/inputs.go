package main

import (
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
