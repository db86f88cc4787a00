package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/dot"
	"github.com/likenessdb/likeness/rerank/npy"
	"github.com/likenessdb/likeness/sidecar/calibrate"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/route"
)

// TestQueriesOfACalibration: each query has its own user and the items that were seen before it, and held-out queries
// are not among the others.
func TestQueriesOfACalibration(t *testing.T) {
	dir := t.TempDir()
	vectors, users, log := rerank.NewMatrix(20, 2), make([]int64, 20), "query,item\n"
	for i := range users {
		vectors.Row(i)[0], users[i], log = float32(i), int64(100+i), log+fmt.Sprintf("%d,item-%d\n", i, i)
	}
	f := &calibrateFlags{queries: filepath.Join(dir, "q.npy"), userIDs: filepath.Join(dir, "u.npy"), seen: filepath.Join(dir, "seen.csv"), sample: 8, holdOut: 6, seed: 1}
	if err := npy.Write(f.queries, vectors); err != nil {
		t.Fatal(err)
	}
	if err := npy.WriteInts(f.userIDs, users); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(f.seen, []byte(log), 0o600); err != nil {
		t.Fatal(err)
	}
	sim, err := dot.New(dot.Config{Dim: 2}, nil)
	if err != nil {
		t.Fatal(err)
	}
	in := calibrate.Input{Route: &route.Route{Parts: route.Parts{Model: route.Model{Similarity: sim}}}}
	if err := f.drawQueries(t.Context(), &config.Config{}, &in); err != nil || len(in.Queries) != 8 || len(in.HeldOut) != 6 {
		t.Fatalf("%d queries and %d held out, %v", len(in.Queries), len(in.HeldOut), err)
	}
	seen := map[int64]bool{}
	for i, q := range slices.Concat(in.Queries, in.HeldOut) {
		if want := fmt.Sprintf("item-%g", q.Vector[0]); !slices.Equal(in.Seen[i], []string{want}) {
			t.Errorf("before query %v items %q were seen, want %s", q.Vector, in.Seen[i], want)
		}
		if !q.HasUserID || q.UserID != int64(100+q.Vector[0]) || seen[q.UserID] {
			t.Errorf("query %v is of user %d (%t), who was seen: %t", q.Vector, q.UserID, q.HasUserID, seen[q.UserID])
		}
		seen[q.UserID] = true
	}
}

// TestTLSOfACall: the server's certificate must have the name in --tls-server-name.
func TestTLSOfACall(t *testing.T) {
	for _, f := range []dialFlags{{}, {tls: true}, {credentialFlags: credentialFlags{hostname: "other.example"}}} {
		c, err := f.credentials()
		if err != nil {
			t.Fatal(err)
		}
		secure := f.tls || f.hostname != ""
		if info := c.Info(); (info.SecurityProtocol == "tls") != secure || info.ServerName != f.hostname { //nolint:staticcheck // there is no other way to see it
			t.Errorf("%+v: %+v", f, info)
		}
	}
}

// TestAnswersArePrinted: payload is printed only if the request asked for it.
func TestAnswersArePrinted(t *testing.T) {
	r := &likenessv1.SearchResponse{Hits: []*likenessv1.Hit{{Id: &likenessv1.ItemId{Id: &likenessv1.ItemId_Number{Number: 7}}, Score: 0.5, PayloadJson: `{"title":"x"}`, Ranked: true}}, Certificate: &likenessv1.Certificate{}}
	for _, asked := range []bool{false, true} {
		q := &likenessv1.SearchRequest{}
		if asked {
			q.Payload = &likenessv1.PayloadSelector{}
		}
		var out bytes.Buffer
		if err := printAnswer(&out, q, r); err != nil || !strings.Contains(out.String(), "1     7   0.5") || strings.Contains(out.String(), `{"title":"x"}`) != asked {
			t.Errorf("payload asked for: %t; %v\n%s", asked, err, &out)
		}
	}
}

// TestStoredVectorOfAQuery: --stored-vector is sent beside the query's own vector.
func TestStoredVectorOfAQuery(t *testing.T) {
	r := request([]float32{3})
	r.Route = "r"
	f := queryFlags{storedVector: "[1, 2.5]"}
	if err := f.apply(&cobra.Command{}, r); err != nil || !slices.Equal(r.GetStoredVector(), []float32{1, 2.5}) || !slices.Equal(r.GetQuery().GetVector(), []float32{3}) {
		t.Errorf("%v, %v", r, err)
	}
	if r := execute(t, "", "query", "--route", "r", "--vector", "[3]", "--stored-vector", "1, 2"); r.code != 2 || !strings.Contains(r.err, "--stored-vector") {
		t.Errorf("no JSON array: code %d\n%s", r.code, r.err)
	}
}
