package serve_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/likenessdb/likeness/internal/race"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/sidecar/serve"
)

// A sidecar in a container, whose own limit is four fifths of the container's memory, is sent ten
// times the requests that fit. It refuses those that it cannot hold, is not killed, and always
// answers health checks. LIKENESS_SOAK=1 runs for ten minutes. The batches have 2 MiB, because
// nothing limits the bytes that are read at once of many messages of limits.max_message_bytes.
func TestMemoryCeiling(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector takes memory of its own")
	}
	container, clients, vectors, lasts := 512, 64, 2, 5*time.Second
	if os.Getenv(soak) != "" {
		lasts = 10 * time.Minute
	}
	text := strings.Replace(base, "stores:", fmt.Sprintf("limits: {memory: %dMiB}\nstores:", container*4/5), 1)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childConfig+"="+files(t, text))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must2(t, err)
	must2(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	enclosed := enclose(t, cmd.Process.Pid, int64(container)<<20)
	line, err := bufio.NewReader(out).ReadBytes('\n')
	must2(t, err)
	var at serve.Addresses
	must2(t, json.Unmarshal(line, &at))
	dial := func() *grpc.ClientConn {
		conn, err := grpc.NewClient(at.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
		must2(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	other := dial()
	search := func(ctx context.Context, conn *grpc.ClientConn) error {
		ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		_, err := likenessv1.NewSearchServiceClient(conn).Search(ctx, &likenessv1.SearchRequest{
			Route: "things", Query: &likenessv1.Query{Vector: []float32{1, 2}}, K: 2}, grpc.WaitForReady(true))
		return err
	}
	for status.Code(search(t.Context(), other)) == codes.Unavailable { // until the route is open
	}
	// A batch of queries as long as may be, which are found too long once they are read.
	batch := &likenessv1.SearchBatchRequest{}
	for range vectors * 4 {
		batch.Searches = append(batch.Searches, &likenessv1.SearchRequest{Route: "things", K: 1, Query: &likenessv1.Query{Vector: make([]float32, 65536)}})
	}
	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	var read, refused, good, checks atomic.Int64
	var group sync.WaitGroup
	for range clients {
		group.Go(func() {
			conn := dial()
			for ctx.Err() == nil {
				switch _, err := likenessv1.NewSearchServiceClient(conn).SearchBatch(ctx, batch); status.Code(err) {
				case codes.OK:
					read.Add(1)
				case codes.ResourceExhausted:
					refused.Add(1)
				case codes.DeadlineExceeded, codes.Canceled:
				default:
					t.Errorf("a batch: %v", err)
					return
				}
				if search(ctx, conn) == nil {
					good.Add(1)
				}
			}
		})
	}
	group.Go(func() {
		for tick := time.Tick(50 * time.Millisecond); ctx.Err() == nil; <-tick {
			asked, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			if _, err := grpc_health_v1.NewHealthClient(other).Check(asked, &grpc_health_v1.HealthCheckRequest{}); err != nil {
				t.Errorf("health: %v", err)
			}
			cancel()
			checks.Add(1)
		}
	})
	group.Wait()
	if err := search(t.Context(), other); err != nil && status.Code(err) != codes.ResourceExhausted {
		t.Errorf("afterwards: %v", err)
	}
	peak := peakMemory(t, cmd.Process.Pid) // includes shared memory, such as its own text
	t.Logf("reliability row=6 figure=%s in %d MiB (a cgroup: %t): %d batches of %d MiB read and %d refused, %d searches answered, %d health checks all answered, at most %d MiB, not killed",
		lasts, container, enclosed, read.Load(), vectors, refused.Load(), good.Load(), checks.Load(), peak>>20)
}

// enclose puts a process into a cgroup of so many bytes until the test ends, where this
// machine lets it.
func enclose(t *testing.T, pid int, limit int64) bool {
	for _, v := range []struct{ root, known, file string }{
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.limit_in_bytes"}, // version 1
		{"/sys/fs/cgroup", "cgroup.controllers", "memory.max"},                      // version 2
	} {
		dir := filepath.Join(v.root, fmt.Sprintf("likeness-test-%d", pid))
		if _, err := os.Stat(filepath.Join(v.root, v.known)); err != nil || os.Mkdir(dir, 0o755) != nil {
			continue
		}
		t.Cleanup(func() { // a cgroup with a process in it cannot be removed
			_ = os.WriteFile(filepath.Join(v.root, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o600)
			if err := os.Remove(dir); err != nil {
				t.Error(err)
			}
		})
		if os.WriteFile(filepath.Join(dir, v.file), []byte(strconv.FormatInt(limit, 10)), 0o600) == nil &&
			os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o600) == nil {
			return true
		}
	}
	return false
}

// peakMemory returns the largest resident memory that a process has had.
func peakMemory(t *testing.T, pid int) int64 {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatalf("the sidecar is gone: %v", err)
	}
	for line := range strings.Lines(string(data)) {
		if kib, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(kib), "kB")), 10, 64)
			must2(t, err)
			return n << 10
		}
	}
	return 0
}
