package serve_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"github.com/milvus-io/milvus-proto/go-api/v2/schemapb"
	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
)

// parts are the partitions of fillParts, of partRows rows each.
var parts = []string{"a", "b", "c"}

const partRows = 20

// fillParts makes a collection with keys of text and partitions, in a database.
func fillParts(t *testing.T, address, database string) {
	t.Helper()
	ctx := t.Context()
	root, err := client.NewClient(ctx, client.Config{Address: address})
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := root.CreateDatabase(ctx, database); err != nil {
		t.Fatal(err)
	}
	c, err := client.NewClient(ctx, client.Config{Address: address, DBName: database})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	schema := entity.NewSchema().WithName("routed").WithDynamicFieldEnabled(true).
		WithField(entity.NewField().WithName("key").WithDataType(entity.FieldTypeVarChar).WithMaxLength(50).WithIsPrimaryKey(true)).
		WithField(entity.NewField().WithName("vec").WithDataType(entity.FieldTypeFloatVector).WithDim(4)).
		WithField(entity.NewField().WithName("n").WithDataType(entity.FieldTypeInt64))
	flat, err := entity.NewIndexFlat(entity.IP)
	if err == nil {
		err = c.CreateCollection(ctx, schema, 1, client.WithConsistencyLevel(entity.ClStrong))
	}
	if err == nil {
		err = c.CreateIndex(ctx, "routed", "vec", flat, false)
	}
	for p, name := range parts {
		var rows []any
		for i := range partRows {
			n := i*len(parts) + p
			rows = append(rows, map[string]any{"key": name + strconv.Itoa(i), "vec": milvusVector(n), "n": int64(n), "extra": "x" + strconv.Itoa(n)})
		}
		if err == nil {
			err = c.CreatePartition(ctx, "routed", name)
		}
		if err == nil {
			_, err = c.InsertRows(ctx, "routed", name, rows)
		}
	}
	if err == nil {
		err = c.LoadCollection(ctx, "routed", false)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestMilvusProxyOnPartitions: in a database of its own, with keys of text, a search
// of some partitions has the best rows of those, as all rows' scores tell them, with
// the fields asked for.
func TestMilvusProxyOnPartitions(t *testing.T) {
	db := servers.MilvusForTest(t, servers.Options{})
	fillParts(t, db.Address, "shop")
	at := startSidecar(t, fmt.Sprintf(`
stores: {main: {kind: milvus, address: %q, database: shop}}
routes: {things: {store: main, collection: routed, model: w, placement: stored, depth: 60, latency_budget: 20s}}
proxy: {store: main, listen_grpc: "127.0.0.1:0"}
`, db.Address))
	p := &milvusProxied{direct: milvuspb.NewMilvusServiceClient(connect(t, db.Address)), proxy: milvuspb.NewMilvusServiceClient(connect(t, at.Proxy.GRPC)),
		api: likenessv1.NewSearchServiceClient(connect(t, at.GRPC))}
	every := p.expected(t, query, int32(len(parts)*partRows), "")
	for _, c := range []struct {
		partitions []string
		filter     string
	}{{nil, ""}, {[]string{"b"}, ""}, {[]string{"c", "a"}, ""}, {[]string{"a"}, "n >= 9"}} {
		var want []string
		var scores []float32
		for _, h := range every {
			key := h.GetId().GetText()
			row, _ := strconv.Atoi(key[1:])
			in := c.partitions == nil || slices.Contains(c.partitions, key[:1])
			if in && (c.filter == "" || row*len(parts) >= 9) && len(want) < 7 {
				want, scores = append(want, key), append(scores, h.GetScore())
			}
		}
		r := milvusSearch("routed", [][]float32{query}, 7, 0, c.filter, "extra", "n", "vec", "key")
		r.DbName, r.PartitionNames = "shop", c.partitions
		d, state := p.search(t, r)
		if state != "rescored; route=things; certificate=exact" {
			t.Errorf("%v: status %q", c.partitions, state)
		}
		if got := d.GetIds().GetStrId().GetData(); !slices.Equal(got, want) || !slices.Equal(d.GetScores(), scores) {
			t.Errorf("%v: %v with %v, want %v with %v", c.partitions, got, d.GetScores(), want, scores)
		}
		own, err := p.direct.Search(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		checkPartFields(t, d, own.GetResults())
	}
	r := milvusSearch("routed", [][]float32{query}, 7, 0, "")
	r.DbName, r.PartitionNames = "shop", []string{"absent"}
	got, gotErr := p.proxy.Search(t.Context(), r)
	own, ownErr := p.direct.Search(t.Context(), r)
	if got.GetStatus().GetReason() != own.GetStatus().GetReason() || fmt.Sprint(gotErr) != fmt.Sprint(ownErr) {
		t.Errorf("a partition that is not there: %v, %v; the database says %v, %v", got.GetStatus(), gotErr, own.GetStatus(), ownErr)
	}
}

// checkPartFields holds the fields of an answer to its rows, and their names to those
// of the database's own answer: Milvus 2.3.5 has them in another order every time.
func checkPartFields(t *testing.T, d, own *schemapb.SearchResultData) {
	t.Helper()
	names := func(d *schemapb.SearchResultData) (out []string) {
		for _, f := range d.GetFieldsData() {
			out = append(out, f.GetFieldName())
		}
		slices.Sort(out)
		return append(out, slices.Sorted(slices.Values(d.GetOutputFields()))...)
	}
	if !slices.Equal(names(d), names(own)) {
		t.Errorf("fields %v, the database has %v", names(d), names(own))
	}
	for i, key := range d.GetIds().GetStrId().GetData() {
		row, _ := strconv.Atoi(key[1:])
		n := row*len(parts) + slices.Index(parts, key[:1])
		extra := string(column(d, "$meta").GetScalars().GetJsonData().GetData()[i])
		if got := column(d, "n").GetScalars().GetLongData().GetData()[i]; got != int64(n) || !strings.Contains(extra, `"x`+strconv.Itoa(n)+`"`) {
			t.Errorf("%s: n is %d and extra %s", key, got, extra)
		}
	}
}
