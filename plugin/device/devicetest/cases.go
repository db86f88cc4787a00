package devicetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/likenessdb/likeness/plugin/device"
	"github.com/likenessdb/likeness/rerank"
)

func (k *kit) cases() []check {
	all := []check{
		{"describe", "kinds, and limits that can be", describe},
		{"golden", "the scores of the reference, of " + fmt.Sprint(goldenCases()), goldenScores},
		{"sizes", "the oracle's answer for tables of odd sizes, and for any k", sizes},
		{"rows", "the best of the rows that a request names, in any order", someRows},
		{"bitmaps", "the best of the rows whose bit is set", bitmaps},
		{"ties", "rows of one score in the order of their numbers", ties},
		{"not finite", "rows that are not finite last, and counted", notFinite},
		{"requests", "a refusal of queries, rows and k that do not fit", badRequests},
		{"versions", "versions that never change, and a refusal of those that are not loaded", versions},
		{"chunks", "the same table however its rows are cut", chunks},
		{"patch", "rows added, replaced and removed", patches},
		{"bad patch", "a refusal of a patch as a whole, and the table as it was", badPatches},
		{"broken load", "nothing left of a table whose rows ended early", brokenLoad},
		{"concurrent", "right answers while tables are loaded, patched and unloaded", concurrent},
		{"cancelled", "the end of a call whose caller does not wait any more", cancelled},
	}
	if k.options.Conn != nil {
		all = append(all, check{"malformed", "a refusal of streams that contradict their head, before memory is taken for them", malformed})
	}
	return all
}

func describe(_ context.Context, k *kit) error {
	d := k.description
	switch {
	case d.Name == "":
		return errors.New("it has no name")
	case len(d.Kinds) == 0:
		return errors.New("it names no kind that it scores")
	case d.Memory < 0 || d.Free < 0 || d.Free > d.Memory || d.MaxK < 0:
		return fmt.Errorf("%d of %d bytes free, k up to %d; none is negative", d.Free, d.Memory, d.MaxK)
	}
	return nil
}

func goldenScores(ctx context.Context, k *kit) error {
	if !k.scores(rerank.KindMoL) {
		return skip("it scores no models of kind mol")
	}
	for _, name := range goldenCases() {
		w, err := goldenWorld(name)
		if err != nil {
			return err
		}
		w.table.Name = name
		if err := k.load(ctx, w, 5); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		for query := range w.queries.Rows {
			if err := k.scanAndRescore(ctx, w, query, min(7, w.rows.Rows)); err != nil {
				return fmt.Errorf("%s, query %d: %w", name, query, err)
			}
		}
	}
	return nil
}

func sizes(ctx context.Context, k *kit) error {
	for i, rows := range []int{0, 1, 2, 15, 16, 17, 31, 33, 255, 1031} {
		w, err := k.random(rows, uint64(i))
		if err != nil {
			return err
		}
		w.table.Version = fmt.Sprint("rows ", rows)
		if err := k.load(ctx, w, 64); err != nil {
			return err
		}
		for _, topK := range []int{1, 2, 10, rows, rows + 3} {
			if topK < 1 || k.description.MaxK > 0 && topK > k.description.MaxK {
				continue
			}
			if err := k.scanAndRescore(ctx, w, 0, topK); err != nil {
				return err
			}
		}
	}
	return nil
}

func someRows(ctx context.Context, k *kit) error {
	w, err := k.random(300, 11)
	if err == nil {
		err = k.load(ctx, w, 100)
	}
	if err != nil {
		return err
	}
	odd := slices.DeleteFunc(w.all(), func(row uint32) bool { return row%2 == 0 })
	backwards := w.all()
	slices.Reverse(backwards)
	for name, rows := range map[string][]uint32{"none": {}, "one": {299}, "odd": odd, "backwards": backwards} {
		b, err := k.Rescore(ctx, w.ask(0, 9), rows)
		if err == nil {
			err = w.agrees(b, 0, rows, 9)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// bitmapOf returns a bitmap for a table of n rows with the bits of the given rows set.
func bitmapOf(n int, rows ...uint32) []byte {
	out := make([]byte, (n+7)/8)
	for _, row := range rows {
		out[row/8] |= 1 << (row % 8)
	}
	return out
}

func bitmaps(ctx context.Context, k *kit) error {
	const n = 301
	w, err := k.random(n, 12)
	if err == nil {
		err = k.load(ctx, w, 100)
	}
	if err != nil {
		return err
	}
	third := slices.DeleteFunc(w.all(), func(row uint32) bool { return row%3 != 1 })
	for name, rows := range map[string][]uint32{"full": w.all(), "none": {}, "first": {0}, "last": {n - 1}, "third": third} {
		b, err := k.Scan(ctx, w.ask(0, 9), bitmapOf(n, rows...))
		if err == nil {
			err = w.agrees(b, 0, rows, 9)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	behind := bitmapOf(n)
	behind[len(behind)-1] = 0x80
	for name, bitmap := range map[string][]byte{"short": bitmapOf(n - 8), "long": bitmapOf(n + 8), "a bit behind the last row": behind} {
		_, err := k.Scan(ctx, w.ask(0, 9), bitmap)
		if err := want(err, device.ErrRequest, "a bitmap that is "+name); err != nil {
			return err
		}
	}
	return nil
}

func ties(ctx context.Context, k *kit) error {
	w, err := k.random(200, 13)
	if err != nil {
		return err
	}
	for i := range w.rows.Rows { // rows of three kinds
		copy(w.rows.Row(i), w.rows.Row(i%3))
	}
	if err := k.load(ctx, w, 64); err != nil {
		return err
	}
	for _, topK := range []int{1, 5, 67, 100, 199} {
		if err := k.scanAndRescore(ctx, w, 0, topK); err != nil {
			return err // scanAndRescore has checked the order and Next
		}
		b, err := k.Scan(ctx, w.ask(0, topK), nil)
		if err != nil {
			return err
		}
		for i := 1; i < len(b.Rows); i++ {
			if b.Rows[i]%3 == b.Rows[i-1]%3 && b.Rows[i] != b.Rows[i-1]+3 {
				return fmt.Errorf("k %d: row %d follows row %d, and row %d scores the same", topK, b.Rows[i], b.Rows[i-1], b.Rows[i-1]+3)
			}
		}
	}
	return nil
}

func notFinite(ctx context.Context, k *kit) error {
	w, err := k.random(100, 14)
	if err != nil {
		return err
	}
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for i, x := range map[int]float32{3: nan, 17: inf, 40: -inf, 99: nan} {
		for c := range w.rows.Cols {
			w.rows.Row(i)[c] = x
		}
	}
	if err := k.load(ctx, w, 10); err != nil {
		return err
	}
	for _, topK := range []int{1, 96, 98, 100} {
		if err := k.scanAndRescore(ctx, w, 0, topK); err != nil {
			return err
		}
	}
	rows := []uint32{3, 17, 40, 99}
	b, err := k.Rescore(ctx, w.ask(0, 2), rows)
	if err == nil {
		err = w.agrees(b, 0, rows, 2)
	}
	return err
}

func badRequests(ctx context.Context, k *kit) error {
	w, err := k.random(50, 15)
	if err == nil {
		err = k.load(ctx, w, 50)
	}
	if err != nil {
		return err
	}
	short, nan := w.ask(0, 3), w.ask(0, 3)
	short.Query.Vector = short.Query.Vector[1:]
	nan.Query.Vector = slices.Clone(nan.Query.Vector)
	nan.Query.Vector[0] = float32(math.NaN())
	asks := map[string]device.Ask{"a query that is too short": short, "a query with NaN": nan, "k 0": w.ask(0, 0), "k -1": w.ask(0, -1)}
	if k.description.MaxK > 0 {
		asks["k above max_k"] = w.ask(0, k.description.MaxK+1)
	}
	for name, a := range asks {
		_, scanned := k.Scan(ctx, a, nil)
		_, rescored := k.Rescore(ctx, a, w.all())
		if err := errors.Join(want(scanned, device.ErrRequest, "Scan of "+name), want(rescored, device.ErrRequest, "Rescore of "+name)); err != nil {
			return err
		}
	}
	for name, rows := range map[string][]uint32{
		"a row behind the last": {0, 50}, "the greatest number": {math.MaxUint32}, "more rows than there are": append(w.all(), 0),
	} {
		_, err := k.Rescore(ctx, w.ask(0, 3), rows)
		if err := want(err, device.ErrRequest, name); err != nil {
			return err
		}
	}
	return k.scanAndRescore(ctx, w, 0, 5)
}

func versions(ctx context.Context, k *kit) error {
	w, err := k.random(40, 16)
	if err != nil {
		return err
	}
	head := device.TableHead{Table: w.table, Model: w.at, Rows: w.rows.Rows, Cols: w.rows.Cols}
	if err := want(k.LoadTable(ctx, head, w.chunks(40)), device.ErrNotLoaded, "a table before its model"); err != nil {
		return err
	}
	other := device.Version{Name: w.at.Name, Version: "0123456789abcdef"}
	if err := want(k.LoadModel(ctx, other, w.file), device.ErrRequest, "a model by a version that is not its digest"); err != nil {
		return err
	}
	if err := want(k.LoadModel(ctx, w.at, w.file[:len(w.file)-1]), device.ErrRequest, "a model file without its last byte"); err != nil {
		return err
	}
	if err := k.load(ctx, w, 40); err != nil {
		return err
	}
	wide := head
	wide.Table.Version, wide.Cols = "wide", head.Cols+1
	stale, elsewhere := w.ask(0, 3), w.ask(0, 3)
	stale.Table.Version, elsewhere.Model.Version = "0", "0123456789abcdef"
	_, scanStale := k.Scan(ctx, stale, nil)
	_, rescoreStale := k.Rescore(ctx, stale, w.all())
	_, noModel := k.Scan(ctx, elsewhere, nil)
	if err := errors.Join(
		want(k.LoadTable(ctx, head, w.chunks(40)), device.ErrLoaded, "a table that is loaded"),
		want(k.LoadModel(ctx, w.at, w.file), device.ErrLoaded, "a model that is loaded"),
		want(k.LoadTable(ctx, wide, w.chunks(40)), device.ErrRequest, "a table of rows that are not the model's"),
		want(scanStale, device.ErrNotLoaded, "Scan of a version that is not loaded"),
		want(rescoreStale, device.ErrNotLoaded, "Rescore of a version that is not loaded"),
		want(noModel, device.ErrNotLoaded, "Scan by a model that is not loaded"),
		k.scanAndRescore(ctx, w, 0, 5),
		k.Unload(ctx, []device.Version{{Name: "nobody", Version: "0"}}, []device.Version{w.table, {Name: "nobody", Version: "0"}}),
	); err != nil {
		return err
	}
	_, err = k.Scan(ctx, w.ask(0, 3), nil)
	return want(err, device.ErrNotLoaded, "Scan of a table that was unloaded")
}

func chunks(ctx context.Context, k *kit) error {
	for _, some := range []int{1, 3, 16, 99, 100, 1000} {
		w, err := k.random(100, 17)
		if err != nil {
			return err
		}
		w.table.Version = fmt.Sprint("by ", some)
		if err := k.load(ctx, w, some); err != nil {
			return err
		}
		if err := k.scanAndRescore(ctx, w, 0, 10); err != nil {
			return fmt.Errorf("rows by %d: %w", some, err)
		}
	}
	return nil
}

func cancelled(ctx context.Context, k *kit) error {
	w, err := k.random(2000, 18)
	if err == nil {
		err = k.load(ctx, w, 500)
	}
	if err != nil {
		return err
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := k.Scan(ended, w.ask(0, 3), nil); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("it returned %w, want the context's error", err)
	}
	return k.scanAndRescore(ctx, w, 0, 3)
}
