package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/npy"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/wiring"
)

// server is the vector database that is searched.
type server struct {
	name    string
	address string // empty: the embedded store, inside the sidecar
	close   func() error
}

// startServer starts a real Qdrant or milvus-lite.
func startServer(ctx context.Context, store string) (*server, error) {
	var s *servers.Server
	var err error
	switch store {
	case "qdrant":
		s, err = servers.Qdrant(ctx, servers.Dir(), servers.QdrantNewest, servers.Options{})
	case "milvus":
		s, err = servers.MilvusLite(ctx, servers.Dir(), servers.Options{})
	default:
		return &server{name: "embedded", close: func() error { return nil }}, nil
	}
	if err != nil {
		return nil, err
	}
	return &server{name: s.Name + " " + s.Version, address: s.Address, close: s.Close}, nil
}

// fill writes the two collections, as a user's own pipeline would have done long
// before. The embedded store maps its files instead.
func (s *server) fill(ctx context.Context, configFile, data string) (err error) {
	if s.address == "" {
		return nil
	}
	c, err := config.Load(config.Source{File: configFile})
	if err != nil {
		return err
	}
	parts, err := wiring.Open(ctx, c, wiring.OnlyStore("db"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, parts.Close()) }()
	for collection, file := range map[string]string{"intents": "items", "questions": "train"} {
		if err := upload(ctx, parts.Stores["db"], collection, filepath.Join(data, file)); err != nil {
			return fmt.Errorf("collection %s: %w", collection, err)
		}
	}
	return nil
}

func upload(ctx context.Context, store adapters.Store, collection, file string) (err error) {
	writer := adapters.AbilitiesOf(store).Write
	if writer == nil {
		return adapters.ErrUnsupported
	}
	vectors, err := npy.Open(file + "_vectors.npy")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, vectors.Close()) }()
	text, err := os.ReadFile(file + ".jsonl")
	if err != nil {
		return err
	}
	payloads := strings.Split(strings.TrimSpace(string(text)), "\n")
	schema := adapters.Schema{
		Collection: collection,
		Fields:     []adapters.VectorField{{Name: "vector", Dim: vectors.Cols, Metric: adapters.Cosine}},
	}
	if err := writer.Create(ctx, schema); err != nil {
		return err
	}
	const batch = 1000
	for from := 0; from < vectors.Rows; from += batch {
		to := min(from+batch, vectors.Rows)
		rows := adapters.Rows{Vectors: []rerank.Matrix{vectors.Slice(from, to)}}
		for row := from; row < to; row++ {
			rows.IDs = append(rows.IDs, rerank.UintID(uint64(row)))
			rows.Payloads = append(rows.Payloads, json.RawMessage(payloads[row]))
		}
		if err := writer.Write(ctx, collection, schema, rows); err != nil {
			return err
		}
	}
	return nil
}
