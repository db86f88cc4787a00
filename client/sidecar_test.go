package client_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/npy"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/serve"
)

// configuration is a sidecar with three items of two numbers and their inner product.
const configuration = `
listen: {grpc: "127.0.0.1:0", admin: ""LISTEN}
limits: {max_batch: 4, max_message_bytes: 4KiB}
stores: {files: {kind: embedded, collections: {things: {vectors: things.npy, ids: ids.txt, payload: things.jsonl}}}}
models: {plain: {path: plain.safetensors}}
routes: {things: {store: files, collection: things, model: plain, placement: stored, exact_search: true}}
`

// running is a real sidecar in this process.
type running struct {
	address string
	stop    func() error
}

// startSidecar runs one with more of listen until stop; its files lie in dir.
func startSidecar(dir, listen string) (*running, error) {
	if err := writeFiles(dir, strings.Replace(configuration, "LISTEN", listen, 1)); err != nil {
		return nil, err
	}
	c, err := config.Load(config.Source{File: filepath.Join(dir, "likeness.yaml"), Environ: []string{}})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan serve.Addresses, 1), make(chan error, 1)
	go func() {
		ended <- serve.Run(ctx, c, serve.Options{Logger: slog.New(slog.DiscardHandler), Ready: func(at serve.Addresses) { ready <- at }})
	}()
	select {
	case at := <-ready:
		return &running{at.GRPC, func() error { cancel(); return <-ended }}, nil
	case err := <-ended:
		cancel()
		return nil, err
	}
}

func writeFiles(dir, text string) error {
	m, err := model.New(model.Parameters{Kind: rerank.KindDot, Name: "plain", Config: []byte(`{"dim":2,"normalise":false}`)})
	if err != nil {
		return err
	}
	vectors := rerank.Matrix{Rows: 3, Cols: 2, Data: []float32{1, 0, 0, 1, 1, 1}}
	err = errors.Join(model.Write(filepath.Join(dir, "plain.safetensors"), m), npy.Write(filepath.Join(dir, "things.npy"), vectors))
	for name, content := range map[string]string{
		"ids.txt":       "a\n7\nc\n",
		"things.jsonl":  "{\"name\": \"first\"}\n{\"name\": \"second\"}\n{\"name\": \"third\"}\n",
		"likeness.yaml": text,
	} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	return err
}
