package trial

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/embedded"
	"github.com/likenessdb/likeness/learn/dataset"
	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/bilinear"
	"github.com/likenessdb/likeness/rerank"
	form "github.com/likenessdb/likeness/rerank/bilinear"
	"github.com/likenessdb/likeness/sidecar/embed"
)

// numbered returns the ids 0 to n−1.
func numbered(n int) []rerank.ID {
	ids := make([]rerank.ID, n)
	for i := range ids {
		ids[i] = rerank.UintID(uint64(i))
	}
	return ids
}

// TestFieldsOfPayloads: a field that differs between rows in its type is mixed; null is no value; objects are
// looked into as deep as fieldDepth.
func TestFieldsOfPayloads(t *testing.T) {
	found := map[string]*fieldCount{}
	for _, payload := range []string{
		`{"a":1,"b":"xy","c":{"d":true,"e":{"f":1}},"g":null}`, `{"a":"one","b":"xy","c":{"d":false},"g":[]}`, `{"b":"longer"}`, `[1]`,
	} {
		countFields(found, "", json.RawMessage(payload), fieldDepth)
	}
	want := []Field{
		{Name: "a", Type: "mixed", Rows: 2, Values: 2},
		{Name: "b", Type: "string", Rows: 3, Values: 2, Length: (4 + 4 + 8) / 3},
		{Name: "c.d", Type: "boolean", Rows: 2, Values: 2},
		{Name: "c.e", Type: "object", Rows: 1, Values: 1},
		{Name: "g", Type: "array", Rows: 1, Values: 1},
	}
	if got := listFields(found); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
}

// TestTitleAndLabels: the title is the field of the best usual name, or else of the longest texts that differ, but
// not the label. Labels are fields whose values group rows.
func TestTitleAndLabels(t *testing.T) {
	text := func(name string, values, length int) Field {
		return Field{Name: name, Type: "string", Rows: 10, Values: values, Length: length}
	}
	for _, c := range []struct {
		fields []Field
		label  string
		want   string
	}{
		{[]Field{text("summary", 10, 90), text("doc.Title", 10, 20)}, "", "doc.Title"},
		{[]Field{text("code", 10, 9), text("words", 10, 40), text("shelf", 5, 80)}, "", "words"},
		{[]Field{text("title", 5, 20), text("words", 10, 40)}, "title", "words"},
		{[]Field{text("title", 10, 20), text("words", 10, 40)}, "title", "title"},
		{[]Field{text("id", 10, 4), {Name: "text", Type: "number", Rows: 10, Values: 10}}, "", ""},
	} {
		if got := pickTitle(c.fields, c.label); got != c.want {
			t.Errorf("of %+v with label %q: %q, want %q", c.fields, c.label, got, c.want)
		}
	}
	l := &Look{Title: "name", Fields: []Field{
		text("name", 2, 5), text("one", 1, 5), text("half", 5, 5), text("most", 6, 5), {Name: "n", Type: "number", Rows: 10, Values: 2}, {Name: "list", Type: "array", Rows: 10, Values: 2},
	}}
	if got := l.labels(); !slices.Equal(got, []string{"half", "n"}) {
		t.Errorf("labels %q", got)
	}
}

// TestTaskOfALabel: no row judges that is an item, or whose vector an item has. Queries look for the other rows
// of their label.
func TestTaskOfALabel(t *testing.T) {
	s := &sample{vectors: rerank.Matrix{Cols: 1}}
	const rows = 400
	for i := range rows {
		s.ids = append(s.ids, rerank.UintID(uint64(i)))
		s.vectors.Data = append(s.vectors.Data, float32(i/56+i%4/2*100)) // labelled rows have eight vectors, 28 rows each at most
		s.labels = append(s.labels, []string{"a", "b", "", "alone" + strconv.Itoa(i)}[i%4])
	}
	s.finish(1)
	tr := &trial{Options: Options{K: 7, Label: "kind"}, look: &Look{}, sample: s}
	k, err := tr.taskOfLabel()
	if err != nil {
		t.Fatal(err)
	}
	if k.metric != "ndcg@7" || !k.rowsAsQueries || k.pairsPerQuery != pairsOfLabel || k.items.Rows != len(k.itemIDs) || k.items.Rows != len(k.items.Data) {
		t.Errorf("%+v", k)
	}
	for q, id := range k.queryIDs {
		at, _ := id.Uint64()
		if slices.Contains(k.itemIDs, id) || slices.Contains(k.items.Data, k.queries.Row(q)[0]) || k.queries.Row(q)[0] != float32(at/56) {
			t.Fatalf("row %s judges, and it or its twin is an item", id)
		}
		for _, item := range k.relevant[q] {
			if of, _ := k.itemIDs[item].Uint64(); of%4 != at%4 {
				t.Fatalf("row %s looks for row %d", id, of)
			}
		}
	}
	if n := len(k.queryIDs); n < 41 || k.teach.Queries.Rows != 200-n || len(k.teach.Relevant) != k.teach.Queries.Rows {
		t.Errorf("%d judge and %d teach, of 200 rows that share a label", n, k.teach.Queries.Rows)
	}
	for i := range s.labels {
		s.labels[i] = ""
	}
	s.labels[0], s.labels[1] = "a", "a"
	var refusal *RefusalError
	if _, err := tr.taskOfLabel(); !errors.As(err, &refusal) || !strings.Contains(refusal.Sentence, "different values: 1, rows that share theirs with another: 2") {
		t.Errorf("with two labelled rows: %v", err)
	}
}

// TestDivisionOfALog: the latest queries judge. A query that was asked before with the same vector judges nothing,
// and popularity is of the pairs that teach.
func TestDivisionOfALog(t *testing.T) {
	d := &dataset.Dataset{Queries: rerank.Matrix{Cols: 1}}
	for q := range 10 {
		d.Queries.Data = append(d.Queries.Data, float32(q))
		d.Relevant, d.Weights = append(d.Relevant, []int32{int32(q % 2)}), append(d.Weights, []float32{float32(q + 1)})
		d.Times = append(d.Times, int64(100-q)) // the first is the latest
	}
	d.Queries.Data[0] = 9 // was asked at first, too
	d.Relevant[1], d.Weights[1] = nil, nil
	d.Queries.Rows = 10
	k := &task{popularity: make([]float64, 2), queries: rerank.Matrix{Cols: 1}, teach: fit.Data{Queries: rerank.Matrix{Cols: 1}}}
	k.divide(d)
	// Of nine queries with pairs the two latest are 0 and 2.
	if k.repeated != 1 || !slices.Equal(k.queries.Data, []float32{2}) || !slices.Equal(k.queryIDs, []rerank.ID{rerank.UintID(2)}) || !reflect.DeepEqual(k.weights, [][]float32{{3}}) {
		t.Errorf("vectors %v of queries %v judge, with weights %v; %d are left out", k.queries.Data, k.queryIDs, k.weights, k.repeated)
	}
	if !slices.Equal(k.teach.Queries.Data, []float32{3, 4, 5, 6, 7, 8, 9}) || !reflect.DeepEqual(k.teach.Weights[0], []float32{4}) {
		t.Errorf("vectors %v teach", k.teach.Queries.Data)
	}
	if want := []float64{5 + 7 + 9, 4 + 6 + 8 + 10}; !slices.Equal(k.popularity, want) {
		t.Errorf("popularity %v, want %v", k.popularity, want)
	}
	d.Times, d.QueryIDs = nil, numbered(20)[10:]
	k = &task{popularity: make([]float64, 2), queries: rerank.Matrix{Cols: 1}, teach: fit.Data{Queries: rerank.Matrix{Cols: 1}}}
	k.divide(d)
	for q, x := range k.queries.Data {
		if slices.Contains(k.teach.Queries.Data, x) || k.queryIDs[q] != rerank.UintID(uint64(10+x)) && x != 9 {
			t.Errorf("vector %v judges under id %s and teaches %v", x, k.queryIDs[q], k.teach.Queries.Data)
		}
	}
	if len(k.queries.Data)+len(k.teach.Queries.Data) != 9 || len(k.queries.Data) == 0 {
		t.Errorf("%v judge, %v teach", k.queries.Data, k.teach.Queries.Data)
	}
}

// TestOptionsOfATrial: the settings of the trial and of its task reach the fit and the judgement.
func TestOptionsOfATrial(t *testing.T) {
	tr := &trial{Options: Options{Seed: 9, K: 7}, look: &Look{}, sample: &sample{}}
	k := &task{pairsPerQuery: 3, metric: "mrr@7", relevant: [][]int32{{0}}, weights: [][]float32{{2}}, items: rerank.NewMatrix(1, 1), itemIDs: numbered(1), queryIDs: numbered(2), popularity: []float64{4}}
	for metric, unit := range map[adapters.Metric]bool{adapters.Cosine: true, adapters.InnerProduct: false} {
		tr.look.field = adapters.VectorField{Metric: metric, Dim: 512}
		if o := tr.fitOptions(k); o.Normalise != unit || o.Seed != 9 || o.PairsPerQuery != 3 || o.Form != bilinear.DefaultOptions().Form || o.Cold != fit.ColdIgnore || o.ColdShare != 0 {
			t.Errorf("%s: %+v", metric, o)
		}
	}
	if tr.sample.unit = true; !tr.normalises() {
		t.Error("queries for unit vectors keep their norms")
	}
	tr.look.field.Dim = 513
	if o := tr.fitOptions(k); o.Form != form.IdentityLowRank || o.Rank != 64 {
		t.Errorf("for 513 dimensions a fit of form %s, rank %d", o.Form, o.Rank)
	}
	in, err := tr.judgingInput(k)
	if err != nil || in.K != 7 || in.Seed != 9 || in.Metric != "mrr@7" || !slices.Equal(in.Popularity, k.popularity) || !slices.Equal(in.ItemIDs, k.itemIDs) || !slices.Equal(in.QueryIDs, k.queryIDs) || in.Pairs == nil {
		t.Errorf("%+v, %v", in, err)
	}
	if o := tr.fitOptions(k); o.Measure != fit.MRR {
		t.Errorf("the fit chooses by %s though mrr@7 judges", o.Measure)
	}
	tr.Metric = "ndcg@7"
	if o := tr.fitOptions(k); o.Measure != fit.NDCG {
		t.Errorf("the fit chooses by %s though ndcg@7 judges", o.Measure)
	}
	if in, _ = tr.judgingInput(k); in.Metric != "ndcg@7" {
		t.Errorf("judged by %s though ndcg@7 was asked for", in.Metric)
	}
}

// TestNothingIsLearnedThatCannotBeServed: a database that compares by L2 finds inner products only of unit vectors.
func TestNothingIsLearnedThatCannotBeServed(t *testing.T) {
	tr := &trial{look: &Look{field: adapters.VectorField{Metric: adapters.L2, Dim: 1}}, sample: &sample{least: 1, most: 3}}
	var refused *RefusalError
	if _, err := tr.learn(t.Context(), &task{}); !errors.As(err, &refused) || !strings.Contains(refused.Sentence, "norms from 1 to 3") {
		t.Errorf("%v, want a refusal that names the norms", err)
	}
}

// cutting is an embedded store that notes its searches, which take some time. It leaves the first row out of every
// list that it was not asked to search exhaustively.
type cutting struct {
	*embedded.Store
	takes time.Duration
	asked []adapters.SearchRequest
}

func (c *cutting) Search(ctx context.Context, r adapters.SearchRequest) ([]rerank.List, error) {
	if c.takes > 0 {
		<-time.After(c.takes)
	}
	c.asked = append(c.asked, r)
	lists, err := c.Store.Search(ctx, r)
	if err == nil && !r.Exact {
		lists[0].IDs, lists[0].Scores = lists[0].IDs[1:], lists[0].Scores[1:]
	}
	return lists, err
}

// newCutting returns a store of four rows of field v in collection c, and their vectors.
func newCutting(t *testing.T) (*cutting, rerank.Matrix) {
	t.Helper()
	vectors := rerank.Matrix{Rows: 4, Cols: 2, Data: []float32{1, 0, 0, 1, -1, 0, 0, -1}}
	store := &cutting{Store: embedded.New()}
	if err := store.Load("c", embedded.Collection{Fields: []embedded.Field{{VectorField: adapters.VectorField{Name: "v", Metric: adapters.InnerProduct}, Vectors: vectors}}}); err != nil {
		t.Fatal(err)
	}
	return store, vectors
}

// TestRecallOfAnIndex: answers of the index are compared with all rows if they were read, and else with the store's
// own exhaustive search.
func TestRecallOfAnIndex(t *testing.T) {
	store, vectors := newCutting(t)
	for _, whole := range []bool{true, false} {
		store.asked = nil
		tr := &trial{Options: Options{Collection: "c", K: 2}, store: store, look: &Look{}, report: &Report{}, sample: &sample{ids: numbered(4), vectors: vectors, whole: whole, unit: true}}
		tr.look.field = adapters.VectorField{Name: "v", Dim: 2, Metric: adapters.InnerProduct, FullPrecision: true, Exact: true}
		if err := tr.measureDatabase(t.Context()); err != nil {
			t.Fatal(err)
		}
		d := tr.report.Database
		if d.Recall != 0.5 || d.Queries != 4 || d.K != 2 || d.NotMeasured != "" || (d.Exact == "a scan of all rows") != whole {
			t.Errorf("whole %t: %+v, want a recall of one of two rows", whole, d)
		}
		r := store.asked[0]
		if r.Collection != "c" || r.Vector != "v" || !r.UnitVectors || r.Exact || r.Probes[0].Depth != 2 {
			t.Errorf("searched by %+v", r)
		}
		for i := range vectors.Rows {
			if !slices.ContainsFunc(store.asked, func(r adapters.SearchRequest) bool { return slices.Equal(r.Probes[0].Vector, vectors.Row(i)) }) {
				t.Errorf("no search by row %d", i)
			}
		}
		if !whole {
			tr.look.field.Exact = false
			if err := tr.measureDatabase(t.Context()); err != nil || tr.report.Database.NotMeasured == "" {
				t.Errorf("an index that is never searched exhaustively: %+v, %v", tr.report.Database, err)
			}
		}
	}
}

// TestASlowDatabaseIsMeasuredByFewerSearches: no search begins after probeTime, and the figures are those of the
// searches that were made.
func TestASlowDatabaseIsMeasuredByFewerSearches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, vectors := newCutting(t)
		store.takes = probeTime * 2 / 5
		steps := 0
		o := Options{Collection: "c", K: 2, Progress: func(string, int) func(int) { return func(n int) { steps += n } }}
		tr := &trial{Options: o, store: store, look: &Look{}, report: &Report{}, sample: &sample{ids: numbered(4), vectors: vectors, whole: true, unit: true}}
		tr.look.field = adapters.VectorField{Name: "v", Dim: 2, Metric: adapters.InnerProduct, FullPrecision: true, Exact: true}
		if err := tr.measureDatabase(t.Context()); err != nil {
			t.Fatal(err)
		}
		d := tr.report.Database
		if d.Queries != 3 || d.Recall != 0.5 || d.P50 != float64(store.takes/time.Millisecond) || steps != 4 {
			t.Errorf("%+v and %d steps, want the figures of 3 searches and 4 steps", d, steps)
		}
	})
}

// TestScoresOfAMetric: a greater score is nearer by each metric, and rows that rounding could exchange with the K-th
// count as found.
func TestScoresOfAMetric(t *testing.T) {
	s := &sample{ids: numbered(3), vectors: rerank.Matrix{Rows: 3, Cols: 2, Data: []float32{3, 4, 1, 0, 0, 2}}}
	for metric, want := range map[adapters.Metric][]float64{
		adapters.InnerProduct: {3, 1, 0}, adapters.Cosine: {0.6, 1, 0}, adapters.L2: {-4 - 16, 0, -1 - 4},
	} {
		if got := s.scores([]float32{1, 0}, metric); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", metric, got, want)
		}
	}
	for k, want := range map[int]float64{1: 8, 2: 0.5, 3: -4, 9: -4} {
		if got := kth([]float64{0.5, -4, 8}, k); !(got < want && got > want-1e-4) {
			t.Errorf("the %d. of three scores is %v, want a little less than %v", k, got, want)
		}
	}
}

// table embeds texts by a table.
type table map[string][]float32

func (t table) Embed(_ context.Context, queries []string, documents ...string) ([][]float32, error) {
	var all [][]float32
	for _, text := range slices.Concat(queries, documents) {
		if t[text] == nil {
			return nil, fmt.Errorf("%w: %q", embed.ErrUnavailable, text)
		}
		all = append(all, t[text])
	}
	return all, nil
}

// TestEmbedderOfTheCollection: an embedder is refused that makes other vectors of the stored texts, or none.
func TestEmbedderOfTheCollection(t *testing.T) {
	store := embedded.New()
	err := store.Load("c", embedded.Collection{
		Fields:   []embedded.Field{{VectorField: adapters.VectorField{Name: "v"}, Vectors: rerank.Matrix{Rows: 2, Cols: 2, Data: []float32{1, 0, 0, 2}}}},
		Payloads: []json.RawMessage{json.RawMessage(`{"doc":{"text":"a"},"n":1}`), json.RawMessage(`{"doc":{"text":"b"}}`)},
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		field string
		by    table
		want  string // of the refusal; "": none
	}{
		"the same":              {"doc.text", table{"a": {5, 0}, "b": {0, 1}}, ""},
		"not asked for":         {"", nil, ""},
		"one of two":            {"doc.text", table{"a": {1, 0}, "b": {1, 0}}, "their cosine is 0.50 in the mean of 2 rows"},
		"of another length":     {"doc.text", table{"a": {1, 0, 0}, "b": {1, 0, 0}}, "vectors of 3 dimensions"},
		"no text":               {"doc", table{}, "none of the first 2 rows"},
		"one that is not there": {"doc.text", table{}, "gives no vectors"},
	} {
		var notes []string
		tr := &trial{
			Options: Options{Collection: "c", Embedder: Embedder{Field: c.field, URL: "http://u:p@host/embed"}, Note: func(text string) { notes = append(notes, text) }},
			can:     adapters.AbilitiesOf(store), look: &Look{}, sample: &sample{ids: numbered(2)},
		}
		tr.look.field = adapters.VectorField{Name: "v", Dim: 2}
		err := tr.checkEmbedder(t.Context(), c.by)
		var refusal *RefusalError
		if errors.As(err, &refusal) != (c.want != "") || c.want != "" && !strings.Contains(refusal.Sentence, c.want) || err != nil && strings.Contains(err.Error(), "u:p") {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if (len(notes) == 1) != (name == "the same") {
			t.Errorf("%s: notes %q", name, notes)
		}
	}
}

// TestKeysOfUnknownServers: a server gets no key before it was recognised.
func TestKeysOfUnknownServers(t *testing.T) {
	var calls, keys atomic.Int64
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		calls.Add(1)
		md, _ := metadata.FromIncomingContext(stream.Context())
		for _, values := range md {
			if slices.ContainsFunc(values, func(v string) bool { return strings.Contains(v, "secret") || strings.Contains(v, "c2VjcmV0") }) { // as it is, and in base64
				keys.Add(1)
			}
		}
		return status.Error(codes.Unimplemented, "nothing is")
	}))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	t.Setenv("TRIAL_KEY", "secret")
	var refusal *RefusalError
	if _, err := Find(t.Context(), Access{URL: listener.Addr().String(), KeyEnv: "TRIAL_KEY"}); !errors.As(err, &refusal) {
		t.Errorf("%v", err)
	}
	if calls.Load() == 0 || keys.Load() > 0 {
		t.Errorf("%d calls, %d of them with the key", calls.Load(), keys.Load())
	}
}

// TestKeysOfAStore: files have absolute paths, because the configuration is written to another folder.
func TestKeysOfAStore(t *testing.T) {
	absolute := func(name string) string {
		path, err := filepath.Abs(name)
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	a := Access{KeyEnv: "K", KeyFile: "key", CAFile: "ca.pem", Database: "db"}
	got, err := a.store(Server{Kind: milvusKind, Address: "h:1", TLS: true})
	want := storeKeys{Kind: milvusKind, Address: "h:1", APIKeyEnv: "K", APIKeyFile: absolute("key"), Database: "db", TLS: &tlsKeys{Enabled: true, CAFile: absolute("ca.pem")}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v\nwant %+v", got, err, want)
	}
	got, err = a.store(Server{Kind: qdrantKind, Address: "h:1"})
	if want.Kind, want.Database, want.TLS = qdrantKind, "", nil; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v\nwant %+v", got, err, want)
	}
	for _, c := range []struct {
		server Server
		want   string
	}{
		{Server{Kind: milvusKind}, "127.0.0.1:7653"}, {Server{Kind: qdrantKind}, "127.0.0.1:7634"},
		{Server{Kind: qdrantKind, REST: "http://h:6333"}, "http://127.0.0.1:7633 (gRPC: 127.0.0.1:7634)"},
	} {
		if got := (&Look{Server: c.server, field: adapters.VectorField{Metric: adapters.Cosine}}).proxy(); got.String() != c.want || got.RESTURL != c.server.REST || got.Store != storeName {
			t.Errorf("%+v: clients are answered at %s, forwarded to %q", c.server, got, got.RESTURL)
		}
	}
}

// TestWrittenRoute: the route asks for what the collection can do.
func TestWrittenRoute(t *testing.T) {
	for name, c := range map[string]struct {
		metric      adapters.Metric
		rows        int64
		unit, exact bool
		want, not   string
	}{
		"cosine":                 {adapters.Cosine, 10, true, true, "exact_search: true", "unit_vectors"},
		"unit vectors":           {adapters.InnerProduct, 10, true, true, "unit_vectors: true", "embedder"},
		"other norms":            {adapters.InnerProduct, 10, false, true, "exact_search: true", "unit_vectors"},
		"too many rows":          {adapters.Cosine, exactRows + 1, true, true, "vector: v", "exact_search"},
		"an approximate index":   {adapters.Cosine, 10, true, false, "collection: things", "exact_search"},
		"as many rows as may be": {adapters.Cosine, exactRows, true, true, "exact_search: true", "unit_vectors"},
	} {
		tr := &trial{Options: Options{Collection: "things", Out: "out"}, look: &Look{Rows: c.rows, Server: Server{Kind: qdrantKind}}, sample: &sample{unit: c.unit}}
		tr.look.field = adapters.VectorField{Name: "v", Metric: c.metric, FullPrecision: true, Exact: c.exact, Dim: 3}
		text, err := tr.configuration()
		if err != nil || !strings.Contains(string(text), c.want) || strings.Contains(string(text), c.not) {
			t.Errorf("%s: %v\n%s", name, err, text)
		}
	}
	tr := &trial{Options: Options{Collection: "things", Embedder: Embedder{URL: "http://e", Model: "m", QueryPrefix: "q: ", DocumentPrefix: "d: "}}, look: &Look{}, sample: &sample{}}
	tr.look.field.Dim = 3
	t.Setenv(EmbedderKey, "secret")
	text, err := tr.configuration()
	for _, want := range []string{"embedder: questions", "url: http://e", "model: m", "query_prefix: 'q: '", "document_prefix: 'd: '", "dimension: 3", "token_env: " + EmbedderKey} {
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%v: the configuration lacks %q\n%s", err, want, text)
		}
	}
	if strings.Contains(string(text), "secret") {
		t.Errorf("the token was written\n%s", text)
	}
}

// sparse is a collection of which each part has ten rows with a vector and ten without.
type sparse struct{}

func (sparse) Cut(_ context.Context, _ string, parts int) ([]string, error) {
	var cuts []string
	for n := 1; n < parts; n++ {
		cuts = append(cuts, strconv.Itoa(n))
	}
	return cuts, nil
}

func (sparse) Scan(_ context.Context, r adapters.ScanRequest, yield func(adapters.Rows, string) error) error {
	n, _ := strconv.Atoi(r.Cursor)
	rows := adapters.Rows{IDs: numbered(20*n + 20)[20*n:], Payloads: make([]json.RawMessage, 20)}
	if len(r.Vectors) > 0 {
		rows.Vectors = []rerank.Matrix{{Rows: 20, Cols: 1, Data: slices.Repeat([]float32{1, float32(math.NaN())}, 10)}}
	}
	return yield(rows, "")
}

// TestASampleIsNotTheCollection, though it has fewer rows than might have been read.
func TestASampleIsNotTheCollection(t *testing.T) {
	tr := &trial{Options: Options{Collection: "c", Rows: 100}, can: adapters.Abilities{Scan: sparse{}, Partition: sparse{}}, look: &Look{Rows: 120}}
	tr.look.field.Dim = 1
	if err := tr.readSample(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := tr.sample; s.whole || !tr.look.Random || tr.look.Rows != 120 || len(s.ids) != 60 || s.missing.Rows != 60 {
		t.Errorf("whole %t, at random %t, %d of %d rows, %d without a vector", s.whole, tr.look.Random, len(s.ids), tr.look.Rows, s.missing.Rows)
	}
}

// TestNamesOfServers: addresses as people write them, and what a failed request says.
func TestNamesOfServers(t *testing.T) {
	for text, want := range map[string]struct {
		host   string
		ports  []int
		secure bool
	}{
		"db":               {"db", []int{6333, 19530}, false},
		"db:7":             {"db", []int{7}, false},
		"https://db":       {"db", []int{6333, 19530}, true},
		"grpcs://db:8":     {"db", []int{8}, true},
		"tcp://[::1]:9/":   {"::1", []int{9}, false},
		"http://db:65535":  {"db", []int{65535}, false},
		"http://db:65536":  {},
		"http://db:0":      {},
		"ftp://db":         {},
		"http://db/points": {},
		"":                 {},
	} {
		host, ports, secure, err := parseURL(text)
		var refusal *RefusalError
		if host != want.host || !slices.Equal(ports, want.ports) || secure != want.secure || errors.As(err, &refusal) != (want.host == "") {
			t.Errorf("%q: %q, %v, %t, %v", text, host, ports, secure, err)
		}
	}
}

// TestRowsOfAnExample: the query's own row is in neither list, and lists of the same rows are no example.
func TestRowsOfAnExample(t *testing.T) {
	tr := &trial{}
	ids := numbered(8)
	if got := tr.firstRows(ids, ids[2]); !slices.Equal(got, []rerank.ID{ids[0], ids[1], ids[3], ids[4], ids[5]}) {
		t.Errorf("%v", got)
	}
	if got := tr.firstRows(ids[:2], ids[2]); !slices.Equal(got, ids[:2]) {
		t.Errorf("%v", got)
	}
	if !sameRows(ids[:2], []rerank.ID{ids[1], ids[0]}) || sameRows(ids[:2], ids[1:3]) || sameRows(ids[:2], ids[:3]) {
		t.Error("lists of the same rows, in any order, are the same")
	}
}
