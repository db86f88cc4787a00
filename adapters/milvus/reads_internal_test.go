package milvus

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/milvus-io/milvus-proto/go-api/v2/commonpb"
	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"github.com/milvus-io/milvus-proto/go-api/v2/schemapb"
	"google.golang.org/protobuf/proto"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
)

// TestQueriesAsSent compares the whole request of each way to read rows or their number.
func TestQueriesAsSent(t *testing.T) {
	s, r := record(t, Options{Database: "db"})
	r.answers("DescribeCollection", described("c"))
	c, err := s.collection(t.Context(), "c")
	if err != nil {
		t.Fatal(err)
	}
	v, err := c.column("v")
	if err != nil {
		t.Fatal(err)
	}
	base := func(change func(*milvuspb.QueryRequest)) *milvuspb.QueryRequest {
		m := &milvuspb.QueryRequest{DbName: "db", CollectionName: "c", Expr: "n > 1", OutputFields: []string{"id"}, QueryParams: pairs("iterator", "True", "limit", "9"), UseDefaultConsistency: true}
		change(m)
		return m
	}
	payload := func(fields ...string) reading {
		out, err := newReading(c, []string{"v"}, "n", false, fields)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	whole, err := newReading(c, nil, "", true, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, q := range map[string]struct {
		r    reading
		want *milvuspb.QueryRequest
	}{
		"keys":    {reading{c: c}, base(func(*milvuspb.QueryRequest) {})},
		"vectors": {reading{c: c, columns: []column{v, v}}, base(func(m *milvuspb.QueryRequest) { m.OutputFields = []string{"id", "v"} })},
		"a level": {reading{c: c, level: "Eventually"}, base(func(m *milvuspb.QueryRequest) {
			m.ConsistencyLevel, m.UseDefaultConsistency = commonpb.ConsistencyLevel_Eventually, false
		})},
		"after all writes": {reading{c: c, level: "Eventually", strong: true}, base(func(m *milvuspb.QueryRequest) {
			m.ConsistencyLevel, m.UseDefaultConsistency = commonpb.ConsistencyLevel_Strong, false
		})},
		"a field and a key": {payload("text", "extra"), base(func(m *milvuspb.QueryRequest) { m.OutputFields = []string{"id", "v", "n", "text", "$meta"} })},
		"a field":           {payload("text"), base(func(m *milvuspb.QueryRequest) { m.OutputFields = []string{"id", "v", "n", "text"} })},
		"the owner twice":   {payload("n"), base(func(m *milvuspb.QueryRequest) { m.OutputFields = []string{"id", "v", "n"} })},
		"everything":        {whole, base(func(m *milvuspb.QueryRequest) { m.OutputFields = []string{"id", "n", "text", "$meta"} })},
	} {
		r.take("")
		if _, err := s.read(q.r).query(t.Context(), "n > 1", 9, "iterator", "True"); err != nil {
			t.Error(err)
		}
		r.wantSent(t, name, "Query", q.want)
	}

	r.answers("DescribeCollection", inRows(t))
	s.forget("c")
	companion, err := s.collection(t.Context(), "c")
	if err != nil {
		t.Fatal(err)
	}
	if whole, err = newReading(companion, nil, "item", true, nil); err != nil || !slices.Equal(whole.outputFields(), []string{companionID, companionOwner, "n", dynamicField}) {
		t.Errorf("the payload of a companion is read by %q, %v", whole.outputFields(), err)
	}
	r.answers("DescribeCollection", described("c"))
	s.forget("c")

	counted := func(expr string, strong bool) *milvuspb.QueryRequest {
		return &milvuspb.QueryRequest{DbName: "db", CollectionName: "c", Expr: expr, OutputFields: []string{"count(*)"}, UseDefaultConsistency: !strong}
	}
	r.answers("Query", &milvuspb.QueryResults{FieldsData: []*schemapb.FieldData{longs("count(*)", 7)}})
	if n, err := s.Count(t.Context(), "c"); n != 7 || err != nil {
		t.Errorf("counted %d, %v", n, err)
	}
	r.wantSent(t, "count", "Query", counted("", true))
	if d, err := s.Describe(t.Context(), "c"); d.Rows != 7 || err != nil {
		t.Errorf("described as %+v, %v", d, err)
	}
	r.wantSent(t, "describe", "Query", counted("", false))
	r.answers("DescribeCollection", inRows(t))
	if _, err := s.Describe(t.Context(), "c"); err != nil {
		t.Error(err)
	}
	r.wantSent(t, "describe a companion", "Query", counted("likeness_field == 0", false))
	r.answers("Query", &milvuspb.QueryResults{Status: refused(101, "not loaded")})
	if d, err := s.Describe(t.Context(), "c"); d.Rows != -1 || err != nil {
		t.Errorf("not loaded: %+v, %v", d, err)
	}
}

// TestDescriptions: a description has the name of the collection behind an alias, and each float field with its
// metric and whether searches of it are exact.
func TestDescriptions(t *testing.T) {
	s, r := record(t, Options{Database: "db"})
	r.answers("Query", &milvuspb.QueryResults{FieldsData: []*schemapb.FieldData{longs("count(*)", 7)}})
	r.answers("DescribeCollection", described("own"))
	for index, want := range map[string]adapters.VectorField{
		"flat": {Exact: true, AlwaysExact: true}, "HNSW": {}, "IVF_SQ8": {Quantized: "IVF_SQ8"}, "IVF_PQ": {Quantized: "IVF_PQ"}, "SCANN": {Quantized: "SCANN"}, "GPU_CAGRA": {},
	} {
		both := indexed("v", "metric_type", "cosine", "index_type", index)
		both.IndexDescriptions = append(both.GetIndexDescriptions(), indexed("bits", "metric_type", "HAMMING", "index_type", "BIN_FLAT").GetIndexDescriptions()...)
		r.answers("DescribeIndex", both)
		d, err := s.Describe(t.Context(), "alias")
		want.Name, want.Dim, want.Metric, want.FullPrecision, want.Datatype = "v", 2, adapters.Cosine, true, adapters.Float32
		if err != nil || len(d.Fields) != 1 || d.Fields[0] != want || d.Settings["collection"] != "own" || d.Settings["v.index_type"] != index || d.TextIDs {
			t.Errorf("%s: %+v, %v, want %+v", index, d, err, want)
		}
	}
	bits := vectorColumn{index: "FLAT", kind: schemapb.DataType_BFloat16Vector}
	if bits.isExact() {
		t.Error("a search of rounded vectors counts as exact")
	}
	r.answers("DescribeCollection", described("own", func(s *schemapb.CollectionSchema) { s.Fields[0].DataType = schemapb.DataType_VarChar }))
	r.answers("DescribeIndex", &milvuspb.DescribeIndexResponse{Status: refused(700, "index not found")})
	if d, err := s.Describe(t.Context(), "alias"); err != nil || !d.TextIDs || d.Fields[0].Metric != "" || d.Fields[0].Exact {
		t.Errorf("without an index: %+v, %v", d, err)
	}
	for _, building := range []*milvuspb.IndexDescription{{State: commonpb.IndexState_Unissued}, {State: commonpb.IndexState_InProgress}, {State: commonpb.IndexState_Finished, PendingIndexRows: 1}} {
		building.FieldName, building.IndexedRows, building.TotalRows = "v", 3, 7
		r.answers("DescribeIndex", &milvuspb.DescribeIndexResponse{IndexDescriptions: []*milvuspb.IndexDescription{building}})
		if d, err := s.Describe(t.Context(), "alias"); err != nil || d.Indexing != `index of field "v" has 3 of 7 rows` {
			t.Errorf("%v: indexing %q, %v", building, d.Indexing, err)
		}
	}
	r.answers("DescribeIndex", &milvuspb.DescribeIndexResponse{IndexDescriptions: []*milvuspb.IndexDescription{{FieldName: "v", State: commonpb.IndexState_Finished, IndexedRows: 7, TotalRows: 7}}})
	if d, err := s.Describe(t.Context(), "alias"); err != nil || d.Indexing != "" {
		t.Errorf("a finished index: indexing %q, %v", d.Indexing, err)
	}
	both := described("own")
	both.Aliases, both.GetSchema().GetFields()[0].AutoID = []string{"alias", "other"}, true
	r.answers("DescribeCollection", both)
	id, err := s.Identify(t.Context(), "alias")
	if err != nil || id.Collection != "own" || id.Key != "id" || !id.AutoKey || !slices.Equal(id.Aliases, both.GetAliases()) {
		t.Errorf("identified as %+v, %v", id, err)
	}
}

// pages returns replies to queries: one for each list of keys, with a row for each key.
func pages(keys ...[]int64) (all []proto.Message) {
	for _, k := range keys {
		m := &milvuspb.QueryResults{FieldsData: []*schemapb.FieldData{longs("id", k...)}}
		all = append(all, m)
	}
	return all
}

var tooLong = &milvuspb.QueryResults{Status: refused(65535, "message larger than max")}

// TestPagesOfAScan: the first page of a scan is read with Strong consistency, each page begins behind the last row
// of the one before, a page that is too long is requested in halves, and the greatest id comes last.
func TestPagesOfAScan(t *testing.T) {
	s, r := record(t, Options{})
	r.answers("DescribeCollection", described("c"))
	r.answers("DescribeIndex", indexed("v", "metric_type", "IP", "index_type", "FLAT"))
	page := func(expr, limit string, strong bool) *milvuspb.QueryRequest {
		m := &milvuspb.QueryRequest{CollectionName: "c", Expr: expr, OutputFields: []string{"id"}, QueryParams: pairs("iterator", "True", "reduce_stop_for_best", "True", "limit", limit), UseDefaultConsistency: !strong}
		return m
	}
	scan := func(cursor string, batch int) (ids []rerank.ID, last string, err error) {
		err = s.Scan(t.Context(), adapters.ScanRequest{Collection: "c", Filter: "n > 1", Batch: batch, Cursor: cursor}, func(rows adapters.Rows, cursor string) error {
			ids, last = append(ids, rows.IDs...), cursor
			return nil
		})
		return ids, last, err
	}
	queries := append(pages([]int64{math.MinInt64}, []int64{-3, 5}), tooLong, tooLong)
	r.answers("Query", append(queries, pages([]int64{6}, nil)...)...)
	r.answers("Search", hits([]int64{1}, []float32{1}, []int64{math.MaxInt64}))
	r.take("")
	got, cursor, err := scan("", 4)
	if want := intIDs(math.MinInt64, -3, 5, 6, math.MaxInt64); err != nil || !slices.Equal(got, want) || cursor != `{"num":9223372036854775807}` {
		t.Errorf("%v, %q, %v, want %v", got, cursor, err, want)
	}
	const least = "(n > 1) && (id >= -9223372036854775807)"
	calls := slices.Clone(r.calls)
	r.wantSent(t, "scan", "Query", page("n > 1", "4", true), page(least, "4", false), page("(n > 1) && (id > 5)", "4", false),
		page("(n > 1) && (id > 5)", "2", false), page("(n > 1) && (id > 5)", "1", false), page("(n > 1) && (id > 6)", "1", false))
	r.calls = calls
	last := r.take("Search")
	if len(last) != 1 || last[0].(*milvuspb.SearchRequest).GetDsl() != "(n > 1) && (id == 9223372036854775807)" || !last[0].(*milvuspb.SearchRequest).GetUseDefaultConsistency() {
		t.Errorf("the greatest id is looked for by %v", last)
	}
	r.answers("Query", pages(nil)...)
	if got, _, err := scan(cursor, 4); len(got) > 0 || err != nil {
		t.Errorf("behind the greatest id are %v, %v", got, err)
	}
	if got := r.take("Search"); len(got) > 0 {
		t.Errorf("behind the greatest id it is looked for again: %v", got)
	}
	if _, _, err := scan("", 4); err != nil { // no row at all: the greatest id is read as strictly as the page
		t.Error(err)
	}
	if last := r.take("Search"); len(last) != 1 || last[0].(*milvuspb.SearchRequest).GetConsistencyLevel() != commonpb.ConsistencyLevel_Strong || last[0].(*milvuspb.SearchRequest).GetUseDefaultConsistency() {
		t.Errorf("of an empty collection the greatest id is looked for by %v", last)
	}
	r.answers("Query", pages([]int64{5}, []int64{4, 5})...)
	if got, _, err := scan("", 4); len(got) != 1 || !errors.Is(err, adapters.ErrStore) {
		t.Errorf("pages that do not go on: %v, %v", got, err)
	}
	r.answers("Query", tooLong)
	if _, _, err := scan("", 4); !isTooLong(err) {
		t.Errorf("a row that is too large: %v", err)
	}
	r.answers("Query", pages(nil)...)
	r.take("")
	if _, err := s.Match(t.Context(), "c", "n > 1"); err != nil {
		t.Error(err)
	}
	r.wantSent(t, "match", "Query", page("n > 1", "1000", false))
	if _, _, err := scan(`{"text":"a"}`, 4); !errors.Is(err, adapters.ErrStore) {
		t.Errorf("a cursor of text keys: %v", err)
	}
	if err := s.Scan(t.Context(), adapters.ScanRequest{Collection: "c", Filter: "\xff"}, nil); !errors.Is(err, adapters.ErrFilter) {
		t.Errorf("a filter that is not text: %v", err)
	}
	s.options.Limits.MaxMessageBytes = 64 * 2 * 3
	r.take("")
	if _, _, err := scan("", 4); err != nil {
		t.Error(err)
	}
	r.wantSent(t, "scan of small messages", "Query", page("n > 1", "3", true))
	r.answers("DescribeIndex", &milvuspb.DescribeIndexResponse{})
	if _, _, err := scan("", 4); err != nil {
		t.Errorf("without an index: %v", err)
	}
	if got := r.take("Search"); len(got) > 0 {
		t.Errorf("without an index is searched %v", got)
	}
}

// TestScansOfANewSchema: a scan reads the fields of the schema that the collection has when the scan begins.
func TestScansOfANewSchema(t *testing.T) {
	s, r := record(t, Options{SchemaTTL: time.Hour})
	r.answers("DescribeCollection", described("c"))
	r.answers("Query", pages(nil)...)
	nothing := func(adapters.Rows, string) error { return nil }
	for _, fields := range []int{6, 7} {
		more := described("c", func(s *schemapb.CollectionSchema) {
			if fields == 7 {
				s.Fields = append(s.Fields, &schemapb.FieldSchema{Name: "m", DataType: schemapb.DataType_Int64})
			}
		})
		r.answers("DescribeCollection", more)
		r.take("")
		if err := s.Scan(t.Context(), adapters.ScanRequest{Collection: "c", Payload: true}, nothing); err != nil {
			t.Fatal(err)
		}
		got := r.take("Query")[0].(*milvuspb.QueryRequest)
		if slices.Contains(got.GetOutputFields(), "m") != (fields == 7) {
			t.Errorf("of %d fields are read %q", fields, got.GetOutputFields())
		}
	}
}

// TestFetchesInParts: keys whose rows are together too large are read in halves, down to one
// row, and long keys in several requests.
func TestFetchesInParts(t *testing.T) {
	s, r := record(t, Options{})
	r.answers("DescribeCollection", described("c"))
	r.answers("Query", append([]proto.Message{tooLong}, pages([]int64{1}, []int64{2})...)...)
	rows, err := s.Fetch(t.Context(), adapters.FetchRequest{Collection: "c", IDs: intIDs(1, 2, 1), Consistency: "Session"})
	if err != nil || !slices.Equal(rows.IDs, intIDs(1, 2)) {
		t.Errorf("%v, %v", rows.IDs, err)
	}
	read := func(expr, limit string) *milvuspb.QueryRequest {
		return &milvuspb.QueryRequest{CollectionName: "c", Expr: expr, OutputFields: []string{"id"}, QueryParams: pairs("limit", limit), ConsistencyLevel: commonpb.ConsistencyLevel_Session}
	}
	r.wantSent(t, "fetch", "Query", read("id in [1,2]", "2"), read("id in [1]", "1"), read("id in [2]", "1"))
	r.answers("Query", tooLong)
	if _, err := s.Fetch(t.Context(), adapters.FetchRequest{Collection: "c", IDs: intIDs(1, 2)}); !isTooLong(err) {
		t.Errorf("a row that is too large: %v", err)
	}
	s.options.Limits.MaxMessageBytes = 2 * 64 * 2 // two rows a page, 128 bytes of keys
	long := key{isText: true, text: strings.Repeat("x", 40)}
	reading := reading{c: &collection{}}
	for name, c := range map[string]struct {
		keys []key
		want []int
	}{"short": {make([]key, 5), []int{2, 2, 1}}, "long": {[]key{long, long, {}, {}}, []int{1, 2, 1}}} {
		var got []int
		for _, b := range s.read(reading).batches(c.keys) {
			got = append(got, len(b))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s keys: batches of %v, want %v", name, got, c.want)
		}
	}
}

// TestFetchesByOwner: each owner is asked for once, a thousand at a time, and the rows come
// in the order of the owners, then of their ids.
func TestFetchesByOwner(t *testing.T) {
	s, r := record(t, Options{})
	r.answers("DescribeCollection", described("c"))
	page := &milvuspb.QueryResults{FieldsData: []*schemapb.FieldData{longs("id", 1, 2, 3, 4), longs("n", 8, 7, 9, 8), floats("v", 2, 1, 1, 2, 2, 3, 3, 4, 4)}}
	r.answers("Query", page, &milvuspb.QueryResults{})
	rows, err := s.Fetch(t.Context(), adapters.FetchRequest{Collection: "c", Owner: "n", IDs: intIDs(8, 7, 8), Vectors: []string{"v"}, Consistency: "Bounded"})
	if err != nil || !slices.Equal(rows.IDs, intIDs(1, 4, 2)) || !slices.Equal(rows.Owners, intIDs(8, 8, 7)) || !slices.Equal(rows.Vectors[0].Data, []float32{1, 1, 4, 4, 2, 2}) {
		t.Errorf("%+v, %v", rows, err)
	}
	got := r.take("Query")[0].(*milvuspb.QueryRequest)
	if got.GetExpr() != "n in [8,7]" || got.GetConsistencyLevel() != commonpb.ConsistencyLevel_Bounded || got.GetUseDefaultConsistency() {
		t.Errorf("owners are asked for by %v", got)
	}
	var many []rerank.ID
	for i := range int64(1001) {
		many = append(many, rerank.IntID(i))
	}
	r.answers("Query", &milvuspb.QueryResults{})
	if _, err := s.Fetch(t.Context(), adapters.FetchRequest{Collection: "c", Owner: "n", IDs: many}); err != nil {
		t.Error(err)
	}
	if got := r.take("Query"); len(got) != 2 || got[1].(*milvuspb.QueryRequest).GetExpr() != "n in [1000]" {
		t.Errorf("1,001 owners are asked for in %d calls", len(got))
	}
	if _, err := s.Fetch(t.Context(), adapters.FetchRequest{Collection: "c", Owner: "n > 0 or x", IDs: intIDs(1)}); !errors.Is(err, adapters.ErrField) {
		t.Errorf("an owner field that is an expression: %v", err)
	}
}

// TestFetchesOfComponents: each component is read at the request's consistency.
func TestFetchesOfComponents(t *testing.T) {
	s, r := record(t, Options{})
	r.answers("DescribeCollection", inRows(t))
	if _, err := s.Fetch(t.Context(), adapters.FetchRequest{Collection: "c", IDs: []rerank.ID{rerank.TextID("x")}, Vectors: []string{"a", "b"}, Consistency: "Bounded"}); err != nil {
		t.Error(err)
	}
	var expressions []string
	for _, m := range r.take("Query") {
		q := m.(*milvuspb.QueryRequest)
		if q.GetConsistencyLevel() != commonpb.ConsistencyLevel_Bounded || q.GetUseDefaultConsistency() {
			t.Errorf("a component is read by %v", q)
		}
		expressions = append(expressions, q.GetExpr())
	}
	slices.Sort(expressions)
	if !slices.Equal(expressions, []string{`likeness_id in ["0:x"]`, `likeness_id in ["1:x"]`}) {
		t.Errorf("components are read by %q", expressions)
	}
}

// TestWhatIsNeitherReadNorDeleted: a field that the collection lacks, a key that no companion has, and rows of a
// collection that is no companion are errors, and nothing is sent for them.
func TestWhatIsNeitherReadNorDeleted(t *testing.T) {
	s, r := record(t, Options{})
	r.answers("DescribeCollection", described("c"))
	if _, err := s.Fetch(t.Context(), adapters.FetchRequest{Collection: "c", IDs: intIDs(1), Vectors: []string{"none"}}); !errors.Is(err, adapters.ErrField) {
		t.Errorf("a field that is not there: %v", err)
	}
	if err := s.Delete(t.Context(), "c", intIDs(1)); !errors.Is(err, adapters.ErrUnsupported) {
		t.Errorf("a row of somebody's collection: %v", err)
	}
	if sent := len(r.take("Query")) + len(r.take("Delete")); sent > 0 {
		t.Errorf("%d calls are made", sent)
	}
	r.answers("DescribeCollection", inRows(t))
	r.answers("Query", &milvuspb.QueryResults{FieldsData: []*schemapb.FieldData{textData(companionID, []string{"0:%zz"})}})
	err := s.Scan(t.Context(), adapters.ScanRequest{Collection: "c"}, func(rows adapters.Rows, _ string) error {
		t.Errorf("the rows %v are read", rows.IDs)
		return nil
	})
	if !errors.Is(err, adapters.ErrStore) {
		t.Errorf("a key that no companion has: %v", err)
	}
}

// texts is a collection with text keys.
func texts(t *testing.T) (*Store, *recorded) {
	t.Helper()
	s, r := record(t, Options{Limits: adapters.Limits{MaxDepth: 8}})
	r.answers("DescribeCollection", described("c", func(s *schemapb.CollectionSchema) { s.Fields[0].DataType = schemapb.DataType_VarChar }))
	return s, r
}

func textPage(keys ...string) *milvuspb.QueryResults {
	values := make([]int64, len(keys))
	var payloads []string
	var numbers []float32
	for i, k := range keys {
		values[i] = int64(len(k))
		payloads, numbers = append(payloads, fmt.Sprintf(`{"key":%q}`, k)), append(numbers, float32(len(k)), 0)
	}
	return &milvuspb.QueryResults{FieldsData: []*schemapb.FieldData{textData("id", keys), longs("n", values...), jsons("$meta", payloads...), floats("v", 2, numbers...)}}
}

// TestKeysWithLineBreaks: a filter of milvus-lite cannot contain a line break. The page behind such a key begins at
// the key's first line, and rows that were read before are left out. A row with such a key is searched by a
// pattern, and other rows that match are left out.
func TestKeysWithLineBreaks(t *testing.T) {
	s, r := texts(t)
	check := func(rows adapters.Rows) {
		t.Helper()
		for i, id := range rows.IDs {
			text, _ := id.Text()
			if rows.Owners[i] != rerank.IntID(int64(len(text))) || string(rows.Payloads[i]) != fmt.Sprintf(`{"key":%q}`, text) || rows.Vectors[0].Row(i)[0] != float32(len(text)) {
				t.Errorf("row %q has owner %v, payload %s, vector %v", text, rows.Owners[i], rows.Payloads[i], rows.Vectors[0].Row(i))
			}
		}
	}
	scan := func(after string, batch int, replies ...proto.Message) (got []string, sent []proto.Message, err error) {
		cursor, err := writeCursor(key{isText: true, text: after})
		if err != nil {
			t.Fatal(err)
		}
		r.answers("Query", append(replies, &milvuspb.QueryResults{})...)
		r.take("")
		err = s.Scan(t.Context(), adapters.ScanRequest{Collection: "c", Owner: "n", PayloadFields: []string{"key"}, Vectors: []string{"v"}, Batch: batch, Cursor: cursor}, func(rows adapters.Rows, _ string) error {
			check(rows)
			for _, id := range rows.IDs {
				text, _ := id.Text()
				got = append(got, text)
			}
			return nil
		})
		return got, r.take("Query"), err
	}
	for _, brk := range []string{"\n", "\r"} {
		after := "aa" + brk + "b"
		got, sent, err := scan(after, 4, textPage("aa", after, "aab", "aabcd"))
		if err != nil || !slices.Equal(got, []string{"aab", "aabcd"}) || sent[0].(*milvuspb.QueryRequest).GetExpr() != `id >= "aa"` {
			t.Errorf("%v, %v by %v", got, err, sent)
		}
		got, sent, err = scan(after, 2, textPage("aa", after), textPage("aa", after, "aab", "aabc"))
		if err != nil || !slices.Equal(got, []string{"aab", "aabc"}) || len(sent) < 2 || value(sent[1].(*milvuspb.QueryRequest).GetQueryParams(), "limit") != "4" {
			t.Errorf("%v, %v by %v", got, err, sent)
		}
		full := textPage("aa", "aa\n1", "aa\n2", "aa\n3", "aa\n4", "aa\n5", "aa\n6", "aa\n7")
		if _, sent, err := scan("aa\r8", 6, textPage("aa", "aa\n1", "aa\n2", "aa\n3", "aa\n4", "aa\n5"), full); !errors.Is(err, adapters.ErrUnsupported) || len(sent) != 2 || value(sent[1].(*milvuspb.QueryRequest).GetQueryParams(), "limit") != "8" {
			t.Errorf("more keys of one line than a page holds: %v by %v", err, sent)
		}
	}

	fetch := func(replies ...proto.Message) (adapters.Rows, []proto.Message, error) {
		r.answers("Query", replies...)
		r.take("")
		rows, err := s.Fetch(t.Context(), adapters.FetchRequest{Collection: "c", IDs: []rerank.ID{rerank.TextID("50%\n\\\"")}})
		return rows, r.take("Query"), err
	}
	rows, sent, err := fetch(&milvuspb.QueryResults{}, textPage("50x\n\\\"", "50%\n\\\""))
	if err != nil || len(rows.IDs) != 1 || rows.IDs[0] != rerank.TextID("50%\n\\\"") || len(sent) != 2 || sent[1].(*milvuspb.QueryRequest).GetExpr() != `id like "50____"` {
		t.Errorf("%v, %v by %v", rows.IDs, err, sent)
	}
	if rows, _, err := fetch(&milvuspb.QueryResults{}, &milvuspb.QueryResults{Status: refused(1100, "Invalid expr")}); err != nil || len(rows.IDs) > 0 {
		t.Errorf("a server without patterns: %v, %v", rows.IDs, err)
	}
	if _, _, err := fetch(&milvuspb.QueryResults{}, &milvuspb.QueryResults{Status: refused(1, "not ready")}); !errors.Is(err, adapters.ErrUnavailable) {
		t.Errorf("a server that is not ready: %v", err)
	}
}

// TestTheGreatestID, which Milvus's queries miss, is read by a search of its own, as strictly
// and with the fields that were asked for.
func TestTheGreatestID(t *testing.T) {
	s, r := record(t, Options{})
	r.answers("DescribeCollection", described("c"))
	r.answers("DescribeIndex", indexed("v", "metric_type", "IP", "index_type", "FLAT"))
	r.answers("Query", pages(nil)...)
	r.answers("Search", hits([]int64{1}, []float32{1}, []int64{math.MaxInt64}, floats("v", 2, 5, 6), longs("n", 3)))
	rows, err := s.Fetch(t.Context(), adapters.FetchRequest{Collection: "c", IDs: intIDs(math.MaxInt64), Vectors: []string{"v"}, PayloadFields: []string{"n"}, Consistency: "Bounded"})
	if err != nil || len(rows.IDs) != 1 || !slices.Equal(rows.Vectors[0].Row(0), []float32{5, 6}) || string(rows.Payloads[0]) != `{"n":3}` {
		t.Errorf("%+v, %v", rows, err)
	}
	got := r.take("Search")[0].(*milvuspb.SearchRequest)
	if got.GetConsistencyLevel() != commonpb.ConsistencyLevel_Bounded || got.GetUseDefaultConsistency() || got.GetDsl() != "id == 9223372036854775807" || !slices.Equal(got.GetOutputFields(), []string{"v", "n"}) || value(got.GetSearchParams(), "topk") != "1" {
		t.Errorf("it is looked for by %v", got)
	}
	r.answers("Search", &milvuspb.SearchResults{Status: refused(65535, "cannot read")})
	if _, err := s.Fetch(t.Context(), adapters.FetchRequest{Collection: "c", IDs: intIDs(math.MaxInt64)}); !errors.Is(err, adapters.ErrUnsupported) {
		t.Errorf("a server that cannot read it: %v", err)
	}
}

// TestPayloads: the fields of a row become one JSON object, also if the server leaves some out.
func TestPayloads(t *testing.T) {
	nullable := func(f *schemapb.FieldData, valid ...bool) *schemapb.FieldData {
		f.ValidData = valid
		return f
	}
	reals := func(name string, x ...float32) *schemapb.FieldData {
		return scalarData(name, schemapb.DataType_Float, &schemapb.ScalarField{Data: &schemapb.ScalarField_FloatData{FloatData: &schemapb.FloatArray{Data: x}}})
	}
	meta := func(texts ...string) *schemapb.FieldData {
		f := jsons("", texts...)
		f.IsDynamic = true
		return f
	}
	for name, c := range map[string]struct {
		fields  []*schemapb.FieldData
		scalars []string
		keys    []string
		row     int
		want    string // "": an error
	}{
		"a field and the dynamic one":     {[]*schemapb.FieldData{longs("n", 1, 2), meta(`{}`, ` { "k": 1 } `)}, []string{"n"}, nil, 1, `{"n":2,"k": 1}`},
		"a field and nothing dynamic":     {[]*schemapb.FieldData{longs("n", 1), meta(`{}`)}, []string{"n"}, nil, 0, `{"n":1}`},
		"only the dynamic one":            {[]*schemapb.FieldData{meta(`{"k":[1]}`)}, nil, nil, 0, `{"k":[1]}`},
		"a dynamic null":                  {[]*schemapb.FieldData{meta(`null`)}, nil, nil, 0, `{}`},
		"a dynamic field that is missing": {nil, nil, nil, 0, `{}`},
		"wanted keys":                     {[]*schemapb.FieldData{meta(`{"a":1,"b":2}`)}, nil, []string{"b", "c"}, 0, `{"b":2}`},
		"a null that was left out":        {[]*schemapb.FieldData{nullable(longs("n", 7, 9), true, false, true)}, []string{"n"}, nil, 1, `{"n":null}`},
		"behind a null that was left out": {[]*schemapb.FieldData{nullable(longs("n", 7, 9), true, false, true)}, []string{"n"}, nil, 2, `{"n":9}`},
		"a null that was filled":          {[]*schemapb.FieldData{nullable(longs("n", 7, 0, 9), true, false, true)}, []string{"n"}, nil, 1, `{"n":null}`},
		"behind a null that was filled":   {[]*schemapb.FieldData{nullable(longs("n", 7, 0, 9), true, false, true)}, []string{"n"}, nil, 2, `{"n":9}`},
		"a float32":                       {[]*schemapb.FieldData{reals("x", 0.1)}, []string{"x"}, nil, 0, `{"x":0.1}`},
		"no number":                       {[]*schemapb.FieldData{reals("x", float32(math.NaN()))}, []string{"x"}, nil, 0, `{"x":null}`},
		"infinity":                        {[]*schemapb.FieldData{reals("x", float32(math.Inf(-1)))}, []string{"x"}, nil, 0, `{"x":null}`},
		"a text of HTML":                  {[]*schemapb.FieldData{textData("s", []string{"<&\u2028"})}, []string{"s"}, nil, 0, `{"s":"<&\u2028"}`},
		"a JSON field that is empty":      {[]*schemapb.FieldData{jsons("j", "")}, []string{"j"}, nil, 0, `{"j":null}`},
		"a JSON field that is broken":     {[]*schemapb.FieldData{jsons("j", "{")}, []string{"j"}, nil, 0, ""},
		"a key of a broken dynamic field": {[]*schemapb.FieldData{meta(`{]`)}, nil, []string{"a"}, 0, ""},
	} {
		got, err := fieldsOf(c.fields).rowPayload(c.scalars, c.keys, c.row)
		if string(got) != c.want && c.want != "" || (err != nil) != (c.want == "") || err == nil && !json.Valid(got) {
			t.Errorf("%s: %s, %v, want %s", name, got, err, c.want)
		}
	}
	short := fieldsOf([]*schemapb.FieldData{floats("v", 1, 1, 2, 3, 4)})
	if _, err := short.vectors(column{vectorColumn: vectorColumn{name: "v"}, dim: 2}, 0, 2); !errors.Is(err, adapters.ErrStore) {
		t.Errorf("vectors of one number for those of two: %v", err)
	}
	c := &collection{layout: &layout{Owner: "item"}}
	if _, err := c.ownerOf(fieldSet{}, "item", 0); !errors.Is(err, adapters.ErrStore) {
		t.Errorf("a row without its owner: %v", err)
	}
}

// TestExpressions: combining keys with a client's filter changes the meaning of neither.
func TestExpressions(t *testing.T) {
	for want, got := range map[string]string{
		"id in [1] || id < -9223372036854775807": oneOf("id", []key{{num: math.MinInt64}, {num: 1}}),
		"(a or b) && (c)":                        joinConditions("a or b", "", " ", "c"),
		"a or b":                                 joinConditions("", "a or b"),
		"":                                       joinConditions(" "),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if text, ok := Literal("a\nb"); ok {
		t.Errorf("a line break is the literal %s", text)
	}
	if text, err := Among("id", []rerank.ID{rerank.UintID(1 << 63)}); !errors.Is(err, adapters.ErrID) {
		t.Errorf("an id over the signed numbers: %s, %v", text, err)
	}
}

// TestRowsAreJoined: parts of an answer are joined with their owners and payloads, also if a part is empty.
func TestRowsAreJoined(t *testing.T) {
	one := func(n int64) adapters.Rows {
		return adapters.Rows{IDs: intIDs(n), Owners: intIDs(10 + n), Payloads: []json.RawMessage{fmt.Appendf(nil, "%d", n)}, Vectors: []rerank.Matrix{{Rows: 1, Cols: 1, Data: []float32{float32(n)}}}}
	}
	all := concatRows(concatRows(adapters.Rows{}, one(1)), concatRows(one(2), adapters.Rows{}))
	if !slices.Equal(all.IDs, intIDs(1, 2)) || !slices.Equal(all.Owners, intIDs(11, 12)) || len(all.Payloads) != 2 || string(all.Payloads[1]) != "2" || !slices.Equal(all.Vectors[0].Data, []float32{1, 2}) || all.Vectors[0].Rows != 2 {
		t.Errorf("%+v", all)
	}
}
