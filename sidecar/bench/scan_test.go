package bench_test

import (
	"context"
	"errors"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/bench"
)

func TestRunScan(t *testing.T) {
	for _, c := range []bench.Scanning{
		{Kind: rerank.KindMoL, Shape: "4x2x16", Format: rerank.FormatFloat32},
		{Kind: rerank.KindMoL, Shape: "4x2x16", Format: rerank.FormatBFloat16, Full: true},
		{Kind: rerank.KindMoL, Shape: "4x2x16", QueryOnly: true, Format: rerank.FormatBFloat16},
		{Kind: rerank.KindMaxSim, Shape: "3x16", Format: rerank.FormatFloat32},
		{Kind: rerank.KindBilinear, Shape: "16", Format: rerank.FormatInt8, Full: true},
		{Kind: rerank.KindDot, Shape: "16", Format: rerank.FormatFloat32, Whole: true},
	} {
		c.Items, c.K, c.Batch, c.Threads, c.Runs, c.Hidden = 700, 5, 3, 1, 2, 8
		r, err := bench.RunScan(context.Background(), c)
		if err != nil {
			t.Fatal(err)
		}
		if r.Runs < 2 || r.MS.Min <= 0 || r.ShareOfLimit <= 0 || r.Binds == "" || r.Scored <= 0 || r.Scored > 1 || r.Flops == 0 || r.Bytes == 0 {
			t.Errorf("%+v: %+v", c, r)
		}
	}
	_, err := bench.RunScan(context.Background(), bench.Scanning{Kind: rerank.KindDot, Shape: "8x4", Items: 1, K: 1, Batch: 1, Threads: 1, Runs: 1})
	if !errors.Is(err, bench.ErrShape) {
		t.Errorf("a shape of two numbers: %v", err)
	}
}
