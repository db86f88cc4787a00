package serve_test

import (
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	adapter "github.com/likenessdb/likeness/adapters/qdrant"
	"github.com/likenessdb/likeness/learn/index"
	"github.com/likenessdb/likeness/sidecar/route"
)

const unproved = "rescored; route=things; certificate=unknown"

// ofTheTable begins the status of an answer that is exact over a table, which cannot know what
// was written since it was built.
const ofTheTable = "rescored; route=things; certificate=snapshot; as-of="

// sameHit reports whether two hits are the same row with the same score, up to the rounding
// of a route that scores in float32 where another scores in float64.
func sameHit(a, b hit) bool {
	return a.id == b.id && math.Abs(float64(a.score-b.score)) <= 1e-6*math.Abs(float64(b.score))
}

// tableOf builds a table of the filled collection.
func tableOf(t *testing.T, db *servers.Server) string {
	t.Helper()
	store, err := adapter.Open(adapter.Options{Address: db.Address, APIKey: key})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	m, path := testModel(t), filepath.Join(t.TempDir(), "things.table")
	_, err = index.BuildTable(t.Context(), index.TableJob{Source: index.Source{Store: store, Collection: "routed"},
		Model: route.Model{Name: m.Name, Version: m.Version, Similarity: m.Similarity}, Path: path})
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// A table that is older than the database never shows a row that is gone, and a
// row that the caller may not read shows in no answer.
func TestProxyOfAnOldTable(t *testing.T) {
	db := filled(t, servers.Options{Env: []string{"QDRANT__SERVICE__JWT_RBAC=true"}})
	path := tableOf(t, db)
	ranked, _ := startRuled(t, db, "")
	before := ranked.expected(t, 30, "")
	gone := map[string]bool{}
	var ids []*qdrant.PointId
	for _, h := range append(slices.Clone(before[:3]), before[4:20]...) { // of the first twenty the fourth stays
		gone[h.id] = true
		id, err := strconv.ParseUint(h.id, 10, 64)
		if err != nil {
			ids = append(ids, qdrant.NewIDUUID(h.id))
			continue
		}
		ids = append(ids, qdrant.NewIDNum(id))
	}
	wait := true
	if _, err := qdrant.NewPointsClient(ranked.direct).Delete(asUser(t.Context()), &qdrant.DeletePoints{
		CollectionName: "routed", Wait: &wait, Points: qdrant.NewPointsSelector(ids...),
	}); err != nil {
		t.Fatal(err)
	}
	var want []hit
	for _, h := range before {
		if !gone[h.id] {
			want = append(want, h)
		}
	}
	p, _ := startRuled(t, db, "strategy: scan, table: "+strconv.Quote(path))
	if got, state := p.ask(t, p.proxy, p.rest, plainSearch("routed"), plainBody); !strings.HasPrefix(state, ofTheTable) || !slices.EqualFunc(got, want[:5], sameHit) {
		t.Errorf("%q, %v, want %v", state, got, want[:5])
	}
	// More than are left: the table cannot tell what else there is.
	s := plainSearch("routed")
	s.Limit = 20
	if got, state := p.ask(t, p.proxy, p.rest, s, `{"vector":[1,-2,0.5,3],"limit":20}`); state != "degraded; reason=confirm" || len(got) != 11 {
		t.Errorf("%q, %v", state, got)
	}
	// A write that the proxy sees: the table cannot follow it, and proves nothing any more.
	if _, err := qdrant.NewPointsClient(p.proxy).Delete(asUser(t.Context()), &qdrant.DeletePoints{
		CollectionName: "routed", Wait: &wait, Points: qdrant.NewPointsSelector(qdrant.NewIDNum(1 << 40)),
	}); err != nil {
		t.Fatal(err)
	}
	if got, state := p.ask(t, p.proxy, p.rest, plainSearch("routed"), plainBody); state != unproved || !slices.EqualFunc(got, want[:5], sameHit) {
		t.Errorf("after a write: %q, %v, want %v", state, got, want[:5])
	}
	stranger := metadata.NewOutgoingContext(t.Context(), metadata.Pairs("authorization", "Bearer "+token(`[{"collection":"plain","access":"r"}]`)))
	got, err := qdrant.NewPointsClient(p.proxy).Search(stranger, plainSearch("routed"))
	_, refused := qdrant.NewPointsClient(p.direct).Search(stranger, plainSearch("routed"))
	if err == nil || status.Convert(err).String() != status.Convert(refused).String() {
		t.Errorf("a stranger: %v, %v; directly %v", got, err, refused)
	}
}

// Whoever is first, an answer is whole and says whose it is.
func TestProxyRaces(t *testing.T) {
	db := filled(t, servers.Options{})
	p, _ := startRuled(t, db, "fallback: eager")
	own, _ := p.ask(t, p.direct, p.restDirect, plainSearch("routed"), plainBody)
	learned := p.expected(t, 5, "")
	seen := map[string]int{}
	for range 40 {
		r, err := qdrant.NewPointsClient(p.proxy).Search(asUser(t.Context()), plainSearch("routed"))
		if err != nil {
			t.Fatal(err)
		}
		code, state, body := post(t, p.rest, "routed/points/search", plainBody, key)
		seen[state]++
		want := own
		if state == exactly {
			want = learned
		}
		if got := restHits(t, resultOf(t, code, body)); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", state, got, want)
		}
		if got := hitsOf(r.GetResult()); !slices.Equal(got, own) && !slices.Equal(got, learned) {
			t.Errorf("%v is neither %v nor %v", got, own, learned)
		}
	}
	if len(seen) == 0 || seen[exactly]+seen["degraded; reason=deadline"] != 40 {
		t.Errorf("statuses %v", seen)
	}
}
