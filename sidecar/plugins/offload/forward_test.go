package offload_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/likenessdb/likeness/adapters/adaptertest/recorder"
	"github.com/likenessdb/likeness/internal/balance"
	"github.com/likenessdb/likeness/plugin/device"
	"github.com/likenessdb/likeness/plugin/device/cpu"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/scan"
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/sidecar/plugins/offload"
)

// noting is a device that records its requests.
type noting struct {
	device.Device
	mu    sync.Mutex
	asks  []device.Ask
	rows  []uint32
	bits  []byte
	left  []time.Duration
	ended error // of every answer
}

func (n *noting) note(ctx context.Context, a device.Ask) {
	n.mu.Lock()
	defer n.mu.Unlock()
	deadline, _ := ctx.Deadline()
	n.asks, n.left = append(n.asks, a), append(n.left, time.Until(deadline))
}

func (n *noting) Rescore(ctx context.Context, a device.Ask, rows []uint32) (device.Best, error) {
	n.note(ctx, a)
	n.rows = rows
	if n.ended != nil {
		return device.Best{}, n.ended
	}
	return n.Device.Rescore(ctx, a, rows)
}

func (n *noting) Scan(ctx context.Context, a device.Ask, bitmap []byte) (device.Best, error) {
	n.note(ctx, a)
	n.bits = bitmap
	if n.ended != nil {
		return device.Best{}, n.ended
	}
	return n.Device.Scan(ctx, a, bitmap)
}

// TestTheDeviceHearsEverything: a device gets the query, the rows and the filter of a call, for the
// model and the table with which it was loaded, within the call's timeout.
func TestTheDeviceHearsEverything(t *testing.T) {
	w := newWorld(t, items)
	n := &noting{Device: cpu.New(cpu.Options{})}
	s := w.scorer(t, local(t, n))
	ready(t, s)
	q := rerank.Query{Vector: random(9, 1, dim).Row(0), UserID: 7, HasUserID: true}
	if names := recorder.Unset(q, map[string]string{"Text": "no similarity reads it", "Context": "no similarity reads it", "Vectors": "only late interaction reads them, and no device scores it"}); len(names) > 0 {
		t.Fatalf("the test does not set %q", names)
	}
	rows := []int32{3, 1, 4, 15, 9, 2, 6}
	_, err := s.Rescore(t.Context(), w.table, q, rows, 5)
	must(t, err)
	within := scan.NewBitmap(w.table.Len())
	within.Add(rows...)
	_, err = s.Scan(t.Context(), w.table, q, within, 6)
	must(t, err)
	if len(n.asks) != 2 || n.asks[0].K != 5 || n.asks[1].K != 6 {
		t.Fatalf("%+v", n.asks)
	}
	for i, a := range n.asks {
		if d := recorder.Differences(a.Query, q); len(d) > 0 {
			t.Errorf("call %d: %q", i, d)
		}
		if names := recorder.Unset(a, nil); len(names) > 0 || a.Model.Version != w.model.Version || a.Table != n.asks[0].Table {
			t.Errorf("call %d: %+v, without %q", i, a, names)
		}
		if n.left[i] <= 0 || n.left[i] > 5*time.Second {
			t.Errorf("call %d has %v", i, n.left[i])
		}
	}
	if !slices.Equal(n.rows, []uint32{3, 1, 4, 15, 9, 2, 6}) {
		t.Errorf("rows %v", n.rows)
	}
	if !slices.Equal(n.bits, within.Bytes(w.table.Len())) {
		t.Error("the bitmap is another")
	}
}

// TestAScorerGivesTheTableBack: the loaded table is freed together with the scorer, whatever the
// device answered.
func TestAScorerGivesTheTableBack(t *testing.T) {
	for name, ended := range map[string]error{"answers": nil, "fails": errors.New("out of registers"), "is busy": device.ErrBusy} {
		t.Run(name, func(t *testing.T) {
			balance.Check(t)
			w := newWorld(t, items)
			path := filepath.Join(t.TempDir(), "mine.table")
			meta := w.meta()
			meta.Features = dim
			out, err := table.NewWriter(path, meta)
			must(t, err)
			must(t, out.Append(w.ids(), w.vectors))
			must(t, out.Close())
			w.live, err = table.OpenLive(path, table.Expect{}, table.LiveOptions{Unsynced: true, CompactShare: -1})
			must(t, err)
			n := &noting{Device: cpu.New(cpu.Options{}), ended: ended}
			s := w.scorer(t, local(t, n))
			ready(t, s)
			for i := range uint64(4) {
				must(t, w.live.Upsert([]rerank.ID{rerank.UintID(i)}, random(50+i, 1, dim), nil))
				snapshot := w.live.Snapshot()
				_, _ = s.Scan(t.Context(), snapshot, rerank.Query{Vector: random(9, 1, dim).Row(0)}, nil, 5)
				snapshot.Release()
			}
			if ended == nil {
				rows := w.live.Stats()
				eventually(t, "the device has the writes", func() bool {
					snapshot := w.live.Snapshot()
					defer snapshot.Release()
					_, _ = s.Scan(t.Context(), snapshot, rerank.Query{Vector: random(9, 1, dim).Row(0)}, nil, 5)
					return s.Status().Rows == rows.Items+rows.Dead && s.Status().State == offload.Ready
				})
			}
			must(t, s.Close())
			must(t, w.live.Close())
			balance.Now(t, balance.Unmapped(path))
		})
	}
}
