package milvus

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
)

// Scan reads all rows in the order of their primary keys, in which Milvus answers a
// query with a limit. Each page begins after the last key of the page before. The
// first page waits for all earlier writes (consistency Strong).
func (s *Store) Scan(ctx context.Context, r adapters.ScanRequest, yield func(rows adapters.Rows, cursor string) error) error {
	s.forget(r.Collection)
	return s.scan(ctx, r, true, yield)
}

// scanRows is the default page of a scan. milvus-lite takes minutes for a query of ten
// thousand rows with vectors.
const scanRows = 1000

func (s *Store) scan(ctx context.Context, r adapters.ScanRequest, strong bool, yield func(rows adapters.Rows, cursor string) error) error {
	if err := CheckFilter(r.Filter); err != nil {
		return err
	}
	c, err := s.collection(ctx, r.Collection)
	if err != nil {
		return err
	}
	reading, err := newReading(c, r.Vectors, r.Owner, r.Payload, r.PayloadFields)
	if err != nil {
		return err
	}
	after, err := c.readCursor(r.Cursor)
	if err != nil {
		return err
	}
	whole := s.read(reading)
	batch := min(whole.pageRows(), cmp.Or(r.Batch, scanRows))
	// Pages hold the rows of one component. The vectors of the other components are
	// fetched by id.
	parts := whole.components()
	parts[0].strong = strong
	return parts[0].readPages(ctx, r.Filter, after, batch, func(rows adapters.Rows, last key) error {
		rows, err := fetchOthers(ctx, parts, rows)
		if err != nil {
			return err
		}
		cursor, err := writeCursor(last)
		if err != nil {
			return err
		}
		return yield(rows, cursor)
	})
}

// fetchOthers adds the vectors of the other components, if there are any, to rows of
// the first component.
func fetchOthers(ctx context.Context, parts []reader, rows adapters.Rows) (adapters.Rows, error) {
	if len(parts) == 1 {
		return rows, nil
	}
	results := []adapters.Rows{rows}
	for _, part := range parts[1:] {
		more, err := part.fetchPart(ctx, rows.IDs)
		if err != nil {
			return rows, err
		}
		results = append(results, more)
	}
	return parts[0].joinComponents(results, rows.IDs)
}

// readPages reads the matching rows, page by page, ordered by primary key. It begins after the key
// `after`, or with the first row if after is nil.
func (r reader) readPages(ctx context.Context, filter string, after *key, batch int, yield func(rows adapters.Rows, last key) error) error {
	if r.c.layout != nil && r.c.layout.Rows {
		filter = joinConditions(filter, fmt.Sprintf("%s == %d", companionField, r.component()))
	}
	for {
		f, err := r.pageAfter(ctx, filter, after, batch)
		if isTooLong(err) && batch > 1 {
			batch /= 2
			continue
		}
		if err != nil {
			return err
		}
		if len(f.keys) == 0 {
			return r.lastPage(ctx, filter, after, yield)
		}
		last := f.keys[len(f.keys)-1]
		if after != nil && !last.isAfter(*after) { // a scan of a broken server ends
			return fmt.Errorf("%w: the page of collection %q after %s ends at %s, not later", adapters.ErrStore, r.c.name, after.literal(), last.literal())
		}
		after, r.strong = &last, false
		rows, err := r.convertReply(f)
		if err != nil {
			return err
		}
		if err := yield(rows, last); err != nil {
			return err
		}
	}
}

// lastPage reads the row with the greatest int64, which Milvus's queries omit.
func (r reader) lastPage(ctx context.Context, filter string, after *key, yield func(rows adapters.Rows, last key) error) error {
	greatest := key{num: math.MaxInt64}
	if r.c.ids.textKeys() || after != nil && *after == greatest {
		return nil
	}
	f, err := r.searchKey(ctx, greatest, filter)
	if err != nil || len(f.keys) == 0 {
		return err
	}
	rows, err := r.convertReply(f)
	if err != nil {
		return err
	}
	return yield(rows, greatest)
}

// iteratorParams returns the parameters of a query iterator: every shard stops at the limit,
// and the proxy stops at the last key up to which every shard has answered.
func iteratorParams() []string { return []string{"iterator", "True", "reduce_stop_for_best", "True"} }

// pageAfter reads the next page after a key. milvus-lite cannot express a text with a
// line break; for such a key the page begins at a smaller text, and rows seen before
// are skipped.
func (r reader) pageAfter(ctx context.Context, filter string, after *key, batch int) (queryReply, error) {
	bound := ""
	switch {
	case after == nil:
	case !after.isText && after.num == math.MinInt64:
		bound = fmt.Sprintf("%s >= %d", r.c.pk, int64(math.MinInt64+1))
	case !after.inexpressible():
		bound = r.c.pk + " > " + after.literal()
	default:
		return r.behindBreak(ctx, filter, *after, batch)
	}
	return r.query(ctx, joinConditions(filter, bound), batch, iteratorParams()...)
}

func (r reader) behindBreak(ctx context.Context, filter string, after key, batch int) (queryReply, error) {
	prefix := after.text[:strings.IndexAny(after.text, "\r\n")]
	for {
		f, err := r.query(ctx, joinConditions(filter, r.c.pk+" >= "+quote(prefix)), batch, iteratorParams()...)
		if err != nil {
			return f, err
		}
		seen, _ := slices.BinarySearchFunc(f.keys, after.text, func(k key, t string) int { return strings.Compare(k.text, t) })
		if seen < len(f.keys) && f.keys[seen] == after {
			seen++
		}
		if seen < len(f.keys) || len(f.keys) < batch {
			return f.withoutFirst(seen), nil
		}
		if batch >= r.limits().MaxDepth {
			return f, fmt.Errorf("%w: collection %q has more than %d keys that begin with %q and have a line break",
				adapters.ErrUnsupported, r.c.name, batch, prefix)
		}
		batch = min(2*batch, r.limits().MaxDepth)
	}
}

// Match lists the ids of the rows that match a filter, in the order of their keys.
func (s *Store) Match(ctx context.Context, collection, filter string) ([]rerank.ID, error) {
	var ids []rerank.ID
	err := s.scan(ctx, adapters.ScanRequest{Collection: collection, Filter: filter}, false, func(rows adapters.Rows, _ string) error {
		ids = append(ids, rows.IDs...)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return ids, nil
}

// cursor holds the last key of a batch, encoded as JSON.
type cursor struct {
	Num  *int64  `json:"num,omitempty"`
	Text *string `json:"text,omitempty"`
}

func writeCursor(k key) (string, error) {
	c := cursor{Num: &k.num}
	if k.isText {
		c = cursor{Text: &k.text}
	}
	b, err := json.Marshal(c)
	if err != nil {
		return "", fmt.Errorf("%w: %w", adapters.ErrStore, err)
	}
	return string(b), nil
}

// readCursor returns the key that a cursor holds, or nil for the empty cursor.
func (c *collection) readCursor(text string) (*key, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // no key: a scan from the beginning
	}
	var cur cursor
	err := json.Unmarshal([]byte(text), &cur)
	switch textKeys := c.ids.textKeys(); {
	case err == nil && textKeys && cur.Text != nil:
		return &key{text: *cur.Text, isText: true}, nil
	case err == nil && !textKeys && cur.Num != nil:
		return &key{num: *cur.Num}, nil
	}
	return nil, fmt.Errorf("%w: %q is not a cursor of a scan of collection %q; start without one", adapters.ErrStore, text, c.name)
}
