package qdrant

import (
	"context"
	"slices"
	"strconv"

	"github.com/likenessdb/likeness/internal/jsonwalk"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/follow/journal"
)

// maxTouchedIDs limits the ids that are read from one write. A write of more rows counts as a write
// of any row: the follower would compare all rows anyway, and ids take many times the memory that
// they take in the request.
const maxTouchedIDs = 1 << 16

// jsonID reads the id of a point. It returns false for any other value, and after maxTouchedIDs
// ids.
func (t *touched) jsonID(s *jsonwalk.Scanner) bool {
	if len(t.ids) >= maxTouchedIDs {
		return false
	}
	if s.Next() == '"' {
		text, ok := s.Text()
		if ok {
			t.uuid(text)
		}
		return ok
	}
	raw, ok := s.Value()
	n, err := strconv.ParseUint(string(raw), 10, 64)
	if !ok || err != nil {
		return false
	}
	t.ids = append(t.ids, rerank.UintID(n))
	return true
}

// body reads a request of one or several operations. It returns false if it could not read
// everything before ctx ended.
func (t *touched) body(ctx context.Context, s *jsonwalk.Scanner, batch bool) bool {
	if !batch {
		return t.jsonOperation(ctx, s)
	}
	t.kind = ""
	ok := s.Object(func(key string) bool {
		return key == "operations" && s.Array(func() bool {
			return s.Object(func(operation string) bool {
				kind := jsonOperations[operation]
				t.also(kind)
				return kind != "" && t.jsonOperation(ctx, s)
			})
		})
	})
	if t.kind == "" || !ok { // the unread operations may be of any kind
		t.kind = journal.Upsert
	}
	return ok
}

// jsonOperations maps each operation of a batch to the kind of its change.
var jsonOperations = map[string]journal.Kind{
	"upsert": journal.Upsert, "delete": journal.Delete, "update_vectors": journal.Vectors, "delete_vectors": journal.Vectors,
	"set_payload": journal.Payload, "overwrite_payload": journal.Payload, "delete_payload": journal.Payload, "clear_payload": journal.Payload,
}

// harmless lists keys that do not affect which rows change.
var harmless = []string{"shard_key", "payload", "keys", "key", "vector", "update_filter", "update_mode"}

// jsonOperation reads the rows of an operation: ids, points with ids, a batch of columns, or a
// filter.
func (t *touched) jsonOperation(ctx context.Context, s *jsonwalk.Scanner) bool {
	named := false
	ok := s.Object(func(key string) bool {
		switch {
		case key == "filter":
			raw, ok := s.Value()
			if string(raw) != "null" {
				named = true
				t.filters = append(t.filters, string(raw))
			}
			return ok && len(t.filters) <= 1 // two filters count as any row
		case s.Next() == 'n': // null
			return s.Skip()
		case key == "points":
			named = true
			return t.jsonPoints(ctx, s)
		case key == "batch":
			named = true
			return s.Object(func(column string) bool {
				if column == "ids" {
					return t.jsonPoints(ctx, s)
				}
				return slices.Contains([]string{"vectors", "payloads"}, column) && s.Skip()
			})
		}
		return slices.Contains(harmless, key) && s.Skip()
	})
	return ok && named
}

// jsonPoints reads an array of ids, or of points with ids.
func (t *touched) jsonPoints(ctx context.Context, s *jsonwalk.Scanner) bool {
	return s.Array(func() bool {
		if ctx.Err() != nil {
			return false
		}
		if s.Next() != '{' {
			return t.jsonID(s)
		}
		found := false
		return s.Object(func(key string) bool {
			if key == "id" {
				found = true
				return t.jsonID(s)
			}
			return s.Skip()
		}) && found
	})
}
