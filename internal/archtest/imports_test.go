package archtest_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/likenessdb/likeness/"

// listed is the output of `go list` for a package.
type listed struct {
	ImportPath string
	Doc        string
	Name       string
	GoFiles    []string
	CgoFiles   []string
	Imports    []string
	Deps       []string
}

// TestImportsPointOneWay holds cmd → learn → sidecar → adapters → rerank, for direct and
// indirect imports of production code.
func TestImportsPointOneWay(t *testing.T) {
	rules := []struct {
		packages string // prefix below the module
		never    []string
		why      string
	}{
		{
			"rerank/",
			[]string{"google.golang.org/grpc", "google.golang.org/protobuf", "github.com/qdrant/", "github.com/milvus-io/", module + "adapters", module + "sidecar", module + "learn", module + "cmd", module + "proto"},
			"rerank knows no gRPC, no protobuf, no database and nobody who uses it",
		},
		{
			"learn/fit/",
			[]string{"google.golang.org/grpc", "google.golang.org/protobuf", "github.com/qdrant/", "github.com/milvus-io/", module + "adapters", module + "sidecar", module + "cmd", module + "proto"},
			"a fit reads matrices and pairs, and knows no database and nobody who uses it",
		},
		{"adapters/", []string{module + "sidecar", module + "learn", module + "cmd", module + "proto"}, "adapters serve the sidecar and know rerank only"},
		{"sidecar/", []string{module + "cmd"}, "commands wire the sidecar"},
		{"sidecar/config/", []string{module + "sidecar", module + "adapters", module + "learn"}, "a configuration knows nothing that it configures"},
		{
			"sidecar/search/certify/", []string{module + "sidecar", module + "adapters"}, "a certificate is made of values",
		},
		{
			"sidecar/search/score/", []string{module + "sidecar/route", module + "adapters"}, "scoring knows no route and no store",
		},
		{"learn/", []string{module + "cmd"}, "commands wire what learns"},
		{"plugin/", []string{module + "cmd", module + "sidecar", module + "adapters", "github.com/qdrant/", "github.com/milvus-io/"}, "a scorer is written with plugin alone"},
		{"client/", []string{module + "cmd", module + "sidecar", module + "adapters", module + "rerank"}, "a client knows the API alone"},
		{"adapters/qdrant", []string{"github.com/milvus-io/"}, "an adapter knows one store"},
		{"adapters/milvus", []string{"github.com/qdrant/"}, "an adapter knows one store"},
		{"adapters/embedded", []string{"github.com/qdrant/", "github.com/milvus-io/", "google.golang.org/grpc"}, "the embedded store needs no client"},
		{"gpu/", []string{module + "cmd", module + "sidecar", module + "adapters", "gorgonia.org/cu"}, "what needs no device knows no driver, and nobody who uses it"},
	}
	for _, p := range packages(t) {
		path := strings.TrimPrefix(p.ImportPath, module) + "/"
		for _, rule := range rules {
			if !strings.HasPrefix(path, rule.packages) {
				continue
			}
			for _, dep := range p.Deps {
				if slices.ContainsFunc(rule.never, func(prefix string) bool { return strings.HasPrefix(dep, prefix) }) {
					t.Errorf("%s depends on %s: %s", p.ImportPath, dep, rule.why)
				}
			}
		}
	}
}

// TestOnlyLikenessGPUHasADriver: package cu ends a process without one, whatever its
// build tags.
func TestOnlyLikenessGPUHasADriver(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "go", "list", "-tags", "cuda", "-deps", "./cmd/likeness", "./plugin/...", "./examples/...")
	cmd.Dir, cmd.Stderr = root, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	if strings.Contains(string(out), "gorgonia.org/cu") {
		t.Error("something beside cmd/likeness-gpu depends on gorgonia.org/cu")
	}
}

// TestServingKnowsNoLearning holds what learns and indexes before serving, and the file
// formats that it reads, out of a server.
func TestServingKnowsNoLearning(t *testing.T) {
	for _, p := range packages(t) {
		if p.ImportPath != module+"sidecar/serve" {
			continue
		}
		for _, dep := range p.Deps {
			if strings.HasPrefix(dep, module+"learn/") || strings.Contains(dep, "parquet") {
				t.Errorf("%s depends on %s: a server learns nothing and reads no Parquet", p.ImportPath, dep)
			}
		}
	}
}

// TestNothingRestsOnTests: only tests use the tests of the whole, and the packages that are
// for tests themselves.
func TestNothingRestsOnTests(t *testing.T) {
	for _, p := range packages(t) {
		if p.ImportPath == module+"sidecar/proxy/recording" { // an upstream that notes its calls, for tests
			continue
		}
		for _, imported := range p.Imports {
			if strings.HasPrefix(imported, module+"e2e/") && !strings.HasPrefix(p.ImportPath, module+"e2e/") {
				t.Errorf("%s imports %s, which is for tests", p.ImportPath, imported)
			}
		}
	}
}

// TestProtobufStaysAtTheEdges lets only the packages that speak gRPC, and wirecount, which
// they count messages with, import protobuf.
func TestProtobufStaysAtTheEdges(t *testing.T) {
	edges := []string{"proto/", "sidecar/server/", "sidecar/proxy/", "sidecar/plugins/", "plugin/", "adapters/", "client/", "cmd/", "examples/", "internal/wirecount/"}
	for _, p := range packages(t) {
		path := strings.TrimPrefix(p.ImportPath, module) + "/"
		if slices.ContainsFunc(edges, func(edge string) bool { return strings.HasPrefix(path, edge) }) {
			continue
		}
		for _, imported := range p.Imports {
			if strings.HasPrefix(imported, "google.golang.org/protobuf") || strings.HasPrefix(imported, module+"proto") {
				t.Errorf("%s imports %s: protobuf stays at the edges (%s)", p.ImportPath, imported, strings.Join(edges, ", "))
			}
		}
	}
}

func TestNoPackageUsesCgo(t *testing.T) {
	for _, p := range packages(t) {
		if len(p.CgoFiles) > 0 {
			t.Errorf("%s uses cgo: %v", p.ImportPath, p.CgoFiles)
		}
	}
}

// TestEveryPackageSaysWhatItIs wants one package comment, in the form of godoc.
func TestEveryPackageSaysWhatItIs(t *testing.T) {
	for _, p := range packages(t) {
		if strings.HasPrefix(p.ImportPath, module+"proto/gen/") || len(p.GoFiles) == 0 {
			continue
		}
		want := "Package " + p.Name + " "
		if p.Name == "main" {
			want = "Command " + p.ImportPath[strings.LastIndexByte(p.ImportPath, '/')+1:] + " "
		}
		if !strings.HasPrefix(p.Doc, want) {
			t.Errorf("%s: the package comment begins with %q, want %q", p.ImportPath, p.Doc, want+"…")
		}
	}
}

// packages lists the module's packages without their tests.
func packages(t *testing.T) []listed {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Doc,Name,GoFiles,CgoFiles,Imports,Deps", "./...")
	cmd.Dir, cmd.Stderr = root, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []listed
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatalf("go list: %v", err)
		}
		all = append(all, p)
	}
}
