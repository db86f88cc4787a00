package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	"github.com/likenessdb/likeness/plugin"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/npy"
	"github.com/likenessdb/likeness/sidecar/serve"
)

// asCommand makes the test binary the likeness command.
const asCommand = "LIKENESS_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
		return
	}
	if len(os.Args) > 2 && os.Args[1] == asScorer {
		serveMatrix(os.Args[2:])
		return
	}
	if os.Getenv(plugin.CookieKey) == plugin.CookieValue {
		serveTestScorer()
		return
	}
	if os.Getenv(asHost) != "" {
		beHost()
		return
	}
	goleak.VerifyTestMain(m)
}

// result is the outcome of a command line.
type result struct {
	out, err string
	code     int
}

func execute(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	err := run(t.Context(), args, strings.NewReader(stdin), &out, &errs)
	return result{out.String(), errs.String(), exitCode(err)}
}

func TestExitCodes(t *testing.T) {
	tests := []struct {
		args []string
		code int
		want string // expected in the output
	}{
		{[]string{"version"}, 0, "likeness.v1"},
		{[]string{"version", "--output", "json"}, 0, `"api": "likeness.v1"`},
		{[]string{"--help"}, 0, "Exit codes"},
		{[]string{"config"}, 0, "validate"},
		{[]string{"vesion"}, 2, "Did you mean"},
		{[]string{"--version"}, 0, "likeness devel"},
		{[]string{"version", "--nothing"}, 2, "unknown flag: --nothing\n"},
		{[]string{"version", "--outptu", "json"}, 2, "unknown flag: --outptu; did you mean --output?"},
		{[]string{"eval", "--power", "0.005"}, 2, "eval takes no arguments; got 0.005; write --power=0.005"},
		{[]string{"version", "extra"}, 2, "likeness: version takes no arguments; got extra"},
		{[]string{"serve", "likeness.yaml"}, 2, "serve takes no arguments; got likeness.yaml; write --config=likeness.yaml"},
		{[]string{"try", "goods", "http://127.0.0.1:1"}, 2, "http://127.0.0.1:1 looks like a URL; the URL comes first"},
		{[]string{"model", "diff", "a"}, 2, "model diff takes A B; got a"},
		{[]string{"model", "show"}, 2, "model show takes PATH; got none"},
		{[]string{"fit", "bilnear"}, 2, `unknown command "bilnear" for "likeness fit"; did you mean bilinear?`},
		{[]string{"fit", "junk"}, 2, `unknown command "junk" for "likeness fit"; there are bilinear, `},
		{[]string{"version", "--output", "xml"}, 2, "text or json"},
		{[]string{"config", "print", "--config", "none.yaml"}, 3, "none.yaml"},
		{[]string{"config", "print", "--set", "limits.max_k=x"}, 3, "limits.max_k"},
		{[]string{"serve"}, 3, "it has no route"},
		{[]string{"config", "print", "--set", "limits.max_k=77"}, 0, "max_k: 77"},
		{[]string{"config", "schema"}, 0, "draft/2020-12"},
		{[]string{"query"}, 2, "a query vector is missing"},
		{[]string{"query", "--vector", "[1"}, 2, "JSON array"},
		{[]string{"query", "--vector", "[1]"}, 2, "--route"},
		{[]string{"query", "--vector", "[1]", "--route", "r", "--strategy", "best"}, 2, "per_embedding"},
		{[]string{"query", "--vector", "[1]", "--route", "r", "--address", "127.0.0.1:1"}, 4, "Unavailable"},
		{[]string{"query", "--nothing"}, 2, "See 'likeness query --help'"},
		{[]string{"completion", "bash"}, 0, "likeness"},
		{[]string{"completion", "--help"}, 0, "Examples:"},
	}
	for _, tc := range tests {
		t.Run(strings.Join(tc.args, " "), func(t *testing.T) {
			r := execute(t, "", tc.args...)
			if r.code != tc.code || !strings.Contains(r.out+r.err, tc.want) {
				t.Errorf("code %d, want %d with %q in\n%s%s", r.code, tc.code, tc.want, r.out, r.err)
			}
			if r.code != 0 && r.out != "" {
				t.Errorf("an error on stdout: %s", r.out)
			}
		})
	}
}

func TestInterrupted(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	var out, errs bytes.Buffer
	err := run(ctx, []string{"query", "--vector", "[1]", "--route", "r"}, strings.NewReader(""), &out, &errs)
	if exitCode(err) != 130 {
		t.Errorf("code %d of %v, want 130", exitCode(err), err)
	}
}

// TestHelpOfEveryCommand: the help of a command begins with its summary, and has an example unless
// the command is a group.
func TestHelpOfEveryCommand(t *testing.T) {
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		if !cmd.HasSubCommands() && cmd.Example == "" {
			t.Errorf("%s has no example", cmd.CommandPath())
		}
		var out bytes.Buffer
		cmd.SetOut(&out)
		if err := cmd.Help(); err != nil || !strings.HasPrefix(out.String(), cmd.Short+".\n\n") {
			t.Errorf("the help of %s does not begin with %q (%v):\n%s", cmd.CommandPath(), cmd.Short, err, &out)
		}
		for _, child := range cmd.Commands() {
			visit(child)
		}
	}
	visit(newRootCommand(&app{}))
}

func TestGeneratedPagesAreUpToDate(t *testing.T) {
	root := newRootCommand(&app{})
	root.InitDefaultCompletionCmd()
	for name, write := range pages(root) {
		var want bytes.Buffer
		if err := write(&want); err != nil {
			t.Fatal(err)
		}
		have, err := os.ReadFile(filepath.Join("../..", name))
		if err != nil || !bytes.Equal(have, want.Bytes()) {
			t.Errorf("%s is out of date (%v); run make generate", name, err)
		}
	}
	if r := execute(t, "", "docs", "--man", t.TempDir()); r.code != 0 {
		t.Errorf("man pages: %s", r.err)
	}
}

func TestServeAndQuery(t *testing.T) {
	dir := t.TempDir()
	m, err := model.New(model.Parameters{Kind: rerank.KindDot, Name: "plain", Config: []byte(`{"dim":2,"normalise":false}`)})
	if err != nil {
		t.Fatal(err)
	}
	path := func(name string) string { return filepath.Join(dir, name) }
	if err := model.Write(path("plain.safetensors"), m); err != nil {
		t.Fatal(err)
	}
	if err := npy.Write(path("things.npy"), rerank.Matrix{Rows: 3, Cols: 2, Data: []float32{1, 0, 0, 1, 1, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path("things.jsonl"), []byte(strings.Repeat("{\"title\":\"t\",\"facts\":{\"size\":3}}\n", 3)), 0o600); err != nil {
		t.Fatal(err)
	}
	text := "stores: {files: {kind: embedded, collections: {things: {vectors: things.npy, payload: things.jsonl}}}}\n" +
		"models: {plain: {path: plain.safetensors}}\n" +
		"routes: {things: {store: files, collection: things, model: plain, placement: stored, exact_search: true}}\n"
	if err := os.WriteFile(path("likeness.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := execute(t, "", "config", "validate", "-c", path("likeness.yaml"), "--connect"); r.code != 0 || !strings.Contains(r.out, "valid") {
		t.Fatalf("validate: %+v", r)
	}
	if r := execute(t, "", "config", "validate", "-c", path("likeness.yaml"), "--set", "routes.things.table=none.table"); r.code != 3 ||
		!strings.Contains(r.err, "build it with `likeness index --route things`") {
		t.Errorf("validate without the table: %+v", r)
	}
	if r := execute(t, "", "config", "validate"); r.code != 3 || !strings.Contains(r.err, "no route") {
		t.Errorf("validate of nothing: %+v", r)
	}
	ctx, stop := context.WithCancel(t.Context())
	log := &announcements{ready: make(chan struct{})}
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, []string{"serve", "-c", path("likeness.yaml"), "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0",
			"--ready-file", path("ready.json")}, strings.NewReader(""), os.Stdout, log)
	}()
	select {
	case <-log.ready:
	case err := <-ended:
		t.Fatal(err)
	}
	at := readReadyFile(t, path("ready.json"))
	for _, tc := range []struct{ stdin, output, want string }{
		{"[1, 2]", "text", "1     2   3"},
		{`{"query": {"vector": [1, 2]}, "max_gap": 0}`, "json", "CERTIFICATE_STATUS_EXACT"},
	} {
		r := execute(t, tc.stdin, "query", "-a", at.GRPC, "-r", "things", "-k", "2", "--explain", "-o", tc.output)
		if r.code != 0 || !strings.Contains(r.out, tc.want) {
			t.Errorf("query: want %q in %+v", tc.want, r)
		}
	}
	if err := os.WriteFile(path("seen.txt"), []byte("2\n\n-7\n\"a\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, flags := range map[string][]string{
		"1     1   2": {"--exclude-id", "2"},
		"1     0   1": {"--exclude-ids", path("seen.txt"), "--exclude-id", "1"},
	} {
		r := execute(t, "[1, 2]", append([]string{"query", "-a", at.GRPC, "-r", "things", "-k", "2"}, flags...)...)
		if r.code != 0 || !strings.Contains(r.out, want) || !strings.Contains(r.out, "exact") {
			t.Errorf("query %q: want %q in %+v", flags, want, r)
		}
	}
	if r := execute(t, "", "query", "-a", at.GRPC, "-r", "things", "-k", "2", "--item", "0", "--item", "1=0.5"); r.code != 0 || !strings.Contains(r.out, "1     2   1") {
		t.Errorf("query of items: %+v", r)
	}
	if r := execute(t, "", "query", "-a", at.GRPC, "-r", "things", "--item", "0=much"); r.code != 2 || !strings.Contains(r.err, "no weight") {
		t.Errorf("query of an item without a weight: %+v", r)
	}
	for fields, want := range map[string]string{
		"title": "", "facts.size": `returns whole fields only; ask for "facts"`, "titel": `no row has a field "titel"; the nearest of 2 fields are ["title" "facts.size"]`, "title,size": `["facts.size" "title"]`,
	} {
		r := execute(t, "[1, 2]", "query", "-a", at.GRPC, "-r", "things", "-k", "2", "--payload-fields", fields)
		if r.code != 0 || !strings.Contains(r.err, want) || (want == "") == strings.Contains(r.err, "--payload-fields") {
			t.Errorf("query of the fields %s: want %q in %+v", fields, want, r)
		}
	}
	for row, code := range map[string]int{"2": 0, "3": 2} {
		if r := execute(t, "", "query", "-a", at.GRPC, "-r", "things", "--vector-file", path("things.npy"), "--row", row); r.code != code {
			t.Errorf("row %s: %+v", row, r)
		}
	}
	for _, tc := range []struct{ output, want string }{{"text", "own"}, {"json", `"around": {`}} {
		r := execute(t, "", "bench", "serve", "-a", at.GRPC, "-r", "things", "-k", "2", "--queries", path("things.npy"),
			"--duration", "100ms", "--warm-up", "10ms", "--workers", "2", "--load", "0.5", "-o", tc.output)
		if r.code != 0 || !strings.Contains(r.out, "good") || !strings.Contains(r.out, tc.want) {
			t.Errorf("bench serve: want %q in %+v", tc.want, r)
		}
	}
	if r := execute(t, "", "bench", "serve", "-a", at.GRPC, "-r", "none", "--queries", path("things.npy")); r.code == 0 || !strings.Contains(r.err, "none") {
		t.Errorf("bench serve of no route: %+v", r)
	}
	for route, code := range map[string]int{"": 0, "things": 0, "none": 2} {
		if r := execute(t, "", "health", "-a", at.GRPC, "-r", route); r.code != code {
			t.Errorf("health of route %q: %+v", route, r)
		}
	}
	if r := execute(t, "[1]", "query", "-a", at.GRPC, "-r", "things"); r.code != 1 || !strings.Contains(r.err, "QUERY_INVALID") {
		t.Errorf("wrong dimension: %+v", r)
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("serve: %v", err)
	}
	if r := execute(t, "", "health", "-a", at.GRPC); r.code != 4 {
		t.Errorf("health of nobody: %+v", r)
	}
	if _, err := os.Stat(path("ready.json")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the ready file is still there: %v", err)
	}
}

func readReadyFile(t *testing.T, name string) serve.Addresses {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var at serve.Addresses
	if err := json.Unmarshal(b, &at); err != nil {
		t.Fatal(fmt.Errorf("%s: %w", b, err))
	}
	return at
}

// announcements is a log that signals when the sidecar is ready.
type announcements struct {
	ready chan struct{}
	done  bool
}

func (a *announcements) Write(b []byte) (int, error) {
	if !a.done && bytes.Contains(b, []byte(`"msg":"ready"`)) {
		a.done = true
		close(a.ready)
	}
	return len(b), nil
}
