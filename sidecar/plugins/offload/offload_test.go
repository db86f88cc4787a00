package offload_test

import (
	"context"
	"fmt"
	"math"
	"os"
	"reflect"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/likenessdb/likeness/internal/signals"
	"github.com/likenessdb/likeness/plugin/device"
	"github.com/likenessdb/likeness/plugin/device/cpu"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/plugins"
	"github.com/likenessdb/likeness/sidecar/plugins/offload"
	"github.com/likenessdb/likeness/sidecar/search"
)

// requests returns searches that use a device.
func requests() map[string]search.Request {
	gap := float32(0)
	return map[string]search.Request{
		"candidates":     {K: 10},
		"all candidates": {K: 3},
		"many":           {K: 200},
		"explained":      {K: 5, Explain: true},
		"proved":         {K: 10, MaxGap: &gap},
		"scan":           {K: 10, Strategy: rerank.Scan},
		"filtered scan":  {K: 10, Strategy: rerank.Scan, Filter: `{"must": [{"key": "third", "match": {"value": 1}}]}`},
		"explained scan": {K: 4, Strategy: rerank.Scan, Explain: true},
	}
}

// agree runs a search on two pipelines and wants equal answers, to the bit, except for epsilon. It
// covers the rows that this process scored, which are fewer with a device.
func agree(t *testing.T, with, without *search.Engine, name string, r search.Request, seed uint64) {
	t.Helper()
	r.Route, r.Query = "r", rerank.Query{Vector: random(seed, 1, dim).Row(0)}
	have, err := with.Search(t.Context(), r)
	must(t, err)
	want, err := without.Search(t.Context(), r)
	must(t, err)
	have.Timings, want.Timings = search.Timings{}, search.Timings{}
	if e, most := have.Certificate.Epsilon, 1.01*want.Certificate.Epsilon; !(e > 0 && e <= most) && r.Strategy != rerank.Scan {
		t.Errorf("%s: epsilon %v, want at most %v", name, e, most)
	}
	have.Certificate.Epsilon, want.Certificate.Epsilon = 0, 0
	if !reflect.DeepEqual(have, want) {
		t.Errorf("%s: with the device\n%+v\nwithout\n%+v", name, have, want)
	}
}

// TestProcess: a real plugin process gives the same answers as this process, to the bit. It is
// loaded again after a kill, and freed at the end.
func TestProcess(t *testing.T) {
	w := newWorld(t, items)
	p, err := plugins.Start(t.Context(), plugins.Options{Name: "gpu", Path: os.Args[0], Env: []string{serves + "=1"}})
	must(t, err)
	t.Cleanup(func() { must(t, p.Close()) })
	s := w.scorer(t, p.Conn())
	ready(t, s)
	with, without := w.pipe(t, s), w.pipe(t, nil)
	for name, r := range requests() {
		before := s.Status().Answers[offload.Used]
		agree(t, with, without, name, r, 3)
		if s.Status().Answers[offload.Used] == before {
			t.Errorf("%s: the device was not used: %+v", name, s.Status())
		}
	}
	signals.Send(t, p.State().PID, syscall.SIGKILL)
	loads := s.Status().Loads
	for n := uint64(0); s.Status().Loads == loads || s.Status().State != offload.Ready; n++ {
		agree(t, with, without, "while it is started again", search.Request{K: 10, Strategy: rerank.Scan}, n)
	}
	before := s.Status().Answers[offload.Used]
	agree(t, with, without, "after", search.Request{K: 10}, 5)
	if s.Status().Answers[offload.Used] == before {
		t.Errorf("it is not used after a restart: %+v", s.Status())
	}
	must(t, s.Close())
	d, err := device.NewClient(p.Conn()).Describe(t.Context())
	must(t, err)
	if len(d.Models)+len(d.Tables) > 0 {
		t.Errorf("left on the device: %v %v", d.Models, d.Tables)
	}
}

// TestWrites: answers come from the current table, even if the device is behind.
func TestWrites(t *testing.T) {
	w := newWorld(t, items)
	w.alive(t)
	must(t, w.live.Delete([]rerank.ID{rerank.UintID(5), rerank.UintID(1000)}))
	s := w.scorer(t, local(t, cpu.New(cpu.Options{})))
	ready(t, s)
	with, without := w.pipe(t, s), w.pipe(t, nil)
	for i := range uint64(8) {
		must(t, w.live.Upsert([]rerank.ID{rerank.UintID(i), rerank.UintID(items + i)}, random(50+i, 2, dim), nil))
		must(t, w.live.Delete([]rerank.ID{rerank.UintID(100 + i)}))
		for name, r := range requests() {
			agree(t, with, without, fmt.Sprintf("%s, write %d", name, i), r, i)
		}
		rows := w.live.Stats()
		eventually(t, "the device has the writes", func() bool {
			agree(t, with, without, "scan", search.Request{K: 10, Strategy: rerank.Scan}, i)
			return s.Status().Rows == rows.Items+rows.Dead
		})
		used := s.Status().Answers[offload.Used]
		agree(t, with, without, "scan in step", search.Request{K: 10, Strategy: rerank.Scan}, i)
		agree(t, with, without, "candidates in step", search.Request{K: 10}, i)
		if s.Status().Answers[offload.Used] < used+2 {
			t.Errorf("write %d: the device is in step and not used: %+v", i, s.Status())
		}
	}
	if n := s.Status(); n.Loads != 1 || n.Patches < 8 {
		t.Errorf("%d loads, %d patches; want 1 and 8 at least", n.Loads, n.Patches)
	}
	must(t, w.live.Compact()) // rows have other numbers now: the table is loaded anew
	eventually(t, "it is loaded again", func() bool {
		agree(t, with, without, "after a compaction", search.Request{K: 10}, 1)
		return s.Status().Loads == 2 && s.Status().State == offload.Ready
	})
}

// liar changes a device's answers.
type liar struct {
	device.Device
	lie func(ctx context.Context, b *device.Best) error // nil: it does not
	on  atomic.Bool
}

func (l *liar) Rescore(ctx context.Context, a device.Ask, rows []uint32) (device.Best, error) {
	b, err := l.Device.Rescore(ctx, a, rows)
	if err == nil && l.on.Load() {
		err = l.lie(ctx, &b)
	}
	return b, err
}

func (l *liar) Scan(ctx context.Context, a device.Ask, bitmap []byte) (device.Best, error) {
	b, err := l.Device.Scan(ctx, a, bitmap)
	if err == nil && l.on.Load() {
		err = l.lie(ctx, &b)
	}
	return b, err
}

// TestLies: whatever a device answers, the search returns this machine's answer.
func TestLies(t *testing.T) {
	for name, c := range map[string]struct {
		lie  func(ctx context.Context, b *device.Best) error
		want string // what becomes of the answer
	}{
		"shifted": {func(_ context.Context, b *device.Best) error {
			for i := range b.Scores {
				b.Scores[i]++
			}
			return nil
		}, offload.Contradicted},
		"slightly off": {func(_ context.Context, b *device.Best) error {
			b.Scores[0] += 8*b.Epsilon + 1e-3
			return nil
		}, offload.Contradicted},
		"nothing good": {func(_ context.Context, b *device.Best) error { // it hides the best, and everything behind
			b.Rows, b.Scores = b.Rows[len(b.Rows)-1:], b.Scores[len(b.Scores)-1:]
			b.Next = float32(math.Inf(-1))
			return nil
		}, offload.Contradicted},
		"not a number": {func(_ context.Context, b *device.Best) error { b.Scores[0] = float32(math.NaN()); return nil }, offload.Failed},
		"epsilon":      {func(_ context.Context, b *device.Best) error { b.Epsilon = float32(math.NaN()); return nil }, offload.Failed},
		"order":        {func(_ context.Context, b *device.Best) error { b.Rows[0], b.Rows[1] = b.Rows[1], b.Rows[0]; return nil }, offload.Contradicted},
		"row":          {func(_ context.Context, b *device.Best) error { b.Rows[0] = items + 5; return nil }, offload.Failed},
		"a row more":   {func(_ context.Context, b *device.Best) error { b.Rows[0] = items; return nil }, offload.Failed},
		"too few":      {func(_ context.Context, b *device.Best) error { b.Rows = b.Rows[1:]; return nil }, offload.Failed},
		"no idea":      {func(_ context.Context, b *device.Best) error { b.Epsilon = 1e6; return nil }, offload.Undecided},
		"fails":        {func(context.Context, *device.Best) error { return device.ErrMemory }, offload.Failed},
		"lost":         {func(context.Context, *device.Best) error { return device.ErrNotLoaded }, offload.Stale},
	} {
		for _, strategy := range []rerank.Strategy{rerank.Average, rerank.Scan} {
			t.Run(fmt.Sprintf("%s/%s", name, strategy), func(t *testing.T) {
				w := newWorld(t, items)
				l := &liar{Device: cpu.New(cpu.Options{}), lie: c.lie}
				s := w.scorer(t, local(t, l))
				ready(t, s)
				l.on.Store(true)
				with, without := w.pipe(t, s), w.pipe(t, nil)
				for seed := range uint64(4) {
					agree(t, with, without, "lying", search.Request{K: 10, Strategy: strategy}, seed)
				}
				n := s.Status()
				if n.Answers[c.want] == 0 || n.Answers[offload.Used] > 0 {
					t.Errorf("status %+v, want answers %s", n, c.want)
				}
				if broken := n.State == offload.Broken; broken != (c.want == offload.Contradicted) {
					t.Errorf("state %s (%s)", n.State, n.Detail)
				}
			})
		}
	}
}

// TestMeasured: a measured error is used only for scans without a gap, and the certificate says so
// and is never exact. If a row contradicts the measurement, this process answers.
func TestMeasured(t *testing.T) {
	w := newWorld(t, items)
	gap := float32(0)
	hides := false
	l := &liar{Device: cpu.New(cpu.Options{}), lie: func(_ context.Context, b *device.Best) error {
		b.Measured, b.MeasuredError = 5000, 0.25
		if hides {
			b.Rows, b.Scores, b.Next = b.Rows[:1], b.Scores[:1], b.Scores[len(b.Scores)-1]-10
		}
		return nil
	}}
	s := w.scorer(t, local(t, l))
	ready(t, s)
	l.on.Store(true)
	with, without := w.pipe(t, s), w.pipe(t, nil)
	query := rerank.Query{Vector: random(3, 1, dim).Row(0)}
	have, err := with.Search(t.Context(), search.Request{Route: "r", K: 10, Strategy: rerank.Scan, Query: query})
	must(t, err)
	want, err := without.Search(t.Context(), search.Request{Route: "r", K: 10, Strategy: rerank.Scan, Query: query})
	must(t, err)
	if !reflect.DeepEqual(have.Hits, want.Hits) {
		t.Errorf("hits %v, want %v", have.Hits, want.Hits)
	}
	c := have.Certificate
	if c.Status != rerank.StatusCalibrated || c.Measured == nil || *c.Measured != (rerank.Measured{Pairs: 5000, Error: 0.25}) || c.Calibration != nil || c.Proof != "" || c.Gap == 0 {
		t.Errorf("certificate %+v, want a calibrated one by 5000 pairs", c)
	}
	agree(t, with, without, "with a gap", search.Request{K: 10, Strategy: rerank.Scan, MaxGap: &gap}, 3)
	agree(t, with, without, "candidates", search.Request{K: 10}, 3)
	hides = true
	agree(t, with, without, "a row is missing", search.Request{K: 10, Strategy: rerank.Scan}, 3)
	if n := s.Status(); n.Answers[offload.Used] != 1 || n.Answers[offload.Undecided] < 3 || n.State != offload.Ready {
		t.Errorf("status %+v, want 1 answer used and 3 undecided", n)
	}
}

// TestHangs: a device that does not answer costs some searches half of their time.
func TestHangs(t *testing.T) {
	w := newWorld(t, items)
	l := &liar{Device: cpu.New(cpu.Options{}), lie: func(ctx context.Context, _ *device.Best) error { <-ctx.Done(); return ctx.Err() }}
	s := w.scorer(t, local(t, l))
	ready(t, s)
	l.on.Store(true)
	p := w.pipe(t, s)
	for n := range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		a, err := p.Search(ctx, search.Request{Route: "r", K: 10, Strategy: rerank.Scan, Query: rerank.Query{Vector: random(uint64(n), 1, dim).Row(0)}})
		cancel()
		must(t, err)
		if a.Degraded != nil || len(a.Hits) != 10 {
			t.Errorf("%d hits, degraded %v", len(a.Hits), a.Degraded)
		}
	}
	if n := s.Status(); n.Answers[offload.Failed] == 0 || n.Answers[offload.Used] > 0 {
		t.Errorf("status %+v", n)
	}
}

// slow is a device that takes a table's last rows when it may.
type slow struct {
	device.Device
	may chan struct{}
}

func (d *slow) LoadTable(ctx context.Context, h device.TableHead, rows device.Rows) error {
	return d.Device.LoadTable(ctx, h, func(yield func([]float32, error) bool) {
		for chunk, err := range rows {
			if !yield(chunk, err) {
				return
			}
		}
		<-d.may
	})
}

// TestProgress: the status tells how far the loading of a table is, and meanwhile searches are
// answered here.
func TestProgress(t *testing.T) {
	w := newWorld(t, items)
	d := &slow{Device: cpu.New(cpu.Options{}), may: make(chan struct{})}
	s := w.scorer(t, local(t, d))
	eventually(t, "it says how far it is", func() bool {
		return s.Status().Detail == fmt.Sprintf("loading the table: %d of %d rows are sent", items, items)
	})
	agree(t, w.pipe(t, s), w.pipe(t, nil), "while it is loaded", search.Request{K: 10}, 1)
	if n := s.Status(); n.State != offload.Loading || n.Answers[offload.NotReady] == 0 {
		t.Errorf("status %+v", n)
	}
	close(d.may)
	ready(t, s)
}

// TestNoRoom: a device without room for the table is reported, and not used.
func TestNoRoom(t *testing.T) {
	w := newWorld(t, items)
	s := w.scorer(t, local(t, cpu.New(cpu.Options{Memory: items * dim})))
	eventually(t, "it says why", func() bool { return s.Status().Detail != "" && s.Status().Loads > 0 })
	agree(t, w.pipe(t, s), w.pipe(t, nil), "without room", search.Request{K: 10}, 1)
	if n := s.Status(); n.State != offload.Loading || n.Answers[offload.NotReady] == 0 {
		t.Errorf("status %+v", n)
	}
}
