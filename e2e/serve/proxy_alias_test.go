package serve_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
)

// fillOther makes a collection with some of the ids of routed, and other vectors.
func fillOther(t *testing.T, conn *grpc.ClientConn) {
	t.Helper()
	ctx, wait := asUser(t.Context()), true
	var points []*qdrant.PointStruct
	for i := range 30 {
		x := float32(29 - i)
		points = append(points, &qdrant.PointStruct{Id: qdrant.NewIDNum(uint64(2 * i)), Vectors: qdrant.NewVectors(1/(1+x), x/9, 1-x/4, x*x/90)})
	}
	_, err := qdrant.NewCollectionsClient(conn).Create(ctx, &qdrant.CreateCollection{CollectionName: "other",
		VectorsConfig: qdrant.NewVectorsConfig(&qdrant.VectorParams{Size: 4, Distance: qdrant.Distance_Dot})})
	if err == nil {
		_, err = qdrant.NewPointsClient(conn).Upsert(ctx, &qdrant.UpsertPoints{CollectionName: "other", Wait: &wait, Points: points})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// switchAlias points an alias at a collection, directly at the database.
func switchAlias(ctx context.Context, conn *grpc.ClientConn, alias, collection string) error {
	_, err := qdrant.NewCollectionsClient(conn).UpdateAliases(asUser(ctx), &qdrant.ChangeAliases{Actions: []*qdrant.AliasOperations{
		qdrant.NewAliasDelete(alias), qdrant.NewAliasCreate(alias, collection),
	}})
	return err
}

// ofRoute asks likeness's own API for the best five of a route.
func ofRoute(t *testing.T, api *grpc.ClientConn, route string) (hits []hit, status string) {
	t.Helper()
	r, err := likenessv1.NewSearchServiceClient(api).Search(t.Context(), &likenessv1.SearchRequest{Route: route, Query: &likenessv1.Query{Vector: query}, K: 5})
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range r.GetHits() {
		id := h.GetId().GetText()
		switch n := h.GetId().GetId().(type) {
		case *likenessv1.ItemId_Number:
			id = strconv.FormatUint(n.Number, 10)
		case *likenessv1.ItemId_Negative:
			id = strconv.FormatInt(n.Negative, 10)
		}
		hits = append(hits, hit{id, h.GetScore()})
	}
	return hits, r.GetCertificate().GetStatus().String()
}

// TestAliasesThatAreSwitchedAllTheTime searches by aliases of a client and of a route
// while they are switched between two collections without a pause. What is called exact,
// or of a table a snapshot, is the exact answer of one of the two.
func TestAliasesThatAreSwitchedAllTheTime(t *testing.T) {
	db := filled(t, servers.Options{})
	direct := connect(t, db.Address)
	fillOther(t, direct)
	for _, alias := range []string{"also", "live"} {
		if _, err := qdrant.NewCollectionsClient(direct).UpdateAliases(asUser(t.Context()), &qdrant.ChangeAliases{
			Actions: []*qdrant.AliasOperations{qdrant.NewAliasCreate(alias, "routed")},
		}); err != nil {
			t.Fatal(err)
		}
	}
	for name, placement := range map[string]string{"stored": "placement: stored", "table": fmt.Sprintf("table: %q, strategy: scan", tableOf(t, db))} {
		t.Run(name, func(t *testing.T) {
			at := startSidecar(t, fmt.Sprintf(`
stores: {main: {kind: qdrant, address: %q, api_key_env: QDRANT_KEY}}
routes:
  things: {store: main, collection: routed, model: w, %s}
  others: {store: main, collection: other, model: w, placement: stored, exact_search: true}
  living: {store: main, collection: live, model: w, placement: stored, exact_search: true, max_gap: 0}
proxy: {store: main, listen_grpc: "127.0.0.1:0", listen_rest: "127.0.0.1:0", rest_url: %q, routes: [things, living]}
`, db.Address, placement+", exact_search: true", db.REST))
			s := &switching{direct: direct, proxy: connect(t, at.Proxy.GRPC), api: connect(t, at.GRPC), rest: "http://" + at.Proxy.REST}
			s.things, _ = ofRoute(t, s.api, "things")
			s.others, _ = ofRoute(t, s.api, "others")
			if fmt.Sprint(s.things) == fmt.Sprint(s.others) {
				t.Fatal("the two collections answer alike")
			}
			s.run(t)
		})
	}
}

// switching is a sidecar whose aliases are switched.
type switching struct {
	direct, proxy, api *grpc.ClientConn
	rest               string
	things, others     []hit // the exact answers
	seen               map[string]int
}

func (s *switching) run(t *testing.T) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var writer sync.WaitGroup
	writer.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			for _, alias := range []string{"also", "live"} {
				if err := switchAlias(ctx, s.direct, alias, []string{"other", "routed"}[i%2]); err != nil && ctx.Err() == nil {
					t.Error(err)
					return
				}
			}
		}
	})
	defer writer.Wait()
	defer stop()
	s.seen = map[string]int{}
	for i := 0; i < 50 || s.seen["proved by also"] == 0 || s.seen["proved by live"] == 0; i++ {
		if i == 1000 {
			t.Fatalf("the searches were %v", s.seen)
		}
		for _, alias := range []string{"also", "live"} {
			var trailer metadata.MD
			r, err := qdrant.NewPointsClient(s.proxy).Search(asUser(t.Context()), plainSearch(alias), grpc.Trailer(&trailer))
			if err == nil {
				s.check(t, alias, strings.Join(trailer.Get("likeness-status"), "|"), hitsOf(r.GetResult()))
			}
			if code, state, text := post(t, s.rest, alias+"/points/search", plainBody, key); code == http.StatusOK {
				s.check(t, alias, state, restHits(t, resultOf(t, code, text)))
			}
		}
		if hits, status := ofRoute(t, s.api, "living"); status == "CERTIFICATE_STATUS_EXACT" {
			s.check(t, "the API", "rescored; certificate=exact", hits)
		}
	}
	t.Log(s.seen)
	if s.seen["proved by the API"] == 0 {
		t.Error("no answer of the API was exact")
	}
}

// check wants what is called proved to be the exact answer of one collection.
func (s *switching) check(t *testing.T, alias, status string, hits []hit) {
	t.Helper()
	if !strings.Contains(status, "certificate=exact") && !strings.Contains(status, "certificate=snapshot") {
		s.seen[status]++
		return
	}
	s.seen["proved by "+alias]++
	if !slices.EqualFunc(hits, s.things, sameHit) && !slices.EqualFunc(hits, s.others, sameHit) {
		t.Fatalf("by %s, %q: %v is the answer of neither %v nor %v", alias, status, hits, s.things, s.others)
	}
}

// switchSteps is the number of a search's first calls before which an alias is switched.
const switchSteps = 5

// TestAnAliasThatIsSwitchedBetweenCalls switches an alias before each subset of the calls
// that a search makes. In half of the cases the first list of aliases lacks the alias.
// Qdrant makes such lists: it reads the aliases collection by collection, so that an alias
// which moves meanwhile can be in none.
func TestAnAliasThatIsSwitchedBetweenCalls(t *testing.T) {
	db := filled(t, servers.Options{})
	direct := connect(t, db.Address)
	fillOther(t, direct)
	for _, alias := range []string{"also", "live"} {
		must2(t, switchAlias(t.Context(), direct, alias, "other"))
	}
	var calls, mask atomic.Int64
	var switched, hides atomic.Pointer[string] // aliases
	targets := []string{"other", "routed"}
	at, hidden := 0, false
	var mu sync.Mutex
	h := &hop{as: metadata.Pairs("api-key", key), forward: func(string) bool {
		mu.Lock()
		defer mu.Unlock()
		n, alias := calls.Add(1)-1, switched.Load()
		if alias == nil || n >= switchSteps || mask.Load()&(1<<n) == 0 {
			return true
		}
		at = 1 - at
		if err := switchAlias(context.WithoutCancel(t.Context()), direct, *alias, targets[at]); err != nil {
			t.Error(err)
		}
		return true
	}, edit: func(method string, answer []byte) []byte {
		mu.Lock()
		defer mu.Unlock()
		alias := hides.Load()
		if alias == nil || hidden || !strings.HasSuffix(method, "/ListAliases") {
			return answer
		}
		hidden = true
		list := &qdrant.ListAliasesResponse{}
		if err := proto.Unmarshal(answer, list); err != nil {
			t.Error(err)
		}
		list.Aliases = slices.DeleteFunc(list.GetAliases(), func(a *qdrant.AliasDescription) bool { return a.GetAliasName() == *alias })
		answer, err := proto.Marshal(list)
		if err != nil {
			t.Error(err)
		}
		return answer
	}}
	sidecar := startSidecar(t, fmt.Sprintf(`
stores: {main: {kind: qdrant, address: %q, api_key_env: QDRANT_KEY}}
routes:
  things: {store: main, collection: routed, model: w, placement: stored, exact_search: true}
  others: {store: main, collection: other, model: w, placement: stored, exact_search: true}
  living: {store: main, collection: live, model: w, placement: stored, exact_search: true, max_gap: 0}
proxy: {store: main, listen_grpc: "127.0.0.1:0", routes: [things, living]}
`, startHop(t, h, db.Address)))
	s := &switching{proxy: connect(t, sidecar.Proxy.GRPC), api: connect(t, sidecar.GRPC), seen: map[string]int{}}
	s.things, _ = ofRoute(t, s.api, "things")
	s.others, _ = ofRoute(t, s.api, "others")
	for steps := range int64(1 << switchSteps) {
		for _, alias := range []string{"also", "live"} {
			for _, hide := range []*string{nil, &alias} {
				// Through the proxy, which reads the names anew for the next search.
				hides.Store(nil)
				must2(t, switchAlias(t.Context(), s.proxy, alias, targets[0]))
				mu.Lock()
				at, hidden = 0, false
				mu.Unlock()
				hides.Store(hide)
				calls.Store(0)
				mask.Store(steps)
				switched.Store(&alias)
				var trailer metadata.MD
				r, err := qdrant.NewPointsClient(s.proxy).Search(asUser(t.Context()), plainSearch(alias), grpc.Trailer(&trailer))
				if err != nil {
					t.Fatal(err)
				}
				hits, status := ofRoute(t, s.api, "living")
				switched.Store(nil)
				s.check(t, fmt.Sprintf("%s, switched before calls %b", alias, steps), strings.Join(trailer.Get("likeness-status"), "|"), hitsOf(r.GetResult()))
				if status == "CERTIFICATE_STATUS_EXACT" {
					s.check(t, "the API", "rescored; certificate=exact", hits)
				}
			}
		}
	}
	if s.seen["proved by the API"] == 0 || s.seen["passed; reason=alias"] == 0 || s.seen["proved by live, switched before calls 0"] == 0 {
		t.Errorf("the searches were %v", s.seen)
	}
}

// TestTokensOfAnAlias: a caller's rights apply to names. A caller with the right to the alias
// alone, or to the collection's own name alone, gets the database's answer to a search by the
// alias.
func TestTokensOfAnAlias(t *testing.T) {
	db := filled(t, servers.Options{Env: []string{"QDRANT__SERVICE__JWT_RBAC=true"}})
	for name, placement := range map[string]string{"stored": "placement: stored", "table": fmt.Sprintf("table: %q, placement: table, strategy: scan", tableOf(t, db))} {
		t.Run(name, func(t *testing.T) {
			p, _ := startPlaced(t, db, placement)
			if _, err := qdrant.NewCollectionsClient(p.proxy).UpdateAliases(asUser(t.Context()), &qdrant.ChangeAliases{
				Actions: []*qdrant.AliasOperations{qdrant.NewAliasCreate("also", "routed")},
			}); err != nil {
				t.Fatal(err)
			}
			want, proof := p.expected(t, 5, ""), exactly
			if name == "table" {
				proof = ofTheTable
			}
			for who, c := range map[string]struct {
				access   string
				rescored bool
			}{
				"of both names":      {`[{"collection":"routed","access":"r"},{"collection":"also","access":"r"}]`, true},
				"of the alias":       {`[{"collection":"also","access":"r"}]`, false},
				"of the collection":  {`[{"collection":"routed","access":"r"}]`, false},
				"of another":         {`[{"collection":"plain","access":"r"}]`, false},
				"of no such (empty)": {`[]`, false},
			} {
				bearer := token(c.access)
				ctx := metadata.NewOutgoingContext(t.Context(), metadata.Pairs("api-key", bearer))
				var trailer metadata.MD
				got, err := qdrant.NewPointsClient(p.proxy).Search(ctx, plainSearch("also"), grpc.Trailer(&trailer))
				own, ownErr := qdrant.NewPointsClient(p.direct).Search(ctx, plainSearch("also"))
				code, state, body := post(t, p.rest, "also/points/search", plainBody, bearer)
				ownCode, _, ownBody := post(t, p.restDirect, "also/points/search", plainBody, bearer)
				if c.rescored {
					for _, state := range []string{strings.Join(trailer.Get("likeness-status"), "|"), state} {
						if !strings.HasPrefix(state, proof) {
							t.Errorf("%s: status %q, want %s", who, state, proof)
						}
					}
					same(t, who, hitsOf(got.GetResult()), want)
					same(t, who, restHits(t, resultOf(t, code, body)), want)
					continue
				}
				if fmt.Sprint(err) != fmt.Sprint(ownErr) || fmt.Sprint(hitsOf(got.GetResult())) != fmt.Sprint(hitsOf(own.GetResult())) || code != ownCode || timeless(body) != timeless(ownBody) {
					t.Errorf("%s: %v %v and %d %s, directly %v %v and %d %s", who, got, err, code, body, own, ownErr, ownCode, ownBody)
				}
			}
		})
	}
}
