package milvus

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/milvus-io/milvus-proto/go-api/v2/commonpb"
	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"github.com/milvus-io/milvus-proto/go-api/v2/schemapb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/proxy/routing"
)

func TestMain(m *testing.M) { os.Exit(servers.Isolate(m)) }

type values = map[string]*schemapb.TemplateValue

func boolean(v bool) *schemapb.TemplateValue {
	return &schemapb.TemplateValue{Val: &schemapb.TemplateValue_BoolVal{BoolVal: v}}
}

func whole(v int64) *schemapb.TemplateValue {
	return &schemapb.TemplateValue{Val: &schemapb.TemplateValue_Int64Val{Int64Val: v}}
}

func real(v float64) *schemapb.TemplateValue {
	return &schemapb.TemplateValue{Val: &schemapb.TemplateValue_FloatVal{FloatVal: v}}
}

func text(v string) *schemapb.TemplateValue {
	return &schemapb.TemplateValue{Val: &schemapb.TemplateValue_StringVal{StringVal: v}}
}

func array(a *schemapb.TemplateArrayValue) *schemapb.TemplateValue {
	return &schemapb.TemplateValue{Val: &schemapb.TemplateValue_ArrayVal{ArrayVal: a}}
}

func booleans(v ...bool) *schemapb.TemplateValue {
	return array(&schemapb.TemplateArrayValue{Data: &schemapb.TemplateArrayValue_BoolData{BoolData: &schemapb.BoolArray{Data: v}}})
}

func wholes(v ...int64) *schemapb.TemplateValue {
	return array(&schemapb.TemplateArrayValue{Data: &schemapb.TemplateArrayValue_LongData{LongData: &schemapb.LongArray{Data: v}}})
}

func reals(v ...float64) *schemapb.TemplateValue {
	return array(&schemapb.TemplateArrayValue{Data: &schemapb.TemplateArrayValue_DoubleData{DoubleData: &schemapb.DoubleArray{Data: v}}})
}

func texts(v ...string) *schemapb.TemplateValue {
	return array(&schemapb.TemplateArrayValue{Data: &schemapb.TemplateArrayValue_StringData{StringData: &schemapb.StringArray{Data: v}}})
}

// names are the rows' strings, which need every way of quoting.
var names = []string{
	"", "a", "it's", `say "no"`, `both ' and "`, `back\slash`, `\`, `\n`, `ends in \`, "{x}", "ü 字 🙂", "100%_", `\"`, `\'`, "'", `"`, "tab\there", "bell\a", "line\nbreak",
}

// row holds the values of row i.
type row struct {
	i, n int64
	b    bool
	f    float64
	s    string
}

func rowOf(i int) row {
	return row{i: int64(i), n: int64(i) - 5, b: i%3 == 0, f: []float64{0.1, 0.5, -1, 2.5, 1e-8}[i%5], s: names[i]}
}

// rendering is a template with values, and the rows that it selects.
type rendering struct {
	expression string
	values     values
	picks      func(row) bool // nil: it is not rendered
}

func renderings() []rendering {
	is := func(want ...int64) func(row) bool { return func(r row) bool { return slices.Contains(want, r.n) } }
	all := []rendering{
		{"b == {x}", values{"x": boolean(true)}, func(r row) bool { return r.b }},
		{"b == { x } and n >= {y}", values{"x": boolean(false), "y": whole(2)}, func(r row) bool { return !r.b && r.n >= 2 }},
		{"n == {x}", values{"x": whole(3)}, is(3)},
		{"n > {x}", values{"x": whole(-2)}, func(r row) bool { return r.n > -2 }},
		{"n in{x}", values{"x": wholes(1, -2, 3)}, is(1, -2, 3)},
		{"n not in {x}", values{"x": wholes(1, -2, 3)}, func(r row) bool { return !is(1, -2, 3)(r) }},
		{"n in [{x}, {y}]", values{"x": whole(2), "y": whole(4)}, is(2, 4)},
		{"{x} < n < {y}", values{"x": whole(-3), "y": whole(4)}, func(r row) bool { return -3 < r.n && r.n < 4 }},
		{"{x}<=f and f<={y}", values{"x": real(-1.5), "y": real(2)}, func(r row) bool { return -1.5 <= r.f && r.f <= 2 }},
		{"n % {x} == 0", values{"x": whole(3)}, func(r row) bool { return r.n%3 == 0 }},
		{"f > {x}", values{"x": real(1)}, func(r row) bool { return r.f > 1 }},
		{"f == {x}", values{"x": real(0.1)}, func(r row) bool { return r.f == 0.1 }},
		{"f < {x}", values{"x": real(1e300)}, func(row) bool { return true }},
		{"f < {x}", values{"x": real(1e-7)}, func(r row) bool { return r.f < 1e-7 }},
		{"f > {x}", values{"x": whole(2)}, func(r row) bool { return r.f > 2 }},
		{"f in {x}", values{"x": reals(0.5, -1, 0.1)}, func(r row) bool { return slices.Contains([]float64{0.5, -1, 0.1}, r.f) }},
		{"b in {x}", values{"x": booleans(true)}, func(r row) bool { return r.b }},
		{"s in {x}", values{"x": texts("a", "{x}", `\`)}, func(r row) bool { return slices.Contains([]string{"a", "{x}", `\`}, r.s) }},
		{`s == "{x}" or n == {x}`, values{"x": whole(2)}, func(r row) bool { return r.s == "{x}" || r.n == 2 }},
		{`s == '{x}' or n == {x}`, values{"x": whole(2)}, func(r row) bool { return r.s == "{x}" || r.n == 2 }},
		{`s == "\\\"" or s == 'it\'s' or n == {x}`, values{"x": whole(2)}, func(r row) bool { return r.s == `\"` || r.s == "it's" || r.n == 2 }},
		{"s > {x}", values{"x": text("b")}, func(r row) bool { return r.s > "b" }},
		{"j['k'] == {x}", values{"x": whole(2)}, func(r row) bool { return r.i == 2 }},
		{"j['k'] > {x}", values{"x": real(1.5)}, func(r row) bool { return r.i > 1 }},
		{"j['s'] == {x}", values{"x": text("it's")}, func(r row) bool { return r.s == "it's" }},
		{"json_contains(j['l'], {x})", values{"x": whole(3)}, func(r row) bool { return r.i == 3 || r.i == 2 }},
		{"json_contains_any(j['l'], {x})", values{"x": wholes(3, 5)}, func(r row) bool { return r.i >= 2 && r.i <= 5 }},
		{"array_contains_all(a, {x})", values{"x": wholes(3, 4)}, func(r row) bool { return r.i == 3 }},
		{"n == 1", values{"x": whole(2)}, is(1)},
		{"n <= {x}", values{"x": whole(math.MaxInt64)}, func(row) bool { return true }},
		{"n > {x}", values{"x": whole(-math.MaxInt64)}, func(row) bool { return true }},
		{"s == {x}", values{"x": text("line\nbreak")}, nil},
		{"n > {x}", values{"x": whole(math.MinInt64)}, nil},
		{"f > {x}", values{"x": real(math.NaN())}, nil},
		{"f in {x}", values{"x": reals(math.Inf(1))}, nil},
		{"n == {y}", values{"x": whole(2)}, nil},
		{"n == {x", values{"x": whole(2)}, nil},
		{"n == x}", values{"x": whole(2)}, nil},
		{"n == {x y}", values{"x": whole(2)}, nil},
		{"n == {x} and s == 'open", values{"x": whole(2)}, nil},
		{"n == {x}", values{"x": {}}, nil},
		{"n in {x}", values{"x": array(nil)}, nil},
		{"n in {x}", values{"x": array(&schemapb.TemplateArrayValue{Data: &schemapb.TemplateArrayValue_JsonData{}})}, nil},
		{"n in {x}", values{"x": array(&schemapb.TemplateArrayValue{Data: &schemapb.TemplateArrayValue_ArrayData{}})}, nil},
		{strings.Repeat("{x}", 1000), values{"x": text(strings.Repeat("a", 1<<14))}, nil},
	}
	for _, name := range names {
		if !strings.Contains(name, "\n") {
			all = append(all, rendering{"s == {x}", values{"x": text(name)}, func(r row) bool { return r.s == name }})
		}
	}
	return all
}

// TestRenderedTemplates: on both databases, the rendered text selects the rows that the template
// does. The test itself says which rows these are, because neither database fills in templates.
func TestRenderedTemplates(t *testing.T) {
	for name, start := range map[string]func(testing.TB, servers.Options) *servers.Server{
		"milvus-lite": servers.MilvusLiteForTest, "Milvus": servers.MilvusForTest,
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := grpc.NewClient(start(t, servers.Options{}).Address, grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			db := milvuspb.NewMilvusServiceClient(conn)
			fill(t, db)
			if all, said := picked(t, db, "", commonpb.ConsistencyLevel_Strong); len(all) != len(names) {
				t.Fatalf("%d rows of %d: %s", len(all), len(names), said)
			}
			for _, c := range renderings() {
				rendered, ok := render(c.expression, c.values)
				if ok != (c.picks != nil) {
					t.Errorf("%.100s: rendered %t: %q", c.expression, ok, rendered)
				}
				if !ok {
					continue
				}
				var want []int64
				for i := range names {
					if c.picks(rowOf(i)) {
						want = append(want, int64(i))
					}
				}
				if got, said := picked(t, db, rendered, commonpb.ConsistencyLevel_Eventually); !slices.Equal(got, want) {
					t.Errorf("%s %v: %s picks %v %s, want %v", c.expression, c.values, rendered, got, said, want)
				}
			}
		})
	}
}

// FuzzRender: rendered text has no template left, and its string literals are unchanged.
func FuzzRender(f *testing.F) {
	for _, c := range renderings() {
		f.Add(c.expression, "v", int64(-1), 0.5)
	}
	f.Fuzz(func(t *testing.T, expression, s string, n int64, x float64) {
		v := values{"x": text(s), "y": whole(n), "z": real(x), "ids": wholes(n, 1), "names": texts(s)}
		rendered, ok := render(expression, v)
		if !ok {
			return
		}
		if again, ok := render(rendered, nil); !ok || again != rendered {
			t.Errorf("%q is rendered as %q, and that as %q, %t", expression, rendered, again, ok)
		}
		if !strings.ContainsAny(expression, "{") && rendered != expression {
			t.Errorf("%q is rendered as %q", expression, rendered)
		}
	})
}

// TestTheDatabaseHasTheClientsOwnTemplate: only the store gets the rendered text.
func TestTheDatabaseHasTheClientsOwnTemplate(t *testing.T) {
	group, err := proto.Marshal(&commonpb.PlaceholderGroup{Placeholders: []*commonpb.PlaceholderValue{{Type: commonpb.PlaceholderType_FloatVector, Values: [][]byte{make([]byte, 8)}}}})
	if err != nil {
		t.Fatal(err)
	}
	m := &milvuspb.SearchRequest{PlaceholderGroup: group, Nq: 1, DslType: commonpb.DslType_BoolExprV1, Dsl: "n in {x}", ExprTemplateValues: values{"x": wholes(1, 2)}}
	q, err := read(m)
	if err != nil || q.filter != "n in  [1, 2] " {
		t.Fatalf("%q, %v", q.filter, err)
	}
	m.Dsl = "a == 1) or (b == 2"
	if _, err := narrow(m, routing.Target{}, q, "id", []rerank.ID{rerank.UintID(7)}, true); !errors.Is(err, adapters.ErrFilter) {
		t.Errorf("an expression that reaches out of its parentheses: %v", err)
	}
	m.Dsl = "n in {x}"
	b, err := narrow(m, routing.Target{}, q, "id", []rerank.ID{rerank.UintID(7)}, true)
	n := &milvuspb.SearchRequest{}
	if err != nil || proto.Unmarshal(b, n) != nil || n.GetDsl() != "(n in {x}) and (id in [7])" || !proto.Equal(n.GetExprTemplateValues()["x"], wholes(1, 2)) {
		t.Errorf("%v, %v", n, err)
	}
	m.ExprTemplateValues = values{"x": {}}
	if _, err := read(m); err != routing.Pass("template") { //nolint:errorlint // it is the very one
		t.Errorf("%v", err)
	}
}

// picked returns the rows that match a filter, or the database's error.
func picked(t *testing.T, db milvuspb.MilvusServiceClient, expression string, level commonpb.ConsistencyLevel) ([]int64, string) {
	t.Helper()
	group, err := proto.Marshal(&commonpb.PlaceholderGroup{Placeholders: []*commonpb.PlaceholderValue{{Tag: "$0", Type: commonpb.PlaceholderType_FloatVector, Values: [][]byte{make([]byte, 8)}}}})
	if err != nil {
		t.Fatal(err)
	}
	a, err := db.Search(t.Context(), &milvuspb.SearchRequest{
		CollectionName: "c", Dsl: expression, DslType: commonpb.DslType_BoolExprV1, PlaceholderGroup: group, Nq: 1,
		SearchParams:     []*commonpb.KeyValuePair{{Key: "anns_field", Value: "v"}, {Key: "topk", Value: "100"}, {Key: "metric_type", Value: "IP"}, {Key: "params", Value: "{}"}, {Key: "round_decimal", Value: "-1"}},
		ConsistencyLevel: level,
	})
	if err != nil {
		return nil, err.Error()
	}
	if failed(a.GetStatus()) {
		return nil, a.GetStatus().GetReason()
	}
	ids := a.GetResults().GetIds().GetIntId().GetData()
	slices.Sort(ids)
	return ids, ""
}

// fill creates the collection of the rows.
func fill(t *testing.T, db milvuspb.MilvusServiceClient) {
	t.Helper()
	ctx := t.Context()
	schema, err := proto.Marshal(&schemapb.CollectionSchema{Name: "c", Fields: []*schemapb.FieldSchema{
		{FieldID: 100, Name: "id", IsPrimaryKey: true, DataType: schemapb.DataType_Int64},
		{FieldID: 101, Name: "b", DataType: schemapb.DataType_Bool},
		{FieldID: 102, Name: "n", DataType: schemapb.DataType_Int64},
		{FieldID: 103, Name: "f", DataType: schemapb.DataType_Double},
		{FieldID: 104, Name: "s", DataType: schemapb.DataType_VarChar, TypeParams: []*commonpb.KeyValuePair{{Key: "max_length", Value: "100"}}},
		{FieldID: 105, Name: "j", DataType: schemapb.DataType_JSON},
		{FieldID: 106, Name: "a", DataType: schemapb.DataType_Array, ElementType: schemapb.DataType_Int64, TypeParams: []*commonpb.KeyValuePair{{Key: "max_capacity", Value: "8"}}},
		{FieldID: 107, Name: "v", DataType: schemapb.DataType_FloatVector, TypeParams: []*commonpb.KeyValuePair{{Key: "dim", Value: "2"}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	ok := func(s *commonpb.Status, err error) {
		t.Helper()
		if err != nil || failed(s) {
			t.Fatal(err, s)
		}
	}
	ok(db.CreateCollection(ctx, &milvuspb.CreateCollectionRequest{CollectionName: "c", Schema: schema, ShardsNum: 1, ConsistencyLevel: commonpb.ConsistencyLevel_Strong}))
	ok(db.CreateIndex(ctx, &milvuspb.CreateIndexRequest{CollectionName: "c", FieldName: "v", IndexName: "v", ExtraParams: []*commonpb.KeyValuePair{{Key: "index_type", Value: "FLAT"}, {Key: "metric_type", Value: "IP"}, {Key: "params", Value: "{}"}}}))
	ok(db.LoadCollection(ctx, &milvuspb.LoadCollectionRequest{CollectionName: "c"}))
	var ids, ns []int64
	var bs []bool
	var fs []float64
	var js [][]byte
	var as []*schemapb.ScalarField
	for i := range names {
		r := rowOf(i)
		ids, ns, bs, fs = append(ids, r.i), append(ns, r.n), append(bs, r.b), append(fs, r.f)
		j, err := json.Marshal(map[string]any{"k": r.i, "s": r.s, "l": []int64{r.i, r.i + 1}})
		if err != nil {
			t.Fatal(err)
		}
		js = append(js, j)
		as = append(as, &schemapb.ScalarField{Data: &schemapb.ScalarField_LongData{LongData: &schemapb.LongArray{Data: []int64{r.i, r.i + 1}}}})
	}
	n := len(names)
	scalar := func(name string, kind schemapb.DataType, s *schemapb.ScalarField) *schemapb.FieldData {
		return &schemapb.FieldData{FieldName: name, Type: kind, Field: &schemapb.FieldData_Scalars{Scalars: s}}
	}
	a, err := db.Insert(ctx, &milvuspb.InsertRequest{CollectionName: "c", NumRows: uint32(n), FieldsData: []*schemapb.FieldData{
		scalar("id", schemapb.DataType_Int64, &schemapb.ScalarField{Data: &schemapb.ScalarField_LongData{LongData: &schemapb.LongArray{Data: ids}}}),
		scalar("b", schemapb.DataType_Bool, &schemapb.ScalarField{Data: &schemapb.ScalarField_BoolData{BoolData: &schemapb.BoolArray{Data: bs}}}),
		scalar("n", schemapb.DataType_Int64, &schemapb.ScalarField{Data: &schemapb.ScalarField_LongData{LongData: &schemapb.LongArray{Data: ns}}}),
		scalar("f", schemapb.DataType_Double, &schemapb.ScalarField{Data: &schemapb.ScalarField_DoubleData{DoubleData: &schemapb.DoubleArray{Data: fs}}}),
		scalar("s", schemapb.DataType_VarChar, &schemapb.ScalarField{Data: &schemapb.ScalarField_StringData{StringData: &schemapb.StringArray{Data: names}}}),
		scalar("j", schemapb.DataType_JSON, &schemapb.ScalarField{Data: &schemapb.ScalarField_JsonData{JsonData: &schemapb.JSONArray{Data: js}}}),
		scalar("a", schemapb.DataType_Array, &schemapb.ScalarField{Data: &schemapb.ScalarField_ArrayData{ArrayData: &schemapb.ArrayArray{Data: as, ElementType: schemapb.DataType_Int64}}}),
		{FieldName: "v", Type: schemapb.DataType_FloatVector, Field: &schemapb.FieldData_Vectors{Vectors: &schemapb.VectorField{Dim: 2, Data: &schemapb.VectorField_FloatVector{FloatVector: &schemapb.FloatArray{Data: make([]float32, 2*n)}}}}},
	}})
	ok(a.GetStatus(), err)
}
