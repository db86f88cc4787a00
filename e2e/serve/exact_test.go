package serve_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	adapter "github.com/likenessdb/likeness/adapters/qdrant"
	"github.com/likenessdb/likeness/learn/index"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/route"
)

const (
	// comparison is the reconcile.interval of the routes with tables.
	comparison = 500 * time.Millisecond
	// detection is the window in which a write past the proxy is found, as docs/proxy.md has it.
	detection = 2 * comparison
	// idRange bounds the ids of items, kinds their payload n.
	idRange, kinds = 25, 3
	// noKind stands for a payload that is not there yet.
	noKind = -2
)

// item is the content of a collection for one id.
type item struct {
	vector [4]float32
	kind   int
}

// contents are the items of the collections, and the collections of the aliases.
type contents struct {
	items   map[string]map[uint64]item
	aliases map[string]string
}

func (c contents) clone() contents {
	out := contents{map[string]map[uint64]item{}, maps.Clone(c.aliases)}
	for name, items := range c.items {
		out.items[name] = maps.Clone(items)
	}
	return out
}

// of returns the items by the name of a collection or an alias.
func (c contents) of(name string) map[uint64]item { return c.items[cmp.Or(c.aliases[name], name)] }

// remembered is how many states a history holds; no search meets as many.
const remembered = 10_000

// history holds the last states of the database, at least one for each write.
type history struct {
	mu        sync.Mutex
	states    []contents
	forgotten int // states before the first
	done      int // the last state that a write which has ended made
}

// begin adds the states that a write may make, which is sent then: the database carries out
// the changes of one write one by one, in any order. end notes that all are done.
func (h *history) begin(changes ...func(contents)) (end func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.states) > 2*remembered {
		h.forgotten += len(h.states) - remembered
		h.states = slices.Clone(h.states[len(h.states)-remembered:])
	}
	before := h.states[len(h.states)-1]
	for done := 1; done < 1<<len(changes); done++ { // at last all of them
		next := before.clone()
		for i, change := range changes {
			if done&(1<<i) != 0 {
				change(next)
			}
		}
		h.states = append(h.states, next)
	}
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.done = h.forgotten + len(h.states) - 1
	}
}

// now returns the number of the last state that is certain, and the last state.
func (h *history) now() (certain int, last contents) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.done, h.states[len(h.states)-1]
}

// since returns the states that a search which began at a state may have met.
func (h *history) since(from int) []contents {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.states[max(0, from-h.forgotten):len(h.states):len(h.states)]
}

// exactness is a database, two sidecars before it, and what the database holds.
type exactness struct {
	t      *testing.T
	db     *servers.Server
	client *http.Client
	model  route.Model
	history
	// first sees every write but a few, and declares so; replica sees few.
	first, replica *proxied

	pastMu   sync.Mutex
	pastLast time.Time // the last write past the first sidecar; zero: none yet
	past     int

	exact, answers sync.Map // *atomic.Int64 by route
	searches       atomic.Int64
}

func tableIn(t *testing.T, db *servers.Server, collection string) string {
	t.Helper()
	return formattedTable(t, db, collection, rerank.FormatFloat32)
}

// formattedTable builds a table of a collection whose rows have a format.
func formattedTable(t *testing.T, db *servers.Server, collection string, format rerank.Format) string {
	t.Helper()
	store, err := adapter.Open(adapter.Options{Address: db.Address, APIKey: key})
	must2(t, err)
	defer store.Close()
	return buildTable(t, store, collection, format)
}

// buildTable builds a table of a store's collection for the test model.
func buildTable(t *testing.T, store adapters.Store, collection string, format rerank.Format) string {
	t.Helper()
	m, path := testModel(t), filepath.Join(t.TempDir(), "items.table")
	_, err := index.BuildTable(t.Context(), index.TableJob{Source: index.Source{Store: store, Collection: collection},
		Model: route.Model{Name: m.Name, Version: m.Version, Similarity: m.Similarity}, Path: path, Format: format})
	must2(t, err)
	return path
}

func startExactness(t *testing.T) *exactness {
	t.Helper()
	db := servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{APIKey: key})
	m := testModel(t)
	e := &exactness{t: t, db: db, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}},
		model: route.Model{Name: m.Name, Version: m.Version, Similarity: m.Similarity}}
	t.Cleanup(e.client.CloseIdleConnections)
	e.states = []contents{{items: map[string]map[uint64]item{"items": {}, "green": {}}, aliases: map[string]string{}}}
	random := rand.New(rand.NewPCG(5, 5))
	for _, name := range []string{"items", "green"} {
		e.send(db.REST, http.MethodPut, name, emptyCollection)
		for range 12 {
			e.put(db.REST, name, name, randomItems(random, 2))
		}
	}
	for _, alias := range []string{"also", "live"} {
		e.point(db.REST, alias, "items")
	}
	start := func(routes, proxied2 string) *proxied {
		at := startSidecar(t, fmt.Sprintf(`
state_dir: %q
stores: {main: {kind: qdrant, address: %q, api_key_env: QDRANT_KEY}}
routes: {%s}
proxy: {store: main, listen_grpc: "127.0.0.1:0", listen_rest: "127.0.0.1:0", rest_url: %q, routes: [%s]}
`, t.TempDir(), db.Address, fmt.Sprintf(routes, tableIn(t, db, "items"), comparison), db.REST, proxied2))
		return &proxied{direct: connect(t, db.Address), restDirect: db.REST, api: connect(t, at.GRPC), proxy: connect(t, at.Proxy.GRPC), rest: "http://" + at.Proxy.REST}
	}
	e.first = start(`declared: {store: main, collection: items, model: w, strategy: scan, table: %q, table_live: true, writes: proxy, reconcile: {interval: %v}},
  living: {store: main, collection: live, model: w, placement: stored, exact_search: true}`, "declared, living")
	e.replica = start(`undeclared: {store: main, collection: items, model: w, strategy: scan, table: %q, table_live: true, reconcile: {interval: %v}},
  stored: {store: main, collection: items, model: w, placement: stored, exact_search: true},
  usual: {store: main, collection: items, model: w}`, "stored")
	return e
}

const emptyCollection = `{"vectors":{"size":4,"distance":"Dot"}}`

func randomItem(random *rand.Rand) item {
	i := item{kind: random.IntN(kinds)}
	for j := range i.vector {
		i.vector[j] = float32(random.NormFloat64())
	}
	return i
}

func randomItems(random *rand.Rand, n int) map[uint64]item {
	items := map[uint64]item{}
	for len(items) < n {
		items[random.Uint64N(idRange)] = randomItem(random)
	}
	return items
}

// send sends a request under /collections/ that has to succeed, and returns the result.
func (e *exactness) send(base, method, path, body string) json.RawMessage {
	r, err := http.NewRequestWithContext(context.WithoutCancel(e.t.Context()), method, base+"/collections/"+path, strings.NewReader(body))
	if err != nil {
		e.t.Error(err)
		return nil
	}
	r.Header.Set("Api-Key", key)
	r.Header.Set("Content-Type", "application/json")
	r.Header["X-Idempotency-Key"] = nil // sends nothing; a connection that the server closed while it was idle is replaced for a POST too
	answer, err := e.client.Do(r)
	if err != nil {
		e.t.Errorf("%s %s: %v", method, path, err)
		return nil
	}
	defer answer.Body.Close()
	var out struct{ Result json.RawMessage }
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK || json.Unmarshal(text, &out) != nil {
		e.t.Errorf("%s %s %s: %d %s, %v", method, path, body, answer.StatusCode, text, err)
	}
	return out.Result
}

// write sends a request that changes the collection.
func (e *exactness) write(base, method, path, body string, changes ...func(contents)) json.RawMessage {
	defer e.begin(changes...)()
	return e.send(base, method, path, body)
}

// put writes items by a name of their collection.
func (e *exactness) put(base, collection, name string, items map[uint64]item) {
	var points []string
	var changes []func(contents)
	for id, i := range items {
		// Qdrant writes the vector of a point and then its payload.
		changes = append(changes, func(c contents) {
			now, there := c.items[collection][id]
			if now.vector = i.vector; !there {
				now.kind = noKind
			}
			c.items[collection][id] = now
		}, func(c contents) {
			if now, there := c.items[collection][id]; there {
				now.kind = i.kind
				c.items[collection][id] = now
			}
		})
		points = append(points, fmt.Sprintf(`{"id":%d,"vector":%s,"payload":{"n":%d}}`, id, jsonOf(i.vector), i.kind))
	}
	e.write(base, http.MethodPut, name+"/points?wait=true", `{"points":[`+strings.Join(points, ",")+`]}`, changes...)
}

// point makes an alias stand for a collection.
func (e *exactness) point(base, alias, collection string) {
	e.write(base, http.MethodPost, "aliases", fmt.Sprintf(`{"actions":[{"delete_alias":{"alias_name":%[1]q}},{"create_alias":{"alias_name":%[1]q,"collection_name":%[2]q}}]}`, alias, collection),
		func(c contents) { c.aliases[alias] = collection })
}

func jsonOf(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// action is one random write.
func (e *exactness) action(random *rand.Rand) {
	_, last := e.now()
	via, name, id := e.first.rest, "items", random.Uint64N(idRange)
	if last.aliases["also"] == "items" && random.IntN(3) == 0 {
		name = "also"
	}
	switch n := random.IntN(100); {
	case n < 45:
		e.put(via, "items", name, randomItems(random, 1+random.IntN(2)))
	case n < 60:
		e.write(via, http.MethodPost, name+"/points/delete?wait=true", fmt.Sprintf(`{"points":[%d,%d]}`, id, idRange-1-id),
			func(c contents) { delete(c.items["items"], id) }, func(c contents) { delete(c.items["items"], idRange-1-id) })
	case n < 63:
		kind := random.IntN(kinds)
		var changes []func(contents)
		for id, i := range last.items["items"] {
			if i.kind == kind {
				changes = append(changes, func(c contents) { delete(c.items["items"], id) })
			}
		}
		if len(changes) > 0 && len(changes) < 7 {
			e.write(via, http.MethodPost, name+"/points/delete?wait=true", fmt.Sprintf(`{"filter":%s}`, filterOf(kind)), changes...)
		}
	case n < 75:
		if _, there := last.items["items"][id]; !there {
			return
		}
		kind := random.IntN(kinds)
		e.write(via, http.MethodPost, name+"/points/payload?wait=true", fmt.Sprintf(`{"payload":{"n":%d},"points":[%d]}`, kind, id), func(c contents) {
			i := c.items["items"][id]
			i.kind = kind
			c.items["items"][id] = i
		})
	case n < 87:
		i, there := last.items["items"][id]
		if !there {
			return
		}
		i.vector = randomItem(random).vector
		e.write(via, http.MethodPut, name+"/points/vectors?wait=true", fmt.Sprintf(`{"points":[{"id":%d,"vector":%s}]}`, id, jsonOf(i.vector)), func(c contents) {
			c.items["items"][id] = i
		})
	case n < 92:
		e.put(via, "green", "green", randomItems(random, 2))
	case n < 95:
		e.point(e.db.REST, "live", []string{"items", "green"}[random.IntN(2)])
	default:
		e.point(via, "also", []string{"items", "green"}[random.IntN(2)])
	}
}

// recreate drops the collection and makes it again, with other items.
func (e *exactness) recreate(random *rand.Rand) {
	_, before := e.now()
	e.write(e.first.rest, http.MethodDelete, "items", "", func(c contents) {
		c.items["items"] = map[uint64]item{}
		maps.DeleteFunc(c.aliases, func(_, of string) bool { return of == "items" })
	})
	e.send(e.first.rest, http.MethodPut, "items", emptyCollection)
	for range 8 {
		e.put(e.first.rest, "items", "items", randomItems(random, 2))
	}
	for alias, of := range before.aliases {
		e.point(e.first.rest, alias, of)
	}
}

// restore makes a snapshot, writes, and brings the snapshot back.
func (e *exactness) restore(random *rand.Rand) {
	_, then := e.now()
	var snapshot struct{ Name string }
	if err := json.Unmarshal(e.send(e.db.REST, http.MethodPost, "items/snapshots", ""), &snapshot); err != nil {
		e.t.Error(err)
		return
	}
	for range 5 {
		e.put(e.first.rest, "items", "items", randomItems(random, 2))
	}
	e.write(e.first.rest, http.MethodPut, "items/snapshots/recover?wait=true",
		fmt.Sprintf(`{"location":"%s/collections/items/snapshots/%s","api_key":%q}`, e.db.REST, snapshot.Name, key),
		func(c contents) { c.items["items"] = maps.Clone(then.items["items"]) })
	e.send(e.db.REST, http.MethodDelete, "items/snapshots/"+snapshot.Name, "")
}

// writePast writes past the first sidecar, which declares that it sees every write, waits
// until it has to be found, and has it repaired.
func (e *exactness) writePast(ctx context.Context, random *rand.Rand) {
	e.notePast()
	e.put([]string{e.db.REST, e.replica.rest}[random.IntN(2)], "items", "items", randomItems(random, 2))
	e.notePast()
	e.past++
	pass(ctx, 2*detection)
	for range 2 { // the first finds and repairs it, the second finds no more
		if _, err := likenessv1.NewAdminServiceClient(e.first.api).Reconcile(ctx, &likenessv1.ReconcileRequest{Route: "declared"}); err != nil && ctx.Err() == nil {
			e.t.Error(err)
		}
	}
}

func (e *exactness) notePast() {
	e.pastMu.Lock()
	defer e.pastMu.Unlock()
	e.pastLast = time.Now()
}

// isUndetected reports whether a search that began at the time may not know yet of the
// last write past the first sidecar.
func (e *exactness) isUndetected(began time.Time) bool {
	e.pastMu.Lock()
	defer e.pastMu.Unlock()
	return !e.pastLast.IsZero() && began.Before(e.pastLast.Add(detection))
}

// pass waits for d, which uses up detection windows, or until ctx ends.
func pass(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func (e *exactness) writeUntil(ctx context.Context) {
	random := rand.New(rand.NewPCG(7, 1))
	for n := 1; ctx.Err() == nil && !e.t.Failed(); n++ {
		switch {
		case n%40 == 0: // a pause, in which the tables are fresh
			pass(ctx, detection)
		case n%150 == 30:
			e.recreate(random)
		case n%150 == 70:
			e.restore(random)
		case n%150 == 110:
			e.writePast(ctx, random)
		default:
			e.action(random)
		}
	}
}

func filterOf(kind int) string {
	return fmt.Sprintf(`{"must":[{"key":"n","match":{"value":%d}}]}`, kind)
}

// asked is one search of the test.
type asked struct {
	vector      []float32
	kind        int // of the filter; -1: none
	withVectors bool
}

func (a asked) filter() string {
	if a.kind < 0 {
		return ""
	}
	return filterOf(a.kind)
}

// got is an answer: the hits, their vectors where they came, and the status.
type got struct {
	hits    []hit
	vectors [][]float32
	status  string
}

// searchAPI asks likeness's own API for the answer of a route. The filter is in the store's language.
func searchAPI(ctx context.Context, api *grpc.ClientConn, name string, vector []float32, filter string) (out got, err error) {
	r, err := likenessv1.NewSearchServiceClient(api).Search(ctx, &likenessv1.SearchRequest{Route: name, Query: &likenessv1.Query{Vector: vector}, K: 5, Filter: filter})
	for _, h := range r.GetHits() {
		out.hits = append(out.hits, hit{strconv.FormatUint(h.GetId().GetNumber(), 10), h.GetScore()})
	}
	if r.GetCertificate().GetStatus() == likenessv1.CertificateStatus_CERTIFICATE_STATUS_EXACT {
		out.status = "certificate=exact"
	}
	return out, err
}

// searchGRPC searches a collection through a proxy.
func (e *exactness) searchGRPC(ctx context.Context, p *proxied, name string, a asked) (out got, err error) {
	s := &qdrant.SearchPoints{CollectionName: name, Vector: a.vector, Limit: 5}
	if a.kind >= 0 {
		s.Filter = &qdrant.Filter{Must: []*qdrant.Condition{qdrant.NewMatchInt("n", int64(a.kind))}}
	}
	if a.withVectors {
		s.WithVectors = qdrant.NewWithVectors(true)
	}
	var trailer metadata.MD
	r, err := qdrant.NewPointsClient(p.proxy).Search(asUser(ctx), s, grpc.Trailer(&trailer))
	for _, point := range r.GetResult() {
		out.vectors = append(out.vectors, point.GetVectors().GetVector().GetDense().GetData())
	}
	out.hits, out.status = hitsOf(r.GetResult()), strings.Join(trailer.Get("likeness-status"), "|")
	return out, err
}

// searchREST is searchGRPC over REST.
func (e *exactness) searchREST(ctx context.Context, p *proxied, name string, a asked) (out got, err error) {
	body := fmt.Sprintf(`{"vector":%s,"limit":5,"with_vector":%v`, jsonOf(a.vector), a.withVectors)
	if a.kind >= 0 {
		body += `,"filter":` + a.filter()
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.rest+"/collections/"+name+"/points/search", strings.NewReader(body+"}"))
	if err != nil {
		return out, err
	}
	r.Header.Set("Api-Key", key)
	r.Header.Set("Content-Type", "application/json")
	answer, err := e.client.Do(r)
	if err != nil {
		return out, err
	}
	defer answer.Body.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(answer.Body); err != nil || answer.StatusCode != http.StatusOK {
		return out, fmt.Errorf("%d %s, %w", answer.StatusCode, b.String(), err)
	}
	var points struct {
		Result []struct {
			ID     json.Number
			Score  float32
			Vector []float32
		}
	}
	err = json.Unmarshal(b.Bytes(), &points)
	for _, point := range points.Result {
		out.hits, out.vectors = append(out.hits, hit{point.ID.String(), point.Score}), append(out.vectors, point.Vector)
	}
	out.status = answer.Header.Get("Likeness-Status")
	return out, err
}

// scores returns the similarities of vectors.
func (e *exactness) scores(q []float32, vectors [][]float32) []float32 {
	enc, err := e.model.Similarity.Encode(rerank.Query{Vector: q})
	if err != nil {
		panic(err)
	}
	rows, features := rerank.NewMatrix(len(vectors), 4), rerank.NewMatrix(len(vectors), e.model.Similarity.Spec().Features)
	for i, v := range vectors {
		copy(rows.Row(i), v)
	}
	out := make([]float32, len(vectors))
	if err := cmp.Or(e.model.Similarity.EncodeItems(features, rows), enc.Score(out, rerank.Items{Features: features})); err != nil {
		panic(err)
	}
	return out
}

func isNear(a, b float32) bool { return math.Abs(float64(a)-float64(b)) <= 1e-4 }

// isAnswer reports whether hits can be the best of a collection that the name stands for in
// some of the states, up to scores that rounding can exchange. Qdrant reads one row after
// the other, and a row's payload apart from its vector, so that each of them is as it was
// in any state in which the name stood for that collection.
func (e *exactness) isAnswer(hits []hit, states []contents, name string, a asked) bool {
	of := map[string][]map[uint64]item{}
	for _, c := range states {
		own := cmp.Or(c.aliases[name], name)
		of[own] = append(of[own], c.items[own])
	}
	for _, each := range of {
		if e.isBest(hits, each, a) {
			return true
		}
	}
	return false
}

// isBest reports whether hits can be the best of a collection that had these items one after
// the other.
func (e *exactness) isBest(hits []hit, states []map[uint64]item, a asked) bool {
	if !slices.IsSortedFunc(hits, func(a, b hit) int { return cmp.Compare(b.score, a.score) }) {
		return false
	}
	last := float32(math.Inf(-1)) // what an item that is not a hit may score
	if len(hits) == 5 {
		last = hits[4].score
	}
	for id := range uint64(idRange) {
		at := slices.IndexFunc(hits, func(h hit) bool { return h.id == strconv.FormatUint(id, 10) })
		isMatch, isHit, isLower := false, false, false
		for _, items := range states {
			i, there := items[id]
			if !there || a.kind >= 0 && i.kind != a.kind {
				isLower = true
			} else {
				isMatch = true
			}
			if there {
				score := e.scores(a.vector, [][]float32{i.vector[:]})[0]
				isHit = isHit || at >= 0 && isNear(score, hits[at].score)
				isLower = isLower || score <= last+1e-4
			}
		}
		if at >= 0 && !(isMatch && isHit) || at < 0 && !isLower {
			return false
		}
	}
	return true
}

// way is a way to search a route, by a name of its collection.
type way struct {
	name, collection string
	search           func(ctx context.Context, a asked) (got, error)
}

func (e *exactness) ways() (all []way) {
	for _, c := range []struct {
		p          *proxied
		collection string
	}{{e.first, "items"}, {e.first, "also"}, {e.first, "live"}, {e.replica, "items"}, {e.replica, "also"}} {
		from := map[*proxied]string{e.first: "first", e.replica: "replica"}[c.p]
		all = append(all,
			way{from + " gRPC " + c.collection, c.collection, func(ctx context.Context, a asked) (got, error) { return e.searchGRPC(ctx, c.p, c.collection, a) }},
			way{from + " REST " + c.collection, c.collection, func(ctx context.Context, a asked) (got, error) { return e.searchREST(ctx, c.p, c.collection, a) }})
	}
	for name, c := range map[string]struct {
		p          *proxied
		collection string
	}{"declared": {e.first, "items"}, "living": {e.first, "live"}, "undeclared": {e.replica, "items"}, "stored": {e.replica, "items"}, "usual": {e.replica, "items"}} {
		all = append(all, way{"API " + name, c.collection, func(ctx context.Context, a asked) (got, error) {
			return searchAPI(ctx, c.p.api, name, a.vector, a.filter())
		}})
	}
	return all
}

// mayBePast reports whether a way reads the table of the route that declares its writes.
func (w way) mayBePast() bool { return strings.HasPrefix(w.name, "first") || w.name == "API declared" }

func (e *exactness) searchUntil(ctx context.Context, seed uint64, ways []way) {
	random := rand.New(rand.NewPCG(seed, 2))
	for ctx.Err() == nil && !e.t.Failed() {
		w := ways[random.IntN(len(ways))]
		a := asked{vector: make([]float32, 4), kind: random.IntN(2*kinds) - kinds, withVectors: random.IntN(2) == 0}
		if a.kind < 0 {
			a.kind = -1
		}
		for i := range a.vector {
			a.vector[i] = float32(random.NormFloat64())
		}
		from, _ := e.now()
		began := time.Now()
		out, err := w.search(ctx, a)
		e.searches.Add(1)
		if err != nil { // the collection is not there, or is being restored
			continue
		}
		e.check(w, a, out, from, began)
	}
}

// check wants an exact answer to be the answer of a state of the database during the search,
// and a score to be of the vector beside it.
func (e *exactness) check(w way, a asked, out got, from int, began time.Time) {
	if strings.HasPrefix(out.status, "rescored") && a.withVectors {
		for i, s := range e.scores(a.vector, out.vectors) {
			if !isNear(s, out.hits[i].score) {
				e.t.Errorf("%s, %s: %v has score %v and a vector of score %v", w.name, out.status, out.hits[i].id, out.hits[i].score, s)
			}
		}
	}
	e.count(&e.answers, w.name)
	if !strings.Contains(out.status, "certificate=exact") {
		return
	}
	e.count(&e.exact, w.name)
	states := e.since(from)
	switch {
	case w.name == "API undeclared":
		e.t.Errorf("%s: exact, though others may write", w.name)
	case w.mayBePast() && e.isUndetected(began):
	case !e.isAnswer(out.hits, states, w.collection, a):
		e.t.Errorf("%s, %s, filter %d: %v is the answer of none of %d states, %s", w.name, out.status, a.kind, out.hits, len(states), e.explain(states, w, a))
	}
}

// explain lists the right answers of the states.
func (e *exactness) explain(states []contents, w way, a asked) string {
	var text strings.Builder
	for _, c := range states {
		best := rerank.NewTopK(8)
		for id, i := range c.of(w.collection) {
			if a.kind < 0 || i.kind == a.kind {
				best.Push(rerank.Scored{ID: rerank.UintID(id), Score: e.scores(a.vector, [][]float32{i.vector[:]})[0]})
			}
		}
		fmt.Fprintf(&text, "\n%s: ", cmp.Or(c.aliases[w.collection], w.collection))
		for _, h := range best.Sorted() {
			fmt.Fprintf(&text, "{%v %v} ", h.ID, h.Score)
		}
	}
	return text.String()
}

func (e *exactness) count(in *sync.Map, name string) {
	n, _ := in.LoadOrStore(name, new(atomic.Int64))
	n.(*atomic.Int64).Add(1)
}

// TestExactIsNeverWrong searches by every way while one writer writes, deletes, switches
// aliases, makes the collection again, restores a snapshot of it and writes past the
// sidecar that declares to see every write. What is called exact is the answer of one
// collection, each row as of a state during the search, but for the declared route within
// the detection window after a write past it. EXACT_SEARCHES says how many searches there
// are.
func TestExactIsNeverWrong(t *testing.T) {
	e := startExactness(t)
	proved := e.run(searchesOf(t, 3000, 100_000), e.ways(), e.writeUntil)
	t.Logf("reliability row=44 figure=%d searches beside %d states of the database and %d writes past the declared proxy: %d exact, 0 wrong",
		e.searches.Load(), e.forgotten+len(e.states), e.past, proved)
}

// run searches so many times beside a writer, and returns how many answers were exact.
func (e *exactness) run(searches int64, ways []way, write func(context.Context)) (proved int64) {
	e.t.Helper()
	ctx, stop := context.WithCancel(e.t.Context())
	defer stop()
	var group sync.WaitGroup
	group.Go(func() { write(ctx) })
	for seed := range uint64(3) {
		group.Go(func() { e.searchUntil(ctx, seed, ways) })
	}
	for e.searches.Load() < searches && !e.t.Failed() {
		pass(ctx, 10*time.Millisecond)
	}
	stop()
	group.Wait()
	var text strings.Builder
	for _, w := range ways {
		n, exact := countOf(&e.answers, w.name), countOf(&e.exact, w.name)
		proved += exact
		fmt.Fprintf(&text, "%s %d of %d, ", w.name, exact, n)
		if exact == 0 && w.name != "API undeclared" && !strings.Contains(w.name, "also") {
			e.t.Errorf("no answer of %s was exact", w.name)
		}
	}
	e.t.Logf("exact: %s", text.String())
	return proved
}

// countOf returns what exactness.count counted under a name.
func countOf(in *sync.Map, name string) int64 {
	n, ok := in.Load(name)
	if !ok {
		return 0
	}
	return n.(*atomic.Int64).Load()
}

// searchesOf returns how many searches a test of exactness makes: EXACT_SEARCHES, or as many as are given
// for the suite and at length.
func searchesOf(t *testing.T, usual, long int64) int64 {
	t.Helper()
	if text := os.Getenv("EXACT_SEARCHES"); text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		must2(t, err)
		return n
	}
	if os.Getenv(soak) != "" {
		return long
	}
	return usual
}
