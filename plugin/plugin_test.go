package plugin_test

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/likenessdb/likeness/plugin"
	"github.com/likenessdb/likeness/plugin/internal/hosted"
	"github.com/likenessdb/likeness/plugin/plugintest"
	"github.com/likenessdb/likeness/rerank"
)

// The test's binary is the plugin too: with childScorer it serves what that names.
const childScorer = "LIKENESS_TEST_SCORER"

func TestMain(m *testing.M) {
	if name, ok := os.LookupEnv(childScorer); ok {
		flags := flag.NewFlagSet(name, flag.ExitOnError)
		options := []plugin.Option{plugin.ListenFlags(flags)}
		protocol := flags.Int("protocol", plugin.ProtocolVersion, "")
		_ = flags.Parse(os.Args[1:])
		if err := serveChild(name, append(options, plugin.Protocol(*protocol))); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("google.golang.org/grpc/internal/transport.(*controlBuffer).get"))
}

var described = plugin.Description{
	Name: "sum", Version: "7", MaxItems: 64, MaxBytes: 1 << 20, Parallel: 4, Cost: 2, Payload: true, PayloadFields: []string{"text"}, Vectors: true,
}

func serveChild(name string, options []plugin.Option) error {
	d, score := described, sum
	switch name {
	case "panics":
		score = func(context.Context, plugin.Query, []plugin.Item) ([]float32, error) { panic("out of cheese") }
	case "short":
		score = func(_ context.Context, _ plugin.Query, items []plugin.Item) ([]float32, error) {
			return make([]float32, len(items)-1), nil
		}
	case "shuffled":
		score = func(_ context.Context, q plugin.Query, items []plugin.Item) ([]float32, error) {
			scores, err := sum(context.Background(), q, items)
			slices.Reverse(scores)
			return scores, err
		}
	case "no version":
		d.Version = ""
	}
	return plugin.Serve(d, score, options...)
}

// sum adds up what it is given, so that anything lost on the way shows.
func sum(_ context.Context, q plugin.Query, items []plugin.Item) ([]float32, error) {
	scores := make([]float32, len(items))
	for i, item := range items {
		n, _ := item.ID.Uint64()
		scores[i] = float32(n%1000) + float32(len(item.Payload))
		for j, x := range item.Vector {
			scores[i] += x * float32(j)
		}
		if len(q.Vector) > 0 {
			scores[i] += q.Vector[0]
		}
		for j, x := range q.Vectors.Data {
			scores[i] += x * float32(q.Vectors.Cols+j)
		}
		if string(item.Payload) == "{}" {
			scores[i] = float32(math.NaN())
		}
	}
	return scores, nil
}

func child(name string, args ...string) plugintest.Command {
	return plugintest.Command{Path: os.Args[0], Args: args, Env: []string{childScorer + "=" + name, "GORACE=atexit_sleep_ms=0"}, Stderr: os.Stderr}
}

func start(t *testing.T, name string, args ...string) *plugin.Client {
	t.Helper()
	conn, stop, err := plugintest.Start(t.Context(), child(name, args...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return plugin.NewClient(conn)
}

func TestConformance(t *testing.T) { plugintest.RunCommand(t, child("sum"), plugintest.Options{}) }

// TestQueryVectorsArrive: a scorer gets the rows of Query.Vectors as they were sent, and none
// that is not finite.
func TestQueryVectorsArrive(t *testing.T) {
	c := start(t, "sum")
	q := plugin.Query{Vectors: rerank.Matrix{Rows: 3, Cols: 2, Data: []float32{1, 2, 3, 4, 5, 6}}}
	items := []plugin.Item{{ID: rerank.UintID(1), Payload: []byte("{ }")}}
	scores, err := c.Score(t.Context(), q, items)
	if want := float32(1 + 3 + 1*2 + 2*3 + 3*4 + 4*5 + 5*6 + 6*7); err != nil || scores[0] != want {
		t.Errorf("%v, %v, want %v", scores, err, want)
	}
	q.Vectors.Data[5] = float32(math.NaN())
	if _, err := c.Score(t.Context(), q, items); !errors.Is(err, plugin.ErrQuery) || !strings.Contains(err.Error(), "query.vectors[2][1]") {
		t.Errorf("a vector that is not finite: %v", err)
	}
}

func TestConformanceInProcess(t *testing.T) {
	d := described
	plugintest.Run(t, inProcess{d}, plugintest.Options{})
}

// inProcess keeps the limits that Serve keeps for others.
type inProcess struct{ d plugin.Description }

func (s inProcess) Describe(context.Context) (plugin.Description, error) { return s.d, nil }

func (s inProcess) Score(ctx context.Context, q plugin.Query, items []plugin.Item) ([]float32, error) {
	bytes := 0
	for _, item := range items {
		bytes += len(item.Payload)
	}
	if len(items) > s.d.MaxItems || bytes > s.d.MaxBytes {
		return nil, plugin.ErrTooLarge
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return sum(ctx, q, items)
}

func TestEverythingArrives(t *testing.T) {
	s := start(t, "sum")
	d, err := s.Describe(t.Context())
	if err != nil || fmt.Sprint(d) != fmt.Sprint(described) {
		t.Errorf("described as %+v, %v; want %+v", d, err, described)
	}
	items := []plugin.Item{
		{ID: rerank.UintID(math.MaxUint64), Payload: []byte(`{"text":"a"}`), Vector: []float32{1, 2, 3}},
		{ID: rerank.UintID(3), Payload: []byte(`{}`), Vector: []float32{4, 5, 6}},
		{ID: rerank.TextID("x"), Vector: []float32{7, 8, 9}},
	}
	q := plugin.Query{Vector: []float32{0.5, 1}}
	got, version, err := s.ScoreVersion(t.Context(), q, items)
	if err != nil || version != "7" {
		t.Fatalf("version %q, %v", version, err)
	}
	want, _ := sum(t.Context(), q, items)
	for i := range want {
		if got[i] != want[i] && !(i == 1 && math.IsNaN(float64(got[i]))) {
			t.Errorf("item %d has the score %v, want %v", i, got[i], want[i])
		}
	}
}

func TestErrorsCrossTheConnection(t *testing.T) {
	items := make([]plugin.Item, 65)
	for i := range items {
		items[i].ID = rerank.UintID(uint64(i))
	}
	tests := []struct {
		name, scorer string
		query        plugin.Query
		items        []plugin.Item
		want         error
		says         string
	}{
		{"items", "sum", plugin.Query{}, items, plugin.ErrTooLarge, "65 items, the scorer takes 64 (max_items)"},
		{"bytes", "sum", plugin.Query{Text: strings.Repeat("x", 1<<20)}, items[:1], plugin.ErrTooLarge, "the scorer takes 1048576 (max_bytes)"},
		{"not finite", "sum", plugin.Query{Vector: []float32{1, float32(math.Inf(1))}}, items[:1], plugin.ErrQuery, "query.vector[1] is +Inf"},
		{"panic", "panics", plugin.Query{}, items[:1], plugin.ErrAnswer, "out of cheese"},
		{"count", "short", plugin.Query{}, items[:2], plugin.ErrAnswer, "1 scores for 2 items"},
		{"vectors", "sum", plugin.Query{}, []plugin.Item{{ID: rerank.UintID(1), Vector: []float32{1}}, items[2]}, plugin.ErrQuery, "send vectors of one length"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			s := start(t, tc.scorer)
			for range 2 { // the process outlives it
				_, err := s.Score(t.Context(), tc.query, tc.items)
				if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.says) {
					t.Errorf("error %v, want %v with %q", err, tc.want, tc.says)
				}
			}
		})
	}
}

// A kit that finds nothing is useless.
func TestKitFindsFaults(t *testing.T) {
	for scorer, want := range map[string]string{"short": "count", "shuffled": "order", "panics": "count"} {
		t.Run(scorer, func(t *testing.T) {
			s := start(t, scorer)
			failed := map[string]bool{}
			for _, r := range plugintest.Check(t.Context(), s, plugintest.Options{}, nil) {
				failed[r.Case] = r.State == plugintest.Failed
			}
			if !failed[want] {
				t.Errorf("the case %q passed", want)
			}
		})
	}
}

func TestVersionsAreNegotiated(t *testing.T) {
	tests := []struct {
		host, plugin, want int // want 0: none
	}{
		{1, 1, 1}, {2, 1, 1}, {1, 2, 1}, {3, 3, 3}, {3, 2, 2}, {2, 3, 2}, {3, 1, 0}, {1, 3, 0}, {4, 2, 0},
	}
	for _, tc := range tests {
		t.Run(fmt.Sprintf("host %d, plugin %d", tc.host, tc.plugin), func(t *testing.T) {
			p, err := hosted.Start(t.Context(), hosted.Options{
				Command: []string{os.Args[0], fmt.Sprintf("-protocol=%d", tc.plugin)}, Env: []string{childScorer + "=sum", "GORACE=atexit_sleep_ms=0"},
				Handshake: plugin.Handshake(), Set: plugin.ScorerSet, Protocol: tc.host,
			})
			if tc.want == 0 {
				host, theirs := fmt.Sprintf("this host %d and %d", tc.host-1, tc.host), fmt.Sprintf("the plugin speaks version %d", tc.plugin-1)
				if tc.host == 1 {
					host = "this host 1;"
				}
				if tc.plugin == 1 {
					theirs = "the plugin speaks version 1"
				}
				if !errors.Is(err, plugin.ErrVersion) || !strings.Contains(err.Error(), host) || !strings.Contains(err.Error(), theirs) {
					t.Errorf("error %v, want ErrVersion with %q and %q", err, host, theirs)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close(5 * time.Second)
			if p.Version != tc.want {
				t.Errorf("version %d, want %d", p.Version, tc.want)
			}
			if _, err := plugin.NewClient(p.Conn).Describe(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestStartedByHand(t *testing.T) {
	t.Setenv(plugin.CookieKey, "")
	err := serveChild("sum", []plugin.Option{plugin.Listen("", plugin.TLS{})})
	if !errors.Is(err, plugin.ErrNotHosted) || !strings.Contains(err.Error(), "likeness plugin check") || !strings.Contains(err.Error(), "-listen unix://") {
		t.Errorf("error %v, want ErrNotHosted and what to do", err)
	}
	if err := serveChild("no version", nil); err == nil || !strings.Contains(err.Error(), "Version") {
		t.Errorf("a description without a version: %v", err)
	}
}

// A plugin whose host is gone ends, whether or not the system sees to it.
func TestEndsWithItsHost(t *testing.T) {
	host := exec.CommandContext(t.Context(), "sh", "-c", `"$0" & echo $!; wait`, os.Args[0])
	host.Env = []string{childScorer + "=sum", plugin.CookieKey + "=" + plugin.CookieValue, "PLUGIN_CLIENT_CERT=none", "PLUGIN_PROTOCOL_VERSIONS=1", "TMPDIR=" + t.TempDir()}
	out, err := host.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := host.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	lines.Scan()
	pid := lines.Text()
	lines.Scan() // the handshake: it serves
	if !strings.HasPrefix(lines.Text(), "1|1|unix|") {
		t.Fatalf("process %s says %q", pid, lines.Text())
	}
	if err := host.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() { // until nobody has its stdout
	}
	_ = host.Wait()
}

func TestListen(t *testing.T) {
	dir := t.TempDir()
	folder := filepath.Join(dir, "private")
	address := "unix://" + filepath.Join(folder, "s.sock")
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, wrong := range []struct{ address, says string }{
		{"unix://" + filepath.Join(dir, "s.sock"), "mode 0700"}, {"127.0.0.1:0", "mutual TLS"},
	} {
		err := plugin.Serve(described, sum, plugin.Listen(wrong.address, plugin.TLS{}))
		if err == nil || !strings.Contains(err.Error(), wrong.says) {
			t.Errorf("%s: %v, want %q", wrong.address, err, wrong.says)
		}
	}
	for range 2 { // a second one takes the place of the first, which is gone
		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() { served <- plugin.ServeScorer(ctx, inProcess{described}, plugin.Listen(address, plugin.TLS{})) }()
		conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		health, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: "plugin"}, grpc.WaitForReady(true))
		if err != nil || health.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
			t.Errorf("health %v, %v", health.GetStatus(), err)
		}
		if _, err := plugin.NewClient(conn).Describe(t.Context()); err != nil {
			t.Error(err)
		}
		_ = conn.Close()
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}
}
