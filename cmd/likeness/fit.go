package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/npy"
	"github.com/likenessdb/likeness/sidecar/buildinfo"
	"github.com/likenessdb/likeness/sidecar/eval"
)

func newFitCommand(a *app) *cobra.Command {
	return newGroup("fit", "Learn a similarity from a log of chosen items", newFitBilinearCommand(a))
}

// fitInputs are the files that every fit reads and the one that it writes.
type fitInputs struct {
	items, queries, pairs, itemIDs string
	out, name                      string
	force                          bool
}

func (f *fitInputs) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.items, "items", "", "item vectors, .npy")
	flags.StringVar(&f.queries, "queries", "", "query vectors, .npy")
	flags.StringVar(&f.out, "out", "", "model file to write, "+model.Extension)
	flags.StringVar(&f.name, "name", "", "name of the model; empty is the file's")
	flags.BoolVar(&f.force, "force", false, "replace the file if there is one")
	for _, name := range []string{"items", "queries", "out"} {
		_ = cmd.MarkFlagRequired(name)
	}
}

func (f *fitInputs) registerPairs(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.pairs, "pairs", "", "logged pairs, CSV")
	cmd.Flags().StringVar(&f.itemIDs, "item-ids", "", "ids of the items: .npy of integers, or text with one a line; the pairs then name items by id")
	_ = cmd.MarkFlagRequired("pairs")
}

// free refuses a file that is there already, before the work begins.
func (f *fitInputs) free() error {
	if _, err := os.Lstat(f.out); err == nil && !f.force {
		return usagef("%s exists; replace it with --force", f.out)
	}
	if info, err := os.Stat(filepath.Dir(f.out)); err != nil || !info.IsDir() {
		return usagef("%s cannot be written: its directory does not exist", f.out)
	}
	return nil
}

// vectors opens both matrices; close must be called.
func (f *fitInputs) vectors() (items, queries rerank.Matrix, closeBoth func() error, err error) {
	x, err := npy.Open(f.items)
	if err != nil {
		return items, queries, nil, badInput(err)
	}
	q, err := npy.Open(f.queries)
	if err != nil {
		return items, queries, nil, badInput(errors.Join(err, x.Close()))
	}
	return x.Matrix, q.Matrix, func() error { return errors.Join(x.Close(), q.Close()) }, nil
}

// readPairs reads the log as eval does.
func (f *fitInputs) readPairs(items, queries rerank.Matrix) (*eval.Pairs, error) {
	in := eval.Input{Items: items, Queries: queries}
	e := evalFlags{pairs: f.pairs, itemIDs: f.itemIDs}
	if err := e.readPairs(&in); err != nil {
		return nil, badInput(err)
	}
	if in.ItemIDs != nil && len(in.ItemIDs) != items.Rows {
		return nil, usagef("%s has %d ids for %d items", f.itemIDs, len(in.ItemIDs), items.Rows)
	}
	return in.Pairs, nil
}

// badInput is the user's mistake in a file: wrong usage.
func badInput(err error) error { return usageError{err} }

// provenance says what a fitted model was made of. It has no date: equal inputs
// give equal files.
func (f *fitInputs) provenance() (map[string]string, error) {
	p := map[string]string{"tool": "likeness " + buildinfo.Read(stamp()).Version}
	for key, path := range map[string]string{"items": f.items, "queries": f.queries, "pairs": f.pairs, "item_ids": f.itemIDs} {
		if path == "" {
			continue
		}
		digest, err := fileDigest(path)
		if err != nil {
			return nil, err
		}
		p["data."+key] = filepath.Base(path) + " sha256:" + digest
	}
	return p, nil
}

func fileDigest(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	digest := sha256.New()
	if _, err := io.Copy(digest, file); err != nil {
		return "", fmt.Errorf("reading %s: %w", path, err)
	}
	return hex.EncodeToString(digest.Sum(nil)), nil
}

// write makes the model and writes it.
func (f *fitInputs) write(p model.Parameters) (*model.Model, error) {
	p.Name = cmp.Or(f.name, strings.TrimSuffix(filepath.Base(f.out), model.Extension))
	m, err := model.New(p)
	if err != nil {
		return nil, err
	}
	return m, model.Write(f.out, m)
}

// compactJSON is v in one line, for provenance.
func compactJSON(v any) (string, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return strings.TrimSpace(b.String()), err
}
