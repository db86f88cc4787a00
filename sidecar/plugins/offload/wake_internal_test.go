package offload

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/likenessdb/likeness/plugin/device"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/table"
)

// TestASearchOfANewerTableWakes: a search whose table is newer than the device's triggers an update
// at once, even if the device has all rows that the search needs.
func TestASearchOfANewerTableWakes(t *testing.T) {
	conn, err := grpc.NewClient("passthrough:///nowhere", grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	meta := table.Meta{Model: "m", ModelVersion: "1", Collection: "c", Kind: "dot", Features: 2}
	path := t.TempDir() + "/t.table"
	w, err := table.NewWriter(path, meta)
	if err == nil {
		err = errors.Join(w.Append([]rerank.ID{rerank.UintID(1)}, rerank.Matrix{Rows: 1, Cols: 2, Data: []float32{1, 2}}), w.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	live, err := table.OpenLive(path, table.Expect{}, table.LiveOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer live.Close()
	before := live.Snapshot()
	defer before.Release()
	if err := live.Upsert([]rerank.ID{rerank.UintID(2)}, rerank.Matrix{Rows: 1, Cols: 2, Data: []float32{3, 4}}, nil); err != nil {
		t.Fatal(err)
	}
	after := live.Snapshot()
	defer after.Release()
	gone, cancel := context.WithCancel(t.Context())
	cancel() // the call itself ends at once, which says nothing about the device
	for _, c := range []struct {
		of   *table.Table
		want int
	}{{before, 0}, {after, 1}} {
		s := &Scorer{client: device.NewClient(conn), kick: make(chan struct{}, 1)}
		s.usable.Store(&copied{of: before, rows: 1})
		if _, err := s.Rescore(gone, c.of, rerank.Query{}, []int32{0}, 1); !errors.Is(err, context.Canceled) || len(s.kick) != c.want {
			t.Errorf("a search of a table of %d rows: %v, woken %d times, want %d", c.of.Len(), err, len(s.kick), c.want)
		}
	}
}
