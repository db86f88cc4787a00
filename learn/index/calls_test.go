package index_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/embedded"
	"github.com/likenessdb/likeness/learn/index"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/maxsim"
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/sidecar/route"
)

// fault says how one call of a store fails.
type fault int

const (
	refused    fault = iota // the call does nothing and fails
	answerLost              // the call does its work and fails
	cancelled               // the build is cancelled during the call
	diskGone                // the directory of the build is away until the next call
)

var errCall = errors.New("this call fails")

// nthFails is the embedded store. Its n-th call has the fault. A call of Scan counts again after each batch.
type nthFails struct {
	*embedded.Store
	n      int
	fault  fault
	cancel context.CancelFunc
	dir    string // directory of the build

	calls  int
	failed string // the n-th call
	gone   bool   // dir is away
}

// call counts a call, and does it unless it is refused.
func (s *nthFails) call(ctx context.Context, name string, do func() error) error {
	if err := s.restore(); err != nil {
		return err
	}
	if s.calls++; s.calls != s.n {
		return errors.Join(ctx.Err(), do())
	}
	s.failed = name
	switch s.fault {
	case refused:
		return errCall
	case answerLost:
		_ = do()
		return errCall
	case cancelled:
		s.cancel()
		if ctx.Err() == nil {
			return errors.New("the call does not end with the build")
		}
		return ctx.Err()
	default:
		s.gone = true
		return errors.Join(os.Rename(s.dir, s.dir+".away"), do())
	}
}

// restore puts the directory back in place.
func (s *nthFails) restore() error {
	if !s.gone {
		return nil
	}
	s.gone = false
	return os.Rename(s.dir+".away", s.dir)
}

func (s *nthFails) Describe(ctx context.Context, name string) (d adapters.Description, err error) {
	err = s.call(ctx, "Describe "+name, func() error { d, err = s.Store.Describe(ctx, name); return err })
	return d, err
}

func (s *nthFails) Count(ctx context.Context, name string) (n int64, err error) {
	err = s.call(ctx, "Count "+name, func() error { n, err = s.Store.Count(ctx, name); return err })
	return n, err
}

func (s *nthFails) Cut(ctx context.Context, _ string, parts int) (cuts []string, err error) {
	err = s.call(ctx, "Cut", func() error {
		for i := 1; i < parts; i++ {
			cuts = append(cuts, fmt.Sprint(callRows*i/parts))
		}
		return nil
	})
	return cuts, err
}

func (s *nthFails) Scan(ctx context.Context, r adapters.ScanRequest, yield func(adapters.Rows, string) error) error {
	return s.call(ctx, "Scan", func() error {
		return s.Store.Scan(ctx, r, func(rows adapters.Rows, cursor string) error {
			if err := yield(rows, cursor); err != nil {
				return err
			}
			return s.call(ctx, "Scan", func() error { return nil })
		})
	})
}

func (s *nthFails) Fetch(ctx context.Context, r adapters.FetchRequest) (rows adapters.Rows, err error) {
	err = s.call(ctx, "Fetch", func() error { rows, err = s.Store.Fetch(ctx, r); return err })
	return rows, err
}

func (s *nthFails) Create(ctx context.Context, schema adapters.Schema) error {
	return s.call(ctx, "Create", func() error { return s.Store.Create(ctx, schema) })
}

func (s *nthFails) Write(ctx context.Context, name string, schema adapters.Schema, rows adapters.Rows) error {
	return s.call(ctx, "Write", func() error { return s.Store.Write(ctx, name, schema, rows) })
}

func (s *nthFails) Drop(ctx context.Context, name string) error {
	return s.call(ctx, "Drop", func() error { return s.Store.Drop(ctx, name) })
}

func (*nthFails) Reads() (payload bool, fields []string, vector bool) { return false, nil, true }

// Vectors makes the store a Base too, of the stored vectors.
func (s *nthFails) Vectors(ctx context.Context, rows adapters.Rows) (m rerank.Matrix, err error) {
	err = s.call(ctx, "Vectors", func() error { m = rows.Vectors[0]; return nil })
	return m, err
}

// callRows is the number of rows of callsCollection, of which row 1 has no vector.
const callRows, callBatch = 24, 8

func callsCollection(dim int) embedded.Collection {
	c := embedded.Collection{Fields: []embedded.Field{{Vectors: rerank.NewMatrix(callRows, dim)}}, OwnerField: "item"}
	for i := range c.Fields[0].Vectors.Data {
		c.Fields[0].Vectors.Data[i] = float32(math.Sin(float64(i)))
	}
	for i := range dim {
		c.Fields[0].Vectors.Row(1)[i] = float32(math.NaN())
	}
	for i := range callRows {
		c.IDs = append(c.IDs, rerank.UintID(uint64(7+3*i)))
		c.Owners = append(c.Owners, rerank.TextID(fmt.Sprint("item ", i%5)))
		c.Payloads = append(c.Payloads, json.RawMessage(fmt.Sprintf(`{"row": %d}`, i)))
	}
	return c
}

// callsCase is a build whose calls fail.
type callsCase struct {
	companion bool
	model     route.Model
	part      index.Part
	owner     string
	base      bool // the store computes the base vectors
	force     bool
	resume    int // the call at which an earlier build stopped; 0: there was none
	saves     int // number of times that the build writes to its directory; 0: the directory stays
}

func (c callsCase) source(s *nthFails) index.Source {
	source := index.Source{Store: s, Collection: "items", Batch: callBatch, Part: c.part, Owner: c.owner}
	if s.fault == diskGone {
		source.Checkpoint = -1 // after every batch
	}
	if c.base {
		source.Base = s
	}
	return source
}

func (c callsCase) build(ctx context.Context, s *nthFails, force bool) (index.Result, error) {
	if c.companion {
		return index.BuildCompanion(ctx, index.CompanionJob{
			Source: c.source(s), Model: c.model, Writer: s, Name: "learned", Force: force,
			Strategies: []rerank.Strategy{rerank.Average}, State: filepath.Join(s.dir, "state.json"),
		})
	}
	return index.BuildTable(ctx, index.TableJob{Source: c.source(s), Model: c.model, Path: filepath.Join(s.dir, "table"), Force: force})
}

// survives reports whether the build may go on after the failed call: a part waits until it finds the companion, which
// another part may have created.
func (c callsCase) survives(s *nthFails) bool {
	switch {
	case s.fault == diskGone:
		return true // unless it writes; the case says how often
	case s.fault == cancelled || c.part == index.Part{} || !c.companion:
		return false
	default:
		return s.failed == "Describe learned" || s.failed == "Create" && s.fault == answerLost
	}
}

// run builds with a fault at the n-th call. It returns the call, or "" if there are fewer, and whether the build failed. It
// checks the error, and that the next build makes the table or companion complete.
func (c callsCase) run(t *testing.T, n int, f fault) (call string, failed bool) {
	t.Helper()
	store := embedded.New()
	if err := store.Load("items", callsCollection(c.model.Similarity.Spec().ItemDim)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := &nthFails{Store: store, dir: filepath.Join(t.TempDir(), "build"), cancel: cancel}
	if err := os.Mkdir(s.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if c.resume > 0 {
		s.n = c.resume
		if _, err := c.build(ctx, s, false); !errors.Is(err, errCall) {
			t.Fatalf("the build to go on with: %v", err)
		}
		s.calls, s.failed = 0, ""
	}
	s.n, s.fault = n, f
	r, err := c.build(ctx, s, c.force)
	if err := s.restore(); err != nil {
		t.Fatal(err)
	}
	want := map[fault]error{refused: errCall, answerLost: errCall, cancelled: context.Canceled, diskGone: fs.ErrNotExist}[f]
	switch {
	case s.failed == "" || err == nil && c.survives(s):
		c.checkComplete(t, s, r, err)
		return s.failed, false
	case !errors.Is(err, want):
		t.Errorf("call %d, %s, fault %d: the build returns %v, want %v", n, s.failed, f, err, want)
	case f == cancelled && s.calls > n+1: // a part looks for its companion once more
		t.Errorf("call %d, %s: the build goes on with %d calls", n, s.failed, s.calls-n)
	}
	call, s.n = s.failed, 0
	if _, err := os.Stat(filepath.Join(s.dir, "table")); err == nil {
		c.checkTable(t, s) // it was complete before the fault
		return call, true
	}
	r, err = c.build(t.Context(), s, c.force)
	c.checkComplete(t, s, r, err)
	if t.Failed() {
		t.Fatalf("after call %d, %s, with fault %d", n, call, f)
	}
	return call, true
}

// rows returns the number of rows that the table or companion has.
func (c callsCase) rows() int {
	if c.part.Number == 2 {
		return callRows / 2
	}
	return callRows - 1
}

// checkComplete checks a build that returned r and err.
func (c callsCase) checkComplete(t *testing.T, s *nthFails, r index.Result, err error) {
	t.Helper()
	whole := c.part == index.Part{}
	if err != nil || whole && (r.Verified.Rows != int64(c.rows()) || !r.Verified.Counted) {
		t.Errorf("a build without a fault: %+v, %v", r, err)
		return
	}
	if !c.companion {
		c.checkTable(t, s)
		return
	}
	if n, err := s.Store.Count(t.Context(), "learned"); err != nil || n != int64(c.rows()) {
		t.Errorf("the companion has %d rows, %v, want %d", n, err, c.rows())
	}
}

func (c callsCase) checkTable(t *testing.T, s *nthFails) {
	t.Helper()
	tab, err := table.Open(filepath.Join(s.dir, "table"), table.Expect{ModelVersion: c.model.Version, Collection: "items"})
	if err != nil {
		t.Error(err)
		return
	}
	defer tab.Close()
	if n := tab.Meta().Rows; n != c.rows() {
		t.Errorf("the table has %d rows, want %d", n, c.rows())
	}
}

// TestEveryCallFails: a build returns the error of each call of its store and of each write to its directory, and ends when
// it is cancelled. It leaves no table and no companion that a next build takes for complete.
func TestEveryCallFails(t *testing.T) {
	mol := molModel(t)
	late, err := maxsim.New(maxsim.Config{Dim: mol.Similarity.Spec().ItemDim, Normalise: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	half := index.Part{Number: 2, Of: 2}
	for name, c := range map[string]callsCase{
		"table":               {model: mol, saves: 5},
		"table resumed":       {model: mol, base: true, resume: 6},
		"table of a part":     {model: mol, part: half, saves: 4},
		"table of items":      {model: route.Model{Name: "maxsim", Version: "1", Similarity: late}, owner: "item", saves: 2},
		"companion":           {companion: true, model: mol, saves: 5},
		"companion resumed":   {companion: true, model: mol, base: true, resume: 9},
		"companion by force":  {companion: true, model: mol, force: true},
		"companion of a part": {companion: true, model: mol, part: half, saves: 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { // a part waits 30 seconds for another
				for _, f := range []fault{refused, answerLost, cancelled, diskGone} {
					if f == diskGone && c.saves == 0 || f == answerLost && !c.companion {
						continue // the store of a table is only read
					}
					failures := 0
					for n := 1; ; n++ {
						call, failed := c.run(t, n, f)
						if failed {
							failures++
						}
						if call == "" {
							break
						}
					}
					if f == diskGone && failures != c.saves {
						t.Errorf("%d writes to the directory failed, want %d", failures, c.saves)
					}
				}
			})
		})
	}
}
