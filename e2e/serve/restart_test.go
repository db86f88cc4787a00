package serve_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/sidecar/bench"
	"github.com/likenessdb/likeness/sidecar/serve"
)

// replicas are sidecars in processes of their own, each on the addresses that it
// first had.
type replicas struct {
	file string
	all  []*replica
}

type replica struct {
	cmd *exec.Cmd
	at  serve.Addresses
	out io.Closer
}

func newReplicas(t *testing.T, n int, rest string) *replicas {
	t.Helper()
	dir := t.TempDir()
	must2(t, model.Write(filepath.Join(dir, "w.safetensors"), testModel(t)))
	r := &replicas{file: filepath.Join(dir, "likeness.yaml")}
	must2(t, os.WriteFile(r.file, []byte(`listen: {grpc: "127.0.0.1:0", admin: "127.0.0.1:0"}
models: {w: {path: w.safetensors}}
`+rest), 0o600))
	for range n {
		one := &replica{}
		r.start(t, one)
		r.all = append(r.all, one)
	}
	return r
}

// start starts a replica, where it was before if it was.
func (r *replicas) start(t *testing.T, one *replica) {
	t.Helper()
	one.cmd = exec.Command(os.Args[0])
	one.cmd.Env = append(os.Environ(), childConfig+"="+r.file, "QDRANT_KEY="+key)
	if one.at.GRPC != "" {
		one.cmd.Env = append(one.cmd.Env, "LIKENESS_LISTEN_GRPC="+one.at.GRPC, "LIKENESS_PROXY_LISTEN_GRPC="+one.at.Proxy.GRPC)
	}
	if testing.Verbose() {
		one.cmd.Stderr = os.Stderr
	}
	out, err := one.cmd.StdoutPipe()
	must2(t, err)
	one.out = out
	must2(t, one.cmd.Start())
	t.Cleanup(func() { _ = one.cmd.Process.Kill() })
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		t.Fatalf("a sidecar did not start: %v", err)
	}
	must2(t, json.Unmarshal(line, &one.at))
	watch, err := grpc_health_v1.NewHealthClient(connect(t, one.at.GRPC)).Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{}, grpc.WaitForReady(true))
	must2(t, err)
	for {
		if s, err := watch.Recv(); err != nil || s.GetStatus() == grpc_health_v1.HealthCheckResponse_SERVING {
			must2(t, err)
			return
		}
	}
}

// end asks a replica to end and waits for it.
func (r *replicas) end(t *testing.T, one *replica) {
	t.Helper()
	must2(t, one.cmd.Process.Signal(syscall.SIGTERM))
	if err := one.cmd.Wait(); err != nil {
		t.Errorf("a sidecar that was asked to end: %v", err)
	}
}

// balanced is a client's connection to all of the addresses, in turns.
func balanced(t *testing.T, addresses []string) *grpc.ClientConn {
	t.Helper()
	name := manual.NewBuilderWithScheme("replicas")
	state := resolver.State{}
	for _, at := range addresses {
		state.Addresses = append(state.Addresses, resolver.Address{Addr: at})
	}
	name.InitialState(state)
	conn, err := grpc.NewClient("replicas:///", grpc.WithResolvers(name), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"round_robin": {}}]}`),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.6, MaxDelay: 200 * time.Millisecond}, MinConnectTimeout: 5 * time.Second}))
	must2(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// rolling is a load on the API and on the proxy of replicas that are restarted.
type rolling struct {
	api, proxy *grpc.ClientConn
	failed     atomic.Int64

	mu    sync.Mutex
	more  sync.Cond
	seen  map[string]int // answers by the address that gave them
	first string         // what failed first
}

// call searches by the API or by the proxy.
func (x *rolling) call(ctx context.Context, n int) bench.Outcome {
	ctx, cancel := context.WithTimeout(asUser(ctx), 20*time.Second)
	defer cancel()
	var by peer.Peer
	var err error
	if n%2 == 0 {
		_, err = likenessv1.NewSearchServiceClient(x.api).Search(ctx, &likenessv1.SearchRequest{Route: "things", K: 5, Query: &likenessv1.Query{Vector: query}}, grpc.Peer(&by))
	} else {
		_, err = qdrant.NewPointsClient(x.proxy).Search(ctx, &qdrant.SearchPoints{CollectionName: "routed", Vector: query, Limit: 5}, grpc.Peer(&by))
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if status.Code(err) == codes.ResourceExhausted {
		return bench.Refused // more than the machine can do just now; a restart is no reason
	}
	if err != nil {
		x.failed.Add(1)
		if x.first == "" {
			x.first = fmt.Sprintf("call %d: %v", n, err)
		}
		return bench.Failed
	}
	x.seen[by.Addr.String()]++
	x.more.Broadcast()
	return bench.Good
}

// answers waits until each of the addresses has answered more.
func (x *rolling) answers(addresses ...string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, at := range addresses {
		for until := x.seen[at] + 5; x.seen[at] < until; {
			x.more.Wait()
		}
	}
}

// TestRollingRestarts ends and starts two sidecars in turns, with SIGTERM, under
// searches by the API and by the proxy that clients balance themselves: none fails.
// With LIKENESS_SOAK there are 100 restarts under 500 searches a second, or a half of
// what the machine answers just before, where that is less.
func TestRollingRestarts(t *testing.T) {
	restarts, rate := 4, 0.0
	if os.Getenv(soak) != "" {
		restarts, rate = 100, 500
	}
	db := servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{APIKey: key})
	fill(t, connect(t, db.Address))
	r := newReplicas(t, 2, fmt.Sprintf(`
stores: {main: {kind: qdrant, address: %q, api_key_env: QDRANT_KEY}}
routes: {things: {store: main, collection: routed, model: w, placement: stored, exact_search: true, depth: 20, timeout: 15s}}
proxy: {store: main, listen_grpc: "127.0.0.1:0"}
`, db.Address))
	var api, proxies []string
	for _, one := range r.all {
		api, proxies = append(api, one.at.GRPC), append(proxies, one.at.Proxy.GRPC)
	}
	x := &rolling{api: balanced(t, api), proxy: balanced(t, proxies), seen: map[string]int{}}
	x.more.L = &x.mu
	if rate > 0 {
		can := bench.Load{Workers: 8, Duration: 3 * time.Second}.Run(t.Context(), x.call).Goodput
		rate = min(rate, can/2)
	}
	ctx, stop := context.WithCancel(t.Context())
	result := make(chan bench.LoadResult)
	began := time.Now()
	go func() {
		result <- bench.Load{Rate: rate, Workers: 4, Duration: time.Hour, MaxOpen: 4000, Seed: 1}.Run(ctx, func(_ context.Context, n int) bench.Outcome {
			return x.call(t.Context(), n)
		})
	}()
	x.answers(append(api, proxies...)...)
	for n := range restarts {
		one := r.all[n%len(r.all)]
		r.end(t, one)
		r.start(t, one)
		x.answers(one.at.GRPC, one.at.Proxy.GRPC)
	}
	stop()
	l := <-result
	if x.first != "" {
		t.Error(x.first)
	}
	for _, one := range r.all {
		r.end(t, one)
	}
	t.Logf("reliability row=26 figure=%d rolling restarts under %d searches, %.0f a second, half of them by the proxy: %d failed, %d refused by the admission or not sent by the generator, p99 %.1f ms",
		restarts, l.Calls, float64(l.Calls)/time.Since(began).Seconds(), x.failed.Load(), l.Outcomes[bench.Refused]+l.Outcomes[bench.Unsent], l.Latency[bench.Good].P99)
}

// TestEndIsBounded: streams that stay open and connections that say nothing keep a
// sidecar from ending for the grace, and not longer.
func TestEndIsBounded(t *testing.T) {
	db := servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{})
	r := newReplicas(t, 1, fmt.Sprintf(`
shutdown: {delay: 4s, grace: 1s}
stores: {main: {kind: qdrant, address: %q}}
routes: {things: {store: main, collection: routed, model: w, placement: stored}}
proxy: {store: main, listen_grpc: "127.0.0.1:0"}
`, fillPlain(t, db)))
	one := r.all[0]
	_, err := grpc_health_v1.NewHealthClient(connect(t, one.at.GRPC)).Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	must2(t, err)
	open, err := connect(t, one.at.Proxy.GRPC).NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/qdrant.Points/Upsert")
	must2(t, err) // and nothing is ever sent on it
	for _, at := range []string{one.at.GRPC, one.at.Proxy.GRPC, one.at.Admin} {
		conn, err := net.Dial("tcp", at) // which says nothing
		must2(t, err)
		t.Cleanup(func() { _ = conn.Close() })
	}
	s := &sidecar{at: one.at, conn: connect(t, one.at.GRPC)}
	search := func() error {
		_, err := likenessv1.NewSearchServiceClient(s.conn).Search(t.Context(), &likenessv1.SearchRequest{Route: "things", K: 5, Query: &likenessv1.Query{Vector: query}})
		return err
	}
	must2(t, search()) // it has its connection before the delay begins
	must2(t, one.cmd.Process.Signal(syscall.SIGTERM))
	for { // not ready comes first, while calls are answered
		code, body := s.get(t, "/readyz")
		if code == 503 {
			if !strings.Contains(body, "draining") {
				t.Errorf("readyz: %s", body)
			}
			break
		}
	}
	if err := search(); err != nil {
		t.Errorf("a search while the balancers see that it ends: %v", err)
	}
	began := time.Now()
	if err := one.cmd.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	_ = open.CloseSend()
	t.Logf("reliability row=26 figure=with streams and connections held open, a grace of 1 s after a delay of 4 s: ended %.1f s after it was not ready", time.Since(began).Seconds())
}

// fillPlain fills a database without a key, and returns its address.
func fillPlain(t *testing.T, db *servers.Server) string {
	t.Helper()
	fill(t, connect(t, db.Address))
	return db.Address
}
