package serve_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/internal/race"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/sidecar/serve"
)

// flood describes the messages of TestReceivedTogether, and the memory of the sidecar.
type flood struct {
	container, conns, megabytes int // MiB; of each listener; MiB of each message
	before, lasts               time.Duration
}

// A sidecar in a container of so much memory is sent, at each of its listeners and
// again and again, messages that together are several times what it has. It is not killed,
// health is answered all the time, and small searches go on. LIKENESS_SOAK=1 does so in 512 MiB,
// with 64 connections of 32 MiB at each.
func TestReceivedTogether(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector takes memory of its own")
	}
	f := flood{container: 320, conns: 20, megabytes: 4, before: 200 * time.Millisecond, lasts: time.Second}
	if os.Getenv(soak) != "" {
		f = flood{container: 512, conns: 64, megabytes: 32, before: 5 * time.Second, lasts: time.Minute}
	}
	db := servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{})
	direct := connect(t, db.Address)
	_, err := qdrant.NewCollectionsClient(direct).Create(t.Context(), &qdrant.CreateCollection{CollectionName: "routed",
		VectorsConfig: qdrant.NewVectorsConfig(&qdrant.VectorParams{Size: 2, Distance: qdrant.Distance_Dot})})
	must2(t, err)
	text := strings.Replace(withREST(""), "stores:", fmt.Sprintf("limits: {memory: %dMiB}\nstores:\n  main: {kind: qdrant, address: %q}", f.container*4/5, db.Address), 1)
	text += fmt.Sprintf("  routed: {store: main, collection: routed, model: plain, placement: stored, exact_search: true}\n"+
		"proxy: {store: main, listen_grpc: \"127.0.0.1:0\", listen_rest: \"127.0.0.1:0\", rest_url: %q}\n", db.REST)
	cmd, at := startChild(t, files(t, text))
	enclosed := enclose(t, cmd.Process.Pid, int64(f.container)<<20)
	small := connect(t, at.GRPC)
	for status.Code(searchSmall(t.Context(), small)) == codes.Unavailable { // until the route is open
	}
	quiet := f.count(t, f.before, small)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var sent [4]atomic.Int64
	var group sync.WaitGroup
	for listener, send := range f.senders(t, at) {
		for range f.conns {
			group.Go(func() {
				for ctx.Err() == nil {
					if send(ctx) {
						sent[listener].Add(1)
					}
				}
			})
		}
	}
	during := f.count(t, f.lasts, small)
	answered := during > 0
	for !answered && ctx.Err() == nil { // one of them, however slow this machine is
		answered = searchSmall(ctx, small) == nil
	}
	for n := range sent { // and each of these
		for tick := time.Tick(10 * time.Millisecond); sent[n].Load() == 0 && ctx.Err() == nil; <-tick {
		}
	}
	cancel()
	group.Wait()
	must2(t, searchSmall(t.Context(), small))
	peak := peakMemory(t, cmd.Process.Pid) // includes shared memory, such as its own text, which the container need not hold
	for n := range sent {
		if sent[n].Load() == 0 {
			t.Errorf("listener %d answered none", n)
		}
	}
	if !answered {
		t.Error("no small search was answered")
	}
	t.Logf("reliability row=6 figure=%s in %d MiB (a cgroup: %t), messages of %d MiB over %d connections at each listener: %d answered or refused by gRPC, %d by REST, %d and %d through the proxy's; "+
		"every health check answered; %.0f small searches a second, %.0f before; at most %d MiB, not killed",
		f.lasts, f.container, enclosed, f.megabytes, f.conns, sent[0].Load(), sent[1].Load(), sent[2].Load(), sent[3].Load(), during, quiet, peak>>20)
}

// startChild serves a configuration in a process of its own.
func startChild(t *testing.T, file string) (*exec.Cmd, serve.Addresses) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childConfig+"="+file)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must2(t, err)
	must2(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadBytes('\n')
	must2(t, err)
	var at serve.Addresses
	must2(t, json.Unmarshal(line, &at))
	return cmd, at
}

func searchSmall(ctx context.Context, conn *grpc.ClientConn) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	_, err := likenessv1.NewSearchServiceClient(conn).Search(ctx, &likenessv1.SearchRequest{
		Route: "things", Query: &likenessv1.Query{Vector: []float32{1, 2}}, K: 2}, grpc.WaitForReady(true))
	return err
}

// count returns how many small searches were answered in a second, by four callers, while
// health is.
func (f flood) count(t *testing.T, lasts time.Duration, conn *grpc.ClientConn) float64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	var good atomic.Int64
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for ctx.Err() == nil {
				if searchSmall(ctx, conn) == nil {
					good.Add(1)
				}
			}
		})
	}
	for tick := time.Tick(20 * time.Millisecond); ctx.Err() == nil; <-tick {
		asked, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if _, err := grpc_health_v1.NewHealthClient(conn).Check(asked, &grpc_health_v1.HealthCheckRequest{}); err != nil {
			t.Errorf("health: %v", err)
		}
		cancel()
	}
	group.Wait()
	return float64(good.Load()) / lasts.Seconds()
}

// senders send one message each, to the API over gRPC and REST and to the proxy over both. They
// report whether an answer came, even one that refuses the message.
func (f flood) senders(t *testing.T, at serve.Addresses) [4]func(ctx context.Context) bool {
	t.Helper()
	vector := make([]float32, f.megabytes<<18-64)
	batch, err := proto.Marshal(&likenessv1.SearchBatchRequest{Searches: []*likenessv1.SearchRequest{{Route: "things", K: 1, Query: &likenessv1.Query{Vector: vector}}}})
	must2(t, err)
	points, err := proto.Marshal(&qdrant.SearchPoints{CollectionName: "routed", Vector: vector, Limit: 1})
	must2(t, err)
	numbers := bytes.Repeat([]byte("0.1234567,"), f.megabytes<<20/10-64)
	numbers = append(numbers, '0')
	own := fmt.Appendf(nil, `{"query":{"vector":[%s]},"k":1}`, numbers)
	theirs := fmt.Appendf(nil, `{"vector":[%s],"limit":1}`, numbers)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2 * f.conns}}
	t.Cleanup(client.CloseIdleConnections)
	return [4]func(ctx context.Context) bool{
		sender(t, at.GRPC, likenessv1.SearchService_SearchBatch_FullMethodName, batch),
		poster(t, client, "http://"+at.REST+"/v1/routes/things:search", own),
		sender(t, at.Proxy.GRPC, "/qdrant.Points/Search", points),
		poster(t, client, "http://"+at.Proxy.REST+"/collections/routed/points/search", theirs),
	}
}

// asBytes sends and takes messages that are bytes, and copies none that it sends.
type asBytes struct{}

func (asBytes) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}
func (asBytes) Unmarshal(mem.BufferSlice, any) error { return nil }
func (asBytes) Name() string                         { return "proto" }

// sender calls with a connection for each call.
func sender(t *testing.T, address, method string, message []byte) func(ctx context.Context) bool {
	t.Helper()
	return func(ctx context.Context) bool {
		conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(asBytes{})))
		if err != nil {
			t.Error(err)
			return false
		}
		defer conn.Close()
		switch err := conn.Invoke(ctx, method, message, new([]byte)); status.Code(err) {
		case codes.DeadlineExceeded, codes.Canceled:
			return false
		case codes.Unavailable:
			if ctx.Err() == nil {
				t.Errorf("%s: %v", method, err)
				<-ctx.Done()
			}
			return false
		default:
			return true
		}
	}
}

func poster(t *testing.T, client *http.Client, url string, body []byte) func(ctx context.Context) bool {
	t.Helper()
	return func(ctx context.Context) bool {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
		if err != nil {
			t.Error(err)
			return false
		}
		r.Header.Set("Content-Type", "application/json")
		answer, err := client.Do(r)
		if err != nil {
			// An answer that comes before the body has been sent may cost the connection.
			if ctx.Err() == nil && errors.Is(err, io.EOF) {
				t.Errorf("%s: %v", url, err)
				<-ctx.Done()
			}
			return false
		}
		defer answer.Body.Close()
		_, _ = io.Copy(io.Discard, answer.Body)
		return true
	}
}
