package index

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/embedded"
	"github.com/likenessdb/likeness/learn/dataset"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/npy"
)

// Fetch completes the files and reads rows from them.
func (f *Files) Fetch(ctx context.Context, r adapters.FetchRequest) (adapters.Rows, error) {
	if err := f.openFiles(r.Collection); err != nil {
		return adapters.Rows{}, err
	}
	return f.readBack.Fetch(ctx, r)
}

// Count completes the files and counts their rows. It fails if the files differ in
// their number of rows.
func (f *Files) Count(ctx context.Context, collection string) (int64, error) {
	if err := f.openFiles(collection); err != nil {
		return 0, err
	}
	return f.readBack.Count(ctx, collection)
}

// openFiles opens the completed files in an embedded store.
func (f *Files) openFiles(collection string) error {
	if f.readBack != nil {
		return nil
	}
	if err := f.complete(); err != nil {
		return err
	}
	var c embedded.Collection
	for _, name := range f.names {
		m, err := npy.Open(filepath.Join(f.Dir, name+".npy"))
		if err != nil {
			return err
		}
		f.mapped = append(f.mapped, m)
		c.Fields = append(c.Fields, embedded.Field{VectorField: adapters.VectorField{Name: name, Metric: adapters.InnerProduct}, Vectors: m.Matrix})
	}
	var err error
	if c.IDs, err = f.readIDs(); err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(f.Dir, "payload.jsonl"))
	if err != nil {
		return err
	}
	for line := range bytes.Lines(text) {
		c.Payloads = append(c.Payloads, bytes.TrimSuffix(line, []byte("\n")))
	}
	back := embedded.New()
	if err := back.Load(collection, c); err != nil {
		return fmt.Errorf("%w: the files in %s: %w", ErrVerify, f.Dir, err)
	}
	f.readBack = back
	return nil
}

func (f *Files) readIDs() ([]rerank.ID, error) {
	if f.IDs == "" {
		return nil, nil
	}
	return dataset.ReadIDs(f.IDs)
}
