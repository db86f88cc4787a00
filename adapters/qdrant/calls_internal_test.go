package qdrant

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
)

// recorded is a store whose calls never reach a network. It keeps the requests, and answers holds the scripted
// replies: a proto.Message or an error by the name of the call. A call without a script has an empty answer.
type recorded struct {
	*Store
	answers map[string][]any // the next first; the last one stays
	sent    map[string][]proto.Message
}

func record(t *testing.T, o Options) *recorded {
	t.Helper()
	r := &recorded{answers: map[string][]any{}, sent: map[string][]proto.Message{}}
	o.Address = "localhost:1"
	o.DialOptions = []grpc.DialOption{grpc.WithChainUnaryInterceptor(func(_ context.Context, method string, request, out any, _ *grpc.ClientConn, _ grpc.UnaryInvoker, _ ...grpc.CallOption) error {
		name := path.Base(method)
		if service := path.Base(path.Dir(method)); service == "qdrant.Collections" {
			name = "Collections." + name
		}
		r.sent[name] = append(r.sent[name], proto.Clone(request.(proto.Message)))
		var answer any
		if script := r.answers[name]; len(script) > 0 {
			answer, r.answers[name] = script[0], script[min(1, len(script)-1):]
		}
		switch answer := answer.(type) {
		case error:
			return answer
		case proto.Message:
			if message, ok := out.(proto.Message); ok {
				proto.Merge(message, answer)
				return nil
			}
			b, err := proto.Marshal(answer)
			return errors.Join(err, out.(*reply).ReadWire(b))
		}
		if read, ok := out.(*reply); ok {
			return read.ReadWire(nil)
		}
		return nil
	})}
	var err error
	if r.Store, err = Open(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// wantSent fails the test unless the calls with this name had these requests, and forgets them. Timeouts, which
// depend on the clock, do not count.
func (r *recorded) wantSent(t *testing.T, about, name string, want ...proto.Message) {
	t.Helper()
	got := r.sent[name]
	delete(r.sent, name)
	if len(got) != len(want) {
		t.Errorf("%s: %d calls of %s, want %d: %v", about, len(got), name, len(want), got)
		return
	}
	for i := range got {
		if f := got[i].ProtoReflect().Descriptor().Fields().ByName("timeout"); f != nil {
			got[i].ProtoReflect().Clear(f)
		}
		if !proto.Equal(got[i], want[i]) {
			t.Errorf("%s: %s is sent as\n%v, want\n%v", about, name, got[i], want[i])
		}
	}
}

// described returns the description of a collection with the fields a and b, of two numbers each.
func described(change ...func(*qdrant.CollectionInfo)) *qdrant.GetCollectionInfoResponse {
	params := func() *qdrant.VectorParams { return &qdrant.VectorParams{Size: 2, Distance: qdrant.Distance_Dot} }
	in := &qdrant.CollectionInfo{Config: &qdrant.CollectionConfig{Params: &qdrant.CollectionParams{
		VectorsConfig: qdrant.NewVectorsConfigMap(map[string]*qdrant.VectorParams{"a": params(), "b": params()}),
	}}}
	for _, c := range change {
		c(in)
	}
	return &qdrant.GetCollectionInfoResponse{Result: in}
}

// vectorsOfPoint returns the named vectors a, (x, 1), and b, (x, 2).
func vectorsOfPoint(x float32) *qdrant.VectorsOutput {
	dense := func(v ...float32) *qdrant.VectorOutput {
		return &qdrant.VectorOutput{Vector: &qdrant.VectorOutput_Dense{Dense: &qdrant.DenseVector{Data: v}}}
	}
	return &qdrant.VectorsOutput{VectorsOptions: &qdrant.VectorsOutput_Vectors{Vectors: &qdrant.NamedVectorsOutput{
		Vectors: map[string]*qdrant.VectorOutput{"a": dense(x, 1), "b": dense(x, 2)},
	}}}
}

func stored(id uint64) *qdrant.RetrievedPoint {
	return &qdrant.RetrievedPoint{Id: qdrant.NewIDNum(id), Vectors: vectorsOfPoint(float32(id)), Payload: map[string]*qdrant.Value{"n": qdrant.NewValueInt(int64(id))}}
}

// rowsText describes rows in one line.
func rowsText(rows adapters.Rows) string {
	var b strings.Builder
	for i, id := range rows.IDs {
		fmt.Fprintf(&b, "%v", id)
		for _, m := range rows.Vectors {
			fmt.Fprint(&b, m.Row(i))
		}
		if rows.Owners != nil {
			fmt.Fprintf(&b, "of %v", rows.Owners[i])
		}
		if rows.Payloads != nil {
			b.Write(rows.Payloads[i])
		}
		b.WriteString(" ")
	}
	return strings.TrimSpace(b.String())
}

func ids(n ...uint64) (all []rerank.ID) {
	for _, x := range n {
		all = append(all, rerank.UintID(x))
	}
	return all
}

// TestWritesAsSent: Create, Write, Delete and the like send Qdrant all that their caller gave, and nothing else.
func TestWritesAsSent(t *testing.T) {
	r := record(t, Options{})
	r.answers["Collections.Get"] = []any{described()}
	schema := adapters.Schema{Collection: "c", Owner: "item", Fields: []adapters.VectorField{{Name: "a", Dim: 2}, {Name: "b", Dim: 2}}}
	matrix := func(x ...float32) rerank.Matrix { return rerank.Matrix{Rows: 2, Cols: 2, Data: x} }
	rows := adapters.Rows{IDs: ids(1, 2), Owners: []rerank.ID{rerank.IntID(-3), rerank.TextID("o")}, Payloads: []json.RawMessage{[]byte(`{"k":[1.5]}`), nil},
		Vectors: []rerank.Matrix{matrix(.1, .2, .3, .4), matrix(.5, .6, .7, .8)}}
	if err := r.Write(t.Context(), "c", schema, rows); err != nil {
		t.Fatal(err)
	}
	point := func(id uint64, owner *qdrant.Value, more map[string]*qdrant.Value, a, b []float32) *qdrant.PointStruct {
		payload := map[string]*qdrant.Value{"item": owner}
		maps.Copy(payload, more)
		return &qdrant.PointStruct{Id: qdrant.NewIDNum(id), Payload: payload, Vectors: qdrant.NewVectorsMap(map[string]*qdrant.Vector{"a": qdrant.NewVectorDense(a), "b": qdrant.NewVectorDense(b)})}
	}
	r.wantSent(t, "write", "Upsert", &qdrant.UpsertPoints{CollectionName: "c", Wait: proto.Bool(true), Points: []*qdrant.PointStruct{
		point(1, qdrant.NewValueInt(-3), map[string]*qdrant.Value{"k": qdrant.NewValueFromList(qdrant.NewValueDouble(1.5))}, []float32{.1, .2}, []float32{.5, .6}),
		point(2, qdrant.NewValueString("o"), nil, []float32{.3, .4}, []float32{.7, .8}),
	}})
	wide := rows
	wide.Vectors = []rerank.Matrix{rows.Vectors[0], rerank.NewMatrix(2, 3)}
	if err := r.Write(t.Context(), "c", schema, wide); !errors.Is(err, adapters.ErrDimension) {
		t.Errorf("vectors of three numbers for a field of two: %v", err)
	}
	r.wantSent(t, "vectors of three numbers", "Upsert")

	if err := r.CheckWrite(t.Context(), "c", adapters.WriteAny); err != nil {
		t.Error(err)
	}
	r.wantSent(t, "the right to write", "Delete", &qdrant.DeletePoints{CollectionName: "c", Wait: proto.Bool(false), Points: qdrant.NewPointsSelector()})
	if err := r.Delete(t.Context(), "c", ids(1, 2)); err != nil {
		t.Error(err)
	}
	r.wantSent(t, "delete", "Delete", &qdrant.DeletePoints{CollectionName: "c", Wait: proto.Bool(true), Points: qdrant.NewPointsSelector(qdrant.NewIDNum(1), qdrant.NewIDNum(2))})
	if err := r.SwitchAlias(t.Context(), "x", "c"); err != nil {
		t.Error(err)
	}
	r.wantSent(t, "switch", "Collections.UpdateAliases", &qdrant.ChangeAliases{Actions: []*qdrant.AliasOperations{qdrant.NewAliasDelete("x"), qdrant.NewAliasCreate("x", "c")}})
	if err := r.Drop(t.Context(), "c"); err != nil {
		t.Error(err)
	}
	r.wantSent(t, "drop", "Collections.Delete", &qdrant.DeleteCollection{CollectionName: "c"})
}

// TestCollectionsAsMade: a collection is created with the fields and the owner's index of its schema, or not at all.
func TestCollectionsAsMade(t *testing.T) {
	r := record(t, Options{})
	schema := adapters.Schema{Collection: "c", Owner: "item", TextOwners: true, Fields: []adapters.VectorField{
		{Name: "a", Dim: 2}, {Name: "b", Dim: 3, Metric: adapters.Cosine, Unsearched: true}, {Name: "l", Dim: 4, Metric: adapters.L2},
	}}
	if err := r.Create(t.Context(), schema); err != nil {
		t.Fatal(err)
	}
	r.wantSent(t, "create", "Collections.Create", &qdrant.CreateCollection{CollectionName: "c", VectorsConfig: qdrant.NewVectorsConfigMap(map[string]*qdrant.VectorParams{
		"a": {Size: 2, Distance: qdrant.Distance_Dot}, "b": {Size: 3, Distance: qdrant.Distance_Cosine, HnswConfig: &qdrant.HnswConfigDiff{M: proto.Uint64(0)}}, "l": {Size: 4, Distance: qdrant.Distance_Euclid},
	})})
	index := func(kind qdrant.FieldType) *qdrant.CreateFieldIndexCollection {
		return &qdrant.CreateFieldIndexCollection{CollectionName: "c", FieldName: "item", FieldType: &kind, Wait: proto.Bool(true)}
	}
	r.wantSent(t, "create", "CreateFieldIndex", index(qdrant.FieldType_FieldTypeKeyword))
	schema.TextOwners, schema.Fields = false, []adapters.VectorField{{Dim: 2}}
	if err := r.Create(t.Context(), schema); err != nil {
		t.Fatal(err)
	}
	r.wantSent(t, "one field without a name", "Collections.Create", &qdrant.CreateCollection{CollectionName: "c", VectorsConfig: qdrant.NewVectorsConfig(&qdrant.VectorParams{Size: 2, Distance: qdrant.Distance_Dot})})
	r.wantSent(t, "one field without a name", "CreateFieldIndex", index(qdrant.FieldType_FieldTypeInteger))
	for name, c := range map[string]struct {
		fields []adapters.VectorField
		want   error
	}{
		"another metric":           {[]adapters.VectorField{{Name: "a", Dim: 2, Metric: "Manhattan"}}, adapters.ErrMetric},
		"two fields of one name":   {[]adapters.VectorField{{Name: "a", Dim: 2}, {Name: "a", Dim: 2}}, adapters.ErrField},
		"no name beside another":   {[]adapters.VectorField{{Name: "a", Dim: 2}, {Dim: 2}}, adapters.ErrField},
		"more fields than allowed": {make([]adapters.VectorField, DefaultMaxVectorFields+1), adapters.ErrLimit},
	} {
		schema.Fields = c.fields
		if err := r.Create(t.Context(), schema); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		r.wantSent(t, name, "Collections.Create")
	}
}

// TestSearchesAsSent: a search is sent with its own parameters, and refused before the call where the collection
// or the store forbids it.
func TestSearchesAsSent(t *testing.T) {
	scalar := &qdrant.QuantizationConfig{Quantization: &qdrant.QuantizationConfig_Scalar{Scalar: &qdrant.ScalarQuantization{}}}
	quantized := described(func(in *qdrant.CollectionInfo) { in.Config.QuantizationConfig = scalar })
	strict := described(func(in *qdrant.CollectionInfo) {
		in.Config.StrictModeConfig = &qdrant.StrictModeConfig{Enabled: proto.Bool(true), MaxQueryLimit: proto.Uint32(5)}
	})
	list := &qdrant.QueryBatchResponse{Result: []*qdrant.BatchResult{{}}}
	for name, c := range map[string]struct {
		collection *qdrant.GetCollectionInfoResponse
		rescore    bool
		ef, depth  int
		most       int // bytes of a message
		want       *qdrant.SearchParams
		err        error
	}{
		"plain":                          {quantized, false, 0, 7, 0, nil, nil},
		"rescored":                       {quantized, true, 0, 7, 0, &qdrant.SearchParams{Quantization: &qdrant.QuantizationSearchParams{Rescore: proto.Bool(true)}}, nil},
		"nothing to rescore":             {described(), true, 0, 7, 0, nil, nil},
		"ef":                             {quantized, false, 90, 7, 0, &qdrant.SearchParams{HnswEf: proto.Uint64(90)}, nil},
		"deeper than strict mode allows": {strict, false, 0, 7, 0, nil, adapters.ErrLimit},
		"as deep as strict mode allows":  {strict, false, 0, 5, 0, nil, nil},
		"a long vector":                  {described(), false, 0, 7, 60, nil, adapters.ErrLimit},
	} {
		r := record(t, Options{Limits: adapters.Limits{MaxMessageBytes: c.most}})
		r.answers["Collections.Get"], r.answers["QueryBatch"] = []any{c.collection}, []any{list}
		lists, err := r.Search(t.Context(), adapters.SearchRequest{Collection: "c", Vector: "a", Probes: []rerank.Probe{{Vector: []float32{1, 0}, Depth: c.depth}}, Rescore: c.rescore, EF: c.ef})
		if !errors.Is(err, c.err) || c.err == nil && len(lists) != 1 {
			t.Errorf("%s: %d lists, %v, want %v", name, len(lists), err, c.err)
		}
		sent := r.sent["QueryBatch"]
		if c.err != nil {
			if len(sent) > 0 {
				t.Errorf("%s: is sent as %v", name, sent)
			}
			continue
		}
		if got := sent[0].(*qdrant.QueryBatchPoints).GetQueryPoints()[0]; !proto.Equal(got.GetParams(), c.want) || got.GetLimit() != uint64(c.depth) {
			t.Errorf("%s: is sent as %v", name, got)
		}
	}
}

// TestRowsAsRead: rows have the vectors, owners and payloads of their own points, however they are asked for.
func TestRowsAsRead(t *testing.T) {
	r := record(t, Options{})
	r.answers["Collections.Get"] = []any{described()}
	r.answers["Get"] = []any{&qdrant.GetResponse{Result: []*qdrant.RetrievedPoint{stored(7), stored(5)}}}
	r.answers["Scroll"] = []any{&qdrant.ScrollResponse{Result: []*qdrant.RetrievedPoint{stored(7), stored(5), stored(5)}}}
	for name, c := range map[string]struct {
		request adapters.FetchRequest
		want    string
	}{
		"vectors":     {adapters.FetchRequest{IDs: ids(5, 6, 7), Vectors: []string{"b", "a"}}, "5[5 2][5 1] 7[7 2][7 1]"},
		"payloads":    {adapters.FetchRequest{IDs: ids(5, 6, 7), Vectors: []string{"a"}, Payload: true}, `5[5 1]{"n":5} 7[7 1]{"n":7}`},
		"ids":         {adapters.FetchRequest{IDs: ids(7, 5)}, "7 5"},
		"of an owner": {adapters.FetchRequest{IDs: ids(7, 5), Vectors: []string{"a"}, Owner: "n", Payload: true, PayloadFields: []string{"m"}}, "7[7 1]of 7{} 5[5 1]of 5{}"},
	} {
		c.request.Collection = "c"
		rows, err := r.Fetch(t.Context(), c.request)
		if got := rowsText(rows); err != nil || got != c.want {
			t.Errorf("%s: %s, %v, want %s", name, got, err, c.want)
		}
	}
	for _, payload := range []bool{false, true} { // which are read by two ways
		delete(r.sent, "Get")
		if _, err := r.Fetch(t.Context(), adapters.FetchRequest{Collection: "c", IDs: ids(5), Vectors: []string{"a"}, Payload: payload, Consistency: "2"}); err != nil {
			t.Error(err)
		}
		r.wantSent(t, "by id", "Get", &qdrant.GetPoints{
			CollectionName: "c", Ids: []*qdrant.PointId{qdrant.NewIDNum(5)}, WithPayload: qdrant.NewWithPayload(payload), WithVectors: qdrant.NewWithVectorsInclude("a"),
			ReadConsistency: qdrant.NewReadConsistencyFactor(2),
		})
	}
	delete(r.sent, "Scroll")
	if _, err := r.Fetch(t.Context(), adapters.FetchRequest{Collection: "c", Owner: "item", IDs: []rerank.ID{rerank.TextID("x"), rerank.IntID(-3)}, Consistency: "all"}); err != nil {
		t.Error(err)
	}
	r.wantSent(t, "of two owners", "Scroll", &qdrant.ScrollPoints{CollectionName: "c", Limit: proto.Uint32(batchRows), WithPayload: qdrant.NewWithPayloadInclude("item"), WithVectors: qdrant.NewWithVectors(false),
		ReadConsistency: qdrant.NewReadConsistencyType(qdrant.ReadConsistencyType_All),
		Filter:          &qdrant.Filter{Should: []*qdrant.Condition{qdrant.NewMatchInts("item", -3), qdrant.NewMatchKeywords("item", "x")}}})
}

// TestPagesOfAScan: a scan yields every page with a cursor behind it, asks from there on, and ends behind the last
// page or where its part ends.
func TestPagesOfAScan(t *testing.T) {
	pages := []any{
		&qdrant.ScrollResponse{Result: []*qdrant.RetrievedPoint{stored(1), stored(2)}, NextPageOffset: qdrant.NewIDNum(3)},
		&qdrant.ScrollResponse{Result: []*qdrant.RetrievedPoint{stored(3)}},
	}
	for name, c := range map[string]struct {
		until string
		want  []string
		calls []*qdrant.PointId
	}{
		"all":               {"", []string{"1[1 1] 2[2 1] →3", "3[3 1] →end"}, []*qdrant.PointId{nil, qdrant.NewIDNum(3)}},
		"up to a page":      {"3", []string{"1[1 1] 2[2 1] →end"}, []*qdrant.PointId{nil}},
		"within a page":     {"2", []string{"1[1 1] →end"}, []*qdrant.PointId{nil}},
		"behind everything": {"9", []string{"1[1 1] 2[2 1] →3", "3[3 1] →end"}, []*qdrant.PointId{nil, qdrant.NewIDNum(3)}},
	} {
		r := record(t, Options{})
		r.answers["Collections.Get"], r.answers["Scroll"] = []any{described()}, pages
		var got []string
		err := r.Scan(t.Context(), adapters.ScanRequest{Collection: "c", Vectors: []string{"a"}, Batch: 2, Until: c.until}, func(rows adapters.Rows, cursor string) error {
			got = append(got, rowsText(rows)+" →"+cursor)
			return nil
		})
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, %v, want %q", name, got, err, c.want)
		}
		var want []proto.Message
		for _, from := range c.calls {
			want = append(want, &qdrant.ScrollPoints{CollectionName: "c", Offset: from, Limit: proto.Uint32(2), WithPayload: qdrant.NewWithPayload(false), WithVectors: qdrant.NewWithVectorsInclude("a")})
		}
		r.wantSent(t, name, "Scroll", want...)
	}
	r := record(t, Options{Limits: adapters.Limits{MaxMessageBytes: 8000}})
	r.answers["Collections.Get"] = []any{described()}
	for _, batch := range []int{0, 7, 1 << 20} {
		if err := r.Scan(t.Context(), adapters.ScanRequest{Collection: "c", Batch: batch}, func(adapters.Rows, string) error { return nil }); err != nil {
			t.Error(err)
		}
		want := min(batch, 2000/64)
		if batch == 0 {
			want = 2000 / 64
		}
		r.wantSent(t, fmt.Sprintf("a batch of %d", batch), "Scroll", &qdrant.ScrollPoints{CollectionName: "c", Limit: proto.Uint32(uint32(want)), WithPayload: qdrant.NewWithPayload(false), WithVectors: qdrant.NewWithVectors(false)})
	}
	r = record(t, Options{})
	r.answers["Collections.Get"], r.answers["Scroll"] = []any{described()}, []any{status.Error(codes.Unavailable, "down")}
	err := r.Scan(t.Context(), adapters.ScanRequest{Collection: "c"}, func(adapters.Rows, string) error { return nil })
	if !errors.Is(err, adapters.ErrUnavailable) || !strings.Contains(err.Error(), `scan of collection "c"`) {
		t.Errorf("a scan that fails: %v", err)
	}
	broken := &qdrant.ScrollResponse{Result: []*qdrant.RetrievedPoint{{Id: qdrant.NewIDNum(1), Payload: map[string]*qdrant.Value{"item": qdrant.NewValueBool(true)}}}}
	r.answers["Scroll"] = []any{broken}
	if err := r.Scan(t.Context(), adapters.ScanRequest{Collection: "c", Owner: "item"}, func(adapters.Rows, string) error { return nil }); !errors.Is(err, adapters.ErrField) {
		t.Errorf("a row without an owner: %v", err)
	}
}

// TestIdentifyByLists: an alias belongs to the collection that its last entry names. A list that cannot be read is an error,
// not a name without aliases.
func TestIdentifyByLists(t *testing.T) {
	alias := func(name, of string) *qdrant.AliasDescription {
		return &qdrant.AliasDescription{AliasName: name, CollectionName: of}
	}
	aliases := &qdrant.ListAliasesResponse{Aliases: []*qdrant.AliasDescription{alias("x", "old"), alias("y", "c"), alias("x", "c")}}
	collections := &qdrant.ListCollectionsResponse{Collections: []*qdrant.CollectionDescription{{Name: "d"}}}
	down := status.Error(codes.Unavailable, "down")
	for name, c := range map[string]struct {
		name                 string
		aliases, collections any
		own                  string
		others               []string
		err                  error
	}{
		"an alias":                      {"x", aliases, collections, "c", []string{"y", "x"}, nil},
		"a collection":                  {"d", aliases, collections, "d", nil, nil},
		"a name that nobody has":        {"e", aliases, collections, "", nil, adapters.ErrNotFound},
		"aliases that are not read":     {"d", down, collections, "", nil, adapters.ErrUnavailable},
		"collections that are not read": {"d", aliases, down, "", nil, adapters.ErrUnavailable},
	} {
		r := record(t, Options{})
		r.answers["Collections.ListAliases"], r.answers["Collections.List"] = []any{c.aliases}, []any{c.collections}
		id, err := r.Identify(t.Context(), c.name)
		if !errors.Is(err, c.err) || id.Collection != c.own || !slices.Equal(id.Aliases, c.others) {
			t.Errorf("%s: %+v, %v, want %s %q, %v", name, id, err, c.own, c.others, c.err)
		}
	}
}

// TestFieldsThatCannotBeRead: a field beyond the dimensions that this program counts is an error. A field of several
// vectors a row is named as such where only single vectors are read.
func TestFieldsThatCannotBeRead(t *testing.T) {
	r := record(t, Options{})
	r.answers["Collections.Get"] = []any{described(func(in *qdrant.CollectionInfo) {
		in.GetConfig().GetParams().GetVectorsConfig().GetParamsMap().GetMap()["a"].Size = math.MaxInt32 + 1
	})}
	if _, err := r.Describe(t.Context(), "c"); !errors.Is(err, adapters.ErrStore) {
		t.Errorf("a field of 2³¹ numbers: %v", err)
	}
	r.answers["Collections.Get"] = []any{described(func(in *qdrant.CollectionInfo) {
		in.GetConfig().GetParams().GetVectorsConfig().GetParamsMap().GetMap()["m"] = &qdrant.VectorParams{Size: 2, MultivectorConfig: &qdrant.MultiVectorConfig{}}
	})}
	_, err := r.Fetch(t.Context(), adapters.FetchRequest{Collection: "c", IDs: ids(1), Vectors: []string{"a", "m"}})
	if !errors.Is(err, adapters.ErrField) || !strings.Contains(err.Error(), "multi-vector") {
		t.Errorf("a multi-vector beside a vector: %v", err)
	}
}
