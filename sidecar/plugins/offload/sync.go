package offload

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/likenessdb/likeness/plugin/device"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/table"
)

const (
	// describeTimeout limits a call of Describe. freeTimeout limits freeing the device's
	// memory at the end.
	describeTimeout = 2 * time.Second
	freeTimeout     = 2 * time.Second
	// checkInterval is how often a ready device is asked what it has loaded. It detects a
	// restarted device even without searches.
	checkInterval = 5 * time.Second
)

// errBroken: the device that returned wrong scores has not been restarted.
var errBroken = errors.New("its scores were wrong; restart it once that is fixed")

// run keeps the device up to date until ctx is done.
func (s *Scorer) run(ctx context.Context) {
	defer close(s.ended)
	var c *copied // what the device is believed to have
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = 50*time.Millisecond, 5*time.Second
	used := int64(0) // number of used answers when the device was last known to work
	logged := ""     // why the device is not ready, until it is
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			s.free(ctx, c)
			return
		case <-s.kick:
			if s.usable.Load() == nil { // the device failed: wait before the next attempt
				pause.Reset(wait.NextBackOff())
				continue
			}
		case <-pause.C:
		}
		next, err := s.sync(ctx, c)
		if ctx.Err() != nil {
			continue
		}
		c = next
		if err != nil {
			s.usable.Store(nil)
			s.setDetail(err.Error())
			if why := err.Error(); why != logged {
				logged = why
				s.o.Logger.Warn("device not ready", "error", err)
			}
			pause.Reset(wait.NextBackOff())
			continue
		}
		logged = ""
		if n := s.counts[Used].Load(); n > used {
			used = n
			wait.Reset()
		}
		pause.Reset(checkInterval)
	}
}

// sync updates the device to the current table. c is the content that the device should
// have now; sync returns its content afterwards.
func (s *Scorer) sync(ctx context.Context, c *copied) (*copied, error) {
	d, err := s.describe(ctx)
	if err != nil {
		return c, err
	}
	if c != nil && !slices.Contains(d.Tables, c.Version) {
		c = nil // the device was restarted
	}
	if err := s.checkRestarted(c); err != nil {
		return c, err
	}
	if !slices.Contains(d.Models, s.model) {
		if err := s.loadModel(ctx, d); err != nil {
			return c, err
		}
	}
	t := s.o.Table()
	if t == nil {
		return c, fmt.Errorf("%w: the table is closed", ErrNotReady)
	}
	defer t.Release()
	if t.Grouped() {
		return c, fmt.Errorf("%w: items own several rows, which a device does not score", ErrNotReady)
	}
	next := c
	if !t.SameNumbers(tableOf(c)) {
		if next, err = s.load(ctx, t, d.Tables); err != nil {
			return nil, err
		}
	}
	if next.of != t {
		if next, err = s.patch(ctx, t, next); err != nil {
			return nil, err
		}
	}
	now := *next
	now.maxK = d.MaxK
	s.publish(&now)
	return &now, nil
}

// tableOf returns the table of a copy, or nil.
func tableOf(c *copied) *table.Table {
	if c == nil {
		return nil
	}
	return c.of
}

func (s *Scorer) describe(ctx context.Context) (device.Description, error) {
	ctx, cancel := context.WithTimeout(ctx, describeTimeout)
	defer cancel()
	return s.client.Describe(ctx)
}

// checkRestarted returns errBroken if the device was found broken and has not been
// restarted. A restart, which loses the device's tables, clears the state.
func (s *Scorer) checkRestarted(c *copied) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil && c != nil {
		return errBroken
	}
	s.broken = nil
	return nil
}

// publish makes a copy available to searches, unless the device was found broken meanwhile.
func (s *Scorer) publish(c *copied) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil {
		return
	}
	if s.usable.Swap(c) == nil {
		s.detail = ""
		s.o.Logger.Info("device ready", "rows", c.rows)
	}
}

func (s *Scorer) loadModel(ctx context.Context, d device.Description) error {
	if kind := s.o.Model.Spec().Kind; !slices.Contains(d.Kinds, kind) {
		return fmt.Errorf("%w: it does not score models of kind %q, but %q", ErrNotReady, kind, d.Kinds)
	}
	file, err := s.file()
	if err == nil {
		err = s.client.LoadModel(ctx, s.model, file)
	}
	return err
}

// load uploads the whole table, replacing what the device had.
func (s *Scorer) load(ctx context.Context, t *table.Table, there []device.Version) (*copied, error) {
	s.usable.Store(nil)
	ours := slices.DeleteFunc(slices.Clone(there), func(v device.Version) bool { return v.Name != s.name() })
	if len(ours) > 0 {
		if err := s.client.Unload(ctx, nil, ours); err != nil {
			return nil, err
		}
	}
	s.setDetail("loading the table")
	began := time.Now()
	v := device.Version{Name: s.name(), Version: fmt.Sprintf("load %d", s.loads.Add(1))}
	head := device.TableHead{Table: v, Model: s.model, Rows: t.Len(), Cols: t.Meta().Features}
	if err := s.client.LoadTable(ctx, head, s.withProgress(rowsOf(t), head)); err != nil {
		return nil, err
	}
	s.o.Logger.Info("table loaded", "rows", head.Rows, "bytes", 4*int64(head.Rows)*int64(head.Cols), "took", time.Since(began).String())
	c := &copied{Version: v, of: t, rows: t.Len(), alive: make([]uint16, (t.Len()+rerank.Lanes-1)/rerank.Lanes)}
	if !t.Dead() {
		c.alive = masks(t)
		return c, nil
	}
	for i := range c.alive { // an upload has no dead rows; the patch removes them
		c.alive[i] = allOf(i, t.Len())
	}
	return s.patch(ctx, t, c)
}

// withProgress reports how many rows of the table have been sent.
func (s *Scorer) withProgress(rows iter.Seq2[[]float32, error], head device.TableHead) iter.Seq2[[]float32, error] {
	return func(yield func([]float32, error) bool) {
		sent := 0
		for chunk, err := range rows {
			if !yield(chunk, err) {
				return
			}
			sent += len(chunk) / head.Cols
			s.setDetail(fmt.Sprintf("loading the table: %d of %d rows are sent", sent, head.Rows))
		}
	}
}

// masks returns which rows of a table are alive.
func masks(t *table.Table) []uint16 {
	out := make([]uint16, (t.Len()+rerank.Lanes-1)/rerank.Lanes)
	for i := range out {
		out[i] = t.AliveMask(i)
	}
	return out
}

// allOf returns a mask with a bit for each row of a tile, for a table of n rows.
func allOf(tile, n int) uint16 { return uint16(1<<min(max(n-tile*rerank.Lanes, 0), rerank.Lanes) - 1) }

// rowsOf iterates over the rows from which scores are computed, in full precision if the
// table has it.
func rowsOf(t *table.Table) iter.Seq2[[]float32, error] {
	return func(yield func([]float32, error) bool) {
		const bytes = 1 << 20
		chunkRows := max(1, bytes/(4*t.Meta().Features))
		for from := 0; from < t.Len(); from += chunkRows {
			if !yield(rowsIn(t, from, min(from+chunkRows, t.Len())).Data, nil) {
				return
			}
		}
	}
}

// rowsIn returns the rows [from, to).
func rowsIn(t *table.Table, from, to int) rerank.Matrix {
	if full, ok := t.Full(); ok {
		return full.Slice(from, to)
	}
	m := rerank.NewMatrix(to-from, t.Meta().Features)
	for i := range m.Rows {
		t.Row32(m.Row(i), from+i)
	}
	return m
}

// patch sends the writes since the device's copy: new rows, and which rows have died.
// Existing rows never change.
func (s *Scorer) patch(ctx context.Context, t *table.Table, c *copied) (*copied, error) {
	p := device.Patch{From: c.Version, Version: fmt.Sprintf("load %d, write %d, patch %d", s.loads.Load(), t.Sequence(), s.patches.Add(1))}
	next := &copied{Version: device.Version{Name: c.Name, Version: p.Version}, of: t, rows: t.Len(), alive: masks(t)}
	for row := c.rows; row < t.Len(); row++ {
		p.Numbers = append(p.Numbers, uint32(row))
	}
	p.Rows = rowsIn(t, min(c.rows, t.Len()), t.Len())
	for tile, now := range next.alive {
		was := allOf(tile, t.Len())
		if tile < len(c.alive) {
			was = c.alive[tile] | was&^allOf(tile, c.rows)
		}
		for lane := range rerank.Lanes {
			if (was&^now)>>lane&1 != 0 {
				p.Removed = append(p.Removed, uint32(tile*rerank.Lanes+lane))
			}
		}
	}
	if err := s.client.PatchTable(ctx, p); err != nil {
		return nil, err
	}
	return next, nil
}

// free unloads model and table. A device that does not answer keeps them until it ends.
func (s *Scorer) free(ctx context.Context, c *copied) {
	s.usable.Store(nil)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), freeTimeout)
	defer cancel()
	var tables []device.Version
	if c != nil {
		tables = append(tables, c.Version)
	}
	if err := s.client.Unload(ctx, []device.Version{s.model}, tables); err != nil {
		s.o.Logger.Debug("device not freed", "error", err)
	}
}
