package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/npy"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/wiring"
)

// fill fills a Qdrant collection with the rows of an .npy file, without payload.
func fill(ctx context.Context, configFile, file string) (err error) {
	c, err := config.Load(config.Source{File: configFile})
	if err != nil {
		return err
	}
	parts, err := wiring.Open(ctx, c, wiring.OnlyStore("qdrant"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, parts.Close()) }()
	writer := adapters.AbilitiesOf(parts.Stores["qdrant"]).Write
	if writer == nil {
		return fmt.Errorf("filling: %w", adapters.ErrUnsupported)
	}
	vectors, err := npy.Open(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, vectors.Close()) }()
	field := adapters.VectorField{Name: "vector", Dim: vectors.Cols, Metric: adapters.Cosine}
	schema := adapters.Schema{Collection: "questions", Fields: []adapters.VectorField{field}}
	if err := writer.Create(ctx, schema); err != nil {
		return err
	}
	const batch = 1000
	for from := 0; from < vectors.Rows; from += batch {
		to := min(from+batch, vectors.Rows)
		rows := adapters.Rows{Vectors: []rerank.Matrix{vectors.Slice(from, to)}}
		for row := from; row < to; row++ {
			rows.IDs = append(rows.IDs, rerank.UintID(uint64(row)))
		}
		if err := writer.Write(ctx, schema.Collection, schema, rows); err != nil {
			return err
		}
	}
	return nil
}
