package serve_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/milvus-io/milvus-proto/go-api/v2/commonpb"
	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/sidecar/follow"
)

// mute is a TCP link to a database that can hold back the database's answers. Requests pass, so
// that the database carries out writes that nobody learns of.
type mute struct {
	listener net.Listener
	to       string

	mu    sync.Mutex
	muted chan struct{} // closed when the database is heard again; nil: it is heard
	links []net.Conn
	wg    sync.WaitGroup
}

func startMute(t *testing.T, to string) *mute {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must2(t, err)
	m := &mute{listener: listener, to: to}
	m.wg.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			m.wg.Go(func() { m.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		m.cut()
		m.wg.Wait()
	})
	return m
}

func (m *mute) serve(client net.Conn) {
	server, err := net.Dial("tcp", m.to)
	if err != nil {
		_ = client.Close()
		return
	}
	m.mu.Lock()
	m.links = append(m.links, client, server)
	m.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.Copy(struct{ io.Writer }{server}, client)
		_ = server.Close()
	})
	both.Go(func() {
		b := make([]byte, 32<<10)
		for {
			n, err := server.Read(b)
			m.wait()
			if _, failed := client.Write(b[:n]); err != nil || failed != nil {
				break
			}
		}
		_ = client.Close()
	})
	both.Wait()
}

func (m *mute) wait() {
	m.mu.Lock()
	muted := m.muted
	m.mu.Unlock()
	if muted != nil {
		<-muted
	}
}

func (m *mute) hold() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.muted = make(chan struct{})
}

// cut closes all connections, and drops the held answers; new connections work normally.
func (m *mute) cut() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, link := range m.links {
		_ = link.Close()
	}
	m.links = nil
	if m.muted != nil {
		close(m.muted)
		m.muted = nil
	}
}

// following returns the state that the running sidecar reports about its route.
func (w *killed) following(t *testing.T) follow.Status {
	t.Helper()
	r, err := http.Get("http://" + w.one.at.Admin + "/status.json")
	must2(t, err)
	defer r.Body.Close()
	var page struct {
		Routes []struct {
			Following *follow.Status `json:"following"`
		} `json:"routes"`
	}
	must2(t, json.NewDecoder(r.Body).Decode(&page))
	if len(page.Routes) != 1 || page.Routes[0].Following == nil {
		t.Fatalf("%+v", page)
	}
	return *page.Routes[0].Following
}

// becomes waits until the running sidecar says of its route what it should.
func (w *killed) becomes(t *testing.T, what string, holds func(follow.Status) bool) follow.Status {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		s := w.following(t)
		if holds(s) {
			return s
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %+v", what, s)
		}
		pause(t, 20*time.Millisecond)
	}
}

// expectStatus fails unless the sidecar has compared all rows that many times, and is
// stale or not.
func expectStatus(t *testing.T, when string, s follow.Status, stale bool, reconciles int64) {
	t.Helper()
	if s.Stale != stale || s.Reconciles != reconciles || reconciles == 0 && s.Rows != 0 {
		t.Errorf("%s: %+v, want stale %t after %d comparisons", when, s, stale, reconciles)
	}
}

// reconcileNow has the running sidecar compare all rows.
func (w *killed) reconcileNow(t *testing.T) *likenessv1.ReconcileResponse {
	t.Helper()
	found, err := likenessv1.NewAdminServiceClient(connect(t, w.one.at.GRPC)).Reconcile(t.Context(), &likenessv1.ReconcileRequest{Route: things})
	must2(t, err)
	return found
}

// differing compares the files of a sidecar that has ended with the database. Nothing is
// followed or repaired.
func (w *killed) differing(t *testing.T) (rows int64) {
	t.Helper()
	_, parts := w.open(t, "one")
	defer parts.Close()
	d, err := follow.Compare(t.Context(), parts.Routes[0], nil)
	must2(t, err)
	return d.Differing()
}

// rowWrite is a write of one row, and whether the database has carried it out.
type rowWrite struct {
	name  string
	write func(ctx context.Context, conn *grpc.ClientConn) error
	done  func(t *testing.T) bool
}

// TestKilledJournal kills a sidecar while writes through its proxy are on their way: the
// database has carried them out, and the sidecar did not hear of it. The next sidecar
// compares all rows on request only, and follows them by its journal alone.
func TestKilledJournal(t *testing.T) {
	t.Run("Qdrant", func(t *testing.T) {
		w := &killed{db: servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{}), kind: "qdrant", route: ", write_budget: 1m", dir: t.TempDir()}
		w.direct = connect(t, w.db.Address)
		createThings(t, w, 100)
		killJournal(t, w, qdrantWrites(w))
	})
	t.Run("milvus-lite", func(t *testing.T) {
		w := &killed{db: servers.MilvusLiteForTest(t, servers.Options{}), kind: "milvus", route: ", unit_vectors: true, write_budget: 1m", dir: t.TempDir()}
		w.direct = connect(t, w.db.Address)
		createMilvusThings(t, w)
		killJournal(t, w, milvusWrites(w))
	})
}

func killJournal(t *testing.T, w *killed, writes []rowWrite) {
	t.Helper()
	link := startMute(t, w.db.Address)
	w.address = link.listener.Addr().String()
	w.configure(t, "one")
	w.build(t, "one", true)
	w.one = w.start(t, "one", childOnRequest+"=1")
	s := w.becomes(t, "it starts", func(follow.Status) bool { return true })
	expectStatus(t, "nothing is known of the time before", s, true, 0)
	w.reconcileNow(t)
	expectStatus(t, "compared", w.following(t), false, 1)

	must2(t, writes[0].write(t.Context(), w.proxies[0].Load()))
	s = w.becomes(t, "a write is followed", func(s follow.Status) bool { return s.Pending == 0 })
	expectStatus(t, "a write was followed", s, false, 1)

	link.hold()
	var group sync.WaitGroup
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, x := range writes[1:] {
		group.Go(func() {
			if err := x.write(ctx, w.proxies[0].Load()); err == nil {
				t.Errorf("%s: it was answered, though the database is not heard", x.name)
			}
		})
	}
	for _, x := range writes[1:] {
		for !x.done(t) {
			pause(t, 20*time.Millisecond)
		}
	}
	n := len(writes) - 1
	s = w.becomes(t, "writes are on their way", func(s follow.Status) bool { return s.Pending == n })
	expectStatus(t, "writes are on their way", s, false, 1)
	must2(t, w.one.cmd.Process.Kill())
	_, _ = w.one.cmd.Process.Wait()
	link.cut()
	group.Wait()
	if rows := w.differing(t); rows != int64(n) {
		t.Fatalf("%d rows differ after the kill, want %d that nobody followed", rows, n)
	}

	w.one = w.start(t, "one", childOnRequest+"=1")
	s = w.becomes(t, "the journal is followed", func(s follow.Status) bool { return s.Pending == 0 })
	expectStatus(t, "the journal was followed", s, true, 0)
	w.one.end(t)
	if rows := w.differing(t); rows != 0 {
		t.Errorf("%d rows differ after the journal was followed", rows)
	}

	w.one = w.start(t, "one", childOnRequest+"=1")
	expectStatus(t, "what was missed is not forgotten by an end in order", w.following(t), true, 0)
	if found := w.reconcileNow(t).GetDrift(); found.GetMissing()+found.GetChanged()+found.GetSurplus() != 0 {
		t.Errorf("the journal left %v", found)
	}
	expectStatus(t, "compared", w.following(t), false, 1)
	w.one.end(t)
}

func createThings(t *testing.T, w *killed, rows int) {
	t.Helper()
	_, err := qdrant.NewCollectionsClient(w.direct).Create(t.Context(), &qdrant.CreateCollection{CollectionName: things,
		VectorsConfig: qdrant.NewVectorsConfig(&qdrant.VectorParams{Size: 384, Distance: qdrant.Distance_Cosine})})
	must2(t, err)
	rng := rand.New(rand.NewPCG(1, 1))
	var points []*qdrant.PointStruct
	for id := range rows {
		points = append(points, thing(rng, uint64(id)))
	}
	_, err = qdrant.NewPointsClient(w.direct).Upsert(t.Context(), &qdrant.UpsertPoints{CollectionName: things, Wait: qdrant.PtrOf(true), Points: points})
	must2(t, err)
}

// qdrantWrites are an upsert that is followed, and then writes of one row each.
func qdrantWrites(w *killed) []rowWrite {
	rng, wait := rand.New(rand.NewPCG(2, 2)), qdrant.PtrOf(true)
	selected := func(id uint64) *qdrant.PointsSelector { return qdrant.NewPointsSelector(qdrant.NewIDNum(id)) }
	read := func(t *testing.T, id uint64) *qdrant.RetrievedPoint {
		t.Helper()
		r, err := qdrant.NewPointsClient(w.direct).Get(t.Context(), &qdrant.GetPoints{CollectionName: things, Ids: []*qdrant.PointId{qdrant.NewIDNum(id)},
			WithPayload: qdrant.NewWithPayload(true)})
		must2(t, err)
		if len(r.GetResult()) == 0 {
			return nil
		}
		return r.GetResult()[0]
	}
	upsert := func(id uint64, wait *bool) rowWrite {
		p := thing(rng, id)
		p.Payload["mark"] = qdrant.NewValueBool(true)
		return rowWrite{fmt.Sprint("upsert of ", id), func(ctx context.Context, conn *grpc.ClientConn) error {
			_, err := qdrant.NewPointsClient(conn).Upsert(ctx, &qdrant.UpsertPoints{CollectionName: things, Wait: wait, Points: []*qdrant.PointStruct{p}})
			return err
		}, func(t *testing.T) bool { return read(t, id).GetPayload()["mark"].GetBoolValue() }}
	}
	return []rowWrite{
		upsert(1, wait),
		upsert(500, wait),
		upsert(2, wait),
		upsert(6, nil), // not waited for
		{"delete of 3", func(ctx context.Context, conn *grpc.ClientConn) error {
			_, err := qdrant.NewPointsClient(conn).Delete(ctx, &qdrant.DeletePoints{CollectionName: things, Wait: wait, Points: selected(3)})
			return err
		}, func(t *testing.T) bool { return read(t, 3) == nil }},
		{"payload of 4", func(ctx context.Context, conn *grpc.ClientConn) error {
			_, err := qdrant.NewPointsClient(conn).SetPayload(ctx, &qdrant.SetPayloadPoints{CollectionName: things, Wait: wait,
				Payload: qdrant.NewValueMap(map[string]any{"mark": true}), PointsSelector: selected(4)})
			return err
		}, func(t *testing.T) bool { return read(t, 4).GetPayload()["mark"].GetBoolValue() }},
	}
}

// milvusWrites are an upsert that is followed, and then writes of one row each.
func milvusWrites(w *killed) []rowWrite {
	isThere := func(t *testing.T, id int64) bool {
		t.Helper()
		r, err := milvuspb.NewMilvusServiceClient(w.direct).Query(t.Context(), &milvuspb.QueryRequest{CollectionName: things,
			Expr: fmt.Sprintf("id in [%d]", id), OutputFields: []string{"id"}, ConsistencyLevel: commonpb.ConsistencyLevel_Strong})
		must2(t, err)
		return len(r.GetFieldsData()) > 0 && len(r.GetFieldsData()[0].GetScalars().GetLongData().GetData()) > 0
	}
	upsert := func(id int64) rowWrite {
		return rowWrite{fmt.Sprint("upsert of ", id), func(ctx context.Context, conn *grpc.ClientConn) error {
			return milvusUpsert(ctx, rand.New(rand.NewPCG(uint64(id), 3)), milvuspb.NewMilvusServiceClient(conn), id)
		}, func(t *testing.T) bool { return isThere(t, id) }}
	}
	return []rowWrite{upsert(1), upsert(500), upsert(501), {"delete of 3", func(ctx context.Context, conn *grpc.ClientConn) error {
		_, err := milvuspb.NewMilvusServiceClient(conn).Delete(ctx, &milvuspb.DeleteRequest{CollectionName: things, Expr: "id in [3]"})
		return err
	}, func(t *testing.T) bool { return !isThere(t, 3) }}}
}
