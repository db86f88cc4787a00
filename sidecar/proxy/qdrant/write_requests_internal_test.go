package qdrant

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/follow/journal"
	"github.com/likenessdb/likeness/sidecar/proxy/rest"
	"github.com/likenessdb/likeness/sidecar/proxy/routing"
)

const someUUID = "5c56c793-69f3-4fbf-87e6-c4bf54c28c26"

func pointIDs(all ...uint64) (ids []rerank.ID) {
	for _, n := range all {
		ids = append(ids, rerank.UintID(n))
	}
	return ids
}

// read returns which rows a write changes. Without a Read that is any row, of the kind of the
// request.
func read(t *testing.T, w routing.Writing) routing.Rows {
	t.Helper()
	if w.Read == nil {
		return routing.Rows{All: true}
	}
	return w.Read(t.Context(), adapters.Identity{})
}

// TestWhatARequestOverRESTChanges: the collection, the kind of the change, and the rows, or any row
// if they are unknown.
func TestWhatARequestOverRESTChanges(t *testing.T) {
	const upsert, del, vectors, payload, whole = journal.Upsert, journal.Delete, journal.Vectors, journal.Payload, journal.Collection
	all := routing.Rows{All: true}
	kind := func(k journal.Kind, r routing.Rows) routing.Rows {
		r.Kind = k
		return r
	}
	for _, c := range []struct {
		method, path, body string
		kind               journal.Kind // "": it is no write
		rows               routing.Rows
		several            bool
	}{
		{"PUT", "/collections/c/points", `{"points":[{"id":7,"vector":[1]},{"id":"` + strings.ToUpper(someUUID) + `"}]}`, upsert, kind(upsert, routing.Rows{IDs: append(pointIDs(7), rerank.TextID(someUUID))}), false},
		{"PUT", "/collections/c/points?wait=true", `{"points":[{"id":7},{"id":7}]}`, upsert, kind(upsert, routing.Rows{IDs: pointIDs(7), Waited: true}), false},
		{"PUT", "/collections/c/points?wait=false", `{"batch":{"ids":[1,2],"vectors":[[1],[2]],"payloads":[{},{}]}}`, upsert, kind(upsert, routing.Rows{IDs: pointIDs(1, 2)}), false},
		{"PUT", "//collections//%63/points/", `{"points":[{"id":1}]}`, upsert, kind(upsert, routing.Rows{IDs: pointIDs(1)}), false},
		{"PUT", "/collections/c/points", `{"points":[{"vector":[1]}]}`, upsert, kind(upsert, all), false},
		{"PUT", "/collections/c/points", `{"points":[{"id":1}]} x`, upsert, kind(upsert, all), false},
		{"PUT", "/collections/c/points", `{"points":[{"id":1}],"rows":[2]}`, upsert, kind(upsert, all), false},
		{"PUT", "/collections/c/points", `{"points":[{"id":"{` + someUUID + `}"}]}`, upsert, kind(upsert, routing.Rows{IDs: []rerank.ID{rerank.TextID(someUUID)}}), false},
		{"PUT", "/collections/c/points", `{"points":[{"id":"<` + someUUID + `>"}]}`, upsert, kind(upsert, routing.Rows{All: true}), false},
		{"PUT", "/collections/c/points", `{"batch":{"ids":[1],"rows":[2]}}`, upsert, kind(upsert, all), false},
		{"POST", "/collections/c/points/delete", `{"points":[1]}`, del, kind(del, routing.Rows{IDs: pointIDs(1)}), false},
		{"POST", "/collections/c/points/delete", `{"filter":{"must":[]}}`, del, kind(del, routing.Rows{Filter: `{"must":[]}`}), false},
		{"POST", "/collections/c/points/delete", `{"points":[1],"filter":{}}`, del, kind(del, all), false},
		{"POST", "/collections/c/points/delete", `{"filter":null,"points":[1]}`, del, kind(del, routing.Rows{IDs: pointIDs(1)}), false},
		{"PUT", "/collections/c/points/vectors", `{"points":[{"id":1,"vector":{}}]}`, vectors, kind(vectors, routing.Rows{IDs: pointIDs(1)}), false},
		{"POST", "/collections/c/points/vectors/delete", `{"points":[1],"vector":["a"]}`, vectors, kind(vectors, routing.Rows{IDs: pointIDs(1)}), false},
		{"POST", "/collections/c/points/payload", `{"points":[1],"payload":{},"key":"a","shard_key":1}`, payload, kind(payload, routing.Rows{IDs: pointIDs(1)}), false},
		{"PUT", "/collections/c/points/payload", `{"points":[1],"payload":{}}`, payload, kind(payload, routing.Rows{IDs: pointIDs(1)}), false},
		{"POST", "/collections/c/points/payload/delete", `{"points":[1],"keys":["a"]}`, payload, kind(payload, routing.Rows{IDs: pointIDs(1)}), false},
		{"POST", "/collections/c/points/payload/clear", `{"points":[1]}`, payload, kind(payload, routing.Rows{IDs: pointIDs(1)}), false},
		{"POST", "/collections/c/points/batch", `{"operations":[{"delete":{"points":[1]}},{"delete":{"points":[2]}}]}`, upsert, kind(del, routing.Rows{IDs: pointIDs(1, 2)}), true},
		{"POST", "/collections/c/points/batch", `{"operations":[{"delete_vectors":{"points":[1],"vector":["a"]}},{"update_vectors":{"points":[{"id":2}]}}]}`, upsert, kind(vectors, routing.Rows{IDs: pointIDs(1, 2)}), true},
		{"POST", "/collections/c/points/batch", `{"operations":[{"delete":{"points":[1]}},{"set_payload":{"points":[2],"payload":{}}}]}`, upsert, kind(upsert, routing.Rows{IDs: pointIDs(1, 2)}), true},
		{"POST", "/collections/c/points/batch", `{"operations":[{"delete":{"filter":{}}},{"delete":{"filter":{"a":1}}}]}`, upsert, kind(upsert, all), true},
		{"POST", "/collections/c/points/batch", `{"operations":[{"delete":{"points":[1]}},{"rename":{"points":[2]}}]}`, upsert, kind(upsert, all), true},
		{"POST", "/collections/c/points/batch", `{"operations":[]}`, upsert, kind(upsert, routing.Rows{}), true},
		{"DELETE", "/collections/c/vectors/v", ``, vectors, all, false},
		{"POST", "/collections/c/shards/delete", `{"shard_key":1}`, del, all, false},
		{"POST", "/collections/c/cluster", `{"replicate_points":{}}`, upsert, all, false},
		{"POST", "/collections/c/cluster", `{"drop_sharding_key":{}}`, upsert, all, false},
		{"POST", "/collections/c/cluster", `{"move_shard":{}}`, "", all, false},
		{"PUT", "/collections/c/snapshots/recover", `{}`, whole, routing.Rows{All: true, Waited: true}, true},
		{"PUT", "/collections/c/snapshots/recover?wait=false", `{}`, whole, all, true},
		{"POST", "/collections/c/snapshots/upload", `x`, whole, routing.Rows{All: true, Waited: true}, true},
		{"PUT", "/collections/c/shards/1/snapshots/recover", `{}`, whole, routing.Rows{All: true, Waited: true}, true},
		{"POST", "/collections/c/shards/1/snapshots/upload", `x`, whole, routing.Rows{All: true, Waited: true}, true},
		{"POST", "/collections/c/shards/1/snapshot/partial/recover_from", `{}`, whole, routing.Rows{All: true, Waited: true}, true},
		{"GET", "/collections/c/points", ``, "", all, false},
		{"POST", "/collections/c/points", `{"ids":[1]}`, "", all, false},
		{"POST", "/collections/c/points/scroll", `{}`, "", all, false},
		{"POST", "/collections/c/snapshots", `{}`, "", all, false},
		{"POST", "/collections/c/points/search/", `{}`, "", all, false},
		{"POST", "/collections/c/points/query/groups", `{}`, "", all, false},
		{"POST", "/collections/c/points/search/matrix/pairs", `{}`, "", all, false},
		{"POST", "/collections/c/facet", `{}`, "", all, false},
		{"PATCH", "/collections/c", `{}`, "", all, false},
		{"PUT", "/collections/c/index", `{}`, "", all, false},
		{"DELETE", "/collections/c/index/f", ``, "", all, false},
		{"PUT", "/collections/c/vectors/v", `{}`, "", all, false},
		{"PUT", "/collections/c/shards", `{}`, "", all, false},
		{"DELETE", "/collections/c/snapshots/s", ``, "", all, false},
		{"POST", "/collections/c/shards/0/snapshots", ``, "", all, false},
		{"DELETE", "/collections/c/shards/0/snapshots/s", ``, "", all, false},
		{"POST", "/collections/c/shards/0/snapshot/partial/create", ``, "", all, false},
		{"POST", "/snapshots", ``, "", all, false},
		{"DELETE", "/snapshots/s", ``, "", all, false},
		{"POST", "/locks", `{}`, "", all, false},
	} {
		w := writesREST(httptest.NewRequest(c.method, c.path, nil), []byte(c.body))
		name := fmt.Sprintf("%s %s %s", c.method, c.path, c.body)
		if c.kind == "" {
			if !reflect.DeepEqual(w, routing.Writing{}) {
				t.Errorf("%s is taken for a write: %+v", name, w)
			}
			continue
		}
		if w.Kind != c.kind || len(w.Collections) != 1 || w.Collections[0] != "c" || w.Several != c.several || w.Renamed != nil {
			t.Errorf("%s: %+v", name, w)
		}
		if got := read(t, w); got.All != c.rows.All || got.Kind != c.rows.Kind || got.Filter != c.rows.Filter || got.Waited != c.rows.Waited || !got.All && !equal(got.IDs, c.rows.IDs) {
			t.Errorf("%s: rows %+v, want %+v", name, got, c.rows)
		}
	}
	compressed := httptest.NewRequest(http.MethodPut, "/collections/c/points", nil)
	compressed.Header.Set("Content-Encoding", "gzip")
	if got := read(t, writesREST(compressed, []byte(`{"points":[{"id":1}]}`))); !got.All {
		t.Errorf("a compressed body changes %+v", got)
	}
	for _, method := range []string{http.MethodPut, http.MethodDelete} { // the name may stand for another collection after it
		if w := writesREST(httptest.NewRequest(method, "/collections/c", nil), nil); w.Kind != whole || !reflect.DeepEqual(w.Renamed, []string{"c"}) || !reflect.DeepEqual(w.Collections, []string{"c"}) {
			t.Errorf("%s of a collection: %+v", method, w)
		}
	}
}

// TestRequestsThatAreNotKnown: a request over REST that is not known to read may change anything.
func TestRequestsThatAreNotKnown(t *testing.T) {
	for _, request := range []string{
		"POST /collections/c/truncate", "POST /collections/c/search", "PUT /collections/c/points/search", "DELETE /collections/c/points", "PATCH /collections/c/points",
		"POST /collections/c/snapshots/s", "POST /collections/c/shards/0/truncate", "POST /collections/c/shards/index/x", "DELETE /cluster/peer/1", "PUT /telemetry", "POST /", "FOO /collections/c",
		"POST /collections%2Fc%2Fpoints%2Fsearch",
	} {
		method, path, _ := strings.Cut(request, " ")
		want := routing.AnyWrite(request)
		if got := writesREST(httptest.NewRequest(method, path, nil), nil); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", request, got, want)
		}
	}
}

func equal(a, b []rerank.ID) bool { return len(a) == 0 && len(b) == 0 || reflect.DeepEqual(a, b) }

// TestWhatAnEndedCallDoesNotRead: reading stops when the call ends, and any row counts as changed.
func TestWhatAnEndedCallDoesNotRead(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	w := writesREST(httptest.NewRequest(http.MethodPut, "/collections/c/points", nil), []byte(`{"points":[{"id":1}]}`))
	if got := w.Read(ended, adapters.Identity{}); !got.All {
		t.Errorf("rows %+v", got)
	}
}

// TestAliasesThatAreRenamed: each name that an action may change, or every name if an action is
// unknown.
func TestAliasesThatAreRenamed(t *testing.T) {
	for body, want := range map[string]routing.Writing{
		`{"actions":[{"create_alias":{"collection_name":"x","alias_name":"a"}},{"delete_alias":{"alias_name":"b"}}]}`: {Renamed: []string{"a", "b"}},
		`{"actions":[{"rename_alias":{"old_alias_name":"a","new_alias_name":"b"}}]}`:                                  {Renamed: []string{"a", "b"}},
		`{"actions":[{"swap_alias":{"alias_name":"a"}}]}`:                                                             {Everywhere: true},
		`{`: {Everywhere: true},
	} {
		got := writesREST(httptest.NewRequest(http.MethodPost, "/collections/aliases", nil), []byte(body))
		if want.Kind, want.Several = journal.Collection, true; !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", body, got, want)
		}
	}
	grpc, err := proto.Marshal(&qdrant.ChangeAliases{Actions: []*qdrant.AliasOperations{
		{Action: &qdrant.AliasOperations_RenameAlias{RenameAlias: &qdrant.RenameAlias{OldAliasName: "a", NewAliasName: "b"}}},
		{Action: &qdrant.AliasOperations_CreateAlias{CreateAlias: &qdrant.CreateAlias{AliasName: "d", CollectionName: "c"}}},
		{Action: &qdrant.AliasOperations_DeleteAlias{DeleteAlias: &qdrant.DeleteAlias{AliasName: "e"}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(readAliases(grpc).Renamed, " ")
	for _, name := range []string{"a", "b", "d", "e"} {
		if !strings.Contains(got, name) {
			t.Errorf("renamed are %q, without %s", got, name)
		}
	}
	if w := readAliases([]byte{0xff}); !w.Everywhere || !w.Several {
		t.Errorf("an unread request: %+v", w)
	}
}

// TestWhatAnAnswerOverRESTSays: a write that changed nothing need not be followed; a write that may
// have changed something must be.
func TestWhatAnAnswerOverRESTSays(t *testing.T) {
	problem := func(text string) []byte { return fmt.Appendf(nil, `{"status":{"error":%q},"time":0}`, text) }
	const none, failed, unknown, answered = routing.Refused, routing.Failed, routing.Unknown, routing.Answered
	for name, c := range map[string]struct {
		ending       rest.Ending
		one, several routing.WriteOutcome
	}{
		"done":                  {rest.Ending{Status: 200}, answered, answered},
		"not sent":              {rest.Ending{Unsent: true}, none, none},
		"cut off":               {rest.Ending{}, unknown, unknown},
		"500":                   {rest.Ending{Status: 500, Problem: problem("x")}, unknown, unknown},
		"503":                   {rest.Ending{Status: 503}, unknown, unknown},
		"401":                   {rest.Ending{Status: 401}, none, none},
		"413":                   {rest.Ending{Status: 413}, none, none},
		"422":                   {rest.Ending{Status: 422, Problem: problem("Validation error")}, none, none},
		"400 without a text":    {rest.Ending{Status: 400}, none, none},
		"400 of the format":     {rest.Ending{Status: 400, Problem: problem("Format error in JSON body: x")}, none, none},
		"400 of the content":    {rest.Ending{Status: 400, Problem: problem("Deserialize error in x")}, none, none},
		"400":                   {rest.Ending{Status: 400, Problem: problem("Bad request: x")}, none, failed},
		"400 of some shards":    {rest.Ending{Status: 400, Problem: problem("Bad request: 1 of 2 shards failed to apply")}, failed, failed},
		"400 of a row":          {rest.Ending{Status: 400, Problem: problem("Wrong input: a row")}, failed, failed},
		"404 of the path":       {rest.Ending{Status: 404}, none, none},
		"404 of a collection":   {rest.Ending{Status: 404, Problem: problem("Not found: Collection `c` doesn't exist!")}, none, failed},
		"404 of a row":          {rest.Ending{Status: 404, Problem: problem("Not found: No point with id 3 found")}, failed, failed},
		"409":                   {rest.Ending{Status: 409, Problem: problem("Already exists")}, none, failed},
		"429":                   {rest.Ending{Status: 429, Problem: problem("Rate limit")}, failed, failed},
		"a status without JSON": {rest.Ending{Status: 400, Problem: []byte("nginx")}, none, none},
	} {
		if one, several := outcomeREST(c.ending, false), outcomeREST(c.ending, true); one != c.one || several != c.several {
			t.Errorf("%s: outcome %v of one operation and %v of several, want %v and %v", name, one, several, c.one, c.several)
		}
	}
	for code, want := range map[codes.Code]routing.WriteOutcome{
		codes.Canceled: unknown, codes.DeadlineExceeded: unknown, codes.Unavailable: unknown, codes.Unknown: unknown, codes.Internal: unknown,
		codes.Unauthenticated: none, codes.ResourceExhausted: failed, codes.FailedPrecondition: failed,
	} {
		if got := outcome(status.Error(code, ""), false); got != want {
			t.Errorf("gRPC, %s: outcome %v, want %v", code, got, want)
		}
	}
	if got := outcome(nil, true); got != answered {
		t.Errorf("gRPC, done: outcome %v", got)
	}
}

// TestWhatACallChanges: the rows that a gRPC request names, or any row if they are unknown.
func TestWhatACallChanges(t *testing.T) {
	id := qdrant.NewIDNum(1)
	ids := qdrant.NewPointsSelector(id, qdrant.NewIDNum(2))
	filter := qdrant.NewPointsSelectorFilter(&qdrant.Filter{Must: []*qdrant.Condition{qdrant.NewHasID(id)}})
	empty := qdrant.NewPointsSelectorFilter(&qdrant.Filter{})
	wait := true
	const del, vectors, payload, upsert = journal.Delete, journal.Vectors, journal.Payload, journal.Upsert
	ops := func(all ...*qdrant.PointsUpdateOperation) *qdrant.UpdateBatchPoints {
		return &qdrant.UpdateBatchPoints{CollectionName: "c", Operations: all}
	}
	deletes := func(s *qdrant.PointsSelector) *qdrant.PointsUpdateOperation {
		return &qdrant.PointsUpdateOperation{Operation: &qdrant.PointsUpdateOperation_DeletePoints_{DeletePoints: &qdrant.PointsUpdateOperation_DeletePoints{Points: s}}}
	}
	upserts := &qdrant.PointsUpdateOperation{Operation: &qdrant.PointsUpdateOperation_Upsert{Upsert: &qdrant.PointsUpdateOperation_PointStructList{Points: []*qdrant.PointStruct{{Id: qdrant.NewIDNum(3)}}}}}
	updates := &qdrant.PointsUpdateOperation{Operation: &qdrant.PointsUpdateOperation_UpdateVectors_{UpdateVectors: &qdrant.PointsUpdateOperation_UpdateVectors{Points: []*qdrant.PointVectors{{Id: qdrant.NewIDNum(4)}}}}}
	loses := &qdrant.PointsUpdateOperation{Operation: &qdrant.PointsUpdateOperation_DeleteVectors_{DeleteVectors: &qdrant.PointsUpdateOperation_DeleteVectors{PointsSelector: ids}}}
	for name, c := range map[string]struct {
		method  string
		request proto.Message
		more    []byte // behind the request
		rows    routing.Rows
		several bool
	}{
		"upsert": {qdrant.Points_Upsert_FullMethodName, &qdrant.UpsertPoints{CollectionName: "c", Wait: &wait, Points: []*qdrant.PointStruct{{Id: id}, {Id: qdrant.NewID(someUUID)}}}, nil,
			routing.Rows{Kind: upsert, IDs: append(pointIDs(1), rerank.TextID(someUUID)), Waited: true}, false},
		"upsert without an id": {qdrant.Points_Upsert_FullMethodName, &qdrant.UpsertPoints{CollectionName: "c", Points: []*qdrant.PointStruct{{}}}, nil, routing.Rows{Kind: upsert, All: true}, false},
		"upsert with an empty id": {qdrant.Points_Upsert_FullMethodName, &qdrant.UpsertPoints{CollectionName: "c", Points: []*qdrant.PointStruct{{Id: &qdrant.PointId{}}}}, nil,
			routing.Rows{Kind: upsert, All: true}, false},
		"upsert of a newer client": {qdrant.Points_Upsert_FullMethodName, &qdrant.UpsertPoints{CollectionName: "c", Points: []*qdrant.PointStruct{{Id: id}}}, unknownField(),
			routing.Rows{Kind: upsert, All: true}, false},
		"update":                  {qdrant.Points_UpdateVectors_FullMethodName, &qdrant.UpdatePointVectors{CollectionName: "c", Points: []*qdrant.PointVectors{{Id: id}}}, nil, routing.Rows{Kind: vectors, IDs: pointIDs(1)}, false},
		"delete":                  {qdrant.Points_Delete_FullMethodName, &qdrant.DeletePoints{CollectionName: "c", Points: ids}, nil, routing.Rows{Kind: del, IDs: pointIDs(1, 2)}, false},
		"delete by filter":        {qdrant.Points_Delete_FullMethodName, &qdrant.DeletePoints{CollectionName: "c", Points: filter}, nil, routing.Rows{Kind: del, Filter: `{"must":[{"has_id":[1]}]}`}, false},
		"delete all":              {qdrant.Points_Delete_FullMethodName, &qdrant.DeletePoints{CollectionName: "c", Points: empty}, nil, routing.Rows{Kind: del, Filter: `{}`}, false},
		"delete nothing":          {qdrant.Points_Delete_FullMethodName, &qdrant.DeletePoints{CollectionName: "c"}, nil, routing.Rows{Kind: del, All: true}, false},
		"an empty selector":       {qdrant.Points_Delete_FullMethodName, &qdrant.DeletePoints{CollectionName: "c", Points: &qdrant.PointsSelector{}}, nil, routing.Rows{Kind: del, All: true}, false},
		"of a newer client":       {qdrant.Points_Delete_FullMethodName, &qdrant.DeletePoints{CollectionName: "c", Points: ids}, unknownField(), routing.Rows{Kind: del, All: true}, false},
		"delete vectors":          {qdrant.Points_DeleteVectors_FullMethodName, &qdrant.DeletePointVectors{CollectionName: "c", PointsSelector: ids}, nil, routing.Rows{Kind: vectors, IDs: pointIDs(1, 2)}, false},
		"set payload":             {qdrant.Points_SetPayload_FullMethodName, &qdrant.SetPayloadPoints{CollectionName: "c", PointsSelector: ids}, nil, routing.Rows{Kind: payload, IDs: pointIDs(1, 2)}, false},
		"overwrite payload":       {qdrant.Points_OverwritePayload_FullMethodName, &qdrant.SetPayloadPoints{CollectionName: "c", PointsSelector: ids}, nil, routing.Rows{Kind: payload, IDs: pointIDs(1, 2)}, false},
		"delete payload":          {qdrant.Points_DeletePayload_FullMethodName, &qdrant.DeletePayloadPoints{CollectionName: "c", PointsSelector: ids}, nil, routing.Rows{Kind: payload, IDs: pointIDs(1, 2)}, false},
		"clear payload":           {qdrant.Points_ClearPayload_FullMethodName, &qdrant.ClearPayloadPoints{CollectionName: "c", Points: ids}, nil, routing.Rows{Kind: payload, IDs: pointIDs(1, 2)}, false},
		"batch of one":            {qdrant.Points_UpdateBatch_FullMethodName, ops(deletes(ids)), nil, routing.Rows{Kind: del, IDs: pointIDs(1, 2)}, false},
		"batch of two":            {qdrant.Points_UpdateBatch_FullMethodName, ops(deletes(ids), deletes(ids)), nil, routing.Rows{Kind: del, IDs: pointIDs(1, 2)}, true},
		"batch of vectors":        {qdrant.Points_UpdateBatch_FullMethodName, ops(updates, loses), nil, routing.Rows{Kind: vectors, IDs: pointIDs(4, 1, 2)}, true},
		"mixed batch":             {qdrant.Points_UpdateBatch_FullMethodName, ops(deletes(ids), upserts), nil, routing.Rows{Kind: upsert, IDs: pointIDs(1, 2, 3)}, true},
		"two filters":             {qdrant.Points_UpdateBatch_FullMethodName, ops(deletes(filter), deletes(filter)), nil, routing.Rows{Kind: del, All: true}, true},
		"ids and a filter":        {qdrant.Points_UpdateBatch_FullMethodName, ops(deletes(filter), deletes(ids)), nil, routing.Rows{Kind: del, All: true}, true},
		"batch of a newer client": {qdrant.Points_UpdateBatch_FullMethodName, ops(deletes(ids)), unknownField(), routing.Rows{Kind: upsert, All: true}, false},
		"an empty batch":          {qdrant.Points_UpdateBatch_FullMethodName, ops(), nil, routing.Rows{Kind: upsert}, false},
	} {
		b, err := proto.Marshal(c.request)
		if err != nil {
			t.Fatal(err)
		}
		b = append(b, c.more...)
		m := rowWrites[c.method]
		rows := &touched{kind: m.kind}
		m.read(b, rows)
		got := rows.rows(waits(b))
		if got.All != c.rows.All || got.Kind != c.rows.Kind || got.Filter != c.rows.Filter || got.Waited != c.rows.Waited || !got.All && !equal(got.IDs, c.rows.IDs) {
			t.Errorf("%s: rows %+v, want %+v", name, got, c.rows)
		}
		if several := operations(b) > 1; c.method == qdrant.Points_UpdateBatch_FullMethodName && several != c.several {
			t.Errorf("%s: of several operations: %t", name, several)
		}
	}
	var all touched
	readAll(nil, &all)
	if !all.all {
		t.Error("a vector that is dropped changes no row")
	}
}

// unknownField is a field that this build does not know.
func unknownField() []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, 1000, protowire.VarintType), 1)
}

// TestTheLastIDCounts: of a protobuf oneof that is given twice the last value counts, as Qdrant
// reads it.
func TestTheLastIDCounts(t *testing.T) {
	number := protowire.AppendVarint(protowire.AppendTag(nil, numberField, protowire.VarintType), 7)
	text := protowire.AppendString(protowire.AppendTag(nil, uuidField, protowire.BytesType), someUUID)
	for name, c := range map[string]struct {
		b    []byte
		want rerank.ID
	}{"a number": {append(append([]byte{}, text...), number...), rerank.UintID(7)}, "a text": {append(append([]byte{}, number...), text...), rerank.TextID(someUUID)}} {
		var rows touched
		if !rows.pointID(c.b) || len(rows.ids) != 1 || rows.ids[0] != c.want || rows.all {
			t.Errorf("%s is last: %v", name, rows.ids)
		}
	}
}

// TestChangesOfAClusterThatChangeRows: dropping a shard key, replicating points, and requests that
// cannot be read.
func TestChangesOfAClusterThatChangeRows(t *testing.T) {
	for name, c := range map[string]struct {
		request *qdrant.UpdateCollectionClusterSetupRequest
		changes bool
	}{
		"move":      {&qdrant.UpdateCollectionClusterSetupRequest{Operation: &qdrant.UpdateCollectionClusterSetupRequest_MoveShard{MoveShard: &qdrant.MoveShard{}}}, false},
		"drop":      {&qdrant.UpdateCollectionClusterSetupRequest{Operation: &qdrant.UpdateCollectionClusterSetupRequest_DeleteShardKey{DeleteShardKey: &qdrant.DeleteShardKey{}}}, true},
		"replicate": {&qdrant.UpdateCollectionClusterSetupRequest{Operation: &qdrant.UpdateCollectionClusterSetupRequest_ReplicatePoints{ReplicatePoints: &qdrant.ReplicatePoints{}}}, true},
		"unknown":   {&qdrant.UpdateCollectionClusterSetupRequest{}, true},
	} {
		c.request.CollectionName = "c"
		b, err := proto.Marshal(c.request)
		if err != nil {
			t.Fatal(err)
		}
		if w := readCluster(b); (len(w.Collections) == 1) != c.changes || c.changes && (w.Kind != journal.Upsert || w.Collections[0] != "c") {
			t.Errorf("%s: %+v", name, w)
		}
	}
}
