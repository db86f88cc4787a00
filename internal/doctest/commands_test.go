package doctest_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"

	"github.com/likenessdb/likeness/client"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/npy"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/serve"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const things = `
listen: {grpc: "127.0.0.1:0", admin: "", rest: "127.0.0.1:0"}
stores: {files: {kind: embedded, collections: {things: {vectors: things.npy, ids: ids.txt, payload: things.jsonl}}}}
models: {plain: {path: plain.safetensors}}
routes: {things: {store: files, collection: things, model: plain, placement: stored, exact_search: true}}
`

// sidecar runs one with the three items of docs/how-to/call-it.md until the test ends.
func sidecar(t *testing.T) serve.Addresses {
	t.Helper()
	dir := t.TempDir()
	m, err := model.New(model.Parameters{Kind: rerank.KindDot, Name: "plain", Config: []byte(`{"dim":2,"normalise":false}`)})
	if err == nil {
		err = errors.Join(model.Write(filepath.Join(dir, "plain.safetensors"), m),
			npy.Write(filepath.Join(dir, "things.npy"), rerank.Matrix{Rows: 3, Cols: 2, Data: []float32{1, 0, 0, 1, 1, 1}}))
	}
	for name, text := range map[string]string{
		"ids.txt": "a\nb\nc\n", "things.jsonl": "{\"group\": 1}\n{\"group\": 1}\n{\"group\": \"x\"}\n", "likeness.yaml": things,
	} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	return run(t, config.Source{File: filepath.Join(dir, "likeness.yaml"), Environ: []string{}})
}

// run runs a sidecar with a configuration until the test ends.
func run(t *testing.T, source config.Source) serve.Addresses {
	t.Helper()
	c, err := config.Load(source)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan serve.Addresses, 1), make(chan error, 1)
	go func() {
		ended <- serve.Run(ctx, c, serve.Options{Logger: slog.New(slog.DiscardHandler), Ready: func(at serve.Addresses) { ready <- at }})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the sidecar ended with %v", err)
		}
	})
	select {
	case at := <-ready:
		return at
	case err := <-ended:
		ended <- nil
		t.Fatal(err)
	}
	return serve.Addresses{}
}

// TestReadmeQuery asks what README.md asks of examples/questions.yaml, and compares the ids
// and scores with the answer that it shows, but for the last two digits.
func TestReadmeQuery(t *testing.T) {
	at := run(t, config.Source{
		File:    filepath.Join(root, "examples", "questions.yaml"),
		Environ: []string{"LIKENESS_LISTEN_GRPC=127.0.0.1:0", "LIKENESS_LISTEN_ADMIN="},
	})
	queries, err := npy.Open(filepath.Join(root, "examples", "data", "banking77", "test_vectors.npy"))
	if err != nil {
		t.Fatal(err)
	}
	defer queries.Close()
	c, err := client.Dial(at.GRPC, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	answer, err := c.Search(t.Context(), client.Search{Route: "questions", Query: client.Query{Vector: queries.Row(6)}, K: 3})
	if err != nil {
		t.Fatal(err)
	}
	readme := strings.Join(strings.Fields(read(t, "README.md")), " ")
	for i, hit := range answer.Hits {
		if line := fmt.Sprintf("%d %v %s", i+1, hit.ID, fmt.Sprintf("%.6f", hit.Score)[:6]); !strings.Contains(readme, line) {
			t.Errorf("README.md does not show the row %q", line)
		}
	}
	if !answer.Certificate.Exact() || len(answer.Hits) != 3 {
		t.Errorf("%d hits, %s, want 3, exact", len(answer.Hits), answer.Certificate.Status)
	}
}

// TestCallIt runs the commands of docs/how-to/call-it.md and compares what they
// print with the block after them: its parts between … come in that order.
func TestCallIt(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip(err)
	}
	commands(t, "sh", os.Getenv("PATH"))
}

// TestGRPCurl runs the grpcurl commands, which are marked bash, with the version that tools/grpcurl
// pins.
func TestGRPCurl(t *testing.T) {
	if os.Getenv("LIKENESS_SOAK") == "" {
		t.Skip("it builds grpcurl; set LIKENESS_SOAK=1")
	}
	folder := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", folder, "github.com/fullstorydev/grpcurl/cmd/grpcurl")
	build.Dir = filepath.Join(root, "tools", "grpcurl")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	commands(t, "bash", folder+string(os.PathListSeparator)+os.Getenv("PATH"))
}

// commands runs the page's blocks of a language against a sidecar.
func commands(t *testing.T, language, path string) {
	t.Helper()
	at := sidecar(t)
	address := strings.NewReplacer("127.0.0.1:7602", at.REST, "127.0.0.1:7600", at.GRPC)
	ran := 0
	for blocks := fenced(read(t, "docs/how-to/call-it.md")); len(blocks) > 1; blocks = blocks[1:] {
		if blocks[0].language != language {
			continue
		}
		ran++
		cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", address.Replace(blocks[0].text))
		cmd.Env = append(os.Environ(), "PATH="+path)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%v:\n%s\n%s", err, blocks[0].text, out)
		}
		rest := bare(string(out))
		for part := range strings.SplitSeq(bare(blocks[1].text), "…") {
			_, after, found := strings.Cut(rest, part)
			if !found {
				t.Errorf("%s\nprints\n%s\nwithout\n%s", blocks[0].text, out, part)
				break
			}
			rest = after
		}
	}
	if ran == 0 {
		t.Error("the page has no commands")
	}
}

// bare is a text without white space, in which JSON varies.
func bare(text string) string { return strings.Join(strings.Fields(text), "") }

type block struct{ language, text string }

// fenced are the blocks of a page between fences.
func fenced(text string) []block {
	var out []block
	parts := strings.Split("\n"+text, "\n```")
	for i := 1; i < len(parts); i += 2 {
		language, body, _ := strings.Cut(parts[i], "\n")
		out = append(out, block{language, body})
	}
	return out
}

// TestReflection asks what grpcurl asks before a call.
func TestReflection(t *testing.T) {
	at := sidecar(t)
	conn, err := grpc.NewClient(at.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stream, err := grpc_reflection_v1.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ask := func(r *grpc_reflection_v1.ServerReflectionRequest) *grpc_reflection_v1.ServerReflectionResponse {
		t.Helper()
		if err := stream.Send(r); err != nil {
			t.Fatal(err)
		}
		answer, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	var names []string
	for _, s := range ask(&grpc_reflection_v1.ServerReflectionRequest{
		MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{},
	}).GetListServicesResponse().GetService() {
		names = append(names, s.GetName())
	}
	for _, want := range []string{"likeness.v1.SearchService", "likeness.v1.CatalogService", "grpc.health.v1.Health"} {
		if !slices.Contains(names, want) {
			t.Errorf("reflection lists %v, without %s", names, want)
		}
	}
	for _, symbol := range []string{"likeness.v1.SearchService", "likeness.v1.SearchRequest"} {
		files := ask(&grpc_reflection_v1.ServerReflectionRequest{
			MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: symbol},
		}).GetFileDescriptorResponse().GetFileDescriptorProto()
		if len(files) == 0 {
			t.Errorf("reflection does not have the file of %s", symbol)
		}
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
}
