package trial_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/adapters/milvus"
	"github.com/likenessdb/likeness/adapters/qdrant"
	"github.com/likenessdb/likeness/learn/eval/report"
	"github.com/likenessdb/likeness/learn/trial"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/npy"
)

const (
	masterKey = "master"
	readKey   = "reader"
	keyEnv    = "LIKENESS_TEST_KEY"
	dim       = 16
	rows      = 600
	groups    = 12
)

// goods makes a collection in which half of the coordinates are noise, so that rows of a
// group are told apart better by the other half.
func goods() (rerank.Matrix, []json.RawMessage) {
	rng := rand.New(rand.NewPCG(3, 4))
	centres := rerank.NewMatrix(groups, dim)
	for i := range centres.Data {
		centres.Data[i] = float32(rng.NormFloat64())
	}
	m, payloads := rerank.NewMatrix(rows, dim), make([]json.RawMessage, rows)
	for r := range rows {
		for c := range dim {
			noise, centre := 0.4, centres.Row(r % groups)[c]
			if c >= dim/2 {
				noise, centre = 2, 0
			}
			m.Row(r)[c] = centre + float32(noise*rng.NormFloat64())
		}
		rerank.Normalise(m.Row(r))
		payloads[r] = json.RawMessage(fmt.Sprintf(`{"title":"good %d of group %d","facts":{"group":"g%d"},"code":"c%d"}`, r, r%groups, r%groups, r))
	}
	return m, payloads
}

// fill writes the goods to a collection.
func fill(t *testing.T, store adapters.Store, collection string, metric adapters.Metric) {
	t.Helper()
	m, payloads := goods()
	all := adapters.Rows{Vectors: []rerank.Matrix{m}, Payloads: payloads}
	for r := range rows {
		all.IDs = append(all.IDs, rerank.UintID(uint64(r+1)))
	}
	schema := adapters.Schema{Collection: collection, Fields: []adapters.VectorField{{Name: "vector", Dim: dim, Metric: metric}}}
	can := adapters.AbilitiesOf(store)
	if err := errors.Join(can.Write.Create(t.Context(), schema), can.Write.Write(t.Context(), collection, schema, all)); err != nil {
		t.Fatal(err)
	}
}

// startQdrant starts a Qdrant with two keys and the goods.
func startQdrant(t *testing.T) (*servers.Server, *qdrant.Store) {
	t.Helper()
	server := servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{APIKey: masterKey, Env: []string{"QDRANT__SERVICE__READ_ONLY_API_KEY=" + readKey}})
	store, err := qdrant.Open(qdrant.Options{Address: server.Address, APIKey: masterKey})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	fill(t, store, "goods", adapters.Cosine)
	return server, store
}

// rest sends a request to Qdrant's REST API and returns the answer.
func rest(t *testing.T, server *servers.Server, method, path, body string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, server.REST+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Api-Key", masterKey)
	request.Header.Set("Content-Type", "application/json")
	answer, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %d, %v, %s", method, path, answer.StatusCode, err, text)
	}
	return string(text)
}

// state is everything that Qdrant says of its collections, but for the times of the
// requests.
func state(t *testing.T, server *servers.Server) string {
	t.Helper()
	var all []string
	for _, path := range []string{"/collections", "/aliases", "/collections/goods", "/collections/goods/cluster"} {
		var answer struct{ Result json.RawMessage }
		if err := json.Unmarshal([]byte(rest(t, server, http.MethodGet, path, "")), &answer); err != nil {
			t.Fatal(err)
		}
		all = append(all, string(answer.Result))
	}
	return strings.Join(all, "\n")
}

func options(t *testing.T, url, collection string) trial.Options {
	t.Helper()
	return trial.Options{
		Access: trial.Access{URL: url}, Collection: collection, Rows: 10_000, K: 10, Seed: 1, Out: filepath.Join(t.TempDir(), "out"),
	}
}

// checkTrial checks the report of a trial of the collection of goods.
func checkTrial(t *testing.T, o trial.Options, r *trial.Report) {
	t.Helper()
	l := r.Look
	if l.Rows != rows || l.Read != rows || l.Vector.Dim != dim || l.Title != "title" || l.Vector.Norms != "unit vectors" {
		t.Errorf("looked at %+v", l)
	}
	if r.Database.Queries != 100 || r.Database.Recall < 0.9 || r.Database.P95 < r.Database.P50 || r.Database.P50 <= 0 {
		t.Errorf("measured %+v", r.Database)
	}
	v := r.Learned.Judgment
	if v.Verdict.Answer != "yes" || len(v.Verdict.Text) != 3 {
		t.Errorf("%s: verdict %q", r.Learned.From, v.Verdict.Text)
	}
	if len(r.Served.Examples) == 0 {
		t.Fatal("no examples")
	}
	for _, e := range r.Served.Examples {
		if !strings.HasPrefix(e.After[0].Title, "good ") || len(e.After) != 5 {
			t.Errorf("example %+v", e)
		}
		for _, row := range append(e.Before, e.After...) {
			if row.ID == e.Own {
				t.Errorf("the query's own row %s is in %+v", e.Own, e)
			}
		}
	}
	for _, x := range v.Models[0].Regressions {
		if !strings.HasPrefix(x.ItemName(), "good ") || !strings.HasPrefix(x.InsteadName(), "good ") || !strings.HasPrefix(x.QueryName(), "good ") {
			t.Errorf("regression without titles: %+v", x)
		}
	}
	if len(v.Models[0].Regressions) == 0 {
		t.Error("no regressions, whose titles are to be checked")
	}
	if err := report.WriteTrial(filepath.Join(o.Out, trial.ReportFile), r); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(o.Out, trial.ReportFile))
	if err != nil || !strings.Contains(string(page), r.Served.Examples[0].After[0].Title) || !strings.Contains(string(page), v.Verdict.Text[2]) {
		t.Errorf("the report lacks the example or the verdict: %v", err)
	}
}

// A key that may only read is enough, and the server says afterwards what it said
// before.
func TestQdrant(t *testing.T) {
	server, _ := startQdrant(t)
	t.Setenv(keyEnv, readKey)
	before := state(t, server)
	urls := []string{server.REST, "http://" + server.Address, server.Address}
	for _, url := range urls {
		s, err := trial.Find(t.Context(), trial.Access{URL: url, KeyEnv: keyEnv})
		if err != nil || s.Kind != "qdrant" || s.Version != servers.QdrantNewest || s.Address != server.Address {
			t.Errorf("%s: found %+v, %v", url, s, err)
		}
	}
	if os.Getenv("LIKENESS_SOAK") == "" {
		urls = urls[:1]
	}
	for _, url := range urls {
		o := options(t, url, "goods")
		o.KeyEnv, o.Label = keyEnv, "facts.group"
		r, err := trial.Run(t.Context(), o)
		if err != nil {
			t.Fatalf("%s: %v", url, err)
		}
		checkTrial(t, o, r)
		if r.Served.Certificates["exact"] != r.Served.Queries || r.Served.Placement != "rewrite" {
			t.Errorf("served %+v", r.Served)
		}
	}
	if after := state(t, server); after != before {
		t.Errorf("the server says\n%s\nand before the trial\n%s", after, before)
	}
}

func TestMilvus(t *testing.T) {
	server := servers.MilvusLiteForTest(t, servers.Options{})
	store, err := milvus.New(t.Context(), milvus.Options{Address: server.Address})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	fill(t, store, "goods", adapters.InnerProduct)
	o := options(t, server.Address, "goods")
	o.Label = "facts.group"
	r, err := trial.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	checkTrial(t, o, r)
	if n, err := store.Count(t.Context(), "goods"); n != rows || err != nil {
		t.Errorf("%d rows afterwards, %v", n, err)
	}
	if names, err := store.Collections(t.Context()); len(names) != 1 || err != nil {
		t.Errorf("collections %q afterwards, %v", names, err)
	}
	few := options(t, server.Address, "goods")
	few.Rows = 200
	if r, err = trial.Run(t.Context(), few); err != nil {
		t.Fatal(err)
	}
	if text := fmt.Sprint(r.Facts()); r.Look.Random || r.Look.Read != 200 || !strings.Contains(text, "600, of which the first 200 by id (this collection cannot be read at random places) were read") {
		t.Errorf("%d rows of few: %s", r.Look.Read, text)
	}
	wrong(t, options(t, "https://"+server.Address, "goods"), "does not speak TLS; write http://"+server.Address)
	wrong(t, options(t, server.Address, "god"), `has no collection "god"; it has "goods"`)
}

// A log of chosen rows teaches too, with its ids. A trial of a part of the rows reads those that the log names.
func TestLog(t *testing.T) {
	server, _ := startQdrant(t)
	t.Setenv(keyEnv, readKey)
	m, _ := goods()
	rng := rand.New(rand.NewPCG(5, 6))
	queries := rerank.NewMatrix(400, dim)
	var pairs strings.Builder
	chosen := map[int]bool{}
	pairs.WriteString("query,item\n")
	for q := range queries.Rows {
		row := rng.IntN(rows)
		for c, v := range m.Row(row) {
			noise := 0.05
			if c >= dim/2 {
				noise = 1
			}
			queries.Row(q)[c] = v + float32(noise*rng.NormFloat64())
		}
		chosen[row] = true
		_, _ = fmt.Fprintf(&pairs, "%d,%d\n", q, row+1)
	}
	o := options(t, server.Address, "goods")
	dir := t.TempDir()
	o.KeyEnv, o.Log = keyEnv, trial.Log{Queries: filepath.Join(dir, "q.npy"), Pairs: filepath.Join(dir, "log.csv")}
	if err := errors.Join(npy.Write(o.Log.Queries, queries), os.WriteFile(o.Log.Pairs, []byte(pairs.String()), 0o600)); err != nil {
		t.Fatal(err)
	}
	o.Rows = 100
	wrong(t, o, "reads no more: raise it")
	o.Rows = 350
	r, err := trial.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if text := fmt.Sprint(r.Facts()); r.Look.Read != 350 || r.Look.Logged != len(chosen) || !strings.Contains(text, fmt.Sprintf("600, of which %d that the log names and %d from random places were read", len(chosen), 350-len(chosen))) {
		t.Errorf("%d rows read, %d of the log's %d: %s", r.Look.Read, r.Look.Logged, len(chosen), text)
	}
	if v := r.Learned.Judgment.Verdict; v.Answer != "yes" || r.Learned.Judgment.Method.Metric != "mrr@10" {
		t.Errorf("verdict %q", v.Text)
	}
	if e := r.Served.Examples[0]; !strings.HasPrefix(e.Query, "query ") || !strings.HasPrefix(e.After[0].Title, "good ") {
		t.Errorf("example %+v", e)
	}
}

// Without anything to learn from, a trial says what is missing.
func TestNothingToLearnFrom(t *testing.T) {
	server, _ := startQdrant(t)
	t.Setenv("QDRANT_API_KEY", readKey)
	r, err := trial.Run(t.Context(), options(t, server.REST, "goods"))
	if err != nil {
		t.Fatal(err)
	}
	if r.Learned != nil || !strings.Contains(r.Missing, "--label facts.group") || strings.Contains(r.Missing, "code") || r.Database.Recall < 0.9 {
		t.Errorf("missing %q, database %+v", r.Missing, r.Database)
	}
}

// TestRandomPlaces: a trial of a part of the rows says that they come from random places.
func TestRandomPlaces(t *testing.T) {
	server, _ := startQdrant(t)
	t.Setenv("QDRANT_API_KEY", readKey)
	o := options(t, server.REST, "goods")
	o.Rows = 200
	r, err := trial.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if text := fmt.Sprint(r.Facts()); !r.Look.Random || r.Look.Read != 200 || !strings.Contains(text, "600, of which 200 from random places were read") {
		t.Errorf("%d rows of few: %s", r.Look.Read, text)
	}
}

// wrong runs a trial that is refused with one sentence that contains the text.
func wrong(t *testing.T, o trial.Options, want string) {
	t.Helper()
	_, err := trial.Run(t.Context(), o)
	var refused *trial.RefusalError
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "rpc error") {
		t.Errorf("%s %s: %v\nwant a refusal with %q", o.URL, o.Collection, err, want)
	}
}

// Each wrong thing gets one sentence with the remedy.
func TestRefusals(t *testing.T) {
	server, store := startQdrant(t)
	t.Setenv(keyEnv, readKey)
	for path, body := range map[string]string{
		"/collections/empty":  `{"vectors":{"size":4,"distance":"Cosine"}}`,
		"/collections/sparse": `{"sparse_vectors":{"words":{}}}`,
		"/collections/two":    `{"vectors":{"image":{"size":4,"distance":"Cosine"},"text":{"size":8,"distance":"Dot"}}}`,
		"/collections/late":   `{"vectors":{"late":{"size":4,"distance":"Cosine","multivector_config":{"comparator":"max_sim"}}}}`,
		"/collections/far":    `{"vectors":{"size":2,"distance":"Manhattan"}}`,
		"/collections/lacks":  `{"vectors":{"image":{"size":2,"distance":"Cosine"},"text":{"size":2,"distance":"Cosine"}}}`,
	} {
		rest(t, server, http.MethodPut, path, body)
	}
	rest(t, server, http.MethodPut, "/collections/lacks/points?wait=true", `{"points":[{"id":1,"vector":{"image":[1,0]}},{"id":2,"vector":{"image":[0,1]}}]}`)
	fill(t, store, "odd", adapters.L2)
	in := func(collection string, change ...func(*trial.Options)) trial.Options {
		o := options(t, server.REST, collection)
		o.KeyEnv = keyEnv
		for _, c := range change {
			c(&o)
		}
		return o
	}
	wrong(t, in("godds"), `has no collection "godds"; of its 8 the nearest are "goods"`)
	wrong(t, in("goods", func(o *trial.Options) { o.KeyEnv = "" }), "wants an API key; set QDRANT_API_KEY")
	t.Setenv("LIKENESS_TEST_WRONG", "wrong")
	wrong(t, in("goods", func(o *trial.Options) { o.KeyEnv = "LIKENESS_TEST_WRONG" }), "refuses to show collection")
	wrong(t, in("empty"), "has no rows")
	wrong(t, in("sparse"), "has no dense vector, only words (sparse); add a dense one")
	wrong(t, in("two"), "has several vectors; name one with --vector: image (4 dimensions, cosine, float32), text (8 dimensions")
	wrong(t, in("two", func(o *trial.Options) { o.Vector = "sound" }), `has no dense vector "sound"; it has image`)
	wrong(t, in("late"), "several vectors a row")
	wrong(t, in(""), ": empty, far, goods, lacks, late, odd, sparse, two")
	wrong(t, in("far"), "compared by Manhattan")
	wrong(t, in("lacks", func(o *trial.Options) { o.Vector = "text" }), `has vector "text": row 1 lacks it; write vectors, or name another with --vector: image (2 dimensions, cosine, float32)`)
	wrong(t, in("goods", func(o *trial.Options) { o.Label = "facts" }), `in field "facts"; within it are ["facts.group"]`)
	wrong(t, in("goods", func(o *trial.Options) { o.Label = "code" }), `field "code" groups too few of the 600 rows`)
	wrong(t, in("goods", func(o *trial.Options) { o.GRPC = "127.0.0.1:1" }), "its gRPC port does not at 127.0.0.1:1; publish it")
	wrong(t, in("goods", func(o *trial.Options) { o.URL = "https" + strings.TrimPrefix(server.REST, "http") }), "does not speak TLS; write http://")
	wrong(t, in("goods", func(o *trial.Options) { o.URL = "ftp://db" }), "begins with ftp://")
	wrong(t, in("goods", func(o *trial.Options) { o.URL = server.REST + "/collections/goods" }), "is no server's address")
	wrong(t, in("goods", func(o *trial.Options) { o.URL = "127.0.0.1:1" }), "nothing answers at 127.0.0.1:1 (connect: connection refused)")
	wrong(t, in("goods", func(o *trial.Options) { o.Label = "cod" }), `none of the 600 rows read of collection "goods" has a text or a number in field "cod"; the nearest of 3 fields are ["code" "title" "facts.group"]; fields that group rows are facts.group`)
	wrong(t, in("goods", func(o *trial.Options) {
		o.Label, o.Out = "facts.group", "/proc/out"
		o.Progress = func(stage string, _ int) func(int) {
			if stage == "fitting" {
				t.Error("fitted before the folder was made")
			}
			return func(int) {}
		}
	}), "the folder /proc/out cannot be made")
	wrong(t, in("goods", func(o *trial.Options) { o.Out = "." }), "is not empty; replace what is in it with --force")
}

// A server that is neither Qdrant nor Milvus is named.
func TestOtherServers(t *testing.T) {
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Server", "nginx/1.25.3")
		w.WriteHeader(http.StatusNotFound)
	})
	plain, secure := httptest.NewServer(page), httptest.NewTLSServer(page)
	defer plain.Close()
	defer secure.Close()
	host := strings.TrimPrefix(secure.URL, "https://")
	wrong(t, options(t, plain.URL, "goods"), "answers HTTP as nginx/1.25.3 (status 404), and is neither Qdrant nor Milvus")
	wrong(t, options(t, host, "goods"), "speaks TLS; write https://"+host)
	wrong(t, options(t, secure.URL, "goods"), "cannot be verified")
}

// A trial that is interrupted says so, and is no refusal.
func TestInterrupted(t *testing.T) {
	server, _ := startQdrant(t)
	ctx, cancel := context.WithCancel(t.Context())
	o := options(t, server.REST, "goods")
	o.KeyEnv, o.Label = keyEnv, "facts.group"
	t.Setenv(keyEnv, readKey)
	o.Progress = func(stage string, _ int) func(int) {
		if stage == "fitting" {
			cancel()
		}
		return func(int) {}
	}
	if _, err := trial.Run(ctx, o); !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
}
