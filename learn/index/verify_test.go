package index_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/adapters/embedded"
	"github.com/likenessdb/likeness/adapters/qdrant"
	"github.com/likenessdb/likeness/learn/index"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/table"
)

// companions is a store that keeps them.
type companions interface {
	adapters.Store
	adapters.Writer
	adapters.Describer
	adapters.Fetcher
	adapters.Counter
}

// faulty is a store that alters what it is given to keep.
type faulty struct {
	companions
	alter func(*adapters.Rows)
}

func (s faulty) Write(ctx context.Context, collection string, schema adapters.Schema, rows adapters.Rows) error {
	s.alter(&rows)
	return s.companions.Write(ctx, collection, schema, rows)
}

// miscounting has more rows than it shows to a scan.
type miscounting struct{ *embedded.Store }

func (s miscounting) Count(ctx context.Context, name string) (int64, error) {
	n, err := s.Store.Count(ctx, name)
	if name == "items" {
		n++
	}
	return n, err
}

// TestCompanionIsReadBack: at the end of a build the companion's rows are counted, and a thousand
// are compared with the written ones, in every store that keeps companions.
func TestCompanionIsReadBack(t *testing.T) {
	q, err := qdrant.Open(qdrant.Options{Address: servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{}).Address})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = q.Close() })
	m := molModel(t)
	source := collection(t, m.Similarity.Spec().ItemDim)
	changed := func(r *adapters.Rows) {
		vectors := rerank.Matrix{Rows: r.Vectors[0].Rows, Cols: r.Vectors[0].Cols, Data: slices.Clone(r.Vectors[0].Data)}
		for i := range vectors.Data {
			vectors.Data[i] += 1e-3
		}
		r.Vectors = append([]rerank.Matrix{vectors}, r.Vectors[1:]...)
	}
	for name, store := range map[string]companions{"embedded": source, "qdrant": q} {
		for fault, alter := range map[string]func(*adapters.Rows){
			"":        func(*adapters.Rows) {},
			"missing": func(r *adapters.Rows) { *r = first(*r, len(r.IDs)-1) },
			"changed": changed,
			"payload": func(r *adapters.Rows) { r.Payloads = nil },
		} {
			t.Run(name+" "+fault, func(t *testing.T) {
				job := companionJob(t, source, faulty{store, alter}, m)
				job.Force = true
				r, err := index.BuildCompanion(t.Context(), job)
				if fault != "" {
					if !errors.Is(err, index.ErrVerify) {
						t.Errorf("%+v, %v, want ErrVerify", r, err)
					}
					job.Writer, job.Force = store, false // begun again, it writes every row again
					r, err = index.BuildCompanion(t.Context(), job)
				}
				if want := (index.Verified{Rows: rows, Counted: true, Compared: rows}); err != nil || r.Verified != want {
					t.Errorf("%+v, %v, want %+v", r, err, want)
				}
			})
		}
	}
}

// first is the first n rows.
func first(r adapters.Rows, n int) adapters.Rows {
	out := adapters.Rows{IDs: r.IDs[:n], Payloads: r.Payloads[:n]}
	for _, m := range r.Vectors {
		out.Vectors = append(out.Vectors, m.Slice(0, n))
	}
	return out
}

// TestTableIsReadBack: a build does not accept a table that lacks a row of the collection or is
// damaged.
func TestTableIsReadBack(t *testing.T) {
	m := molModel(t)
	store := collection(t, m.Similarity.Spec().ItemDim)
	path := filepath.Join(t.TempDir(), "items.table")
	job := index.TableJob{Source: index.Source{Store: miscounting{store}, Collection: "items"}, Model: m, Path: path}
	if _, err := index.BuildTable(t.Context(), job); !errors.Is(err, index.ErrVerify) {
		t.Errorf("of a collection with a row that is not listed: %v, want ErrVerify", err)
	}
	expect := table.Expect{ModelVersion: m.Version, Collection: "items"}
	if v, err := index.VerifyTable(path, expect, rows); err != nil || v.Rows != rows {
		t.Errorf("%+v, %v", v, err)
	}
	if _, err := index.VerifyTable(path, expect, rows-1); !errors.Is(err, index.ErrVerify) {
		t.Errorf("of another number of rows: %v, want ErrVerify", err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := index.VerifyTable(path, expect, rows); !errors.Is(err, index.ErrVerify) || !errors.Is(err, table.ErrTable) {
		t.Errorf("of a damaged table: %v, want ErrVerify and ErrTable", err)
	}
}
