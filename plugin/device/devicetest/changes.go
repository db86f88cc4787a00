package devicetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/likenessdb/likeness/plugin/device"
	pluginv1 "github.com/likenessdb/likeness/proto/gen/likeness/plugin/v1"
	"github.com/likenessdb/likeness/rerank"
)

// patch patches the table on the device, and the world in the same way.
func (k *kit) patch(ctx context.Context, w *world, version string, numbers []uint32, rows rerank.Matrix, removed []uint32) error {
	p := device.Patch{From: w.table, Version: version, Numbers: numbers, Rows: rows, Removed: removed}
	if err := k.PatchTable(ctx, p); err != nil {
		return fmt.Errorf("patch %s: %w", version, err)
	}
	before := w.table
	w.table.Version = version
	k.tables = append(k.tables, w.table)
	w.apply(p)
	stale := w.ask(0, 3)
	stale.Table = before
	_, err := k.Scan(ctx, stale, nil)
	if err := want(err, device.ErrNotLoaded, "Scan of the version before a patch"); err != nil {
		return err
	}
	for _, topK := range []int{1, 10, w.rows.Rows + 1} {
		if err := k.scanAndRescore(ctx, w, 0, topK); err != nil {
			return fmt.Errorf("after patch %s: %w", version, err)
		}
	}
	return nil
}

// apply applies a patch to the world.
func (w *world) apply(p device.Patch) {
	w.rows.Data = slices.Clone(w.rows.Data)
	for i, row := range p.Numbers {
		if int(row) == w.rows.Rows {
			w.rows.Data = append(w.rows.Data, p.Rows.Row(i)...)
			w.rows.Rows++
		}
		copy(w.rows.Row(int(row)), p.Rows.Row(i))
		delete(w.dead, int(row))
	}
	for _, row := range p.Removed {
		w.dead[int(row)] = true
	}
}

func patches(ctx context.Context, k *kit) error {
	w, err := k.random(100, 20)
	if err == nil {
		err = k.load(ctx, w, 30)
	}
	if err != nil {
		return err
	}
	cols := w.rows.Cols
	var many []uint32
	for i := range 1500 {
		many = append(many, uint32(102+i))
	}
	for _, p := range []struct {
		version string
		numbers []uint32
		removed []uint32
	}{
		{"added", []uint32{100, 101}, nil},
		{"removed", nil, []uint32{0, 50, 100}},
		{"replaced", []uint32{7, 99}, nil},
		{"brought back", []uint32{50}, []uint32{51}},
		{"removed as it came", []uint32{7}, []uint32{7}},
		{"twice", []uint32{8, 8}, nil},
		{"many", many, []uint32{1601, 3}},
		{"nothing", nil, nil},
		{"all", []uint32{1602, 0, 1603, 0}, []uint32{1602, 1, 1}},
	} {
		rows := numbers(len(p.numbers), cols, uint64(len(p.version)))
		if err := k.patch(ctx, w, p.version, p.numbers, rows, p.removed); err != nil {
			return err
		}
	}
	b, err := k.Scan(ctx, w.ask(0, 5), bitmapOf(w.rows.Rows, w.all()...)) // a bit does not bring a removed row back
	if err == nil {
		err = w.agrees(b, 0, w.alive(), 5)
	}
	return err
}

func badPatches(ctx context.Context, k *kit) error {
	w, err := k.random(60, 21)
	if err == nil {
		err = k.load(ctx, w, 60)
	}
	if err != nil {
		return err
	}
	row, two, wide := numbers(1, w.rows.Cols, 1), numbers(2, w.rows.Cols, 1), numbers(1, w.rows.Cols+1, 1)
	for name, p := range map[string]device.Patch{
		"a gap behind the last row":    {Numbers: []uint32{61}, Rows: row},
		"a gap after an added row":     {Numbers: []uint32{60, 62}, Rows: two},
		"the greatest number":          {Numbers: []uint32{math.MaxUint32}, Rows: row},
		"a row that is too wide":       {Numbers: []uint32{0}, Rows: wide},
		"a removed row that is not":    {Removed: []uint32{60}},
		"good rows before a bad one":   {Numbers: []uint32{0, 99}, Rows: two},
		"more rows than their numbers": {Numbers: []uint32{0}, Rows: two},
	} {
		p.From, p.Version = w.table, "bad"
		if err := want(k.PatchTable(ctx, p), device.ErrRequest, name); err != nil {
			return err
		}
	}
	from := device.Version{Name: w.table.Name, Version: "never"}
	if err := errors.Join(
		want(k.PatchTable(ctx, device.Patch{From: from, Version: "2"}), device.ErrNotLoaded, "a patch of a version that is not loaded"),
		want(k.PatchTable(ctx, device.Patch{From: w.table, Version: w.table.Version}), device.ErrLoaded, "a patch that makes the version that it changes"),
	); err != nil {
		return err
	}
	return k.scanAndRescore(ctx, w, 0, 10)
}

func brokenLoad(ctx context.Context, k *kit) error {
	w, err := k.random(90, 22)
	if err != nil {
		return err
	}
	whole := *w
	w.rows = w.rows.Slice(0, 45) // but the head says 90
	if err := k.LoadModel(ctx, w.at, w.file); err != nil {
		return err
	}
	k.models = append(k.models, w.at)
	head := device.TableHead{Table: w.table, Model: w.at, Rows: 90, Cols: w.rows.Cols}
	if err := want(k.LoadTable(ctx, head, w.chunks(10)), device.ErrRequest, "a table with half of its rows"); err != nil {
		return err
	}
	_, err = k.Scan(ctx, w.ask(0, 3), nil)
	if err := want(err, device.ErrNotLoaded, "Scan of a table that did not come whole"); err != nil {
		return err
	}
	if err := k.load(ctx, &whole, 10); err != nil { // the version is free
		return err
	}
	return k.scanAndRescore(ctx, &whole, 0, 5)
}

// concurrent queries two tables while one of them is patched and a third is loaded and
// unloaded.
func concurrent(ctx context.Context, k *kit) error {
	still, err := k.random(400, 23)
	if err != nil {
		return err
	}
	moving, coming := *still, *still
	moving.table.Name, coming.table.Name = "moving", "coming"
	moving.rows.Data = slices.Clone(still.rows.Data)
	moving.dead = map[int]bool{}
	if err := errors.Join(k.load(ctx, still, 100), k.load(ctx, &moving, 100)); err != nil {
		return err
	}
	done := make(chan struct{})
	var g errgroup.Group
	for i := range 3 {
		first := moving.ask(0, 5)
		g.Go(func() error { return k.scanUntil(ctx, done, still, first, 3+i) })
	}
	g.Go(func() error {
		defer close(done)
		for i := range 20 {
			n := uint32(moving.rows.Rows)
			if err := k.patch(ctx, &moving, fmt.Sprint("move ", i), []uint32{n, uint32(i)}, numbers(2, moving.rows.Cols, uint64(i)), []uint32{n - 1}); err != nil {
				return err
			}
			coming.table.Version = fmt.Sprint("come ", i)
			if err := k.load(ctx, &coming, 100); err != nil {
				return err
			}
			if err := k.Unload(ctx, nil, []device.Version{coming.table}); err != nil {
				return err
			}
		}
		return nil
	})
	return g.Wait()
}

// scanUntil scans the table still for its best topK items and more until done is closed. It also sends
// the request patched, whose version of a table may be gone.
func (k *kit) scanUntil(ctx context.Context, done <-chan struct{}, still *world, patched device.Ask, topK int) error {
	for n := 0; ; n++ {
		select {
		case <-done:
			return nil
		default:
		}
		if err := k.scanAndRescore(ctx, still, 0, topK+n%4); err != nil {
			return err
		}
		if _, err := k.Scan(ctx, patched, nil); err != nil && !errors.Is(err, device.ErrNotLoaded) {
			return fmt.Errorf("a version that was patched: %w", err)
		}
	}
}

// malformed sends messages that no client of package device would send.
func malformed(ctx context.Context, k *kit) error {
	w, err := k.random(30, 24)
	if err == nil {
		err = k.load(ctx, w, 30)
	}
	if err != nil {
		return err
	}
	cols := uint32(w.rows.Cols)
	table := &pluginv1.Loaded{Name: w.table.Name, Version: "bad"}
	at := &pluginv1.Loaded{Name: w.at.Name, Version: w.at.Version}
	head := func(rows, cols uint32) *pluginv1.TableHead {
		return &pluginv1.TableHead{Table: table, Model: at, Rows: rows, Cols: cols}
	}
	for name, messages := range map[string][]*pluginv1.LoadTableRequest{
		"no head":                          {{Rows: make([]byte, 4*cols)}},
		"no message":                       {},
		"more rows than the head says":     {{Head: head(1, cols)}, {Rows: make([]byte, 8*cols)}},
		"no whole row":                     {{Head: head(2, cols)}, {Rows: make([]byte, 4*cols+4)}},
		"a head of 2³¹ rows and no row":    {{Head: head(1<<31, cols)}},
		"a head of 2³² rows of 2³² number": {{Head: head(math.MaxUint32, math.MaxUint32)}},
		"rows of no number":                {{Head: head(1, 0)}},
	} {
		stream, err := pluginv1.NewSimilarityScorerServiceClient(k.options.Conn).LoadTable(ctx)
		if err != nil {
			return err
		}
		for _, m := range messages {
			if stream.Send(m) != nil {
				break // the answer has the reason
			}
		}
		if _, err := stream.CloseAndRecv(); err == nil {
			return fmt.Errorf("%s: it was taken", name)
		}
	}
	if err := malformedModels(ctx, k, at); err != nil {
		return err
	}
	client := pluginv1.NewSimilarityScorerServiceClient(k.options.Conn)
	r := &pluginv1.RescoreRequest{Model: at, Table: &pluginv1.Loaded{Name: w.table.Name, Version: w.table.Version}, K: 3, Rows: []byte{0, 0, 0}}
	if _, err := client.Rescore(ctx, r); err == nil {
		return errors.New("rows of three bytes: they were taken")
	}
	return k.scanAndRescore(ctx, w, 0, 5)
}

func malformedModels(ctx context.Context, k *kit, at *pluginv1.Loaded) error {
	head := func(bytes int64) *pluginv1.ModelHead { return &pluginv1.ModelHead{Model: at, Bytes: bytes} }
	for name, messages := range map[string][]*pluginv1.LoadModelRequest{
		"a model of no byte":           {{Head: head(0)}},
		"a model of fewer than none":   {{Head: head(-1)}},
		"a model of 2⁶² bytes":         {{Head: head(1 << 62)}},
		"a model that ends early":      {{Head: head(100), Chunk: make([]byte, 50)}},
		"a model longer than its head": {{Head: head(10), Chunk: make([]byte, 50)}},
		"a model of zeros":             {{Head: head(50), Chunk: make([]byte, 50)}},
	} {
		stream, err := pluginv1.NewSimilarityScorerServiceClient(k.options.Conn).LoadModel(ctx)
		if err != nil {
			return err
		}
		for _, m := range messages {
			if stream.Send(m) != nil {
				break
			}
		}
		if _, err := stream.CloseAndRecv(); err == nil {
			return fmt.Errorf("%s: it was taken", name)
		}
	}
	return nil
}
