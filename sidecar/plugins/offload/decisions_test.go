package offload_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/likenessdb/likeness/plugin/device"
	"github.com/likenessdb/likeness/plugin/device/cpu"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/sidecar/plugins/offload"
	"github.com/likenessdb/likeness/sidecar/search/score"
)

// obeying is a device whose answers the test sets. It may be replaced by a new one, as by a
// restart.
type obeying struct {
	inner atomic.Pointer[device.Device]
	maxK  int
	calls atomic.Int64  // of Rescore and Scan
	patch chan struct{} // each value lets a patch go on; nil: patches do not wait

	mu      sync.Mutex
	rows    []float32                       // of the last load
	patched device.Patch                    // the last one
	answer  func(ctx context.Context) error // of Rescore and Scan; nil: the device's own
	silent  error                           // returned by Describe
}

func obedient() *obeying {
	o := &obeying{}
	o.restart()
	return o
}

func (o *obeying) restart() {
	var d device.Device = cpu.New(cpu.Options{})
	o.inner.Store(&d)
}

func (o *obeying) answers(f func(ctx context.Context) error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answer = f
}

func (o *obeying) asked(ctx context.Context) error {
	o.calls.Add(1)
	o.mu.Lock()
	answer := o.answer
	o.mu.Unlock()
	if answer == nil {
		return nil
	}
	return answer(ctx)
}

func (o *obeying) device() device.Device { return *o.inner.Load() }

func (o *obeying) Describe(ctx context.Context) (device.Description, error) {
	o.mu.Lock()
	silent := o.silent
	o.mu.Unlock()
	if silent != nil {
		return device.Description{}, silent
	}
	d, err := o.device().Describe(ctx)
	if o.maxK > 0 {
		d.MaxK = o.maxK
	}
	return d, err
}

func (o *obeying) LoadModel(ctx context.Context, v device.Version, file []byte) error {
	return o.device().LoadModel(ctx, v, file)
}

func (o *obeying) LoadTable(ctx context.Context, h device.TableHead, rows device.Rows) error {
	o.mu.Lock()
	o.rows = nil
	o.mu.Unlock()
	return o.device().LoadTable(ctx, h, func(yield func([]float32, error) bool) {
		for chunk, err := range rows {
			o.mu.Lock()
			o.rows = append(o.rows, chunk...)
			o.mu.Unlock()
			if !yield(chunk, err) {
				return
			}
		}
	})
}

func (o *obeying) PatchTable(ctx context.Context, p device.Patch) error {
	if o.patch != nil {
		select {
		case <-o.patch:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	o.mu.Lock()
	o.patched = p
	o.mu.Unlock()
	return o.device().PatchTable(ctx, p)
}

func (o *obeying) Unload(ctx context.Context, models, tables []device.Version) error {
	return o.device().Unload(ctx, models, tables)
}

func (o *obeying) Rescore(ctx context.Context, a device.Ask, rows []uint32) (device.Best, error) {
	if err := o.asked(ctx); err != nil {
		return device.Best{}, err
	}
	return o.device().Rescore(ctx, a, rows)
}

func (o *obeying) Scan(ctx context.Context, a device.Ask, bitmap []byte) (device.Best, error) {
	if err := o.asked(ctx); err != nil {
		return device.Best{}, err
	}
	return o.device().Scan(ctx, a, bitmap)
}

// log is a log that a test reads.
type log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *log) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), text)
}

// watched returns a scorer of the world on a device, once it is ready, and its log.
func (w *world) watched(t *testing.T, d device.Device) (*offload.Scorer, *log) {
	t.Helper()
	l := &log{}
	s := offload.New(offload.Options{Plugin: "gpu", Route: "r", Conn: local(t, d), Model: w.model, Logger: slog.New(slog.NewTextHandler(l, nil)), Table: func() *table.Table {
		if w.live != nil {
			return w.live.Snapshot()
		}
		return w.table
	}})
	t.Cleanup(func() { must(t, s.Close()) })
	ready(t, s)
	return s, l
}

// refusing is a device that refuses the first models that it is given.
type refusing struct {
	*obeying
	left atomic.Int64 // how many it still refuses
}

func (r *refusing) LoadModel(ctx context.Context, v device.Version, file []byte) error {
	if r.left.Add(-1) >= 0 {
		return device.ErrFailed
	}
	return r.obeying.LoadModel(ctx, v, file)
}

// TestOneReasonIsLoggedOnce: however often a device refuses a model for the same reason, the log says it
// once, and the device is used when it takes the model.
func TestOneReasonIsLoggedOnce(t *testing.T) {
	w, d := newWorld(t, items), &refusing{obeying: obedient()}
	d.left.Store(3)
	if _, l := w.watched(t, d); l.count("device not ready") != 1 || d.left.Load() >= 0 {
		t.Errorf("the log says %d times that the device is not ready, want once", l.count("device not ready"))
	}
}

var query = rerank.Query{Vector: random(9, 1, dim).Row(0)}

// TestWhatStopsTheUseOfADevice: a failure of the device stops its use until the device was checked.
// A failure of a single query or of a caller does not, nor do two late answers in a row.
func TestWhatStopsTheUseOfADevice(t *testing.T) {
	fails := func(err error) func(context.Context) error { return func(context.Context) error { return err } }
	waits := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	late := func(n int) []time.Duration { return make([]time.Duration, n) }
	for name, c := range map[string]struct {
		answer  func(context.Context) error
		calls   []time.Duration // the time of each call; 0: it is over
		outcome string
		stops   bool
	}{
		"an error":           {fails(device.ErrFailed), []time.Duration{time.Minute}, offload.Failed, true},
		"no memory":          {fails(device.ErrMemory), []time.Duration{time.Minute}, offload.Failed, true},
		"not loaded":         {fails(device.ErrNotLoaded), []time.Duration{time.Minute}, offload.Stale, true},
		"a wrong query":      {fails(device.ErrRequest), []time.Duration{time.Minute}, offload.Failed, false},
		"busy":               {fails(device.ErrBusy), []time.Duration{time.Minute}, offload.Failed, false},
		"too little time":    {waits, late(2), offload.Failed, false},
		"three times":        {waits, late(3), offload.Failed, true},
		"with time for it":   {waits, []time.Duration{150 * time.Millisecond}, offload.Failed, true},
		"a caller that left": {waits, []time.Duration{-1}, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			w, d := newWorld(t, items), obedient()
			s, l := w.watched(t, d)
			d.answers(c.answer)
			for _, in := range c.calls {
				ctx, cancel := context.WithTimeout(t.Context(), max(in, time.Nanosecond))
				if in < 0 {
					ctx, cancel = context.WithCancel(t.Context())
					time.AfterFunc(20*time.Millisecond, cancel)
				}
				if _, err := s.Scan(ctx, w.table, query, nil, 5); err == nil {
					t.Error("no error")
				}
				cancel()
			}
			if n := l.count("device not used"); (n > 0) != c.stops {
				t.Errorf("the device was left alone %d times", n)
			}
			got := s.Status().Answers
			for _, outcome := range []string{offload.Failed, offload.Stale} {
				if want := int64(len(c.calls)); (got[outcome] == want) != (outcome == c.outcome) {
					t.Errorf("outcomes %v, want %d %s", got, want, c.outcome)
				}
			}
		})
	}
	t.Run("late now and then", func(t *testing.T) {
		w, d := newWorld(t, items), obedient()
		s, l := w.watched(t, d)
		for n := range 6 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond+time.Duration(n%2)*time.Minute)
			_, _ = s.Scan(ctx, w.table, query, nil, 5)
			cancel()
		}
		if l.count("device not used") > 0 {
			t.Error("a device that was late three times, with answers between, is not used")
		}
	})
}

// TestWhatADeviceIsNotAsked: a device gets no request for rows or tables that it lacks, nor for
// more rows than it returns.
func TestWhatADeviceIsNotAsked(t *testing.T) {
	w, d := newWorld(t, items), obedient()
	d.maxK, d.patch = 20, make(chan struct{})
	w.alive(t)
	s, _ := w.watched(t, d)
	before := w.live.Snapshot()
	defer before.Release()
	_, err := s.Scan(t.Context(), before, query, nil, 20)
	must(t, err)
	other, err := table.FromMemory(w.meta(), w.ids(), w.vectors, nil)
	must(t, err)
	must(t, w.live.Upsert([]rerank.ID{rerank.UintID(items)}, random(3, 1, dim), nil))
	after := w.live.Snapshot()
	defer after.Release()
	asked, outcomes := d.calls.Load(), s.Status().Answers
	for name, c := range map[string]struct {
		call    func() error
		want    error
		outcome string
	}{
		"more rows than it gives": {func() error { _, err := s.Scan(t.Context(), before, query, nil, 21); return err }, offload.ErrNotReady, offload.NotReady},
		"another table":           {func() error { _, err := s.Rescore(t.Context(), other, query, []int32{1}, 1); return err }, offload.ErrStale, offload.Stale},
	} {
		if err := c.call(); !errors.Is(err, c.want) || s.Status().Answers[c.outcome] != outcomes[c.outcome]+1 || d.calls.Load() != asked {
			t.Errorf("%s: %v, outcomes %v, asked %d times", name, err, s.Status().Answers, d.calls.Load()-asked)
		}
	}
	if _, err := s.Rescore(t.Context(), after, query, []int32{0, items}, 1); !errors.Is(err, offload.ErrStale) || d.calls.Load() != asked {
		t.Errorf("a row that it does not have: %v, asked %d times", err, d.calls.Load()-asked)
	}
	d.patch <- struct{}{}
	eventually(t, "the device has the new row", func() bool { return s.Status().Rows == items+1 })
	_, err = s.Rescore(t.Context(), after, query, []int32{0, items}, 1)
	must(t, err)
	must(t, w.live.Upsert([]rerank.ID{rerank.UintID(items + 1)}, random(4, 1, dim), nil))
	latest := w.live.Snapshot()
	defer latest.Release()
	asked = d.calls.Load()
	if _, err := s.Scan(t.Context(), latest, query, nil, 1); !errors.Is(err, offload.ErrStale) || d.calls.Load() != asked {
		t.Errorf("a scan of writes that it does not have: %v, asked %d times", err, d.calls.Load()-asked)
	}
}

// TestARestartIsSeen: a device with wrong scores is not used until it restarts, which is noticed
// without a search.
func TestARestartIsSeen(t *testing.T) {
	w, d := newWorld(t, items), obedient()
	s, l := w.watched(t, d)
	s.Judge(score.ErrContradicted)
	if n := s.Status(); n.State != offload.Broken || n.Detail == "" || n.Rows != 0 || n.Answers[offload.Contradicted] != 1 {
		t.Errorf("status %+v", n)
	}
	if _, err := s.Scan(t.Context(), w.table, query, nil, 5); !errors.Is(err, offload.ErrNotReady) {
		t.Errorf("a device with wrong scores: %v", err)
	}
	eventually(t, "it is looked at", func() bool { return l.count("restart it once that is fixed") > 0 })
	if n := s.Status(); n.State != offload.Broken {
		t.Errorf("status %+v without a restart", n)
	}
	d.restart()
	ready(t, s)
	if _, err := s.Scan(t.Context(), w.table, query, nil, 5); err != nil || s.Status().Loads != 2 {
		t.Errorf("after a restart: %v, %+v", err, s.Status())
	}
}

// TestADeviceThatCannotBeAsked is not used until it can.
func TestADeviceThatCannotBeAsked(t *testing.T) {
	w, d := newWorld(t, items), obedient()
	s, _ := w.watched(t, d)
	say := func(err error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.silent = err
	}
	say(device.ErrFailed)
	other, err := table.FromMemory(w.meta(), w.ids(), w.vectors, nil)
	must(t, err)
	_, _ = s.Scan(t.Context(), other, query, nil, 1) // another table, so that the device is looked at
	eventually(t, "it is not used", func() bool { return s.Status().State == offload.Loading && s.Status().Detail != "" })
	if _, err := s.Scan(t.Context(), w.table, query, nil, 1); !errors.Is(err, offload.ErrNotReady) {
		t.Errorf("a device that cannot be asked: %v", err)
	}
	say(nil)
	ready(t, s)
	if got := s.Status(); got.Detail != "" || got.Rows != items {
		t.Errorf("in use again, it has %d rows and says %q", got.Rows, got.Detail)
	}
}

// TestItemsOfSeveralRows: a device scores rows, and is not used for items with several rows.
func TestItemsOfSeveralRows(t *testing.T) {
	w := newWorld(t, items)
	starts := make([]int32, 0, items/2+1)
	for i := int32(0); i <= items; i += 2 {
		starts = append(starts, i)
	}
	var err error
	w.table, err = table.FromMemory(w.meta(), w.ids()[:items/2], w.vectors, starts)
	must(t, err)
	s := w.scorer(t, local(t, cpu.New(cpu.Options{})))
	eventually(t, "it says why", func() bool { return strings.Contains(s.Status().Detail, "items own several rows") })
	if n := s.Status(); n.State != offload.Loading || n.Loads != 0 {
		t.Errorf("status %+v", n)
	}
}

// TestRowsOfADevice: a device gets every row in full precision, and returns none that is dead,
// whether it was dead when the table was loaded or came and went between two patches. A reloaded
// table replaces only its own former version.
func TestRowsOfADevice(t *testing.T) {
	w, d := newWorld(t, items), obedient()
	d.patch = make(chan struct{}, 100)
	for range 20 {
		d.patch <- struct{}{}
	}
	path := filepath.Join(t.TempDir(), "items.table")
	meta := w.meta()
	meta.Features, meta.Format, meta.Full = dim, rerank.FormatFloat16, true
	out, err := table.NewWriter(path, meta)
	must(t, err)
	must(t, out.Append(w.ids(), w.vectors))
	must(t, out.Close())
	w.live, err = table.OpenLive(path, table.Expect{}, table.LiveOptions{Unsynced: true, CompactShare: -1})
	must(t, err)
	t.Cleanup(func() { must(t, w.live.Close()) })
	must(t, w.live.Delete([]rerank.ID{rerank.UintID(5), rerank.UintID(1000), rerank.UintID(items - 1)}))
	s, _ := w.watched(t, d)
	d.mu.Lock()
	if !slices.Equal(d.rows, w.vectors.Data) {
		t.Errorf("the device got %d numbers, and not the table's %d in full precision", len(d.rows), len(w.vectors.Data))
	}
	d.mu.Unlock()
	scan := func() score.Selection {
		t.Helper()
		snapshot := w.live.Snapshot()
		defer snapshot.Release()
		got, err := s.Scan(t.Context(), snapshot, query, nil, items+10)
		must(t, err)
		return got
	}
	if got := scan(); got.Scored != items-3 || slices.ContainsFunc(got.Items, func(row int32) bool { return row == 5 || row == 1000 || row == items-1 }) {
		t.Errorf("%d rows are scored, with deleted ones among them", got.Scored)
	}
	for len(d.patch) > 0 {
		<-d.patch
	}
	must(t, w.live.Upsert([]rerank.ID{rerank.UintID(items), rerank.UintID(items + 1)}, random(3, 2, dim), nil))
	must(t, w.live.Delete([]rerank.ID{rerank.UintID(items)}))
	snapshot := w.live.Snapshot()
	if _, err := s.Scan(t.Context(), snapshot, query, nil, 1); !errors.Is(err, offload.ErrStale) {
		t.Errorf("behind the writes: %v", err)
	}
	snapshot.Release()
	for range 20 {
		d.patch <- struct{}{}
	}
	eventually(t, "the device has the writes", func() bool { return s.Status().Rows == items+2 && s.Status().State == offload.Ready })
	if got := scan(); got.Scored != items-2 || slices.Contains(got.Items, items) || !slices.Contains(got.Items, items+1) {
		t.Errorf("%d rows are scored after the writes", got.Scored)
	}
	other := w.scorer(t, local(t, d)) // of another sidecar
	ready(t, other)
	must(t, w.live.Compact())
	for _, each := range []*offload.Scorer{s, other} {
		eventually(t, "the table is loaded again", func() bool {
			snapshot := w.live.Snapshot()
			defer snapshot.Release()
			_, err := each.Scan(t.Context(), snapshot, query, nil, 1)
			return err == nil
		})
		if n := each.Status(); n.Loads != 2 {
			t.Errorf("loaded %d times, want twice", n.Loads)
		}
	}
	said, err := d.Describe(t.Context())
	must(t, err)
	if len(said.Tables) != 2 || said.Tables[0].Name == said.Tables[1].Name {
		t.Errorf("the device has the tables %v, want one of each sidecar", said.Tables)
	}
}
