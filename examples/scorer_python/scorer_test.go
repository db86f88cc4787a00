// Package scorerpython runs the example scorers, and the Python package beside them,
// as a host does.
package scorerpython

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/likenessdb/likeness/e2e/harness"
	"github.com/likenessdb/likeness/plugin"
	pluginv1 "github.com/likenessdb/likeness/proto/gen/likeness/plugin/v1"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/rerank"
)

// hostEnv has the plugin's command: the test's program is its host then.
const hostEnv = "SCORER_PYTHON_HOST"

func TestMain(m *testing.M) {
	if command := os.Getenv(hostEnv); command != "" {
		if err := host(strings.Split(command, "\n")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	goleak.VerifyTestMain(m)
}

// python is the environment of requirements.txt.
var python = sync.OnceValues(func() (*harness.Program, error) {
	return harness.Python(context.Background(), "../../.cache/clients", "requirements.txt")
})

// interpreter skips the test where the packages cannot be had, and fails it in CI.
func interpreter(t testing.TB) string {
	t.Helper()
	p, err := python()
	switch {
	case err == nil:
		return p.Path
	case os.Getenv("CI") == "true":
		t.Fatal(err)
	default:
		t.Skipf("the packages cannot be installed (offline?): %v", err)
	}
	return ""
}

// process is a plugin's process.
type process struct {
	*plugin.Client
	conn   *grpc.ClientConn
	client *goplugin.Client
	cmd    *exec.Cmd
	stderr *bytes.Buffer
}

// config is a host's, without its environment, as the sidecar starts plugins.
func config(newest int, command ...string) *goplugin.ClientConfig {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = []string{"PYTHONDONTWRITEBYTECODE=1"}
	return &goplugin.ClientConfig{
		HandshakeConfig: plugin.Handshake(), VersionedPlugins: plugin.Versions(newest, plugin.Service{Name: plugin.ScorerSet}),
		Cmd: cmd, AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC}, AutoMTLS: true, SkipHostEnv: true,
		Logger: hclog.NewNullLogger(),
	}
}

func start(t testing.TB, command ...string) *process {
	t.Helper()
	c := config(plugin.ProtocolVersion, append([]string{interpreter(t)}, command...)...)
	p := &process{cmd: c.Cmd, stderr: &bytes.Buffer{}}
	c.Stderr = p.stderr
	p.client = goplugin.NewClient(c)
	t.Cleanup(p.client.Kill)
	protocol, err := p.client.Client()
	if err != nil {
		t.Fatalf("%v: %s", err, p.stderr)
	}
	dispensed, err := protocol.Dispense(plugin.ScorerSet)
	if err != nil {
		t.Fatal(err)
	}
	if err := protocol.Ping(); err != nil {
		t.Fatal(err)
	}
	p.conn = dispensed.(*grpc.ClientConn)
	p.Client = plugin.NewClient(p.conn)
	return p
}

func probe(t testing.TB, args ...string) *process {
	t.Helper()
	return start(t, append([]string{filepath.Join("testdata", "probe.py")}, args...)...)
}

func TestProbe(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "mark")
	p := probe(t, mark)
	t.Run("description", p.describes)
	t.Run("everything arrives", p.tells)
	t.Run("errors", p.fails)
	t.Run("scores", p.scores)
	t.Run("broken messages", p.broken)
	t.Run("health", p.health)
	t.Run("cancelled", func(t *testing.T) { p.cancels(t, mark) })
	t.Run("ends", p.ends)
}

func (p *process) describes(t *testing.T) {
	got, err := p.Describe(t.Context())
	want := plugin.Description{Name: "probe", Version: "7", MaxItems: 300, MaxBytes: 1 << 20, Parallel: 2, Cost: .5, Payload: true, Vectors: true}
	if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %+v, %v", got, err)
	}
}

// tells holds what Python reads against what Go wrote.
func (p *process) tells(t *testing.T) {
	q := plugin.Query{Text: "tell", Vector: []float32{.5, -2}, UserID: -3, HasUserID: true, Context: map[string]float32{"hour": 8.5, "ä": 0}}
	items := []plugin.Item{
		{ID: rerank.UintID(math.MaxUint64), Payload: json.RawMessage(`{"text":"ein Wört"}`), Vector: []float32{1, 2}},
		{ID: rerank.IntID(math.MinInt64), Vector: []float32{3, 4}},
		{ID: rerank.TextID("x-ü"), Payload: json.RawMessage(`{"n":[1,{"a":null}]}`), Vector: []float32{5, 6}},
		{ID: rerank.UintID(0), Payload: json.RawMessage(`{}`), Vector: []float32{7, 8}},
	}
	_, err := p.Score(t.Context(), q, items)
	const want = `{"user_id": -3, "vector": [0.5, -2.0], "context": {"hour": 8.5, "\u00e4": 0.0}, ` +
		`"ids": [18446744073709551615, -9223372036854775808, "x-\u00fc", 0], ` +
		`"payloads": [{"text": "ein W\u00f6rt"}, {}, {"n": [1, {"a": null}]}, {}], "vectors": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]]}`
	var got, wanted map[string]any
	if !errors.Is(err, plugin.ErrQuery) {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(err.Error(), ": ")
	if err := errors.Join(json.Unmarshal([]byte(text), &got), json.Unmarshal([]byte(want), &wanted)); err != nil || fmt.Sprint(got) != fmt.Sprint(wanted) {
		t.Errorf("%v\n got %s\nwant %s", err, text, want)
	}
}

func (p *process) fails(t *testing.T) {
	item := []plugin.Item{{ID: rerank.UintID(1)}, {ID: rerank.UintID(2)}}
	for text, want := range map[string]struct {
		is   error
		says string
	}{
		"query":    {plugin.ErrQuery, "so it is"},
		"large":    {plugin.ErrTooLarge, "so it is"},
		"later":    {plugin.ErrUnavailable, "so it is"},
		"fails":    {plugin.ErrAnswer, "KeyError: 'so it is'"},
		"exit":     {plugin.ErrAnswer, "SystemExit: 3"},
		"short":    {plugin.ErrAnswer, "1 scores for 2 items"},
		"infinite": {plugin.ErrAnswer, "the score of item 0 is inf"},
		"text":     {plugin.ErrAnswer, "could not convert string to float"},
	} {
		if got, err := p.Score(t.Context(), plugin.Query{Text: text}, item); !errors.Is(err, want.is) || !strings.Contains(err.Error(), want.says) {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for name, request := range map[string]struct {
		of   *pluginv1.ScoreRequest
		code codes.Code
		says string
	}{
		"items":    {&pluginv1.ScoreRequest{Ids: make([]*likenessv1.ItemId, 301)}, codes.ResourceExhausted, "301 items, the limit is 300 (max_items)"},
		"bytes":    {&pluginv1.ScoreRequest{Payloads: []string{strings.Repeat("x", 2<<20)}}, codes.ResourceExhausted, "the limit is 1048576 (max_bytes)"},
		"payloads": {&pluginv1.ScoreRequest{Ids: ids(2), Payloads: []string{"{}"}}, codes.InvalidArgument, "1 payloads for 2 ids"},
		"vectors":  {&pluginv1.ScoreRequest{Ids: ids(2), Vectors: make([]byte, 12)}, codes.InvalidArgument, "12 bytes are no 2 vectors"},
		"no JSON":  {&pluginv1.ScoreRequest{Query: tell, Ids: ids(2), Vectors: make([]byte, 8), Payloads: []string{"{}", "{"}}, codes.InvalidArgument, "the payload of item 1 is no JSON"},
		"no object": {
			&pluginv1.ScoreRequest{Query: tell, Ids: ids(2), Vectors: make([]byte, 8), Payloads: []string{`{},{}`, ""}},
			codes.InvalidArgument, "the payload of item 0 is no JSON",
		},
		"not finite": {
			&pluginv1.ScoreRequest{Query: &likenessv1.Query{Vector: []float32{float32(math.NaN())}}, Ids: ids(1)},
			codes.InvalidArgument, "not finite",
		},
	} {
		_, err := pluginv1.NewScorerServiceClient(p.conn).Score(t.Context(), request.of)
		if status.Code(err) != request.code || !strings.Contains(err.Error(), request.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

var tell = &likenessv1.Query{Text: "tell", Vector: []float32{1}}

func ids(n int) []*likenessv1.ItemId {
	out := make([]*likenessv1.ItemId, n)
	for i := range out {
		out[i] = &likenessv1.ItemId{Id: &likenessv1.ItemId_Number{Number: uint64(i)}}
	}
	return out
}

func (p *process) scores(t *testing.T) {
	item := []plugin.Item{{ID: rerank.UintID(1)}, {ID: rerank.UintID(2)}}
	got, version, err := p.ScoreVersion(t.Context(), plugin.Query{Text: "print"}, item)
	if err != nil || version != "7" || fmt.Sprint(got) != "[0 1]" {
		t.Errorf("%v, version %q, %v", got, version, err)
	}
	if got, err := p.Score(t.Context(), plugin.Query{Text: "none"}, item); err != nil || len(got) != 2 || got[0] == got[0] {
		t.Errorf("without scores: %v, %v", got, err)
	}
	if got, err := p.Score(t.Context(), plugin.Query{Text: "fails"}, nil); err != nil || len(got) != 0 {
		t.Errorf("without items: %v, %v", got, err)
	}
}

// broken sends what is no message, and what ends within one.
func (p *process) broken(t *testing.T) {
	whole, err := proto.Marshal(&pluginv1.ScoreRequest{Query: tell, Ids: ids(3), Payloads: []string{"{}", `{"a":1}`, ""}, Vectors: make([]byte, 24)})
	if err != nil {
		t.Fatal(err)
	}
	spoilt := [][]byte{{0xff}, {0x0a, 0xff, 0xff, 0xff, 0xff, 0x7f}, bytes.Repeat([]byte{0x80}, 20), {0x1a, 1, 0xff}}
	for n := 1; n < len(whole); n += 3 {
		spoilt = append(spoilt, whole[:n])
	}
	for _, b := range spoilt {
		var answer []byte
		err := p.conn.Invoke(t.Context(), pluginv1.ScorerService_Score_FullMethodName, &b, &answer, grpc.ForceCodec(raw{}))
		if code := status.Code(err); code != codes.InvalidArgument && code != codes.OK {
			t.Errorf("%x: %v", b, err)
		}
	}
	if err := p.conn.Invoke(t.Context(), "/likeness.plugin.v1.ScorerService/Other", &whole, &[]byte{}, grpc.ForceCodec(raw{})); status.Code(err) != codes.Unimplemented {
		t.Errorf("a method that there is not: %v", err)
	}
}

// raw passes bytes.
type raw struct{}

func (raw) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }

func (raw) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = bytes.Clone(data)
	return nil
}

func (raw) Name() string { return "proto" }

func (p *process) health(t *testing.T) {
	health := grpc_health_v1.NewHealthClient(p.conn)
	for service, want := range map[string]codes.Code{"": codes.OK, pluginv1.ScorerService_ServiceDesc.ServiceName: codes.OK, "other": codes.NotFound} {
		got, err := health.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: service})
		if status.Code(err) != want || err == nil && got.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
			t.Errorf("%q: %v, %v", service, got, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	watch, err := health.Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := watch.Recv(); err != nil || got.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Errorf("watch: %v, %v", got, err)
	}
}

// cancels sees that a scorer learns that nobody waits, and that others are answered meanwhile.
func (p *process) cancels(t *testing.T, mark string) {
	says := func(what string) func() bool {
		return func() bool {
			said, err := os.ReadFile(mark)
			return err == nil && string(said) == what
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := p.Score(ctx, plugin.Query{Text: "wait"}, []plugin.Item{{ID: rerank.UintID(1)}})
		ended <- err
	}()
	until(t, says("waiting")) // one that is given up before it comes is never begun
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	until(t, says("cancelled"))
}

func until(t *testing.T, what func() bool) {
	t.Helper()
	deadline, tick := time.After(20*time.Second), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for !what() {
		select {
		case <-deadline:
			t.Fatal("it did not come to pass in 20 s")
		case <-tick.C:
		}
	}
}

// ends sees that the process ends by itself when its host is done, and leaves nothing.
func (p *process) ends(t *testing.T) {
	socket := p.client.ReattachConfig().Addr.String()
	info, err := os.Stat(filepath.Dir(socket))
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder of the socket: %v, %v", info, err)
	}
	p.client.Kill()
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit status %d", code)
	}
	if _, err := os.Stat(filepath.Dir(socket)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder of the socket is left: %v", err)
	}
	for _, want := range []string{"printed by the scorer", "KeyError: 'so it is'"} {
		if !strings.Contains(p.stderr.String(), want) {
			t.Errorf("stderr does not have %q:\n%s", want, p.stderr)
		}
	}
}

// TestSchema compares the messages that Python declares with Go's.
func TestSchema(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), interpreter(t), filepath.Join("testdata", "probe.py"), "schema").Output()
	if err != nil {
		t.Fatal(err)
	}
	var declared map[string]map[string][2]any
	if err := json.Unmarshal(out, &declared); err != nil {
		t.Fatal(err)
	}
	for _, m := range []proto.Message{
		&likenessv1.Query{}, &likenessv1.ItemId{}, &pluginv1.ScoreRequest{}, &pluginv1.ScoreResponse{},
		&pluginv1.DescribeScorerResponse{}, &grpc_health_v1.HealthCheckRequest{},
	} {
		d := m.ProtoReflect().Descriptor()
		fields, python := d.Fields(), declared[string(d.Name())]
		if len(python) != fields.Len() {
			t.Errorf("%s: Python has the fields %v, Go %d", d.Name(), python, fields.Len())
		}
		for i := range fields.Len() {
			f := fields.Get(i)
			if got, want := fmt.Sprint(python[string(f.Name())]), fmt.Sprint([]any{f.Number(), kind(f)}); got != want {
				t.Errorf("%s.%s: Python has %s, Go %s", d.Name(), f.Name(), got, want)
			}
		}
	}
}

// kind is a field's type in the words of schema.py.
func kind(f protoreflect.FieldDescriptor) string {
	name := f.Kind().String()
	if f.IsMap() {
		return "[]ContextEntry"
	}
	if f.Message() != nil {
		name = string(f.Message().Name())
	}
	switch {
	case f.IsList():
		return "[]" + name
	case f.HasPresence() && f.Message() == nil:
		return "?" + name
	default:
		return name
	}
}

func TestVersions(t *testing.T) {
	const newest = 4
	c := config(newest, interpreter(t), filepath.Join("testdata", "probe.py"))
	var stderr bytes.Buffer
	c.Stderr = &stderr
	client := goplugin.NewClient(c)
	_, err := client.Client()
	client.Kill()
	if err = plugin.VersionError(err, newest); !errors.Is(err, plugin.ErrVersion) || !strings.Contains(err.Error(), "version 1, this host 3 and 4") {
		t.Error(err)
	}
	if said := stderr.String(); !strings.Contains(said, "the host speaks version") || !strings.Contains(said, "this plugin 1") {
		t.Errorf("stderr: %s", said)
	}
}

func TestByHand(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), interpreter(t), "scorer.py")
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "likeness plugin check") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestHostKilled kills a host with SIGKILL. The plugin holds the end of a pipe: what
// reads the other end sees it end.
func TestHostKilled(t *testing.T) {
	python := interpreter(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), hostEnv+"="+strings.Join([]string{python, filepath.Join("testdata", "probe.py")}, "\n"))
	cmd.ExtraFiles = []*os.File{w}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = errors.Join(cmd.Start(), w.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	socket := make([]byte, 4096)
	n, err := out.Read(socket)
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	_ = r.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.ReadAll(r); err != nil {
		t.Errorf("the plugin outlives its host: %v", err)
	}
	if folder := filepath.Dir(string(socket[:n])); folder == "." || exists(folder) {
		t.Errorf("the folder %q of the socket is left", folder)
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// host starts a plugin, which inherits file 3, says its socket and waits to be killed.
func host(command []string) error {
	c := config(plugin.ProtocolVersion, command...)
	c.Cmd.ExtraFiles = []*os.File{os.NewFile(3, "pipe")}
	client := goplugin.NewClient(c)
	at, err := client.Start()
	if err != nil {
		return err
	}
	fmt.Print(at.String())
	select {}
}
