package proxy_test

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/sidecar/proxy"
	router "github.com/likenessdb/likeness/sidecar/proxy/qdrant"
)

// qdrantToken is a token of a Qdrant with the API key "secret".
func qdrantToken(access string) string {
	encode := base64.RawURLEncoding.EncodeToString
	text := encode([]byte(`{"alg":"HS256","typ":"JWT"}`)) + "." + encode([]byte(`{"access":`+access+`}`))
	mac := hmac.New(sha256.New, []byte("secret"))
	_, _ = mac.Write([]byte(text))
	return text + "." + encode(mac.Sum(nil))
}

// guarded is a Qdrant with an API key, a read-only key and tokens.
var guarded = servers.Options{APIKey: "secret", Env: []string{
	"QDRANT__SERVICE__JWT_RBAC=true", "QDRANT__SERVICE__READ_ONLY_API_KEY=to-read",
}}

// strangers are the credentials of callers who may not write to the routed collection.
func strangers() map[string]string {
	return map[string]string{
		"no key": "", "a wrong key": "wrong", "a key to read": "to-read", "a token to read": qdrantToken(`"r"`),
		"a token to read the collection": qdrantToken(`[{"collection":"routed","access":"r"}]`),
		"a token of another collection":  qdrantToken(`[{"collection":"unrouted","access":"rw"}]`),
	}
}

// TestQdrantRefusesStrangers: the writes of a caller whom Qdrant refuses are not followed, over
// either interface.
func TestQdrantRefusesStrangers(t *testing.T) {
	eachQdrant(t, guarded, func(t *testing.T, s *servers.Server) {
		f := &recorder{}
		at := start(t, proxy.Options{
			GRPC: proxy.Endpoint{Upstream: s.Address}, REST: proxy.Endpoint{Upstream: s.REST},
			Router: router.New(followed(t, openQdrant(t, s, "secret"), f)),
		})
		conn, base := dial(t, at.GRPC), "http://"+at.REST
		create := step{"PUT", "/collections/{c}", `{"vectors":{"a":{"size":2,"distance":"Dot"},"b":{"size":1,"distance":"Dot"}}}`}
		create.do(t, base, "routed", "secret")
		create.do(t, base, "unrouted", "secret")
		f.take(t)
		told := f.told()
		for who, key := range strangers() {
			for _, c := range restWriteCases {
				got := c.do(t, base, "routed", key)
				if begun, _ := f.take(t); len(begun) > 0 {
					t.Errorf("%s: %s %s: %d %s\nbelieved %+v", who, c.method, c.path, got.status, got.body, begun)
				}
			}
			for _, c := range qdrantWrites() {
				_, st := c.do(t, conn, "routed", key)
				if begun, _ := f.take(t); len(begun) > 0 {
					t.Errorf("%s: %s %v: %v\nbelieved %+v", who, c.method, c.request, st, begun)
				}
			}
		}
		if n := f.told() - told; n > 0 {
			t.Errorf("the follower was told of %d writes of strangers", n)
		}
		(step{"DELETE", "/collections/{c}", ""}).do(t, base, "routed", "secret")
		if begun, _ := f.take(t); len(begun) != 1 {
			t.Errorf("a write that Qdrant carried out: %+v", begun)
		}
	})
}

// TestAStrangerWhoLeaves: a write without the right to write is not followed if the caller leaves
// at once, or does not send all of it.
func TestAStrangerWhoLeaves(t *testing.T) {
	s := servers.QdrantForTest(t, servers.QdrantNewest, guarded)
	f := &recorder{}
	at := start(t, proxy.Options{
		GRPC: proxy.Endpoint{Upstream: s.Address}, REST: proxy.Endpoint{Upstream: s.REST},
		Router: router.New(followed(t, openQdrant(t, s, "secret"), f)),
	})
	before := f.told()
	for _, request := range []string{
		"DELETE /collections/routed HTTP/1.1\r\nHost: h\r\n\r\n",
		"POST /collections/routed/points/delete HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
		"PUT /collections/routed/points HTTP/1.1\r\nHost: h\r\nContent-Type: multipart/x\r\nContent-Length: 9000000\r\n\r\n{",
		"POST /collections/routed/snapshots/upload HTTP/1.1\r\nHost: h\r\nContent-Type: multipart/form-data; boundary=x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n--x\r\n",
	} {
		for range 20 {
			conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", at.REST)
			if err != nil {
				t.Fatal(err)
			}
			_, err = conn.Write([]byte(request))
			if err != nil || conn.Close() != nil {
				t.Fatal(err)
			}
		}
	}
	for range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		_, err := qdrant.NewCollectionsClient(dial(t, at.GRPC)).Delete(ctx, &qdrant.DeleteCollection{CollectionName: "routed"})
		if err == nil {
			t.Fatal("a stranger deleted a collection")
		}
		cancel()
	}
	(step{"DELETE", "/collections/{c}", ""}).do(t, "http://"+at.REST, "routed", "secret")
	if begun, _ := f.take(t); len(begun) != 1 || f.told() != before+1 { // for the caller with the key
		t.Errorf("believed %+v, told of %d", begun, f.told()-before)
	}
}

// TestADatabaseThatIsDown: a write that did not reach the database is not followed.
func TestADatabaseThatIsDown(t *testing.T) {
	f := &recorder{}
	at := start(t, proxy.Options{
		GRPC: proxy.Endpoint{Upstream: "127.0.0.1:1"}, REST: proxy.Endpoint{Upstream: "http://127.0.0.1:1"},
		Router: router.New(followed(t, nil, f)),
	})
	(step{"DELETE", "/collections/{c}", ""}).do(t, "http://"+at.REST, "routed", "")
	if _, err := qdrant.NewCollectionsClient(dial(t, at.GRPC)).Delete(t.Context(), &qdrant.DeleteCollection{CollectionName: "routed"}); status.Code(err) != codes.Unavailable {
		t.Fatal(err)
	}
	if begun, _ := f.take(t); len(begun) > 0 {
		t.Errorf("believed %+v", begun)
	}
}

// TestPartOfAWrite: Qdrant refuses one row, or one operation, of several, and has
// changed those before it.
func TestPartOfAWrite(t *testing.T) {
	eachQdrant(t, servers.Options{}, func(t *testing.T, s *servers.Server) {
		f := &recorder{}
		at := start(t, proxy.Options{
			GRPC: proxy.Endpoint{Upstream: s.Address}, REST: proxy.Endpoint{Upstream: s.REST}, Router: router.New(followed(t, openQdrant(t, s, ""), f)),
		})
		base := "http://" + at.REST
		(step{"PUT", "/collections/{c}", `{"vectors":{"size":2,"distance":"Dot"}}`}).do(t, base, "routed", "")
		(step{"PUT", "/collections/{c}/points?wait=true", `{"points":[{"id":1,"vector":[1,2]},{"id":2,"vector":[1,2]}]}`}).do(t, base, "routed", "")
		f.take(t)
		for _, c := range []step{
			{"PUT", "/collections/{c}/points?wait=true", `{"points":[{"id":5,"vector":[1,2]},{"id":6,"vector":[1,2,3]}]}`},
			{"POST", "/collections/{c}/points/payload?wait=true", `{"payload":{"n":1},"points":[1,999]}`},
			{"POST", "/collections/{c}/points/batch?wait=true", `{"operations":[{"delete":{"points":[1]}},{"upsert":{"points":[{"id":7,"vector":[1]}]}}]}`},
			{"POST", "/collections/{c}/points/batch?wait=true", `{"operations":[{"delete":{"points":[2]}},{"delete":{"points":[]}}]}`},
		} {
			got := c.do(t, base, "routed", "")
			if begun, _ := f.take(t); len(begun) != 1 || got.status < 400 {
				t.Errorf("%s %s: %d %s, followed %+v", c.path, c.body, got.status, got.body, begun)
			}
		}
		_, st := (unary{qdrant.Points_UpdateBatch_FullMethodName, &qdrant.UpdateBatchPoints{Wait: qdrant.PtrOf(true), Operations: []*qdrant.PointsUpdateOperation{
			{Operation: &qdrant.PointsUpdateOperation_DeletePoints_{DeletePoints: &qdrant.PointsUpdateOperation_DeletePoints{Points: qdrant.NewPointsSelector(qdrant.NewIDNum(5))}}}, {},
		}}, &qdrant.UpdateBatchResponse{}}).do(t, dial(t, at.GRPC), "routed", "")
		if begun, _ := f.take(t); len(begun) != 1 || st.Code() != codes.InvalidArgument {
			t.Errorf("a batch over gRPC: %v, followed %+v", st, begun)
		}
	})
}

// raw sends a request as these bytes and returns the answer, with its body closed.
func raw(t *testing.T, address, line, key, body string) *http.Response {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: h\r\nApi-Key: %s\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", line, key, len(body), body)
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	answer.Body.Close()
	return answer
}

// TestPathsAsQdrantReadsThem: requests that Qdrant takes for writes are followed, and requests that
// it takes for searches on a routed collection get a status, however the path is written. Requests
// that Qdrant refuses are neither.
func TestPathsAsQdrantReadsThem(t *testing.T) {
	eachQdrant(t, guarded, func(t *testing.T, s *servers.Server) {
		f := &recorder{}
		at := start(t, proxy.Options{REST: proxy.Endpoint{Upstream: s.REST}, Router: router.New(followed(t, openQdrant(t, s, "secret"), f))})
		direct := strings.TrimPrefix(s.REST, "http://")
		(step{"PUT", "/collections/{c}", `{"vectors":{"size":2,"distance":"Dot"}}`}).do(t, s.REST, "routed", "secret")
		writes, searches := 0, 0
		for _, target := range []string{
			"%s", "%s#x", "%s#x?wait=true", "%s?wait=true#x", "%s?#", "%s#", "%s/", "%s//", "%s/#/x", "%s?", "%s?wait=true", "%s/?x",
			"%s;x", "%s;", "%s%%23x", "%s%%3Fx", "%s%%2F", "%s/.", "%s/..", "%s%%20", "%s%%00", "%s\\", "%s|", "%s\"",
			"/%s", "//%s#x", "/.%s", "/x/..%s", "http://h%s", "http://h%s#x", "http://h/%s", "http://h%s?wait=true#x",
		} {
			for _, path := range []string{
				"/collections/routed/points", "/collections//routed///points", "/collections/%72outed/p%6Fints", "/%63ollections/routed/points",
				"/collections/routed%2Fpoints", "/Collections/routed/points", "/collections/routed/POINTS", "/collections/./routed/points",
				"/collections/other/../routed/points", "/collections/%2572outed/points", "/collections/routed#/points",
			} {
				line := "PUT " + fmt.Sprintf(target, path)
				const body = `{"points":[{"id":1,"vector":[1,2]}]}`
				want := raw(t, direct, line, "secret", body).StatusCode
				got := raw(t, at.REST, line, "secret", body).StatusCode
				begun, _ := f.take(t)
				if written := want == http.StatusOK; got != want || written != (len(begun) > 0) {
					t.Errorf("%s: %d, directly %d, followed %+v", line, got, want, begun)
				} else if written {
					writes++
				}
				line = "POST " + fmt.Sprintf(target, path+"/search")
				const query = `{"vector":[1,2],"limit":1}`
				want = raw(t, direct, line, "secret", query).StatusCode
				answer := raw(t, at.REST, line, "secret", query)
				state := answer.Header.Get("Likeness-Status")
				if found := want == http.StatusOK; answer.StatusCode != want || found != (state != "") {
					t.Errorf("%s: %d %q, directly %d", line, answer.StatusCode, state, want)
				} else if found {
					searches++
				}
			}
		}
		if writes < 50 || searches < 50 {
			t.Errorf("%d writes and %d searches", writes, searches)
		}
	})
}

// TestMethodsAsQdrantReadsThem: Qdrant ignores what follows a ? or # in the path of a
// gRPC method.
func TestMethodsAsQdrantReadsThem(t *testing.T) {
	eachQdrant(t, servers.Options{}, func(t *testing.T, s *servers.Server) {
		f := &recorder{}
		at := start(t, proxy.Options{GRPC: proxy.Endpoint{Upstream: s.Address}, Router: router.New(followed(t, openQdrant(t, s, ""), f))})
		direct, proxied := dial(t, s.Address), dial(t, at.GRPC)
		create := unary{qdrant.Collections_Create_FullMethodName, &qdrant.CreateCollection{
			VectorsConfig: qdrant.NewVectorsConfig(&qdrant.VectorParams{Size: 1, Distance: qdrant.Distance_Dot}),
		}, &qdrant.CollectionOperationResponse{}}
		create.do(t, direct, "routed", "")
		for _, suffix := range []string{"", "?", "?x", "#x", "?x#y", "#", "/", "%3F", ";x"} {
			upsert := unary{qdrant.Points_Upsert_FullMethodName + suffix, &qdrant.UpsertPoints{Points: []*qdrant.PointStruct{
				{Id: qdrant.NewIDNum(1), Vectors: qdrant.NewVectors(1)},
			}}, &qdrant.PointsOperationResponse{}}
			_, want := upsert.do(t, direct, "routed", "")
			_, got := upsert.do(t, proxied, "routed", "")
			if begun, _ := f.take(t); got.Code() != want.Code() || (want.Code() == codes.OK) != (len(begun) > 0) {
				t.Errorf("%q: %v, directly %v, followed %+v", suffix, got, want, begun)
			}
		}
	})
}

// TestStrangersAreToldNothing: an answer that refuses the caller does not reveal that there is a
// route.
func TestStrangersAreToldNothing(t *testing.T) {
	eachQdrant(t, guarded, func(t *testing.T, s *servers.Server) {
		f := &recorder{}
		at := start(t, proxy.Options{
			GRPC: proxy.Endpoint{Upstream: s.Address}, REST: proxy.Endpoint{Upstream: s.REST},
			Router: router.New(followed(t, openQdrant(t, s, "secret"), f)),
		})
		for _, name := range []string{"routed", "unrouted"} {
			(step{"PUT", "/collections/{c}", `{"vectors":{"size":2,"distance":"Dot"}}`}).do(t, s.REST, name, "secret")
		}
		conn := dial(t, at.GRPC)
		for _, key := range []string{"", "wrong", qdrantToken(`[{"collection":"x","access":"r"}]`)} {
			for path, body := range map[string]string{
				"search": `{"vector":[1,2],"limit":1}`, "query": `{"query":[1,2]}`, "recommend": `{"positive":[1],"limit":1}`,
				"search/batch": `{"searches":[{"vector":[1,2],"limit":1}]}`, "search/groups": `{}`, "discover": `{"limit":1}`,
			} {
				routed := raw(t, at.REST, "POST /collections/routed/points/"+path, key, body)
				other := raw(t, at.REST, "POST /collections/unrouted/points/"+path, key, body)
				if routed.StatusCode == http.StatusBadRequest { // Qdrant reads the body first
					continue
				}
				if routed.StatusCode != http.StatusUnauthorized && routed.StatusCode != http.StatusForbidden || routed.StatusCode != other.StatusCode {
					t.Errorf("%s: %d and %d", path, routed.StatusCode, other.StatusCode)
				}
				routed.Header.Del("Date")
				other.Header.Del("Date")
				if names(routed.Header) != names(other.Header) {
					t.Errorf("%s: %v, of another collection %v", path, routed.Header, other.Header)
				}
			}
			ctx := metadata.AppendToOutgoingContext(t.Context(), "api-key", key)
			points := qdrant.NewPointsClient(conn)
			var trailer metadata.MD
			_, err := points.Search(ctx, &qdrant.SearchPoints{CollectionName: "routed", Vector: []float32{1, 2}, Limit: 1}, grpc.Trailer(&trailer))
			if got := status.Code(err); got != codes.Unauthenticated && got != codes.PermissionDenied || len(trailer.Get("likeness-status")) > 0 {
				t.Errorf("gRPC: %v %v", err, trailer)
			}
			_, err = points.Recommend(ctx, &qdrant.RecommendPoints{CollectionName: "routed", Positive: []*qdrant.PointId{qdrant.NewIDNum(1)}, Limit: 1}, grpc.Trailer(&trailer))
			if got := status.Code(err); got != codes.Unauthenticated && got != codes.PermissionDenied || len(trailer.Get("likeness-status")) > 0 {
				t.Errorf("gRPC: %v %v", err, trailer)
			}
		}
	})
}

// names returns the sorted names of an answer's headers.
func names(h http.Header) string { return fmt.Sprint(slices.Sorted(maps.Keys(h))) }

// gated is a store whose names can be read once a channel is closed.
type gated struct {
	adapters.Store
	open chan struct{}
}

func (g gated) Identify(ctx context.Context, name string) (adapters.Identity, error) {
	select {
	case <-g.open:
		return g.Store.(adapters.Identifier).Identify(ctx, name)
	case <-ctx.Done():
		return adapters.Identity{}, ctx.Err()
	}
}

// TestNamesThatComeLate: a write by a name that is not known in time is pending for every followed
// collection until names can be read. Then it counts only for the collections that it addressed.
func TestNamesThatComeLate(t *testing.T) {
	s := servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{})
	for _, name := range []string{"routed", "unrouted"} {
		(step{"PUT", "/collections/{c}", `{"vectors":{"size":1,"distance":"Dot"}}`}).do(t, s.REST, name, "")
	}
	(step{"POST", "/collections/aliases", `{"actions":[{"create_alias":{"collection_name":"routed","alias_name":"mine"}}]}`}).do(t, s.REST, "", "")
	upsert := step{"PUT", "/collections/{c}/points?wait=true", `{"points":[{"id":1,"vector":[1]}]}`}
	for name, want := range map[string]int{"unrouted": 0, "mine": 1} {
		f, open := &recorder{}, make(chan struct{})
		r := followedWithin(t, gated{openQdrant(t, s, ""), open}, f, 1) // a nanosecond
		at := start(t, proxy.Options{REST: proxy.Endpoint{Upstream: s.REST}, Router: router.New(r)})
		for range 3 {
			if got := upsert.do(t, "http://"+at.REST, name, ""); got.status != http.StatusOK {
				t.Fatalf("%+v", got)
			}
		}
		if _, _, ended := f.ended(); ended || f.told() != 6 {
			t.Errorf("%s: %d writes were pending, of three to two collections", name, f.told())
		}
		close(open)
		begun, _ := f.take(t)
		if len(begun) != 3*want {
			t.Errorf("%s: believed %+v", name, begun)
		}
		for _, w := range begun {
			if w.Collection != "routed" || len(w.IDs) != 1 || w.All {
				t.Errorf("%s: believed %+v", name, w)
			}
		}
	}
}
