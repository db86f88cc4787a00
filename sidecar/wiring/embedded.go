package wiring

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/embedded"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/npy"
	"github.com/likenessdb/likeness/sidecar/config"
)

// ErrFile: a file of an embedded collection cannot be used.
var ErrFile = errors.New("file of an embedded collection is not valid")

func (a *Assembly) openEmbedded(s config.Store) (adapters.Store, error) {
	store := embedded.New(embedded.WithLimits(limits(s.Limits)), embedded.WithTurns(a.Turns))
	for _, name := range sortedKeys(s.Collections) {
		c, err := a.collection(s.Collections[name])
		if err != nil {
			return nil, fmt.Errorf("collections.%s: %w", name, err)
		}
		if err := store.Load(name, c); err != nil {
			return nil, err
		}
	}
	return store, nil
}

func (a *Assembly) collection(c config.Collection) (embedded.Collection, error) {
	out := embedded.Collection{OwnerField: c.Owner}
	if c.Vectors != "" {
		f, err := a.field("", c.Vectors, c.Metric)
		if err != nil {
			return out, fmt.Errorf("vectors: %w", err)
		}
		out.Fields = append(out.Fields, f)
	}
	for _, name := range sortedKeys(c.Fields) {
		f, err := a.field(name, c.Fields[name].File, c.Fields[name].Metric)
		if err != nil {
			return out, fmt.Errorf("fields.%s: %w", name, err)
		}
		out.Fields = append(out.Fields, f)
	}
	var err error
	if out.IDs, err = readIDs(c.IDs); err != nil {
		return out, fmt.Errorf("ids: %w", err)
	}
	if out.Payloads, err = readPayloads(c.Payload); err != nil {
		return out, fmt.Errorf("payload: %w", err)
	}
	if out.Owners, err = readIDs(c.Owners); err != nil {
		return out, fmt.Errorf("owners: %w", err)
	}
	if c.Owner != "" && c.Owners == "" {
		out.Owners, err = ownersOf(c.Owner, out.Payloads)
	}
	return out, err
}

// field maps a file with vectors. Closing the assembly unmaps it.
func (a *Assembly) field(name, file, metric string) (embedded.Field, error) {
	m, err := npy.Open(file)
	if err != nil {
		return embedded.Field{}, err
	}
	a.closers = append(a.closers, m)
	return embedded.Field{
		VectorField: adapters.VectorField{Name: name, Metric: adapters.Metric(metric)},
		Vectors:     m.Matrix,
	}, nil
}

// readIDs reads numbers from an .npy file, or strings from the lines of any other file. It
// returns nil if no file is named.
func readIDs(file string) ([]rerank.ID, error) {
	if file == "" {
		return nil, nil
	}
	if filepath.Ext(file) == ".npy" {
		numbers, err := npy.ReadInts(file)
		if err != nil {
			return nil, err
		}
		ids := make([]rerank.ID, len(numbers))
		for i, n := range numbers {
			ids[i] = rerank.IntID(n)
		}
		return ids, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFile, err)
	}
	var ids []rerank.ID
	for line := range strings.Lines(string(data)) {
		ids = append(ids, rerank.TextID(strings.TrimRight(line, "\r\n")))
	}
	return ids, nil
}

// readPayloads reads a JSON object from each line. It returns nil if no file is named.
func readPayloads(file string) ([]json.RawMessage, error) {
	if file == "" {
		return nil, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFile, err)
	}
	var rows []json.RawMessage
	for line := range bytes.Lines(data) {
		rows = append(rows, bytes.TrimSpace(line))
	}
	return rows, nil
}

// ownersOf reads the item of each row from a field of its payload.
func ownersOf(field string, payloads []json.RawMessage) ([]rerank.ID, error) {
	owners := make([]rerank.ID, len(payloads))
	for i, p := range payloads {
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(p, &fields); err != nil {
			return nil, fmt.Errorf("%w: payload of row %d: %w", ErrFile, i, err)
		}
		if err := owners[i].UnmarshalJSON(fields[field]); err != nil || owners[i].IsZero() {
			return nil, fmt.Errorf("%w: payload of row %d: field %q must be a 64-bit integer or a string", ErrFile, i, field)
		}
	}
	return owners, nil
}

func sortedKeys[V any](m map[string]V) []string {
	var all []string
	for k := range m {
		all = append(all, k)
	}
	slices.Sort(all)
	return all
}
