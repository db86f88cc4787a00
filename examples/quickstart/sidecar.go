package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/template"

	"google.golang.org/grpc"

	"github.com/likenessdb/likeness/examples/internal/sidecar"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
)

//go:embed likeness.yaml.tmpl
var configText string

// setup holds the values for the template of the configuration.
type setup struct {
	Kind    string // of the store
	Address string // of its server
	Data    string
	Models  string
	// Questions is the path of the Mixture-of-Logits of the questions, with a learned companion.
	Questions string
	Dir       string // directory for the built files
	// Companion maps each field of the companion to its file, for the embedded store.
	// It is empty before the companion is built.
	Companion map[string]string
}

// withSidecar sets everything up in a temporary directory, calls f with a client
// of the running sidecar, and takes everything down again.
func withSidecar(ctx context.Context, s settings, stderr io.Writer, f func(*client) error) (err error) {
	dir, err := os.MkdirTemp("", "likeness-quickstart-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	server, err := startServer(ctx, s.store)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.close()) }()
	with := setup{Kind: s.store, Address: server.address, Data: s.data, Models: s.models, Questions: s.questions, Dir: dir}
	if err := writeCosine(filepath.Join(dir, "cosine.safetensors")); err != nil {
		return err
	}
	if with.Questions == "" {
		with.Questions = filepath.Join(dir, "questions-mol.safetensors")
		if err := fitCompanion(ctx, s, with.Questions, stderr); err != nil {
			return err
		}
	}
	config, err := with.writeConfig()
	if err != nil {
		return err
	}
	if err := server.fill(ctx, config, s.data); err != nil {
		return fmt.Errorf("filling %s: %w", server.name, err)
	}
	if err := with.index(ctx, s.binary, config, stderr); err != nil {
		return err
	}
	if config, err = with.writeConfig(); err != nil {
		return err
	}
	return sidecar.Serve(ctx, s.binary, config, stderr, func(conn *grpc.ClientConn) error {
		return f(newClient(conn, server.name))
	})
}

// fitCompanion adds a learned companion to the shipped Mixture-of-Logits of the questions. It is half as
// large as the default, to take seconds.
func fitCompanion(ctx context.Context, s settings, out string, stderr io.Writer) error {
	vectors := filepath.Join(s.data, "train_vectors.npy")
	cmd := exec.CommandContext(ctx, s.binary, "fit", "companion", "--model", filepath.Join(s.models, "banking77-questions-mol"),
		"--items", vectors, "--queries", vectors, "--dim", "256", "--anchors", "1600", "--hidden", "256", "--out", out)
	cmd.Stderr = stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
	}
	return nil
}

// writeCosine writes a model that is plain cosine: the inner product of unit vectors.
func writeCosine(path string) error {
	m, err := model.New(model.Parameters{Kind: rerank.KindDot, Name: "cosine", Config: json.RawMessage(`{"dim": 384, "normalise": true}`)})
	if err != nil {
		return err
	}
	return model.Write(path, m)
}

func (with *setup) writeConfig() (path string, err error) {
	t, err := template.New("likeness.yaml").Parse(configText)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	if err := t.Execute(&text, with); err != nil {
		return "", err
	}
	path = filepath.Join(with.Dir, "likeness.yaml")
	return path, os.WriteFile(path, []byte(text.String()), 0o600)
}

// index runs `likeness index` for the two routes that need a table, and for the
// companion that the first-stage strategies of one of them search.
func (with *setup) index(ctx context.Context, binary, config string, stderr io.Writer) error {
	companion := []string{"--companion", "questions_mol"}
	files := filepath.Join(with.Dir, "questions_mol")
	if with.Kind == "embedded" {
		companion = append(companion, "--files", files)
	}
	for _, args := range [][]string{
		{"--route", "intents-mol", "--only", "table"},
		append([]string{"--route", "questions-mol"}, companion...),
	} {
		cmd := exec.CommandContext(ctx, binary, append([]string{"index", "--config", config}, args...)...)
		cmd.Dir, cmd.Stderr = with.Dir, stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
		}
	}
	if with.Kind != "embedded" {
		return nil
	}
	paths, err := filepath.Glob(filepath.Join(files, "*.npy"))
	with.Companion = map[string]string{}
	for _, path := range paths {
		with.Companion[strings.TrimSuffix(filepath.Base(path), ".npy")] = path
	}
	return err
}
