package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/likenessdb/likeness/internal/signals"
	"github.com/likenessdb/likeness/plugin/host"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/rerank/npy"
)

const (
	// asHost makes the test binary a host of the configuration in its arguments. It prints the
	// process id of its sidecar and runs until it is killed.
	asHost     = "LIKENESS_TEST_AS_HOST"
	hostConfig = "../../examples/plugin_host/likeness.yaml"
)

func beHost() {
	sidecar, err := host.Start(context.Background(), hostOptions(os.Getenv(asHost)))
	if err != nil {
		_, _ = fmt.Fprintln(os.Stdout, err)
		return
	}
	_, _ = fmt.Fprintln(os.Stdout, sidecar.State().PID)
	select {}
}

// hostOptions start this test binary as likeness.
func hostOptions(config string, args ...string) host.Options {
	return host.Options{Command: os.Args[0], Config: config, Args: args, Env: []string{asCommand + "=1", "GORACE=atexit_sleep_ms=0"}}
}

func startHost(t *testing.T, args ...string) *host.Sidecar {
	t.Helper()
	s, err := host.Start(t.Context(), hostOptions(hostConfig, args...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func question(t *testing.T) *likenessv1.SearchRequest {
	t.Helper()
	vectors, err := npy.Open("../../examples/data/banking77/test_vectors.npy")
	if err != nil {
		t.Fatal(err)
	}
	defer vectors.Close()
	return &likenessv1.SearchRequest{Route: "questions", K: 5, Query: &likenessv1.Query{Vector: append([]float32(nil), vectors.Row(7)...)}}
}

func ids(r *likenessv1.SearchResponse) (out []uint64) {
	for _, hit := range r.GetHits() {
		out = append(out, hit.GetId().GetNumber())
	}
	return out
}

func TestHostedSidecar(t *testing.T) {
	s, r := startHost(t), question(t)
	answer, err := s.Search(t.Context(), r)
	if err != nil || len(ids(answer)) != 5 {
		t.Fatalf("%v, %v", answer, err)
	}
	score, err := s.Score(t.Context(), &likenessv1.ScoreRequest{Route: r.GetRoute(), Query: r.GetQuery(),
		Items: &likenessv1.ScoreRequest_Ids{Ids: &likenessv1.ItemIds{Ids: []*likenessv1.ItemId{answer.GetHits()[2].GetId()}}}})
	if err != nil || len(score.GetScores()) != 1 || score.GetScores()[0]-answer.GetHits()[2].GetScore() > 1e-5 {
		t.Errorf("the score of the third hit, %v, is %v, %v", answer.GetHits()[2].GetScore(), score.GetScores(), err)
	}
	if _, err := s.Search(t.Context(), &likenessv1.SearchRequest{Route: "none", K: 1, Query: r.GetQuery()}); status.Code(err) != codes.NotFound {
		t.Errorf("a route that is not there: %v", err)
	}
	if routes, err := likenessv1.NewCatalogServiceClient(s.Conn()).ListRoutes(t.Context(), &likenessv1.ListRoutesRequest{}); err != nil || len(routes.GetRoutes()) != 1 {
		t.Errorf("routes %v, %v", routes, err)
	}
	for service, want := range map[string]codes.Code{"": codes.OK, "route/questions": codes.OK, "plugin": codes.OK, "route/none": codes.NotFound} {
		health, err := grpc_health_v1.NewHealthClient(s.Conn()).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: service})
		if status.Code(err) != want || err == nil && health.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
			t.Errorf("health of %q: %v, %v", service, health.GetStatus(), err)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := s.Search(t.Context(), r); !errors.Is(err, host.ErrClosed) {
		t.Errorf("a search after the end: %v", err)
	}
}

// TestHostedSidecarIsStartedAgain: a host that searches while its sidecar is killed twice gets a
// right answer to every search.
func TestHostedSidecarIsStartedAgain(t *testing.T) {
	s, r := startHost(t), question(t)
	first, err := s.Search(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprint(ids(first))
	for kill := range 2 {
		before := s.State()
		for before.PID == 0 { // the one before was killed, and its successor is starting
			if _, err := s.Search(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			before = s.State()
		}
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				for s.State().Restarts == kill {
					answer, err := s.Search(t.Context(), r)
					if got := fmt.Sprint(ids(answer)); err != nil || got != want {
						t.Errorf("an answer of %s, %v; want %s", got, err, want)
						return
					}
				}
			})
		}
		signals.Send(t, before.PID, syscall.SIGKILL)
		group.Wait()
		if after := s.State(); after.PID == before.PID || after.Restarts != kill+1 {
			t.Errorf("after the kill: %+v, before: %+v", after, before)
		}
	}
}

// TestHostedSidecarThatHangs: a sidecar that is stopped (SIGSTOP) is killed, and its successor
// answers the search.
func TestHostedSidecarThatHangs(t *testing.T) {
	o := hostOptions(hostConfig)
	o.HealthTimeout = 5 * time.Second // a busy machine must answer within it
	s, err := host.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	before := s.State()
	signals.Send(t, before.PID, syscall.SIGSTOP)
	answer, err := s.Search(t.Context(), question(t))
	if after := s.State(); err != nil || len(ids(answer)) != 5 || after.PID == before.PID {
		t.Errorf("%d hits, %v; %+v, before: %+v", len(ids(answer)), err, after, before)
	}
}

func TestHostedSidecarNegotiates(t *testing.T) {
	for _, tc := range []struct{ host, sidecar, want int }{{3, 2, 2}, {1, 3, 0}} {
		o := hostOptions(hostConfig, "--protocol", strconv.Itoa(tc.sidecar))
		o.Protocol = tc.host
		s, err := host.Start(t.Context(), o)
		if tc.want == 0 {
			if !errors.Is(err, host.ErrVersion) {
				t.Errorf("host %d, sidecar %d: %v, want ErrVersion", tc.host, tc.sidecar, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := s.State().Protocol; got != tc.want {
			t.Errorf("host %d, sidecar %d: version %d, want %d", tc.host, tc.sidecar, got, tc.want)
		}
		_ = s.Close()
	}
}

func TestHostedSidecarThatCannotStart(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "likeness.yaml")
	if err := os.WriteFile(bad, []byte("routs: {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := host.Start(t.Context(), hostOptions(bad)); err == nil || !strings.Contains(err.Error(), "routs") {
		t.Errorf("a configuration that is not valid: %v, want what the sidecar said of it", err)
	}
	o := hostOptions(hostConfig)
	o.Command = "no-such-likeness"
	if _, err := host.Start(t.Context(), o); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("a command that is not there: %v", err)
	}
	if r := execute(t, "", "plugin", "serve", "--config", hostConfig); r.code != 1 || !strings.Contains(r.err, "plugin/host") {
		t.Errorf("started by hand: exit code %d, %s", r.code, r.err)
	}
}

// TestHostedSidecarEndsWithItsHost: after a host was killed, its sidecar ends too.
func TestHostedSidecarEndsWithItsHost(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = []string{asHost + "=" + hostConfig}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	pid, odd := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || odd != nil {
		t.Fatalf("the host says %q, %v", line, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(20 * time.Second); syscall.Kill(pid, 0) == nil && !zombie(pid); {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("process %d outlives its host", pid)
		}
	}
}

// zombie reports whether a process has ended and only waits to be reaped by the machine's init.
func zombie(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(state, "Z")
}
