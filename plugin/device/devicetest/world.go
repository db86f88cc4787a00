package devicetest

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/likenessdb/likeness/plugin/device"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/safetensors"
)

// golden contains cases of testdata/golden/mol: the model as a native file, and feature
// rows, queries and the reference's scores.
//
//go:embed golden/*.safetensors
var golden embed.FS

// goldenCases returns the names of the golden cases.
func goldenCases() []string { return []string{"v_base", "v_3x5_odd"} }

// world is a model with the rows of its table and queries, from which the expected answers
// are computed.
type world struct {
	model     *model.Model
	file      []byte
	at, table device.Version
	rows      rerank.Matrix
	dead      map[int]bool
	queries   rerank.Matrix
	wants     []float32 // reference scores of all queries and rows; nil without them
}

// goldenWorld returns a golden case.
func goldenWorld(name string) (*world, error) {
	file, err := golden.ReadFile("golden/" + name + ".model.safetensors")
	if err != nil {
		return nil, err
	}
	w, err := worldOf(file)
	if err != nil {
		return nil, err
	}
	raw, err := golden.ReadFile("golden/" + name + ".scores.safetensors")
	if err != nil {
		return nil, err
	}
	f, err := safetensors.Read(bytes.NewReader(raw), int64(len(raw)))
	if err != nil {
		return nil, err
	}
	w.rows, w.queries, w.wants = matrixOf(f, "rows"), matrixOf(f, "queries"), f.Tensors["scores"].Data
	return w, nil
}

func matrixOf(f *safetensors.File, name string) rerank.Matrix {
	t := f.Tensors[name]
	if len(t.Shape) != 2 {
		return rerank.Matrix{}
	}
	return rerank.Matrix{Rows: t.Shape[0], Cols: t.Shape[1], Data: t.Data}
}

func worldOf(file []byte) (*world, error) {
	m, err := model.Read(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		return nil, err
	}
	return &world{
		model: m.WithKernels(kernel.Go()), file: file, dead: map[int]bool{},
		at: device.Version{Name: "devicetest", Version: m.Version}, table: device.Version{Name: "devicetest", Version: "1"},
	}, nil
}

// random returns a world of a kind that the device supports, with random rows and a random
// query.
func (k *kit) random(rows int, seed uint64) (*world, error) {
	var w *world
	var err error
	switch {
	case k.scores(rerank.KindMoL):
		w, err = goldenWorld(goldenCases()[1])
	case k.scores(rerank.KindDot):
		w, err = dotWorld(21)
	default:
		return nil, skip(fmt.Sprintf("the kit makes up rows of kinds %q and %q, and the device scores %q", rerank.KindMoL, rerank.KindDot, k.description.Kinds))
	}
	if err != nil {
		return nil, err
	}
	w.fill(rows, seed)
	return w, nil
}

// dotWorld returns a world with a dot-product model.
func dotWorld(dim int) (*world, error) {
	config, err := json.Marshal(map[string]int{"dim": dim})
	if err != nil {
		return nil, err
	}
	m, err := model.New(model.Parameters{Kind: rerank.KindDot, Name: "devicetest", Config: config})
	if err != nil {
		return nil, err
	}
	var file bytes.Buffer
	if err := model.Encode(&file, m); err != nil {
		return nil, err
	}
	return worldOf(file.Bytes())
}

// fill generates random rows and a random query.
func (w *world) fill(rows int, seed uint64) {
	s := w.model.Spec()
	w.rows, w.queries, w.wants = numbers(rows, s.Features, seed), numbers(1, s.QueryDim, seed+1), nil
	w.dead = map[int]bool{}
}

func numbers(rows, cols int, seed uint64) rerank.Matrix {
	rng := rand.New(rand.NewPCG(seed, 7))
	m := rerank.NewMatrix(rows, cols)
	for i := range m.Data {
		m.Data[i] = float32(rng.NormFloat64() / 4)
	}
	return m
}

// load loads the model and the table on the device, with `some` rows per chunk.
func (k *kit) load(ctx context.Context, w *world, chunkRows int) error {
	if !slices.Contains(k.models, w.at) {
		if err := k.LoadModel(ctx, w.at, w.file); err != nil {
			return fmt.Errorf("loading the model: %w", err)
		}
		k.models = append(k.models, w.at)
	}
	k.tables = append(k.tables, w.table)
	head := device.TableHead{Table: w.table, Model: w.at, Rows: w.rows.Rows, Cols: w.rows.Cols}
	if err := k.LoadTable(ctx, head, w.chunks(chunkRows)); err != nil {
		return fmt.Errorf("loading a table of %d rows: %w", w.rows.Rows, err)
	}
	return nil
}

// chunks yields the rows in chunks of `some` rows. It overwrites each chunk afterwards, so
// that a device cannot keep it.
func (w *world) chunks(chunkRows int) device.Rows {
	return func(yield func([]float32, error) bool) {
		buf := make([]float32, chunkRows*w.rows.Cols)
		for from := 0; from < w.rows.Rows; from += chunkRows {
			n := copy(buf, w.rows.Slice(from, min(from+chunkRows, w.rows.Rows)).Data)
			if !yield(buf[:n], nil) {
				return
			}
			clear(buf)
		}
	}
}

func (w *world) query(i int) rerank.Query { return rerank.Query{Vector: w.queries.Row(i)} }

func (w *world) ask(i, topK int) device.Ask {
	return device.Ask{Model: w.at, Table: w.table, Query: w.query(i), K: topK}
}

// all returns the numbers of all rows.
func (w *world) all() []uint32 {
	out := make([]uint32, w.rows.Rows)
	for i := range out {
		out[i] = uint32(i)
	}
	return out
}

// alive returns the rows that a scan may return.
func (w *world) alive() []uint32 {
	return slices.DeleteFunc(w.all(), func(row uint32) bool { return w.dead[int(row)] })
}

// agrees compares an answer with the expected one for the given rows.
func (w *world) agrees(b device.Best, query int, rows []uint32, topK int) error {
	if err := b.Check(topK); err != nil {
		return err
	}
	enc, err := w.model.Encode(w.query(query))
	if err != nil {
		return err
	}
	scores := make([]float32, w.rows.Rows)
	if err := enc.Score(scores, rerank.Items{Features: w.rows}); err != nil {
		return err
	}
	off := b.Epsilon + enc.Bound(nil, nil).Epsilon
	if w.wants != nil { // the tolerance includes the reference's own rounding
		copy(scores, w.wants[query*w.rows.Rows:])
		off += 5e-6 * max(1, maxAbs(w.wants))
	}
	return compare(b, scores, rows, topK, off)
}

func maxAbs(v []float32) (most float32) {
	for _, x := range v {
		most = max(most, float32(math.Abs(float64(x))))
	}
	return most
}

func finite(x float32) bool { return x-x == 0 }

// compare checks an answer: each row must have its expected score, no row may be left out
// that exceeds the last by more than the rounding of both sides, and the counters must be
// right.
func compare(b device.Best, scores []float32, asked []uint32, topK int, off float32) error {
	if n := min(topK, len(asked)); len(b.Rows) != n {
		return fmt.Errorf("%d rows of %d, want %d", len(b.Rows), len(asked), n)
	}
	left := make(map[uint32]bool, len(asked))
	infinite := 0
	for _, row := range asked {
		left[row] = true
		if !finite(scores[row]) {
			infinite++
		}
	}
	for i, row := range b.Rows {
		if !left[row] {
			return fmt.Errorf("row %d, which was not asked, or twice", row)
		}
		delete(left, row)
		have, wanted := b.Scores[i], scores[row]
		if d := have - wanted; finite(have) != finite(wanted) || finite(wanted) && !(d <= off && -d <= off) {
			return fmt.Errorf("row %d scores %v, want %v, off by %v at most", row, have, wanted, off)
		}
	}
	next := float32(math.Inf(-1))
	for row := range left {
		if finite(scores[row]) {
			next = max(next, scores[row])
		}
	}
	d := b.Next - next
	switch {
	case b.Next == next: // both may be −Inf
	case !(d <= off && -d <= off):
		return fmt.Errorf("next is %v, and the best of the rows that are left out scores %v, off by %v at most", b.Next, next, off)
	}
	if b.Scored > len(asked) {
		return fmt.Errorf("%d rows scored, of %d asked", b.Scored, len(asked))
	}
	if b.Scored == len(asked) && b.NotFinite != infinite {
		return fmt.Errorf("%d rows not finite, want %d", b.NotFinite, infinite)
	}
	return nil
}

// scanAndRescore checks a scan and a rescoring of all rows.
func (k *kit) scanAndRescore(ctx context.Context, w *world, query, topK int) error {
	b, err := k.Scan(ctx, w.ask(query, topK), nil)
	if err == nil {
		err = w.agrees(b, query, w.alive(), topK)
	}
	if err != nil {
		return fmt.Errorf("scan of %d rows, k %d: %w", w.rows.Rows, topK, err)
	}
	if b, err = k.Rescore(ctx, w.ask(query, topK), w.all()); err == nil {
		err = w.agrees(b, query, w.all(), topK)
	}
	if err != nil {
		return fmt.Errorf("rescore of %d rows, k %d: %w", w.rows.Rows, topK, err)
	}
	return nil
}
