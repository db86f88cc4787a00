package server_test

import (
	"bytes"
	"context"
	"net"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/sidecar/gate"
	"github.com/likenessdb/likeness/sidecar/search"
	"github.com/likenessdb/likeness/sidecar/server"
)

// long reports whether tests are to run at length.
func long() bool { return os.Getenv("LIKENESS_SOAK") != "" }

func healthy(t *testing.T, w *world) {
	t.Helper()
	if _, err := grpc_health_v1.NewHealthClient(w.conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: likenessv1.CatalogService_ServiceDesc.ServiceName}); err != nil {
		t.Errorf("health: %v", err)
	}
}

// settled waits until about as many goroutines run as before and free is true.
func settled(t *testing.T, before int, free func() bool) (now int) {
	t.Helper()
	tick, end := time.NewTicker(10*time.Millisecond), time.After(20*time.Second)
	defer tick.Stop()
	for {
		if now = runtime.NumGoroutine(); now <= before+5 && free() {
			return now
		}
		select {
		case <-tick.C:
		case <-end:
			t.Errorf("%d goroutines, %d before; all is free: %t", now, before, free())
			return now
		}
	}
}

func always() bool { return true }

// Callers that leave free all their resources.
func TestManyCancels(t *testing.T) {
	calls, each := 10, 50
	if long() {
		each = 1000
	}
	var a *gate.Gate
	w := start(t, answering(func(ctx context.Context, r search.Request) (search.Answer, error) {
		if r.K == 1 {
			return search.Answer{}, nil
		}
		<-ctx.Done()
		return search.Answer{}, ctx.Err()
	}), func(o *server.Options) {
		a = gate.New(gate.Options{Limits: gate.Limits{MaxSearches: 10, Adaptive: true, Routes: map[string]gate.Limit{"things": {}}}})
		o.Searcher = search.Admitted{Searcher: o.Searcher, By: a}
	})
	healthy(t, w)
	before := runtime.NumGoroutine()
	var group sync.WaitGroup
	for range calls {
		group.Go(func() {
			for range each {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Millisecond)
				_, err := w.search.Search(ctx, question())
				cancel()
				if c := status.Code(err); c != codes.DeadlineExceeded && c != codes.Canceled && c != codes.ResourceExhausted {
					t.Errorf("a call that is given up: %v", err)
				}
			}
		})
	}
	group.Wait()
	now := settled(t, before, func() bool {
		l, ok := a.Load("things")
		return ok && l.InFlight == 0 && l.Queued == 0
	})
	one := question()
	one.K = 1
	if _, err := w.search.Search(t.Context(), one); err != nil {
		t.Errorf("a search afterwards: %v", err)
	}
	t.Logf("reliability row=2 figure=%d calls given up: %+d goroutines, every slot free", calls*each, now-before)
}

// A connection may have a limited number of calls, many connections many streams, and each of them
// costs little.
func TestManyStreams(t *testing.T) {
	conns, streams := 5, 100
	if long() {
		conns, streams = 10, 1000
	}
	w := start(t, func(o *server.Options) { o.Limits.MaxConcurrentStreams = streams })
	if n := settings(t, w.address); n != uint32(streams) {
		t.Errorf("the cap that is told is %d, want %d", n, streams)
	}
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	goroutines := runtime.NumGoroutine()
	for range conns {
		conn := dial(t, w.address, insecure.NewCredentials())
		for range streams {
			watch, err := grpc_health_v1.NewHealthClient(conn).Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
			if err == nil {
				_, err = watch.Recv()
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	healthy(t, w)
	each := (int64(after.HeapInuse+after.StackInuse) - int64(before.HeapInuse+before.StackInuse)) / int64(conns*streams)
	if each > 64<<10 {
		t.Errorf("a stream and its client take %d bytes", each)
	}
	t.Logf("reliability row=10 figure=%d streams at a time, %d on a connection: %d KiB each, with their clients", conns*streams, streams, each>>10)
	cancel()
	settled(t, goroutines+8*conns, always) // the connections stay
}

// settings returns the number of streams that a server permits on a connection.
func settings(t *testing.T, address string) uint32 {
	t.Helper()
	framer := raw2(t, address)
	for {
		f, err := framer.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if s, ok := f.(*http2.SettingsFrame); ok {
			n, _ := s.Value(http2.SettingMaxConcurrentStreams)
			return n
		}
	}
}

// raw2 opens an HTTP/2 connection that sends arbitrary frames.
func raw2(t *testing.T, address string) *http2.Framer {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := conn.Write([]byte(http2.ClientPreface)); err != nil {
		t.Fatal(err)
	}
	framer := http2.NewFramer(conn, conn)
	if err := framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	return framer
}

// The server survives a flood of calls that are cancelled as soon as they begin, and answers others
// meanwhile.
func TestAFloodOfResets(t *testing.T) {
	w := start(t)
	healthy(t, w)
	before := runtime.NumGoroutine()
	flood, resets := time.Second/2, 0
	if long() {
		flood = time.Minute
	}
	var header bytes.Buffer
	encoder := hpack.NewEncoder(&header)
	for _, f := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", likenessv1.SearchService_Search_FullMethodName}, {":authority", "a"},
		{"content-type", "application/grpc"}, {"te", "trailers"}} {
		if err := encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1], Sensitive: true}); err != nil {
			t.Fatal(err)
		}
	}
	for end := time.Now().Add(flood); time.Now().Before(end); {
		framer := raw2(t, w.address)
		for stream := uint32(1); time.Now().Before(end); stream += 2 {
			err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: header.Bytes(), EndHeaders: true})
			if err == nil {
				err = framer.WriteRSTStream(stream, http2.ErrCodeCancel)
			}
			if err != nil {
				break // the server has closed this connection
			}
			if resets++; resets%1000 == 0 {
				healthy(t, w)
			}
		}
	}
	healthy(t, w)
	if _, err := w.search.Search(t.Context(), question()); err != nil {
		t.Errorf("a search afterwards: %v", err)
	}
	now := settled(t, before+8, always)
	t.Logf("reliability row=10 figure=%d calls reset in %s: every health check answered, %+d goroutines", resets, flood, now-before)
}
