package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/adapters/qdrant"
	"github.com/likenessdb/likeness/client"
	"github.com/likenessdb/likeness/learn/trial"
	"github.com/likenessdb/likeness/rerank"
)

// fillGroups writes a collection in which rows of a group lie together in half of the
// dimensions, and returns the vectors.
func fillGroups(t *testing.T, address string) rerank.Matrix {
	t.Helper()
	const rows, dim, groups = 500, 12, 10
	store, err := qdrant.Open(qdrant.Options{Address: address})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	rng := rand.New(rand.NewPCG(21, 22))
	all := adapters.Rows{Vectors: []rerank.Matrix{rerank.NewMatrix(rows, dim)}}
	for r := range rows {
		v := all.Vectors[0].Row(r)
		for c := range v {
			v[c] = 2 * float32(rng.NormFloat64())
			if c < dim/2 {
				v[c] = float32((r%groups)>>(c%4)&1) + 0.4*float32(rng.NormFloat64())
			}
		}
		rerank.Normalise(v)
		all.IDs = append(all.IDs, rerank.UintID(uint64(r)))
		all.Payloads = append(all.Payloads, json.RawMessage(fmt.Sprintf(`{"text":"row %d","group":%d}`, r, r%groups)))
	}
	schema := adapters.Schema{Collection: "rows", Fields: []adapters.VectorField{{Name: "vector", Dim: dim, Metric: adapters.Cosine}}}
	if err := store.Create(t.Context(), schema); err != nil {
		t.Fatal(err)
	}
	if err := store.Write(t.Context(), "rows", schema, all); err != nil {
		t.Fatal(err)
	}
	return all.Vectors[0]
}

// The command prints the verdict and a command that serves: the sidecar that it starts
// answers as the examples say.
func TestTry(t *testing.T) {
	server := servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{})
	vectors := fillGroups(t, server.Address)
	t.Chdir(t.TempDir())
	r := execute(t, "", "try", server.REST, "rows", "--label", "group")
	if r.code != 0 {
		t.Fatal(r.err)
	}
	for _, want := range []string{"Qdrant " + servers.QdrantNewest, "group (number), text (string, shown in examples)", "Worth it: take learned", "100 exact", "+ row "} {
		if !strings.Contains(r.out, want) {
			t.Errorf("%q is missing in\n%s", want, r.out)
		}
	}
	if again := execute(t, "", "try", server.REST, "rows", "--label", "group"); again.code != 2 || !strings.Contains(again.err, "--force") {
		t.Errorf("a second trial ended with %d: %s", again.code, again.err)
	}
	var report trial.Report
	if j := execute(t, "", "try", server.REST, "rows", "--label", "group", "--force", "-o", "json"); j.code != 0 || json.Unmarshal([]byte(j.out), &report) != nil {
		t.Fatalf("code %d: %s\n%s", j.code, j.err, j.out)
	}
	_, printed, _ := strings.Cut(r.out, "serve it:\n  likeness ")
	printed, last, _ := strings.Cut(printed, "\n")
	if want := "and give one client http://127.0.0.1:7633 (gRPC: 127.0.0.1:7634) in place of the database's address\n"; last != want {
		t.Errorf("the last line is %q, want %q", last, want)
	}
	t.Setenv("LIKENESS_PROXY_LISTEN_GRPC", "127.0.0.1:0")
	t.Setenv("LIKENESS_PROXY_LISTEN_REST", "127.0.0.1:0")
	t.Setenv("LIKENESS_LISTEN_REST", "127.0.0.1:0")
	at := serveArgs(t, strings.Fields(printed)...)
	c, err := client.Dial(at, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, e := range report.Served.Examples {
		own, _ := strconv.Atoi(e.Own.String())
		answer, err := c.Search(t.Context(), client.Search{Route: "rows", Query: client.Query{Vector: vectors.Row(own)}, K: 6})
		if err != nil {
			t.Fatal(err)
		}
		var got, want []string
		for _, hit := range answer.Hits {
			if id := fmt.Sprint(hit.ID); id != e.Own.String() {
				got = append(got, id)
			}
		}
		for _, row := range e.After {
			want = append(want, row.ID.String())
		}
		if got = got[:5]; !slices.Equal(got, want) || !answer.Certificate.Exact() {
			t.Errorf("query %s: rows %q, certificate %s; the example says %q", e.Own, got, answer.Certificate.Status, want)
		}
	}
}

// serveArgs runs a command that serves until the test ends, and returns the address of
// its gRPC API.
func serveArgs(t *testing.T, args ...string) string {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	log, ended := &announcements{ready: make(chan struct{})}, make(chan error, 1)
	ready := filepath.Join(t.TempDir(), "ready.json")
	args = append(args, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--ready-file", ready)
	go func() { ended <- run(ctx, args, strings.NewReader(""), os.Stdout, log) }()
	select {
	case <-log.ready:
	case err := <-ended:
		stop()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		if err := <-ended; exitCode(err) != 0 && exitCode(err) != 130 {
			t.Errorf("serve ended with %v", err)
		}
	})
	return readReadyFile(t, ready).GRPC
}

func TestTryRefuses(t *testing.T) {
	for want, args := range map[string][]string{
		"nothing answers at 127.0.0.1:1":   {"127.0.0.1:1", "rows"},
		"takes URL [COLLECTION]; got 127.": {"127.0.0.1:1", "a", "b"},
		"--rows 1":                         {"127.0.0.1:1", "rows", "--rows", "1"},
		"--pairs, --queries go together":   {"127.0.0.1:1", "rows", "--pairs", "log.csv"},
	} {
		t.Chdir(t.TempDir())
		r := execute(t, "", append([]string{"try"}, args...)...)
		code := 2
		if strings.HasPrefix(want, "nothing") {
			code = 4
		}
		if r.code != code || !strings.Contains(r.err, want) {
			t.Errorf("code %d, want %d with %q in %s", r.code, code, want, r.err)
		}
	}
}
