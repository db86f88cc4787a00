package gpu_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/likenessdb/likeness/gpu"
	"github.com/likenessdb/likeness/gpu/hosted"
	"github.com/likenessdb/likeness/plugin/device"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
)

// world is a model with rows made up, on a device.
type world struct {
	*model.Model
	file  []byte
	at    device.Version
	rows  rerank.Matrix
	query rerank.Query
}

// dotWorld returns a world of inner products. Up to 128 rows are scored in one exact step.
func dotWorld(t testing.TB, rows, dim int) *world {
	t.Helper()
	config, err := json.Marshal(map[string]int{"dim": dim})
	must(t, err)
	m, err := model.New(model.Parameters{Kind: rerank.KindDot, Name: "dot", Config: config})
	must(t, err)
	return worldOf(t, m, rows)
}

func worldOf(t testing.TB, m *model.Model, rows int) *world {
	t.Helper()
	var file bytes.Buffer
	must(t, model.Encode(&file, m))
	rng := rand.New(rand.NewPCG(1, uint64(rows)))
	w := &world{Model: m, file: file.Bytes(), at: device.Version{Name: m.Name, Version: m.Version}, rows: rerank.NewMatrix(rows, m.Spec().Features)}
	for i := range w.rows.Data {
		w.rows.Data[i] = float32(rng.NormFloat64() / 4)
	}
	w.query.Vector = make([]float32, m.Spec().QueryDim)
	for i := range w.query.Vector {
		w.query.Vector[i] = float32(rng.NormFloat64())
	}
	return w
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func version(name string) device.Version { return device.Version{Name: name, Version: "1"} }

// table loads the rows as a table.
func (w *world) table(ctx context.Context, d *gpu.Device, name string) error {
	return d.LoadTable(ctx, device.TableHead{Table: version(name), Model: w.at, Rows: w.rows.Rows, Cols: w.rows.Cols},
		func(yield func([]float32, error) bool) { yield(w.rows.Data, nil) })
}

func (w *world) ask(name string, k int) device.Ask {
	return device.Ask{Model: w.at, Table: version(name), Query: w.query, K: k}
}

// TestBatching: queries that come while one is launched are launched together, those
// of two tables by turns, and one whose deadline is earlier before others.
func TestBatching(t *testing.T) {
	first, hold := make(chan struct{}), make(chan struct{})
	var once sync.Once
	var mu sync.Mutex
	var sizes []int
	m := &hosted.Machine{Memory: 1 << 20, Batch: 4}
	d := openOn(t, m, gpu.Options{Gather: -1, Queue: 12})
	w := dotWorld(t, 20, 3)
	must(t, d.LoadModel(t.Context(), w.at, w.file))
	m.Launched = func(jobs []gpu.Job) error {
		mu.Lock()
		sizes = append(sizes, len(jobs))
		mu.Unlock()
		once.Do(func() {
			close(first)
			<-hold
		})
		return nil
	}
	must(t, w.table(t.Context(), d, "a"))
	must(t, w.table(t.Context(), d, "b"))
	var g errgroup.Group
	scan := func(name string) {
		g.Go(func() error {
			_, err := d.Scan(t.Context(), w.ask(name, 2), nil)
			return err
		})
	}
	scan("a")
	<-first
	for range 6 {
		scan("a")
		scan("b")
	}
	for d.Waiting() < 12 {
		if t.Context().Err() != nil {
			t.Fatal("they do not queue")
		}
	}
	if _, err := d.Scan(t.Context(), w.ask("a", 2), nil); !errors.Is(err, device.ErrBusy) || !strings.Contains(err.Error(), "12 queries") {
		t.Errorf("one more than the queue holds: %v, want %v", err, device.ErrBusy)
	}
	close(hold)
	must(t, g.Wait())
	if want := []int{1, 4, 4, 2, 2}; len(sizes) != len(want) || sizes[1] != 4 || sizes[2] != 4 || sizes[3] != 2 {
		t.Errorf("launches of %v, want %v: a, b, a, b", sizes, want)
	}
}

// TestUrgentQueriesGoFirst: of the queries that wait, the one with the earliest deadline is
// launched first.
func TestUrgentQueriesGoFirst(t *testing.T) {
	first, hold := make(chan struct{}), make(chan struct{})
	var order []int
	m := &hosted.Machine{Memory: 1 << 20}
	d := openOn(t, m, gpu.Options{})
	w := dotWorld(t, 20, 3)
	must(t, d.LoadModel(t.Context(), w.at, w.file))
	m.Launched = func(jobs []gpu.Job) error {
		for _, j := range jobs {
			order = append(order, j.Keep-1)
		}
		if len(order) == 1 {
			close(first)
			<-hold
		}
		return nil
	}
	must(t, w.table(t.Context(), d, "a"))
	var g errgroup.Group
	scan := func(k int, within time.Duration) {
		g.Go(func() error {
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			_, err := d.Scan(ctx, w.ask("a", k), nil)
			return err
		})
	}
	scan(1, time.Hour)
	<-first
	for i, within := range []time.Duration{3 * time.Hour, time.Hour, 2 * time.Hour} {
		scan(2+i, within)
		for d.Waiting() <= i && t.Context().Err() == nil {
			continue
		}
	}
	close(hold)
	must(t, g.Wait())
	if want := []int{1, 3, 4, 2}; !slices.Equal(order, want) {
		t.Errorf("queries for so many rows are launched: %v, want %v, the urgent ones first", order, want)
	}
}

// TestBudget: what does not fit is refused before it is allocated, with the sizes.
func TestBudget(t *testing.T) {
	m := &hosted.Machine{Memory: 1 << 20}
	d := openOn(t, m, gpu.Options{Memory: 250_000})
	w := dotWorld(t, 3000, 20) // 4,096 rows with room to grow, of 80 bytes
	must(t, d.LoadModel(t.Context(), w.at, w.file))
	err := w.table(t.Context(), d, "large")
	if !errors.Is(err, device.ErrMemory) || !strings.Contains(err.Error(), "needs 327680 bytes and 250000 of 250000 are free") {
		t.Errorf("it returned %v", err)
	}
	w.rows = w.rows.Slice(0, 900) // 1,024
	must(t, w.table(t.Context(), d, "a"))
	must(t, w.table(t.Context(), d, "b"))
	more := device.Patch{From: version("a"), Version: "2", Rows: w.rows.Slice(0, 200)}
	for i := range 200 {
		more.Numbers = append(more.Numbers, uint32(900+i))
	}
	if err := d.PatchTable(t.Context(), more); !errors.Is(err, device.ErrMemory) ||
		!strings.Contains(err.Error(), "unload another (table a has 81920 bytes, table b has 81920 bytes)") {
		t.Errorf("a patch for which the table has to move: %v", err)
	}
	if _, err := d.Scan(t.Context(), w.ask("a", 2), nil); err != nil {
		t.Errorf("the table that could not be patched: %v", err)
	}
	must(t, d.Unload(t.Context(), nil, []device.Version{version("b")}))
	must(t, d.PatchTable(t.Context(), more))
	must(t, d.Unload(t.Context(), []device.Version{w.at}, []device.Version{{Name: "a", Version: "2"}}))
	for tick, until := time.NewTicker(time.Millisecond), time.After(20*time.Second); ; { // what a patch has moved is freed in the background
		said, err := d.Describe(t.Context())
		must(t, err)
		if said.Free == 250_000 {
			break
		}
		select {
		case <-tick.C:
		case <-until:
			t.Fatalf("%d of 250000 bytes free when all is unloaded", said.Free)
		}
	}
	must(t, d.Close())
	if m.Used() != 0 {
		t.Errorf("the machine has %d bytes in use", m.Used())
	}
}

// TestCancelled: a query that nobody waits for is not launched, and another of the
// same table is answered.
func TestCancelled(t *testing.T) {
	first, hold := make(chan struct{}), make(chan struct{})
	var launched atomic.Int64
	m := &hosted.Machine{Memory: 1 << 20}
	d := openOn(t, m, gpu.Options{})
	w := dotWorld(t, 20, 3)
	must(t, d.LoadModel(t.Context(), w.at, w.file))
	m.Launched = func(jobs []gpu.Job) error {
		if launched.Add(int64(len(jobs))) == 1 {
			close(first)
			<-hold
		}
		return nil
	}
	must(t, w.table(t.Context(), d, "a"))
	ctx, cancel := context.WithCancel(t.Context())
	var g errgroup.Group
	g.Go(func() error {
		_, err := d.Scan(t.Context(), w.ask("a", 2), nil)
		return err
	})
	<-first
	g.Go(func() error {
		if _, err := d.Scan(ctx, w.ask("a", 2), nil); !errors.Is(err, context.Canceled) {
			t.Errorf("a query that is cancelled returned %v", err)
		}
		return nil
	})
	for d.Waiting() < 1 && t.Context().Err() == nil {
		continue
	}
	cancel()
	close(hold)
	must(t, g.Wait())
	if _, err := d.Scan(t.Context(), w.ask("a", 2), nil); err != nil || launched.Load() != 2 {
		t.Errorf("%v, %d queries launched, want 2", err, launched.Load())
	}
}

// TestLost: a machine that is lost ends calls, those that wait too, with
// device.ErrUnavailable and its own words, and says so to whoever runs the process.
func TestLost(t *testing.T) {
	m := &hosted.Machine{Memory: 1 << 20}
	d := openOn(t, m, gpu.Options{})
	w := dotWorld(t, 20, 3)
	must(t, d.LoadModel(t.Context(), w.at, w.file))
	m.Launched = func([]gpu.Job) error {
		return errors.Join(gpu.ErrLost, errors.New("illegal address"))
	}
	must(t, w.table(t.Context(), d, "a"))
	for range 2 {
		if _, err := d.Scan(t.Context(), w.ask("a", 2), nil); !errors.Is(err, device.ErrUnavailable) || !strings.Contains(err.Error(), "illegal address") {
			t.Errorf("it returned %v", err)
		}
	}
	<-d.Lost()
	if _, err := d.Describe(t.Context()); !errors.Is(err, device.ErrUnavailable) {
		t.Errorf("Describe returned %v", err)
	}
	if err := w.table(t.Context(), d, "b"); !errors.Is(err, device.ErrUnavailable) {
		t.Errorf("LoadTable returned %v", err)
	}
}

// TestStuck: a launch that does not come back ends its own call, those that wait, and
// Close, with device.ErrUnavailable. The clock is the test's own: nothing else is late.
func TestStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		m := &hosted.Machine{Memory: 1 << 20}
		d, err := gpu.New(func() (gpu.Machine, error) { return m, nil }, gpu.Options{Patience: 100 * time.Millisecond})
		must(t, err)
		t.Cleanup(func() { close(hold) }) // ends the goroutine of the machine
		w := dotWorld(t, 20, 3)
		must(t, d.LoadModel(t.Context(), w.at, w.file))
		m.Launched = func([]gpu.Job) error { <-hold; return nil }
		must(t, w.table(t.Context(), d, "a"))
		var g errgroup.Group
		for range 3 {
			g.Go(func() error {
				if _, err := d.Scan(t.Context(), w.ask("a", 2), nil); !errors.Is(err, device.ErrUnavailable) || !strings.Contains(err.Error(), "has not come back after 100ms") {
					t.Errorf("Scan returned %v", err)
				}
				return nil
			})
		}
		must(t, g.Wait())
		<-d.Lost()
		if err := w.table(t.Context(), d, "b"); !errors.Is(err, device.ErrUnavailable) {
			t.Errorf("LoadTable returned %v", err)
		}
		if err := d.Close(); !errors.Is(err, device.ErrUnavailable) {
			t.Errorf("Close returned %v", err)
		}
	})
}

// TestNoDevice: New returns the error of the machine.
func TestNoDevice(t *testing.T) {
	_, err := gpu.New(func() (gpu.Machine, error) { return nil, errors.New("no device") }, gpu.Options{})
	if !errors.Is(err, device.ErrUnavailable) || !strings.Contains(err.Error(), "no device") {
		t.Errorf("it returned %v", err)
	}
}

// TestWrongMachine: an answer that no kernel can give is an error and never an answer.
func TestWrongMachine(t *testing.T) {
	for name, spoil := range map[string]func(*gpu.Survivors){
		"a row twice":      func(s *gpu.Survivors) { s.Rows[1], s.Scores[1] = s.Rows[0], s.Scores[0] },
		"next above them":  func(s *gpu.Survivors) { s.Next = math.MaxFloat32 },
		"next not finite":  func(s *gpu.Survivors) { s.Next = float32(math.NaN()) },
		"more than counts": func(s *gpu.Survivors) { s.Scored = 1 },
	} {
		m := &wrong{Machine: hosted.Machine{Memory: 1 << 20}}
		d := openOn(t, m, gpu.Options{})
		w := dotWorld(t, 300, 3)
		must(t, d.LoadModel(t.Context(), w.at, w.file))
		m.spoil = spoil
		must(t, w.table(t.Context(), d, "a"))
		if _, err := d.Scan(t.Context(), w.ask("a", 2), nil); !errors.Is(err, device.ErrFailed) {
			t.Errorf("%s: it returned %v, want %v", name, err, device.ErrFailed)
		}
	}
}

// wrong is a machine whose answers are spoilt, if spoil is not nil.
type wrong struct {
	hosted.Machine
	spoil func(*gpu.Survivors)
}

func (w *wrong) Run(jobs []gpu.Job) ([]gpu.Survivors, error) {
	out, err := w.Machine.Run(jobs)
	for i := range out {
		if w.spoil != nil {
			w.spoil(&out[i])
		}
	}
	return out, err
}
