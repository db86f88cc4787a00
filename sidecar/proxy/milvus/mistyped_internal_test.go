package milvus

import (
	"errors"
	"testing"

	"github.com/milvus-io/milvus-proto/go-api/v2/commonpb"
	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"github.com/milvus-io/milvus-proto/go-api/v2/schemapb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/proxy/routing"
	"github.com/likenessdb/likeness/sidecar/proxy/wire"
	"github.com/likenessdb/likeness/sidecar/search"
)

// mistyped returns a message whose fields at path have another wire type: a number in place of bytes, and bytes in place of a number.
// The path names the messages around the field.
func mistyped(t *testing.T, message []byte, path ...protowire.Number) (out []byte) {
	t.Helper()
	found := false
	for len(message) > 0 {
		number, kind, tag := protowire.ConsumeTag(message)
		size := protowire.ConsumeFieldValue(number, kind, message[tag:])
		if tag < 0 || size < 0 {
			t.Fatalf("%x is no message", message)
		}
		value, field := message[tag:tag+size], message[:tag+size]
		message = message[tag+size:]
		switch {
		case number != path[0]:
			out = append(out, field...)
			continue
		case len(path) > 1:
			inner, _ := protowire.ConsumeBytes(value)
			out = protowire.AppendBytes(protowire.AppendTag(out, number, protowire.BytesType), mistyped(t, inner, path[1:]...))
		case kind == protowire.BytesType:
			out = protowire.AppendVarint(protowire.AppendTag(out, number, protowire.VarintType), 1)
		default:
			out = protowire.AppendBytes(protowire.AppendTag(out, number, protowire.BytesType), []byte{0, 0, 0x80})
		}
		found = true
	}
	if !found {
		t.Fatalf("the message has no field %v", path)
	}
	return out
}

// TestFieldsOfAnotherWireType: a request or an answer whose fields are not of the types that this version knows is not read. Milvus
// may understand it otherwise.
func TestFieldsOfAnotherWireType(t *testing.T) {
	type reader func(message []byte) error
	locates := func(b []byte) error { _, err := locate(b); return err }
	locatesHybrid := func(b []byte) error {
		_, _, err := locateHybrid(b, func(string) bool { return true })
		return err
	}
	maps := func(b []byte) error { _, _, err := mapScores(b, rewrittens(1)); return err }
	rewrites := func(ef uint64) reader {
		return func(b []byte) error {
			all := rewrittens(1)
			all[0].EF = ef
			_, err := rewriteRequest(b, all)
			return err
		}
	}
	request := plainRequest(t, []float32{1, 2})
	request.SearchByPrimaryKeys = false
	answer := results([]int64{1}, 3)
	answer.Results.Distances = []float32{3}
	keyed := append(encoded(t, request), byKeysField<<3&0x7f|0x80, byKeysField>>4, 0)
	for _, c := range []struct {
		name    string
		read    reader
		message []byte
		paths   [][]protowire.Number
	}{
		{"locate", locates, keyed, [][]protowire.Number{{byKeysField}, {countField}, {searchParamsField}, {vectorsField}, {vectorsField, placeholderField}, {vectorsField, placeholderField, typeField}, {vectorsField, placeholderField, valuesField}}},
		{"locateHybrid", locatesHybrid, encoded(t, hybridOf(t, "v0")), [][]protowire.Number{{rankParamsField}, {listsField}, {listsField, vectorsField}, {listsField, searchParamsField}}},
		{"mapScores", maps, encoded(t, answer), [][]protowire.Number{{resultsField}, {resultsField, scoresField}, {resultsField, distancesField}, {resultsField, idsField}}},
		{"rewriteRequest", rewrites(0), encoded(t, request), [][]protowire.Number{{vectorsField}, {vectorsField, placeholderField}}},
	} {
		if err := c.read(c.message); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if err := c.read(append(c.message[:len(c.message):len(c.message)], 0xff)); err == nil {
			t.Errorf("%s reads a message that is cut", c.name)
		}
		for _, path := range c.paths {
			if err := c.read(mistyped(t, c.message, path...)); err == nil {
				t.Errorf("%s reads a message whose field %v has another wire type", c.name, path)
			}
		}
	}
	if err := rewrites(9)(append(encoded(t, request), 0xff)); err == nil {
		t.Error("ef is added to a message that is cut")
	}
	if _, err := readStatus(mistyped(t, encoded(t, &milvuspb.SearchResults{Status: &commonpb.Status{Code: 1}}), 1)); err == nil {
		t.Error("a status of another wire type is read")
	}
	if values, err := appendVarints([]int64{1}, fieldOf(t, protowire.AppendVarint(protowire.AppendTag(nil, lengthsField, protowire.VarintType), 300))); err != nil || len(values) != 2 || values[1] != 300 {
		t.Errorf("a number that is not packed: %v, %v", values, err)
	}
	if _, ok := readColumn([]byte{0x12, 2, 'i', 'd', 0x1a, 1, 0xff}, "id"); ok {
		t.Error("a column that is cut is read")
	}
}

// TestCallsThatCannotBeRead: a call that is not understood passes, and the reason says so.
func TestCallsThatCannotBeRead(t *testing.T) {
	s, up := startScripted(t)
	r := routerOf(t, "", "v0")
	cut := func(m proto.Message) *call {
		c := callOf(t, up, r, "c", m)
		c.raw = append(c.raw, 0xff)
		return c
	}
	whole := callOf(t, up, r, "c", plain(t))
	for name, c := range map[string]struct {
		read  func() (routing.Asked, error)
		want  error
		found int // searches, at most
	}{
		"a search":          {func() (routing.Asked, error) { return cut(plain(t)).Read(t.Context()) }, routing.Pass("malformed"), 0},
		"a hybrid search":   {func() (routing.Asked, error) { return cut(hybridOf(t, "v0")).Read(t.Context()) }, routing.Pass("malformed"), 0},
		"to rewrite":        {func() (routing.Asked, error) { return cut(plain(t)).Locate(t.Context()) }, routing.Pass("not-nearest"), 0},
		"lists to rewrite":  {func() (routing.Asked, error) { return cut(hybridOf(t, "v0")).Locate(t.Context()) }, routing.Pass(passesHybrid), 0},
		"without a schema":  {func() (routing.Asked, error) { return whole.Read(t.Context()) }, routing.Pass("collection"), 0},
		"without its field": {func() (routing.Asked, error) { return whole.Locate(t.Context()) }, routing.Pass("collection"), 1},
	} {
		s.describeAnswer = &milvuspb.DescribeCollectionResponse{Status: &commonpb.Status{Code: 100}}
		if got, err := c.read(); !errors.Is(err, c.want) || len(got.Searches) > c.found {
			t.Errorf("%s: %+v, %v, want %v", name, got, err, c.want)
		}
	}
	if _, _, err := whole.Rewrite(t.Context(), rewrittens(2)); !errors.Is(err, errAnswer) || len(s.searches) > 0 {
		t.Errorf("two vectors for a search of one: %v, sent %v", err, s.searches)
	}
}

// TestConfirmingReadsThatAreNotSent: a request for the hits is sent only where it restricts the caller's own.
func TestConfirmingReadsThatAreNotSent(t *testing.T) {
	s, up := startScripted(t)
	s.searchAnswer = results([]int64{1}, 3)
	r := routerOf(t, "", "v0")
	hit := func(id rerank.ID, limit int) []routing.Ranked {
		return []routing.Ranked{{Limit: limit, Hits: []search.Hit{{ID: id, Score: 9}}}}
	}
	for name, c := range map[string]struct {
		filter string
		hits   []routing.Ranked
		want   error
		sent   int
	}{
		"its own name":       {"n > 1", hit(rerank.IntID(40), 1), nil, 1},
		"too few rows":       {"n > 1", hit(rerank.IntID(40), 2), routing.ErrShort, 1},
		"an open bracket":    {"n > 1) or (n < 2", hit(rerank.IntID(40), 1), errConfirm, 0},
		"no key of Milvus's": {"n > 1", hit(rerank.UintID(1<<63), 1), errConfirm, 0},
	} {
		m := plain(t, "anns_field", "v0")
		m.Dsl = c.filter
		call := callOf(t, up, r, "c", m)
		if _, err := call.Read(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.searches, s.described = nil, nil
		reply, err := call.Confirm(t.Context(), c.hits)
		if !errors.Is(err, c.want) || (err == nil) != (len(reply.Message) > 0) || len(s.searches) != c.sent || len(s.described) > 0 {
			t.Errorf("%s: %v, want %v; %d searches, %d schemas", name, err, c.want, len(s.searches), len(s.described))
		}
	}
}

// TestIgnoredSearches: a search is forwarded before it is read if its collection certainly has no route.
func TestIgnoredSearches(t *testing.T) {
	ignores := routerOf(t, "", "v0").Intercept(nil)[milvuspb.MilvusService_Search_FullMethodName].Ignores
	for name, want := range map[string]bool{"c": false, "": true} {
		if got := ignores(encoded(t, &milvuspb.SearchRequest{CollectionName: name})); got != want {
			t.Errorf("collection %q is ignored: %t", name, got)
		}
	}
}

// TestColumnsWithoutValues: rows are picked from a column without values only if there are none.
func TestColumnsWithoutValues(t *testing.T) {
	scalars := &schemapb.FieldData{Field: &schemapb.FieldData_Scalars{Scalars: &schemapb.ScalarField{}}}
	vectors := &schemapb.FieldData{Field: &schemapb.FieldData_Vectors{Vectors: &schemapb.VectorField{Dim: 2}}}
	for name, c := range map[string]struct {
		column *schemapb.FieldData
		rows   int
		ok     bool
	}{
		"scalars": {scalars, 0, true}, "scalars of two rows": {scalars, 2, false}, "vectors": {vectors, 2, false}, "nothing": {&schemapb.FieldData{}, 0, false},
	} {
		if _, ok := pickField(c.column, nil, c.rows); ok != c.ok {
			t.Errorf("%s: picked %t", name, ok)
		}
	}
}

// fieldOf returns the only field of a message.
func fieldOf(t *testing.T, message []byte) (f wire.Field) {
	t.Helper()
	if err := wire.Walk(message, func(one wire.Field) error { f = one; return nil }); err != nil {
		t.Fatal(err)
	}
	return f
}
