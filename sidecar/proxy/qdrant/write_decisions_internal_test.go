package qdrant

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/likenessdb/likeness/internal/jsonwalk"
	"github.com/likenessdb/likeness/sidecar/follow/journal"
)

// TestKindOfABatch: operations of one kind have that kind. A mixture counts as an upsert, which may
// change any part of a row.
func TestKindOfABatch(t *testing.T) {
	for text, want := range map[string]journal.Kind{
		"delete": journal.Delete, "delete, delete": journal.Delete, "payload, payload": journal.Payload,
		"delete, upsert": journal.Upsert, "upsert, delete": journal.Upsert, "delete, payload": journal.Upsert, "payload, vectors, payload": journal.Upsert,
	} {
		var rows touched
		for kind := range strings.SplitSeq(text, ", ") {
			rows.also(journal.Kind(kind))
		}
		if rows.kind != want {
			t.Errorf("%s: %q, want %q", text, rows.kind, want)
		}
	}
}

// TestRowsOfAnOperation: an operation with ids or with one filter. If it has both, or two filters,
// it may change any row.
func TestRowsOfAnOperation(t *testing.T) {
	for body, want := range map[string]struct {
		ids, filters int
		understood   bool
	}{
		`{"points":[1,2]}`:                    {2, 0, true},
		`{"filter":{"must":[]}}`:              {0, 1, true},
		`{"filter":null,"points":[1]}`:        {1, 0, true},
		`{"filter":{"a":1},"filter":{"b":1}}`: {0, 2, false},
		`{"payload":{}}`:                      {0, 0, false},
		`{"points":[1],"something":2}`:        {1, 0, false},
	} {
		var rows touched
		understood := rows.jsonOperation(context.Background(), jsonwalk.New([]byte(body)))
		if understood != want.understood || len(rows.ids) != want.ids || len(rows.filters) != want.filters {
			t.Errorf("%s: understood %t, %d ids, %d filters; want %+v", body, understood, len(rows.ids), len(rows.filters), want)
		}
	}
}

// TestWhatChangedNothing: Qdrant refuses a whole request before it looks at rows. Of several
// operations, those before the wrong one are carried out.
func TestWhatChangedNothing(t *testing.T) {
	for _, c := range []struct {
		code         codes.Code
		text         string
		one, several bool // refused, as one operation and as several
	}{
		{codes.Unauthenticated, "", true, true},
		{codes.PermissionDenied, "", true, true},
		{codes.Unimplemented, "", true, true},
		{codes.InvalidArgument, "Validation error in body: [a: is wrong]", true, true},
		{codes.InvalidArgument, "something is wrong", true, false},
		{codes.InvalidArgument, "Wrong input: a row", false, false},
		{codes.NotFound, "Not found: Collection c does not exist", true, false},
		{codes.NotFound, "Not found: No point with id 3 found", false, false},
		{codes.AlreadyExists, "", true, false},
		{codes.Internal, "", false, false},
	} {
		s := status.New(c.code, c.text)
		if one, several := refused(s, false), refused(s, true); one != c.one || several != c.several {
			t.Errorf("%s %q: refused %t as one operation, %t as several; want %t, %t", c.code, c.text, one, several, c.one, c.several)
		}
	}
}
