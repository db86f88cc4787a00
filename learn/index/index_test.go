package index_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/embedded"
	"github.com/likenessdb/likeness/learn/index"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/maxsim"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/npy"
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/sidecar/route"
)

const rows = 1000

// molModel is a Mixture-of-Logits whose weights lie in the repository.
func molModel(t *testing.T) route.Model {
	t.Helper()
	m, err := model.Open("../../examples/models/banking77-mol")
	if err != nil {
		t.Fatal(err)
	}
	return route.Model{Name: m.Name, Version: m.Version, Similarity: m.Similarity}
}

// collection fills a store with rows, with gaps in the ids and a payload each.
func collection(t *testing.T, dim int) *embedded.Store {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 1))
	c := embedded.Collection{Fields: []embedded.Field{{Vectors: rerank.NewMatrix(rows, dim)}}, OwnerField: "item"}
	for i := range c.Fields[0].Vectors.Data {
		c.Fields[0].Vectors.Data[i] = float32(r.NormFloat64())
	}
	for i := range rows {
		c.IDs = append(c.IDs, rerank.UintID(uint64(7+3*i)))
		c.Owners = append(c.Owners, rerank.TextID(fmt.Sprint("item ", i%300)))
		c.Payloads = append(c.Payloads, json.RawMessage(fmt.Sprintf(`{"row": %d}`, i)))
	}
	s := embedded.New()
	if err := s.Load("items", c); err != nil {
		t.Fatal(err)
	}
	return s
}

func vectors(t *testing.T, s *embedded.Store) (ids []rerank.ID, m rerank.Matrix) {
	t.Helper()
	err := s.Scan(t.Context(), adapters.ScanRequest{Collection: "items", Vectors: []string{""}, Batch: rows}, func(r adapters.Rows, _ string) error {
		ids, m = r.IDs, r.Vectors[0]
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return ids, m
}

// interrupted is a store whose scan ends after some batches.
type interrupted struct {
	*embedded.Store
	batches int
}

var errInterrupted = errors.New("interrupted")

func (s *interrupted) Scan(ctx context.Context, r adapters.ScanRequest, yield func(adapters.Rows, string) error) error {
	return s.Store.Scan(ctx, r, func(rows adapters.Rows, cursor string) error {
		if s.batches == 0 {
			return errInterrupted
		}
		s.batches--
		return yield(rows, cursor)
	})
}

func checkTable(t *testing.T, path string, m route.Model, s *embedded.Store) {
	t.Helper()
	got, err := table.Open(path, table.Expect{ModelVersion: m.Version, Collection: "items"})
	if err != nil {
		t.Fatal(err)
	}
	defer got.Close()
	ids, base := vectors(t, s)
	want := rerank.NewMatrix(base.Rows, m.Similarity.Spec().Features)
	if err := m.Similarity.EncodeItems(want, base); err != nil {
		t.Fatal(err)
	}
	if got.Len() != len(ids) || !slices.Equal(got.Features().Data, want.Data) {
		t.Fatalf("the table has %d items, want %d with the features of the model", got.Len(), len(ids))
	}
	for i, id := range ids {
		if got.ID(i) != id {
			t.Fatalf("item %d is %s, want %s", i, got.ID(i), id)
		}
	}
}

func TestBuildTable(t *testing.T) {
	m := molModel(t)
	store := collection(t, m.Similarity.Spec().ItemDim)
	path := filepath.Join(t.TempDir(), "items.table")
	done := map[string]int{}
	job := index.TableJob{Source: index.Source{Store: store, Collection: "items", Batch: 128}, Model: m, Path: path, Progress: countSteps(done)}
	r, err := index.BuildTable(t.Context(), job)
	if err != nil || r != (index.Result{Rows: rows, Items: rows, Verified: index.Verified{Rows: rows, Counted: true}}) {
		t.Fatalf("%+v, %v", r, err)
	}
	checkTable(t, path, m, store)
	if done["indexing items"] != rows {
		t.Errorf("progress of %v, want %d rows", done, rows)
	}
	if _, err := index.BuildTable(t.Context(), job); !errors.Is(err, index.ErrExists) {
		t.Errorf("a second build: got %v, want ErrExists", err)
	}
	job.Force = true
	if _, err := index.BuildTable(t.Context(), job); err != nil {
		t.Errorf("with Force: %v", err)
	}
	job.Path = filepath.Dir(path)
	if _, err := index.BuildTable(t.Context(), job); err == nil || errors.Is(err, index.ErrVerify) {
		t.Errorf("in place of a folder: %v, want the reason", err)
	}
}

// countSteps returns a Progress that adds up the steps of each stage.
func countSteps(done map[string]int) index.Progress {
	return func(stage string, _ int) func(int) { return func(n int) { done[stage] += n } }
}

func TestBuildTableGoesOnWhereItStopped(t *testing.T) {
	m := molModel(t)
	store := collection(t, m.Similarity.Spec().ItemDim)
	job := index.TableJob{
		Source: index.Source{Store: &interrupted{store, 3}, Collection: "items", Batch: 128},
		Model:  m, Path: filepath.Join(t.TempDir(), "items.table"),
	}
	if _, err := index.BuildTable(t.Context(), job); !errors.Is(err, errInterrupted) {
		t.Fatalf("got %v", err)
	}
	if _, err := os.Stat(job.Path); !errors.Is(err, os.ErrNotExist) {
		t.Fatal("an unfinished table is at its path")
	}
	job.Source.Store = store
	r, err := index.BuildTable(t.Context(), job)
	if err != nil || r.Resumed != 3*128 || r.Rows != rows-3*128 || r.Items != rows {
		t.Fatalf("%+v, %v", r, err)
	}
	checkTable(t, job.Path, m, store)
}

func TestBuildTableGroupsRowsByItem(t *testing.T) {
	s, err := maxsim.New(maxsim.Config{Dim: 8, Normalise: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := route.Model{Name: "maxsim", Version: "1", Similarity: s}
	job := index.TableJob{
		Source: index.Source{Store: collection(t, 8), Collection: "items", Owner: "item"},
		Model:  m, Path: filepath.Join(t.TempDir(), "items.table"),
	}
	r, err := index.BuildTable(t.Context(), job)
	if err != nil || r.Items != 300 || r.Rows != rows {
		t.Fatalf("%+v, %v", r, err)
	}
	got, err := table.Open(job.Path, table.Expect{})
	if err != nil {
		t.Fatal(err)
	}
	defer got.Close()
	item, ok := got.Find(rerank.TextID("item 5"))
	if from, to := got.Rows(item); !ok || to-from != 4 { // rows 5, 305, 605, 905
		t.Errorf("item 5 has the rows %d to %d", from, to)
	}
	job.Force, job.Source.Batch, job.Source.Store = true, 128, &interrupted{job.Source.Store.(*embedded.Store), 2}
	if _, err := index.BuildTable(t.Context(), job); !errors.Is(err, errInterrupted) {
		t.Errorf("of the items listed so far: %v", err)
	}
	job.Source.Owner = ""
	if _, err := index.BuildTable(t.Context(), job); !errors.Is(err, index.ErrSource) {
		t.Errorf("without an owner field: got %v, want ErrSource", err)
	}
}

func TestBuildTableRefusesAnotherDimension(t *testing.T) {
	job := index.TableJob{
		Source: index.Source{Store: collection(t, 8), Collection: "items"}, Model: molModel(t), Path: filepath.Join(t.TempDir(), "t"),
	}
	if _, err := index.BuildTable(t.Context(), job); !errors.Is(err, index.ErrSource) {
		t.Errorf("got %v, want ErrSource", err)
	}
	job.Source.Collection = "none"
	if _, err := index.BuildTable(t.Context(), job); !errors.Is(err, adapters.ErrNotFound) {
		t.Errorf("got %v, want ErrNotFound", err)
	}
}

func TestBuildTableCountsWhatIsNotFinite(t *testing.T) {
	s := collection(t, 8)
	c := embedded.Collection{Fields: []embedded.Field{{Vectors: rerank.NewMatrix(3, 8)}}}
	c.Fields[0].Vectors.Data[8] = float32(math.Inf(1))
	if err := s.Load("items", c); err != nil {
		t.Fatal(err)
	}
	sim, err := model.New(model.Parameters{Kind: rerank.KindDot, Config: json.RawMessage(`{"dim": 8}`)})
	if err != nil {
		t.Fatal(err)
	}
	r, err := index.BuildTable(t.Context(), index.TableJob{
		Source: index.Source{Store: s, Collection: "items"}, Path: filepath.Join(t.TempDir(), "t"),
		Model: route.Model{Name: "dot", Version: "1", Similarity: sim},
	})
	if err != nil || r.NotFinite != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}

func companionJob(t *testing.T, store adapters.Store, w adapters.Writer, m route.Model) index.CompanionJob {
	t.Helper()
	return index.CompanionJob{
		Source: index.Source{Store: store, Collection: "items", Batch: 128}, Model: m, Writer: w, Name: "companion",
		Strategies: []rerank.Strategy{rerank.PerEmbedding, rerank.Average},
		State:      filepath.Join(t.TempDir(), "companion.json"),
	}
}

func TestBuildCompanion(t *testing.T) {
	m := molModel(t)
	store := collection(t, m.Similarity.Spec().ItemDim)
	job := companionJob(t, &interrupted{store, 0}, store, m)
	if _, err := index.BuildCompanion(t.Context(), job); !errors.Is(err, errInterrupted) {
		t.Fatalf("interrupted before the first row: got %v", err)
	}
	job.Source.Store = &interrupted{store, 2}
	if _, err := index.BuildCompanion(t.Context(), job); !errors.Is(err, errInterrupted) {
		t.Fatalf("got %v", err)
	}
	other := job
	other.Strategies = other.Strategies[:1]
	if _, err := index.BuildCompanion(t.Context(), other); !errors.Is(err, index.ErrSource) {
		t.Errorf("another job with this state: got %v, want ErrSource", err)
	}
	done := map[string]int{}
	job.Source.Store, job.Progress = store, countSteps(done)
	r, err := index.BuildCompanion(t.Context(), job)
	if err != nil || r.Resumed != 256 || r.Rows != rows-256 {
		t.Fatalf("%+v, %v", r, err)
	}
	if done["writing companion "+job.Name] != rows {
		t.Errorf("progress of %v, want %d rows, with those of the run before", done, rows)
	}
	d, err := store.Describe(t.Context(), "companion")
	if err != nil || d.Rows != rows || len(d.Fields) != 5 { // c0 … c3 and the mean
		t.Fatalf("%+v, %v", d, err)
	}
	got, err := store.Fetch(t.Context(), adapters.FetchRequest{Collection: "companion", IDs: []rerank.ID{rerank.UintID(7 + 3*500)}, Payload: true})
	if err != nil || len(got.IDs) != 1 || string(got.Payloads[0]) != `{"row": 500}` {
		t.Errorf("row 500 is %+v, %v", got, err)
	}
	if r, err := index.BuildCompanion(t.Context(), job); err != nil || r.Resumed != rows || r.Rows != rows || r.Items != rows { // a queue may run it twice
		t.Errorf("a second build: %+v, %v", r, err)
	}
	job.State = filepath.Join(t.TempDir(), "another.json")
	if _, err := index.BuildCompanion(t.Context(), job); !errors.Is(err, index.ErrExists) {
		t.Errorf("a build of nobody's companion: got %v, want ErrExists", err)
	}
	job.Force = true
	if _, err := index.BuildCompanion(t.Context(), job); err != nil {
		t.Errorf("with Force: %v", err)
	}
	job.Source.Part = index.Part{Number: 1, Of: 2}
	part, err := index.BuildCompanion(t.Context(), job)
	if d, _ := store.Describe(t.Context(), "companion"); err != nil || part.Rows == 0 || part.Rows == rows || d.Rows != rows {
		t.Errorf("a part with Force: %+v, %v; the companion has %d rows, and lost those of other parts", part, err, d.Rows)
	}
}

func TestBuildCompanionAsFiles(t *testing.T) {
	m := molModel(t)
	store := collection(t, m.Similarity.Spec().ItemDim)
	files := &index.Files{Dir: filepath.Join(t.TempDir(), "companion")}
	job := companionJob(t, store, files, m)
	job.State = ""
	r, err := index.BuildCompanion(t.Context(), job)
	if want := (index.Verified{Rows: rows, Counted: true, Compared: rows}); err != nil || r.Verified != want {
		t.Fatalf("%+v, %v", r, err)
	}
	if err := files.Close(); err != nil {
		t.Fatal(err)
	}
	ids, err := npy.ReadInts(files.IDs)
	if err != nil || len(ids) != rows || ids[500] != 7+3*500 {
		t.Errorf("%d ids, %v", len(ids), err)
	}
	deriver := m.Similarity.(rerank.Deriver)
	_, base := vectors(t, store)
	features := rerank.NewMatrix(rows, m.Similarity.Spec().Features)
	if err := m.Similarity.EncodeItems(features, base); err != nil {
		t.Fatal(err)
	}
	fields, err := job.Fields()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range fields {
		want := rerank.NewMatrix(rows, f.Dim)
		if err := deriver.Derive(want, f.Name, rerank.Items{Features: features}); err != nil {
			t.Fatal(err)
		}
		got, err := npy.Open(filepath.Join(files.Dir, f.Name+".npy"))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got.Data, want.Data) {
			t.Errorf("field %s differs", f.Name)
		}
		if err := got.Close(); err != nil {
			t.Error(err)
		}
	}
	again := &index.Files{Dir: files.Dir}
	job.Writer = again
	if _, err := index.BuildCompanion(t.Context(), job); !errors.Is(err, adapters.ErrStore) {
		t.Errorf("into the same directory: got %v, want ErrStore", err)
	}
}

func TestCompanionNeedsDerivedFields(t *testing.T) {
	sim, err := model.New(model.Parameters{Kind: rerank.KindDot, Config: json.RawMessage(`{"dim": 8}`)})
	if err != nil {
		t.Fatal(err)
	}
	store := collection(t, 8)
	_, err = index.BuildCompanion(t.Context(), companionJob(t, store, store, route.Model{Name: "dot", Similarity: sim}))
	if !errors.Is(err, index.ErrSource) {
		t.Errorf("got %v, want ErrSource", err)
	}
}

// TestLateTable: a table of items with several vectors is read from one field of the collection. An item
// without vectors is counted and left out.
func TestLateTable(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 1))
	starts := []int32{0}
	for i := range 50 {
		starts = append(starts, starts[i]+int32(i%4))
	}
	all := rerank.NewMatrix(int(starts[50]), 6)
	for i := range all.Data {
		all.Data[i] = float32(r.NormFloat64())
	}
	s := embedded.New()
	err := s.Load("items", embedded.Collection{Fields: []embedded.Field{
		{VectorField: adapters.VectorField{Name: "mean"}, Vectors: rerank.NewMatrix(50, 6)},
		{VectorField: adapters.VectorField{Name: "all"}, Vectors: all, Starts: starts},
	}})
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.New(model.Parameters{Kind: rerank.KindLate, Name: "late", Config: json.RawMessage(`{"dim": 6, "normalise": false}`)})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "late.table")
	job := index.TableJob{
		Source: index.Source{Store: s, Collection: "items", Vector: "all", Batch: 7}, Path: path,
		Model: route.Model{Name: m.Name, Version: m.Version, Similarity: m.Similarity},
	}
	got, err := index.BuildTable(t.Context(), job)
	if err != nil || got.Missing != 13 || got.Items != 37 || got.Rows != all.Rows || !got.Verified.Counted {
		t.Fatalf("%+v, %v", got, err)
	}
	tab, err := table.Open(path, table.Expect{})
	if err != nil {
		t.Fatal(err)
	}
	defer tab.Close()
	for i := range tab.Len() {
		n, _ := tab.ID(i).Uint64()
		from, to := tab.Rows(i)
		want := all.Slice(int(starts[n]), int(starts[n+1]))
		if features, ok := tab.Full(); !ok || !slices.Equal(features.Slice(from, to).Data, want.Data) {
			t.Errorf("item %d has %d rows, want %d", n, to-from, want.Rows)
		}
	}
	job.Path, job.Source.Vector = path+"2", "mean"
	if _, err := index.BuildTable(t.Context(), job); !errors.Is(err, adapters.ErrField) {
		t.Errorf("a field of one vector a row: %v", err)
	}
}
