package embedded

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
)

// batchRows is the default batch of Scan.
const batchRows = 1024

// Fetch reads rows by id or by owner. A cosine field returns the normalised vectors.
func (s *Store) Fetch(ctx context.Context, r adapters.FetchRequest) (adapters.Rows, error) {
	c, err := s.open(ctx, r.Collection)
	if err != nil {
		return adapters.Rows{}, err
	}
	defer c.mu.RUnlock()
	numbers, err := c.requestedRows(r)
	if err != nil {
		return adapters.Rows{}, err
	}
	return c.read(numbers, selection{vectors: r.Vectors, owner: r.Owner, payload: r.Payload, payloadFields: r.PayloadFields})
}

// Scan yields all rows in the order in which they were loaded or first written.
func (s *Store) Scan(ctx context.Context, r adapters.ScanRequest, yield func(adapters.Rows, string) error) error {
	var (
		from int
		err  error
	)
	if r.Cursor != "" {
		if from, err = strconv.Atoi(r.Cursor); err != nil || from < 0 {
			return fmt.Errorf("%w: the cursor %q is not one of the embedded store", adapters.ErrStore, r.Cursor)
		}
	}
	batch := r.Batch
	if batch <= 0 {
		batch = batchRows
	}
	for more := true; more; {
		var rows adapters.Rows
		if rows, from, more, err = s.scanBatch(ctx, r, from, batch); err != nil {
			return err
		}
		if len(rows.IDs) == 0 {
			continue
		}
		if err := yield(rows, strconv.Itoa(from)); err != nil {
			return err
		}
	}
	return nil
}

// scanBatch reads up to batch rows from serial number from on. The collection is not
// locked while the caller yields them.
func (s *Store) scanBatch(ctx context.Context, r adapters.ScanRequest, from, batch int) (adapters.Rows, int, bool, error) {
	c, err := s.open(ctx, r.Collection)
	if err != nil {
		return adapters.Rows{}, from, false, err
	}
	defer c.mu.RUnlock()
	keep, err := c.compileFilter(r.Filter)
	if err != nil {
		return adapters.Rows{}, from, false, err
	}
	var numbers []int
	n := c.firstRowFrom(from)
	for ; n < c.rows && len(numbers) < batch; n++ {
		if keep == nil || keep(n) {
			numbers = append(numbers, n)
		}
	}
	rows, err := c.read(numbers, selection{vectors: r.Vectors, owner: r.Owner, payload: r.Payload, payloadFields: r.PayloadFields})
	return rows, c.serialOf(n), n < c.rows, err
}

// firstRowFrom returns the first row with a serial number of at least from.
func (c *collection) firstRowFrom(from int) int {
	if c.serials == nil {
		return from
	}
	n, _ := slices.BinarySearch(c.serials, from)
	return n
}

// serialOf returns the serial number of row n, or of the row that will follow the last.
func (c *collection) serialOf(n int) int {
	switch {
	case c.serials == nil:
		return n
	case n == c.rows:
		return c.next
	default:
		return c.serials[n]
	}
}

// Match lists the ids of the rows that match a filter, in the order of the rows.
func (s *Store) Match(ctx context.Context, name, filter string) ([]rerank.ID, error) {
	c, err := s.open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer c.mu.RUnlock()
	keep, err := c.compileFilter(filter)
	if err != nil {
		return nil, err
	}
	ids := []rerank.ID{}
	for r := range c.rows {
		if keep == nil || keep(r) {
			ids = append(ids, c.id(r))
		}
	}
	return ids, ctx.Err()
}

// requestedRows returns the rows that a FetchRequest names, each once.
func (c *collection) requestedRows(r adapters.FetchRequest) ([]int, error) {
	if r.Owner != "" {
		return c.numbersOfOwners(r)
	}
	seen := make(map[int]bool, len(r.IDs))
	var numbers []int
	for _, id := range r.IDs {
		if n, ok := c.row(id); ok && !seen[n] {
			seen[n] = true
			numbers = append(numbers, n)
		}
	}
	return numbers, nil
}

func (c *collection) numbersOfOwners(r adapters.FetchRequest) ([]int, error) {
	all := make([]int, c.rows)
	for i := range all {
		all[i] = i
	}
	owners, err := c.ownersOf(r.Owner, all)
	if err != nil {
		return nil, err
	}
	rows := map[rerank.ID][]int{}
	for _, id := range r.IDs {
		rows[id] = nil
	}
	for n, o := range owners {
		if _, asked := rows[o]; asked {
			rows[o] = append(rows[o], n)
		}
	}
	var numbers []int
	for _, id := range r.IDs {
		numbers = append(numbers, c.sortByID(rows[id])...)
		delete(rows, id)
	}
	return numbers, nil
}

// selection says which parts of a row to read.
type selection struct {
	vectors       []string
	owner         string
	payload       bool
	payloadFields []string
}

func (c *collection) read(numbers []int, s selection) (adapters.Rows, error) {
	rows := adapters.Rows{IDs: make([]rerank.ID, len(numbers)), Vectors: make([]rerank.Matrix, len(s.vectors))}
	for i, n := range numbers {
		rows.IDs[i] = c.id(n)
	}
	for i, name := range s.vectors {
		f, err := c.field(name)
		if err != nil {
			return adapters.Rows{}, err
		}
		switch {
		case f.starts == nil:
			rows.Vectors[i] = gather(f.vectors, numbers)
		case len(s.vectors) > 1 || s.owner != "":
			return adapters.Rows{}, fmt.Errorf("%w: field %q has several vectors a row, which are read alone and by id", adapters.ErrUnsupported, name)
		default:
			all := adapters.Rows{Vectors: []rerank.Matrix{f.vectors}, Starts: f.starts}.Pick(numbers)
			rows.Vectors, rows.Starts = all.Vectors, all.Starts
		}
	}
	if s.owner != "" {
		owners, err := c.ownersOf(s.owner, numbers)
		if err != nil {
			return adapters.Rows{}, err
		}
		rows.Owners = owners
	}
	if !s.payload {
		return rows, nil
	}
	rows.Payloads = make([]json.RawMessage, len(numbers))
	for i, n := range numbers {
		p, err := c.rowPayload(n, s.payloadFields)
		if err != nil {
			return adapters.Rows{}, err
		}
		rows.Payloads[i] = p
	}
	return rows, nil
}
