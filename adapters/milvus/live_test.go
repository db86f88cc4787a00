package milvus_test

import (
	"context"
	"slices"
	"testing"

	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/milvus"
	"github.com/likenessdb/likeness/rerank"
)

// live is a running server and two ways to it.
type live struct {
	lite    bool
	options milvus.Options
	store   *milvus.Store
	sdk     client.Client
}

func newLive(t *testing.T, lite bool, o milvus.Options) *live {
	t.Helper()
	sdk, err := client.NewClient(t.Context(), client.Config{Address: o.Address, Username: o.Username, Password: o.Password, DisableConn: true, DialOptions: o.DialOptions})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sdk.Close() })
	r := &live{lite: lite, options: o, sdk: sdk}
	r.store = r.open(t, o)
	return r
}

func (r *live) open(t *testing.T, o milvus.Options) *milvus.Store {
	t.Helper()
	s, err := milvus.New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// run runs the tests that are about Milvus alone, on a user's own collections
// and on companions.
func (r *live) run(t *testing.T) { r.runWithout(t) }

// runWithout is run without some tests.
func (r *live) runWithout(t *testing.T, names ...string) {
	for name, test := range map[string]func(*testing.T, *live){
		"scalar fields come back exactly":         scalarFields,
		"VarChar keys of a user's collection":     textKeys,
		"greatest number":                         greatestNumber,
		"a row a component":                       rowsLayout,
		"components need one metric":              mixedMetrics,
		"approximate index is not exact":          approximateIndex,
		"collection that is not loaded":           notLoaded,
		"consistency and partitions":              consistencyAndPartitions,
		"alias switched by another program":       aliasElsewhere,
		"rows larger than a reply":                largeRows,
		"server's own limits":                     serversLimits,
		"write needs a companion":                 writeNeedsCompanion,
		"vector field of another type is refused": binaryField,
	} {
		if slices.Contains(names, name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel() // on Milvus a test mostly waits for a collection to load
			test(t, r)
		})
	}
}

func field(name string, kind entity.FieldType) *entity.Field {
	f := entity.NewField().WithName(name).WithDataType(kind)
	if kind == entity.FieldTypeVarChar {
		f.WithMaxLength(65535)
	}
	return f
}

// create makes a user's own collection with a field "vec" of 4.
func (r *live) create(t *testing.T, name, metric, index string, params map[string]string, fields ...*entity.Field) {
	t.Helper()
	sch := entity.NewSchema().WithName(name).WithDynamicFieldEnabled(true)
	for _, f := range append(fields, field("vec", entity.FieldTypeFloatVector).WithDim(4)) {
		sch.WithField(f)
	}
	if err := r.sdk.CreateCollection(t.Context(), sch, 1); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.store.Drop(context.WithoutCancel(t.Context()), name); err != nil {
			t.Error(err)
		}
	})
	if index == "" {
		return
	}
	if params == nil {
		params = map[string]string{}
	}
	params["metric_type"] = metric
	if err := r.sdk.CreateIndex(t.Context(), name, "vec", entity.NewGenericIndex("vec", entity.IndexType(index), params), false); err != nil {
		t.Fatal(err)
	}
	if err := r.sdk.LoadCollection(t.Context(), name, false); err != nil {
		t.Fatal(err)
	}
}

// insert writes columns as they are, and waits until they are visible.
func (r *live) insert(t *testing.T, name string, rows int, columns ...entity.Column) {
	t.Helper()
	request := &milvuspb.InsertRequest{CollectionName: name, NumRows: uint32(rows)}
	for _, c := range columns {
		fd := c.FieldData()
		fd.IsDynamic = c.Name() == "$meta"
		request.FieldsData = append(request.FieldsData, fd)
	}
	result, err := r.sdk.(*client.GrpcClient).Service.Insert(t.Context(), request)
	if err != nil || result.GetStatus().GetCode() != 0 {
		t.Fatalf("insert into %s: %v %v", name, err, result.GetStatus())
	}
	if _, err := r.store.Search(t.Context(), adapters.SearchRequest{Collection: name, UnitVectors: true, Consistency: "Strong", Probes: []rerank.Probe{{Vector: []float32{1, 0, 0, 0}, Depth: 1}}}); err != nil {
		t.Fatal(err)
	}
}

func vectors(rows int) ([][]float32, rerank.Matrix) {
	m := rerank.NewMatrix(rows, 4)
	out := make([][]float32, rows)
	for i := range rows {
		copy(m.Row(i), []float32{float32(i + 1), float32(i % 3), -float32(i % 5), 0.1})
		out[i] = m.Row(i)
	}
	return out, m
}

func jsonColumn(name string, rows int, text string) entity.Column {
	data := make([][]byte, rows)
	for i := range data {
		data[i] = []byte(text)
	}
	return entity.NewColumnJSONBytes(name, data)
}

func repeat[T any](n int, v T) []T {
	out := make([]T, n)
	for i := range out {
		out[i] = v
	}
	return out
}
