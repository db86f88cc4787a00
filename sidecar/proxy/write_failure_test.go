package proxy_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/sidecar/follow/journal"
	"github.com/likenessdb/likeness/sidecar/proxy"
	router "github.com/likenessdb/likeness/sidecar/proxy/qdrant"
)

// unreachable is a store that answers for names only when the budget is over.
type unreachable struct{ adapters.Store }

func (unreachable) Identify(ctx context.Context, _ string) (adapters.Identity, error) {
	<-ctx.Done()
	return adapters.Identity{}, ctx.Err()
}

// TestWritesAreForwardedWhateverTheFollowerDoes: the database gets every write, even if the
// follower is late, broken, or unable to read names.
func TestWritesAreForwardedWhateverTheFollowerDoes(t *testing.T) {
	s := servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{})
	direct := dial(t, s.Address)
	create := unary{qdrant.Collections_Create_FullMethodName, &qdrant.CreateCollection{
		VectorsConfig: qdrant.NewVectorsConfig(&qdrant.VectorParams{Size: 1, Distance: qdrant.Distance_Dot}),
	}, &qdrant.CollectionOperationResponse{}}
	for _, name := range []string{"routed", "unrouted"} {
		if _, st := create.do(t, direct, name, ""); st.Code() != codes.OK {
			t.Fatal(st)
		}
	}
	broken, _, err := journal.Open(t.TempDir(), journal.Options{})
	if err != nil || broken.Close() != nil {
		t.Fatal(err)
	}
	var appended atomic.Int32
	for _, c := range []struct {
		name       string
		collection string
		store      adapters.Store
		begin      func(ctx context.Context)
		want       []journal.Write // nil: the follower notes none
	}{
		{"late", "routed", openQdrant(t, s, ""), func(ctx context.Context) { <-ctx.Done() }, row(journal.Upsert, numbers(1)...)},
		{"a panic", "routed", openQdrant(t, s, ""), func(context.Context) { panic("x") }, nil},
		{"a journal that is closed", "routed", openQdrant(t, s, ""), func(ctx context.Context) {
			if _, err := broken.Append(ctx, journal.Write{}); err != nil {
				appended.Add(1)
			}
		}, row(journal.Upsert, numbers(1)...)},
		{"names unknown", "routed", unreachable{}, nil, row(journal.Upsert, numbers(1)...)},
	} {
		f := &recorder{}
		r := router.New(followedWithin(t, c.store, f, time.Second)) // what is left of it when names stay unknown has to do for the ids
		at := start(t, proxy.Options{GRPC: proxy.Endpoint{Upstream: s.Address}, REST: proxy.Endpoint{Upstream: s.REST}, Router: r})
		wait := true
		upsert := unary{qdrant.Points_Upsert_FullMethodName, &qdrant.UpsertPoints{Wait: &wait, Points: []*qdrant.PointStruct{
			{Id: qdrant.NewIDNum(1), Vectors: qdrant.NewVectors(1)},
		}}, &qdrant.PointsOperationResponse{}}
		for range 2 { // the first makes the caller one whom the database lets write
			f.take(t)
			if got, st := upsert.do(t, dial(t, at.GRPC), c.collection, ""); st.Code() != codes.OK {
				t.Errorf("%s: %v %v", c.name, got, st)
			}
			f.setBegin(c.begin)
		}
		if begun, _ := f.take(t); !reflect.DeepEqual(begun, c.want) {
			t.Errorf("%s:\nfollowed %+v\nwant     %+v", c.name, begun, c.want)
		}
		put := step{"PUT", "/collections/{c}/points?wait=true", `{"points":[{"id":1,"vector":[1]}]}`}
		if got := put.do(t, "http://"+at.REST, c.collection, ""); got.status != http.StatusOK {
			t.Errorf("%s over REST: %+v", c.name, got)
		}
		if begun, _ := f.take(t); !reflect.DeepEqual(begun, c.want) {
			t.Errorf("%s over REST:\nfollowed %+v\nwant     %+v", c.name, begun, c.want)
		}
	}
	if appended.Load() != 2 {
		t.Errorf("the journal failed %d times", appended.Load())
	}
}

// TestAClientThatGoesAway: the write was forwarded and may still be applied, so it is also followed
// as one that nobody waited for.
func TestAClientThatGoesAway(t *testing.T) {
	arrived := make(chan struct{})
	database := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		arrived <- struct{}{}
		<-s.Context().Done()
		return s.Context().Err()
	}))
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = database.Serve(listener) }()
	t.Cleanup(database.Stop)
	web := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // otherwise nobody sees that the client has gone
		arrived <- struct{}{}
		<-r.Context().Done()
	}))
	t.Cleanup(web.Close)
	f := &recorder{}
	at := start(t, proxy.Options{
		GRPC: proxy.Endpoint{Upstream: listener.Addr().String()}, REST: proxy.Endpoint{Upstream: web.URL},
		Router: router.New(followed(t, nil, f)),
	})
	want := append(row(journal.Upsert, numbers(1)...), row(journal.Upsert, numbers(1)...)...)
	want[1].Waited = false

	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-arrived
		cancel()
	}()
	_, err = qdrant.NewPointsClient(dial(t, at.GRPC)).Upsert(metadata.AppendToOutgoingContext(ctx, "api-key", "x"), &qdrant.UpsertPoints{
		CollectionName: "routed", Wait: qdrant.PtrOf(true), Points: []*qdrant.PointStruct{{Id: qdrant.NewIDNum(1), Vectors: qdrant.NewVectors(1)}},
	})
	if status.Code(err) != codes.Canceled {
		t.Fatal(err)
	}
	f.await(t, want)

	ctx, cancel = context.WithCancel(t.Context())
	go func() {
		<-arrived
		cancel()
	}()
	r, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://"+at.REST+"/collections/routed/points?wait=true", strings.NewReader(`{"points":[{"id":1,"vector":[1]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if answer, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r); err == nil {
		answer.Body.Close()
		t.Fatal(answer.Status)
	}
	f.await(t, want)
}

// await waits until the writes have begun and ended.
func (r *recorder) await(t *testing.T, want []journal.Write) {
	t.Helper()
	var got []journal.Write
	for late := time.Now().Add(patience); len(got) < len(want) && time.Now().Before(late); {
		begun, _ := r.take(t)
		got = append(got, begun...)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("followed %+v\nwant     %+v", got, want)
	}
}
