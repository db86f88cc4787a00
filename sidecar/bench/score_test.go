package bench_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
	"github.com/likenessdb/likeness/sidecar/bench"
)

// TestRunScore measures every kind, format and layout, and checks that the figures are consistent.
func TestRunScore(t *testing.T) {
	shapes := map[rerank.Kind]string{rerank.KindMoL: "4x3x8", rerank.KindBilinear: "24", rerank.KindMaxSim: "5x2x16", rerank.KindDot: "20"}
	flops := map[rerank.Kind]int{rerank.KindMoL: 2*4*3*8 + 4*4*3*12, rerank.KindBilinear: 48, rerank.KindMaxSim: 2 * 5 * 2 * 16, rerank.KindDot: 40}
	for kind, shape := range shapes {
		for _, format := range []rerank.Format{rerank.FormatFloat32, rerank.FormatInt8} {
			for layout := range 4 {
				s := bench.Scoring{
					Kind: kind, Shape: shape, Hidden: 12, Candidates: 45, Batch: 3, Threads: 2, Format: format,
					Gather: layout&1 != 0, Shared: layout&2 != 0, Rows: 100, TableBytes: 1 << 20, Runs: 2, Kernel: kernel.Go(),
				}
				got, err := bench.RunScore(t.Context(), s)
				if err != nil {
					t.Fatalf("%s, %s, layout %d: %v", kind, format, layout, err)
				}
				if got.Flops != flops[kind] || got.Runs != 2 || !(got.MS.Min > 0) || got.MS.P50 < got.MS.Min || !(got.PeakGFLOPS > 0) {
					t.Errorf("%s, %s, layout %d: %+v", kind, format, layout, got)
				}
				if share := got.GFLOPS / got.PeakGFLOPS; got.ShareOfPeak != share {
					t.Errorf("%s: share %v, want %v", kind, got.ShareOfPeak, share)
				}
			}
		}
	}
}

func TestRunScoreRefuses(t *testing.T) {
	s := bench.Scoring{Kind: rerank.KindMoL, Hidden: 1, Candidates: 1, Batch: 1, Threads: 1, Format: rerank.FormatFloat32, Runs: 1}
	for _, shape := range []string{"", "8x4", "8x0x4", "ax4x4", "8x4x64x2"} {
		s.Shape = shape
		if _, err := bench.RunScore(t.Context(), s); !errors.Is(err, bench.ErrShape) {
			t.Errorf("shape %q: %v, want ErrShape", shape, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.Shape, s.Budget = "2x2x4", time.Hour
	if _, err := bench.RunScore(ctx, s); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled measurement: %v", err)
	}
}

func TestMeasureMachine(t *testing.T) {
	for _, k := range kernel.Sets() {
		m := bench.MeasureMachine(k, 2, 1<<20, 1000)
		if m.Kernel != k.Name() || m.RowBytes != 512 || m.TableBytes != 1<<20 || !(min(m.PeakGFLOPS, m.SequentialGBs, m.RandomGBs) > 0) {
			t.Errorf("%+v", m)
		}
	}
}
