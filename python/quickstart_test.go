package python

import (
	"bytes"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/adapters/qdrant"
	"github.com/likenessdb/likeness/e2e/harness"
	"github.com/likenessdb/likeness/internal/shown"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/npy"
)

// runQuickstart runs every command of docs/quickstart.md from the installed wheel, with no compiler on
// the PATH, on a Qdrant with the questions of BANKING77. It compares what they print with the page.
func runQuickstart(t *testing.T, programs string) {
	t.Helper()
	db := servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{})
	fillQuestions(t, db.Address)
	client, err := harness.Python(t.Context(), cache, "../e2e/harness/clients/qdrant/requirements-newest.txt")
	if err != nil {
		unavailable(t, err)
	}
	s := &session{
		folder: t.TempDir(), programs: programs + ":" + links(t, "curl", "grep"), python: client.Path,
		addresses: strings.NewReplacer("http://localhost:6333", db.REST, "127.0.0.1:7633", freeAddress(t), "127.0.0.1:7634", freeAddress(t),
			"127.0.0.1:7601", freeAddress(t)),
	}
	t.Cleanup(s.end)
	page, err := os.ReadFile("../docs/quickstart.md")
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(string(page), "\n```") // text, block, text, block, …
	ran := 0
	for i := 1; i < len(parts); i += 2 {
		language, body, _ := strings.Cut(parts[i], "\n")
		if language == "" || strings.HasPrefix(body, "pip install") { // what a command prints; the wheel is installed
			continue
		}
		ran++
		out := s.run(t, language, body)
		if i+2 < len(parts) && strings.HasPrefix(parts[i+2], "\n") {
			checkPrinted(t, body, out, parts[i+2])
		}
	}
	if ran != 4 {
		t.Errorf("%d blocks of the page ran, want 4", ran)
	}
}

// session runs the blocks of a page, one after the other, in one folder.
type session struct {
	folder    string
	programs  string // the PATH
	python    string // with the packages that a reader has
	addresses *strings.Replacer
	serving   *exec.Cmd
}

// run runs a block and returns what it printed, with the addresses of the page. A command that
// ends in & runs until the session ends.
func (s *session) run(t *testing.T, language, body string) string {
	t.Helper()
	body = s.addresses.Replace(body)
	if language == "python" {
		return s.output(t, exec.CommandContext(t.Context(), s.python, "-W", "ignore", "-c", body))
	}
	var out strings.Builder
	for line := range strings.Lines(body) {
		if background, ok := strings.CutSuffix(strings.TrimSpace(line), " &"); ok {
			s.start(t, strings.Fields(background))
			continue
		}
		out.WriteString(s.output(t, exec.CommandContext(t.Context(), "/bin/sh", "-c", line)))
	}
	return out.String()
}

// output runs a command with the wheel's programs alone on the PATH.
func (s *session) output(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	cmd.Dir, cmd.Env = s.folder, s.environment()
	var failed strings.Builder
	cmd.Stderr = &failed
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%q: %v\n%s%s", cmd.Args, err, out, &failed)
	}
	return string(out)
}

func (s *session) environment() []string {
	return []string{
		"PATH=" + s.programs, "HOME=" + s.folder, "LIKENESS_LISTEN_GRPC=127.0.0.1:0", "LIKENESS_LISTEN_REST=127.0.0.1:0", "LIKENESS_LISTEN_ADMIN=" + s.addresses.Replace("127.0.0.1:7601"),
		"LIKENESS_PROXY_LISTEN_GRPC=" + s.addresses.Replace("127.0.0.1:7634"), "LIKENESS_PROXY_LISTEN_REST=" + s.addresses.Replace("127.0.0.1:7633"),
	}
}

// start runs a command until the session ends.
func (s *session) start(t *testing.T, args []string) {
	t.Helper()
	programs, _, _ := strings.Cut(s.programs, ":")
	s.serving = exec.Command(filepath.Join(programs, args[0]), args[1:]...)
	s.serving.Dir, s.serving.Env = s.folder, s.environment()
	if err := s.serving.Start(); err != nil {
		t.Fatal(err)
	}
}

// end ends what start began.
func (s *session) end() {
	if s.serving != nil {
		_ = s.serving.Process.Signal(os.Interrupt)
		_ = s.serving.Wait()
	}
}

// checkPrinted compares what a block printed with the page, whose parts between … come in that order.
func checkPrinted(t *testing.T, body, out, want string) {
	t.Helper()
	rest := out
	for part := range strings.SplitSeq(want, "…") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		var err error
		if rest, err = shown.Find(rest, part); err != nil {
			t.Fatalf("%s\n%v", body, err)
		}
	}
}

// fillQuestions writes the questions of BANKING77 to a new collection, by the row as their id.
func fillQuestions(t *testing.T, address string) {
	t.Helper()
	store, err := qdrant.Open(qdrant.Options{Address: address})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}()
	vectors, err := npy.Open(filepath.Join(questions, "train_vectors.npy"))
	if err != nil {
		t.Fatal(err)
	}
	defer vectors.Close()
	texts, err := os.ReadFile(filepath.Join(questions, "train.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	records := adapters.Rows{Vectors: []rerank.Matrix{vectors.Matrix}}
	for line := range bytes.Lines(texts) {
		records.IDs = append(records.IDs, rerank.UintID(uint64(len(records.IDs))))
		records.Payloads = append(records.Payloads, json.RawMessage(line))
	}
	schema := adapters.Schema{Collection: "questions", Fields: []adapters.VectorField{{Dim: vectors.Cols, Metric: adapters.Cosine}}}
	if err = store.Create(t.Context(), schema); err == nil {
		err = store.Write(t.Context(), "questions", schema, records)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// questions has the vectors and texts of BANKING77.
const questions = "../examples/data/banking77"

// links makes a folder with links to programs, and skips the test where one is missing.
func links(t *testing.T, programs ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range programs {
		path, err := exec.LookPath(name)
		if err == nil {
			err = os.Symlink(path, filepath.Join(dir, name))
		}
		if err != nil {
			t.Skip(err)
		}
	}
	return dir
}

// freeAddress returns an address that nothing listened on a moment ago.
func freeAddress(t *testing.T) string {
	t.Helper()
	var c net.ListenConfig
	l, err := c.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
