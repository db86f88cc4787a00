package qdrant_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	client "github.com/qdrant/go-client/qdrant"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/internal/cost"
	"github.com/likenessdb/likeness/sidecar/proxy/qdrant"
	"github.com/likenessdb/likeness/sidecar/proxy/rest"
	"github.com/likenessdb/likeness/sidecar/route"
)

// Bounds on the memory for reading a request. The limits on decoded contents allow for the fixed
// part.
var (
	searchCost = cost.Bound{Fixed: 1 << 20, PerByte: 8}
	writeCost  = cost.Bound{Fixed: 1 << 20, PerByte: 8}
	// messageCost bounds a decodable gRPC search: its messages and fields, decoded.
	messageCost = cost.Bound{Fixed: 24 << 20, PerByte: 8}
)

// jsonFamilies are values that are as hard to read as JSON can be, and as searches can be.
func jsonFamilies() map[string]cost.Family {
	families := cost.JSON()
	families["deep prefetch"] = cost.Nested(`{"prefetch":`, "{}", "}")
	families["deep lists"] = cost.Nested(`{"prefetch":[`, "{}", "]}")
	families["wide prefetch"] = cost.Repeated(`{"prefetch":[`, cost.Constant(`{"query":[1,2],"params":{"exact":true}}`), "]}")
	families["deep and wide"] = cost.Nested(`{"prefetch":[{"filter":"`+strings.Repeat("x", 512)+`"},`, "{}", "]}")
	families["nested queries"] = cost.Nested(`{"nearest":`, "[1]", "}")
	return families
}

// strangerCost bounds the request of a caller whom the database has not accepted: it costs the
// digest of the credential, whatever the length of the request.
var strangerCost = cost.Bound{Fixed: 16 << 10}

// Nothing of a request is read before the database has accepted its caller.
func TestCostOfAStranger(t *testing.T) {
	refuses := func(context.Context, string, []byte) rest.Answer { return rest.Answer{Status: http.StatusForbidden} }
	routers := map[string]*qdrant.Router{"rescored": router(t, adapters.Cosine, route.FailOpen, found), "rewritten": rewriter(t)}
	routers["followed"], _ = following(t)
	for kind, r := range routers {
		for family, input := range jsonFamilies() {
			for _, path := range []string{"query", "search/batch", "delete", "batch", "payload"} {
				in := httptest.NewRequest(http.MethodPost, "/collections/c/points/"+path, nil)
				cost.Linear(t, kind+", "+path+", "+family, strangerCost, input, func(body []byte) {
					if reply := r.InterceptREST(in, body, refuses); reply.Ended != nil {
						reply.Ended(rest.Ending{Status: http.StatusForbidden})
					}
				})
			}
		}
	}
}

// Searches over REST, whatever is in them, take memory in proportion to their length.
func TestCostOfSearchesREST(t *testing.T) {
	forward := func(context.Context, string, []byte) rest.Answer { return rest.Answer{Status: http.StatusForbidden} }
	routers := []*qdrant.Router{accepted(router(t, adapters.Cosine, route.FailOpen, found)), accepted(rewriter(t))}
	places := map[string]struct{ before, after string }{
		"query": {"", ""}, "query/prefetch": {`{"query":[1,2],"prefetch":`, "}"}, "query/filter": {`{"query":[1,2],"filter":`, "}"},
		"query/params": {`{"query":[1,2],"params":`, "}"}, "query/query": {`{"query":`, "}"}, "query/using": {`{"query":[1,2],"using":`, "}"},
		"query/with_payload": {`{"query":[1,2],"with_payload":`, "}"}, "query/batch": {`{"searches":`, "}"},
		"query/fusion": {`{"query":{"fusion":"rrf"},"prefetch":`, "}"},
		"search":       {"", ""}, "search/vector": {`{"vector":`, "}"}, "search/limit": {`{"vector":[1,2],"limit":`, "}"}, "search/batch": {`{"searches":`, "}"},
	}
	for place, text := range places {
		path := place
		if kind, what, ok := strings.Cut(place, "/"); ok && what != "batch" {
			path = kind
		}
		for family, input := range jsonFamilies() {
			cost.Linear(t, place+", "+family, searchCost, func(length int) []byte {
				return append(append([]byte(text.before), input(length)...), text.after...)
			}, func(body []byte) {
				for _, r := range routers {
					r.InterceptREST(httptest.NewRequest(http.MethodPost, "/collections/c/points/"+path, nil), body, forward)
				}
			})
		}
	}
}

// So do writes that are followed.
func TestCostOfWritesREST(t *testing.T) {
	r, _ := following(t)
	families := jsonFamilies()
	families["ids"] = cost.Repeated("[", strconv.Itoa, "]")
	families["equal ids"] = cost.Repeated("[", cost.Constant("1"), "]")
	families["points"] = cost.Repeated("[", cost.Constant(`{"id":1}`), "]")
	families["filters"] = cost.Repeated("[", cost.Constant(`{"delete":{"filter":{}}}`), "]")
	families["deletes"] = cost.Repeated("[", cost.Constant(`{"delete":{"points":[1]}}`), "]")
	for path, key := range map[string]string{"points/delete": "points", "points/batch": "operations", "points/payload": "filter"} {
		for family, input := range families {
			cost.Linear(t, path+", "+family, writeCost, func(length int) []byte {
				return fmt.Appendf(nil, `{"%s":%s}`, key, input(length))
			}, func(body []byte) {
				r.InterceptREST(httptest.NewRequest(http.MethodPost, "/collections/c/"+path, nil), body, nil)
			})
		}
	}
	cost.Linear(t, "a path of slashes", writeCost, func(length int) []byte { return bytes.Repeat([]byte("/a"), length/2) }, func(path []byte) {
		in := httptest.NewRequest(http.MethodPost, "/collections/c/points/delete", nil)
		in.URL.Path = "/collections/c" + string(path)
		r.InterceptREST(in, nil, nil)
	})
}

// field encodes a field with a length.
func field(number protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), value)
}

// routed puts the name of the routed collection before what repeats part.
func routed(part []byte) func(length int) []byte {
	return func(length int) []byte { return append([]byte("\x0a\x01c"), bytes.Repeat(part, length/len(part))...) }
}

// levels nests a message in itself, deeper than any decoder goes, by the fields on the way
// from one to the next.
func levels(outer protowire.Number, way ...protowire.Number) func(length int) []byte {
	var b []byte
	for range 10_100 {
		for _, number := range way {
			b = field(number, b)
		}
	}
	b = append([]byte("\x0a\x01c"), field(outer, b)...)
	return func(length int) []byte { return append(bytes.Clone(b), make([]byte, max(0, length-len(b)))...) }
}

// Calls of gRPC, whatever is in them, take memory in proportion to their length.
func TestCostOfCallsGRPC(t *testing.T) {
	searches, rewritten := accepted(router(t, adapters.Cosine, route.FailOpen, found)).Intercept(nil), accepted(rewriter(t)).Intercept(nil)
	writes, _ := following(t)
	follows := writes.Intercept(nil)
	families := map[string]func(length int) []byte{
		"empty text": routed([]byte("\x0a\x00")), "unknown fields": routed([]byte("\xf8\x07\x00")), "zeros": func(n int) []byte { return make([]byte, n) },
		"empty messages in field 2": routed(field(2, nil)), "in field 3": routed(field(3, nil)), "in field 4": routed(field(4, nil)),
		"in field 5": routed(field(5, nil)), "in field 9": routed(field(9, nil)),
		"messages of an empty message": routed(field(2, field(3, nil))),
		"conditions":                   func(n int) []byte { return append([]byte("\x0a\x01c"), field(3, bytes.Repeat(field(2, nil), n/2))...) },
		"conditions of a query":        func(n int) []byte { return append([]byte("\x0a\x01c"), field(5, bytes.Repeat(field(2, nil), n/2))...) },
		"ids of a selector": func(n int) []byte {
			return append([]byte("\x0a\x01c"), field(3, field(1, bytes.Repeat(field(1, nil), n/2)))...)
		},
		"numbers of a selector": func(n int) []byte {
			return append([]byte("\x0a\x01c"), field(3, field(1, bytes.Repeat(field(1, []byte{8, 1}), n/4)))...)
		},
		"points of a number":                 routed(field(3, field(1, []byte{8, 1}))),
		"operations that delete":             routed(field(3, field(9, field(1, field(1, field(1, []byte{8, 1})))))),
		"operations of empty messages":       routed(field(3, field(3, bytes.Repeat(field(1, nil), 100)))),
		"filters in filters":                 levels(3, 1, 3),
		"prefetches in prefetches":           levels(2, 1),
		"vectors of numbers that are packed": func(n int) []byte { return append([]byte("\x0a\x01c"), field(2, make([]byte, n/4*4))...) },
		"numbers that are not packed":        routed([]byte("\x15\x00\x00\x00\x00")),
	}
	for family, input := range families {
		for _, method := range []string{
			client.Points_Search_FullMethodName, client.Points_SearchBatch_FullMethodName, client.Points_Query_FullMethodName, client.Points_QueryBatch_FullMethodName,
		} {
			cost.Linear(t, method+", "+family, messageCost, input, func(b []byte) {
				searches[method].Answer(t.Context(), b)
				rewritten[method].Answer(t.Context(), b)
			})
		}
		for method, follow := range follows {
			if follow.MustRead {
				cost.Linear(t, method+", "+family, writeCost, input, func(b []byte) { follow.Answer(t.Context(), b) })
			}
		}
	}
}

// What is beyond the limits of a reader goes to the database as it came, and says why.
func TestBeyondTheLimits(t *testing.T) {
	r := accepted(router(t, adapters.Cosine, route.FailOpen, found))
	keys := cost.Repeated("{", func(i int) string { return fmt.Sprintf(`"k%d":0`, i) }, "}")
	prefetch := func(levels int) string {
		return `{"query":[1,2],"prefetch":` + strings.Repeat(`{"prefetch":`, levels-1) + "{}" + strings.Repeat("}", levels)
	}
	search := func(n int) string {
		return `{"searches":[` + strings.Repeat(`{"vector":[1,2],"limit":1},`, n-1) + `{"vector":[1,2],"limit":1}]}`
	}
	for name, tc := range map[string]struct{ path, body, reason string }{
		"many keys":       {"search", string(keys(1 << 20)), "unknown-field"},
		"levels":          {"query", prefetch(9), "prefetch"},
		"fewer levels":    {"query", prefetch(8), "prefetch"}, // the route does not take any
		"elements":        {"query", `{"query":[1,2],"prefetch":[` + strings.Repeat("{},", 256) + "{}]}", "prefetch"},
		"searches":        {"search/batch", search(257), "batch"},
		"numbers":         {"search", `{"limit":1,"vector":[` + strings.Repeat("0,", 1<<16) + "0]}", "not-nearest"},
		"a second vector": {"search", `{"limit":1,"vector":[1,2],"vector":[1,2]}`, "malformed"},
	} {
		in := httptest.NewRequest(http.MethodPost, "/collections/c/points/"+tc.path, nil)
		reply := r.InterceptREST(in, []byte(tc.body), func(context.Context, string, []byte) rest.Answer { panic("nothing is asked") })
		if reply.Answer != nil || reply.Status != "passed; reason="+tc.reason {
			t.Errorf("%s: %+v, want %s", name, reply, tc.reason)
		}
	}
	methods := r.Intercept(nil)
	empty := bytes.Repeat(field(2, nil), 1<<14)
	for name, tc := range map[string]struct {
		body   []byte
		reason string
	}{
		"more messages than are decoded":  {append(bytes.Clone(empty), field(2, nil)...), "size"},
		"more searches than are answered": {empty[:2*257], "batch"},
	} {
		reply := methods[client.Points_SearchBatch_FullMethodName].Answer(t.Context(), append([]byte("\x0a\x01c"), tc.body...))
		if got := reply.Trailer.Get("likeness-status"); reply.Message != nil || reply.Err != nil || len(got) != 1 || got[0] != "passed; reason="+tc.reason {
			t.Errorf("%s: %+v, want %s", name, reply, tc.reason)
		}
	}
}
