package proxy_test

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	adapter "github.com/likenessdb/likeness/adapters/milvus"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/follow/journal"
	"github.com/likenessdb/likeness/sidecar/proxy"
	router "github.com/likenessdb/likeness/sidecar/proxy/milvus"
)

func milvusSchema(name string, auto bool) *entity.Schema {
	return entity.NewSchema().WithName(name).WithAutoID(auto).
		WithField(entity.NewField().WithName("id").WithDataType(entity.FieldTypeInt64).WithIsPrimaryKey(true).WithIsAutoID(auto)).
		WithField(entity.NewField().WithName("v").WithDataType(entity.FieldTypeFloatVector).WithDim(2))
}

func milvusColumns(ids ...int64) []entity.Column {
	vectors := slices.Repeat([][]float32{{1, 2}}, len(ids))
	return []entity.Column{entity.NewColumnInt64("id", ids), entity.NewColumnFloatVector("v", 2, vectors)}
}

// milvusStep is a call of the official client, and the writes on the routed collection that it
// stands for.
type milvusStep struct {
	name string
	call func(ctx context.Context, c client.Client, collection string) (any, error)
	want []journal.Write
}

func milvusRow(kind journal.Kind, ids ...int64) []journal.Write {
	w := journal.Write{Collection: "routed", Kind: kind}
	for _, n := range ids {
		w.IDs = append(w.IDs, rerank.IntID(n))
	}
	return []journal.Write{w}
}

func nothing(err error) (any, error) { return nil, err }

// milvusSteps are calls and the writes that they are followed as. unclear says that the
// server refuses two of them by a code that also stands for faults, so that they count.
func milvusSteps(unclear bool) []milvusStep {
	var noExpression, noPartition []journal.Write
	if unclear {
		noExpression = []journal.Write{{Collection: "routed", Kind: journal.Delete, Filter: "id in"}}
		noPartition = []journal.Write{{Collection: "routed", Kind: journal.Delete, All: true}}
	}
	type c = client.Client
	deletes := func(expression string) func(context.Context, c, string) (any, error) {
		return func(ctx context.Context, c c, name string) (any, error) {
			return nothing(c.Delete(ctx, name, "", expression))
		}
	}
	return []milvusStep{
		{"create", func(ctx context.Context, c c, name string) (any, error) {
			return nothing(c.CreateCollection(ctx, milvusSchema(name, false), 1))
		}, anyRow(journal.Collection, true)},
		{"index", func(ctx context.Context, c c, name string) (any, error) {
			flat, err := entity.NewIndexFlat(entity.IP)
			if err != nil {
				return nil, err
			}
			return nil, c.CreateIndex(ctx, name, "v", flat, false)
		}, nil},
		{"load", func(ctx context.Context, c c, name string) (any, error) {
			return nothing(c.LoadCollection(ctx, name, false))
		}, anyRow(journal.Upsert, false)},
		{"insert", func(ctx context.Context, c c, name string) (any, error) {
			return c.Insert(ctx, name, "", milvusColumns(1, -2, 3)...)
		}, milvusRow(journal.Upsert, 1, -2, 3)},
		{"insert of the wrong dimension", func(ctx context.Context, c c, name string) (any, error) {
			return c.Insert(ctx, name, "", entity.NewColumnInt64("id", []int64{1}), entity.NewColumnFloatVector("v", 3, [][]float32{{1, 2, 3}}))
		}, nil}, // the client refuses it
		{"upsert", func(ctx context.Context, c c, name string) (any, error) {
			return c.Upsert(ctx, name, "", milvusColumns(3, 4)...)
		}, milvusRow(journal.Upsert, 3, 4)},
		{"delete by ids", func(ctx context.Context, c c, name string) (any, error) {
			return nothing(c.DeleteByPks(ctx, name, "", entity.NewColumnInt64("id", []int64{1, -2})))
		}, milvusRow(journal.Delete, 1, -2)},
		{"delete of one", deletes("id == 4"), milvusRow(journal.Delete, 4)},
		{"delete by range", deletes("id > 100"), []journal.Write{{Collection: "routed", Kind: journal.Delete, Filter: "id > 100"}}},
		{"delete by no expression", deletes("id in"), noExpression},
		{"drop of a partition", func(ctx context.Context, c c, name string) (any, error) {
			return nothing(c.DropPartition(ctx, name, "none"))
		}, noPartition},
		{"describe", func(ctx context.Context, c c, name string) (any, error) {
			d, err := c.DescribeCollection(ctx, name)
			return d != nil, err
		}, nil},
	}
}

func testMilvusWrites(t *testing.T, s *servers.Server, unclear bool, also func(t *testing.T, w *milvusWorld)) {
	t.Helper()
	store, err := adapter.New(t.Context(), adapter.Options{Address: s.Address})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	w := &milvusWorld{follower: &recorder{}, server: s, store: store}
	at := start(t, proxy.Options{GRPC: proxy.Endpoint{Upstream: s.Address}, Router: router.New(followed(t, store, w.follower), "")})
	w.proxy = at.GRPC
	w.direct, w.proxied = w.client(t, s.Address, ""), w.client(t, at.GRPC, "")
	for _, step := range milvusSteps(unclear) {
		w.step(t, step)
	}
	w.autoID(t)
	also(t, w)
}

type milvusWorld struct {
	follower        *recorder
	server          *servers.Server
	store           *adapter.Store
	proxy           string
	direct, proxied client.Client
}

func (w *milvusWorld) client(t *testing.T, address, database string) client.Client {
	t.Helper()
	c, err := client.NewClient(t.Context(), client.Config{Address: address, DBName: database})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// step makes a call directly and through the proxy, and compares the answers and the followed
// writes.
func (w *milvusWorld) step(t *testing.T, s milvusStep) {
	t.Helper()
	say := func(a any, err error) string { return strings.ReplaceAll(fmt.Sprint(a, err), "routed", "direct") }
	want, got := say(s.call(t.Context(), w.direct, "direct")), say(s.call(t.Context(), w.proxied, "routed"))
	if plain(got) != plain(want) {
		t.Errorf("%s: %s\ndirectly %s", s.name, got, want)
	}
	if begun, _ := w.follower.take(t); !reflect.DeepEqual(begun, s.want) {
		t.Errorf("%s:\nfollowed %+v\nwant     %+v", s.name, begun, s.want)
	}
	_, _ = s.call(t.Context(), w.proxied, "unrouted")
	if begun, _ := w.follower.take(t); len(begun) > 0 {
		t.Errorf("%s on another collection: %+v", s.name, begun)
	}
}

// plain returns an answer's text without memory addresses.
func plain(s string) string {
	var out []string
	for word := range strings.FieldsSeq(s) {
		if !strings.Contains(word, "0xc0") {
			out = append(out, word)
		}
	}
	return strings.Join(out, " ")
}

// autoID: the database chooses the ids, and the answer names them.
func (w *milvusWorld) autoID(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	if err := w.proxied.CreateCollection(ctx, milvusSchema("other", true), 1); err != nil {
		t.Fatal(err)
	}
	w.follower.take(t)
	ids, err := w.proxied.Insert(ctx, "other", "", milvusColumns(7, 8)[1])
	if err != nil {
		t.Fatal(err)
	}
	begun, _ := w.follower.take(t)
	var want []rerank.ID
	for _, n := range ids.FieldData().GetScalars().GetLongData().GetData() {
		want = append(want, rerank.IntID(n))
	}
	if !reflect.DeepEqual(begun, []journal.Write{{Collection: "other", Kind: journal.Upsert, IDs: want}}) || len(want) != 2 {
		t.Errorf("followed %+v, want %v", begun, want)
	}
	if err := w.proxied.DropCollection(ctx, "other"); err != nil {
		t.Fatal(err)
	}
	w.follower.take(t)
}

func TestMilvusLiteWrites(t *testing.T) {
	testMilvusWrites(t, servers.MilvusLiteForTest(t, servers.Options{}), false, func(t *testing.T, w *milvusWorld) {
		w.step(t, milvusStep{"drop", func(ctx context.Context, c client.Client, name string) (any, error) {
			return nothing(c.DropCollection(ctx, name))
		}, anyRow(journal.Collection, true)})
	})
}

func TestMilvusWrites(t *testing.T) {
	testMilvusWrites(t, servers.MilvusForTest(t, servers.Options{}), true, func(t *testing.T, w *milvusWorld) {
		w.aliases(t)
		w.databases(t)
	})
}

// aliases, partitions and renames, which milvus-lite lacks.
func (w *milvusWorld) aliases(t *testing.T) {
	t.Helper()
	moved := []journal.Write{{Collection: "other", Kind: journal.Collection, All: true, Waited: true}}
	ctx, c := t.Context(), w.proxied
	insert := func(name string, id int64) func() error {
		return func() error {
			_, err := c.Insert(ctx, name, "", milvusColumns(id)...)
			return err
		}
	}
	load := func() error { return c.LoadCollection(ctx, "routed", false) }
	expires := func() bool {
		d, err := w.store.Describe(ctx, "routed")
		return err == nil && d.Expires
	}
	if expires() {
		t.Error("rows expire without a time to live")
	}
	for _, s := range []struct {
		name string
		call func() error
		want []journal.Write
	}{
		{"alias", func() error { return c.CreateAlias(ctx, "routed", "mine") }, nil},
		{"insert by alias", insert("mine", 11), milvusRow(journal.Upsert, 11)},
		{"delete by alias", func() error { return c.Delete(ctx, "mine", "", "id in [11]") }, milvusRow(journal.Delete, 11)},
		{"drop of the alias", func() error { return c.DropAlias(ctx, "mine") }, nil},
		{"alias that is a route's collection", func() error { return c.CreateAlias(ctx, "unrouted", "other") }, moved},
		{"insert", insert("unrouted", 12), []journal.Write{{Collection: "other", Kind: journal.Upsert, IDs: numbers(12)}}},
		{"alias of another", func() error { return c.AlterAlias(ctx, "routed", "other") }, moved},
		{"insert elsewhere", insert("unrouted", 13), nil},
		{"drop of that alias", func() error { return c.DropAlias(ctx, "other") }, moved},
		{"load again", load, nil},
		{"partition", func() error { return c.CreatePartition(ctx, "routed", "p") }, nil},
		{"release of a partition", func() error { return c.ReleasePartitions(ctx, "routed", []string{"p"}) }, anyRow(journal.Upsert, false)},
		{"load of the other partition", func() error { return c.LoadPartitions(ctx, "routed", []string{"_default"}, false) }, anyRow(journal.Upsert, false)},
		{"load of the rest", load, anyRow(journal.Upsert, false)},
		{"load of what is there", load, nil},
		{"release", func() error { return c.ReleaseCollection(ctx, "routed") }, anyRow(journal.Upsert, false)},
		{"load of all", load, anyRow(journal.Upsert, false)},
		{"time to live", func() error { return c.AlterCollection(ctx, "routed", entity.CollectionTTL(3600)) }, anyRow(journal.Upsert, false)},
		{"release of all", func() error { return c.ReleaseCollection(ctx, "routed") }, anyRow(journal.Upsert, false)},
		{"drop of the partition", func() error { return c.DropPartition(ctx, "routed", "p") }, anyRow(journal.Delete, false)},
		{"rename", func() error { return c.RenameCollection(ctx, "routed", "renamed") }, anyRow(journal.Collection, true)},
		{"insert into the renamed", insert("renamed", 14), nil},
		{"rename back", func() error { return c.RenameCollection(ctx, "renamed", "routed") }, anyRow(journal.Collection, true)},
	} {
		if err := s.call(); err != nil {
			t.Errorf("%s: %v", s.name, err)
		}
		if begun, _ := w.follower.take(t); !reflect.DeepEqual(begun, s.want) {
			t.Errorf("%s:\nfollowed %+v\nwant     %+v", s.name, begun, s.want)
		}
	}
	if !expires() {
		t.Error("rows with a time to live do not expire")
	}
}

// databases: a collection of the same name in another database is another collection.
func (w *milvusWorld) databases(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	if err := w.proxied.CreateDatabase(ctx, "elsewhere"); err != nil {
		t.Fatal(err)
	}
	c := w.client(t, w.proxy, "elsewhere")
	err := c.CreateCollection(ctx, milvusSchema("routed", false), 1)
	if err == nil {
		_, err = c.Insert(ctx, "routed", "", milvusColumns(1)...)
	}
	if err == nil {
		err = c.DropCollection(ctx, "routed")
	}
	if err != nil {
		t.Fatal(err)
	}
	if begun, _ := w.follower.take(t); len(begun) > 0 {
		t.Errorf("a write in another database: %+v", begun)
	}
}
