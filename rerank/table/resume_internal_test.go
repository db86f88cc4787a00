package table

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/likenessdb/likeness/internal/powerloss"
	"github.com/likenessdb/likeness/rerank"
)

// TestPowerLossWhileATableGrows loses power before every call to the disk while a table is
// written: a checkpoint that Checkpoint returned without an error can be resumed from, with all
// of its rows, or the next one can.
func TestPowerLossWhileATableGrows(t *testing.T) {
	m := Meta{Model: "m", ModelVersion: "1", Collection: "c", Kind: string(rerank.KindDot), Features: 4, Full: true, Format: rerank.FormatFloat16}
	for _, loss := range powerloss.Losses() {
		t.Run(fmt.Sprint("loss ", loss), func(t *testing.T) {
			d, rng := powerloss.New(t), rand.New(rand.NewPCG(uint64(loss), 7))
			saved := 0 // checkpoints that are durable
			d.Before(func(call string) {
				left := d.Lose(t, rng, loss)
				w, cursor, err := Resume(filepath.Join(left.Root(), "t.table"), m)
				if saved == 0 && errors.Is(err, os.ErrNotExist) {
					return
				}
				if err != nil {
					t.Errorf("before %s, with %d checkpoints: %v", call, saved, err)
					return
				}
				defer w.closeFiles()
				if n := w.Items() / 10; n < saved || cursor != fmt.Sprint("cursor ", n) {
					t.Errorf("before %s, with %d checkpoints: %d items and %q", call, saved, w.Items(), cursor)
				}
			})
			w, err := newWriter(d, filepath.Join(d.Root(), "t.table"), m)
			check(t, err)
			for n := range 3 {
				rows := rerank.NewMatrix(10, 4)
				for i := range rows.Data {
					rows.Data[i] = float32(rng.NormFloat64())
				}
				var ids []rerank.ID
				for i := range 10 {
					ids = append(ids, rerank.UintID(uint64(10*n+i)))
				}
				check(t, w.Append(ids, rows))
				check(t, w.Checkpoint(fmt.Sprint("cursor ", n+1)))
				saved++
			}
			w.closeFiles()
		})
	}
}
