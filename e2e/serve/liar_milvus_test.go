package serve_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/milvus-io/milvus-proto/go-api/v2/commonpb"
	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"github.com/milvus-io/milvus-proto/go-api/v2/schemapb"
	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	adapter "github.com/likenessdb/likeness/adapters/milvus"
	"github.com/likenessdb/likeness/rerank"
)

// milvusTable builds a table of the filled collection.
func milvusTable(t *testing.T, o adapter.Options) string {
	t.Helper()
	store, err := adapter.New(t.Context(), o)
	must2(t, err)
	defer store.Close()
	return buildTable(t, store, "routed", rerank.FormatFloat32)
}

// searchMilvus returns the hits and the status of a search of the routed collection.
func searchMilvus(ctx context.Context, c milvuspb.MilvusServiceClient) (hits []hit, state string, err error) {
	var trailer metadata.MD
	answer, err := c.Search(ctx, milvusSearch("routed", [][]float32{query}, 5, 0, ""), grpc.Trailer(&trailer))
	if err == nil && answer.GetStatus().GetCode() != 0 {
		err = fmt.Errorf("status %v", answer.GetStatus())
	}
	for i, id := range answer.GetResults().GetIds().GetIntId().GetData() {
		hits = append(hits, hit{strconv.FormatInt(id, 10), answer.GetResults().GetScores()[i]})
	}
	return hits, strings.Join(trailer.Get("likeness-status"), "|"), err
}

// milvusUpsertion writes one row of the routed collection.
func milvusUpsertion(id int64, vector []float32) *milvuspb.UpsertRequest {
	field := func(name string, kind schemapb.DataType, f *schemapb.ScalarField) *schemapb.FieldData {
		return &schemapb.FieldData{FieldName: name, Type: kind, Field: &schemapb.FieldData_Scalars{Scalars: f}}
	}
	meta := field("$meta", schemapb.DataType_JSON, &schemapb.ScalarField{Data: &schemapb.ScalarField_JsonData{JsonData: &schemapb.JSONArray{Data: [][]byte{[]byte(`{}`)}}}})
	meta.IsDynamic = true
	return &milvuspb.UpsertRequest{CollectionName: "routed", NumRows: 1, FieldsData: []*schemapb.FieldData{
		field("id", schemapb.DataType_Int64, &schemapb.ScalarField{Data: &schemapb.ScalarField_LongData{LongData: &schemapb.LongArray{Data: []int64{id}}}}),
		{FieldName: "vec", Type: schemapb.DataType_FloatVector, Field: &schemapb.FieldData_Vectors{Vectors: &schemapb.VectorField{
			Dim: 4, Data: &schemapb.VectorField_FloatVector{FloatVector: &schemapb.FloatArray{Data: vector}}}}},
		field("name", schemapb.DataType_VarChar, &schemapb.ScalarField{Data: &schemapb.ScalarField_StringData{StringData: &schemapb.StringArray{Data: []string{"new"}}}}),
		field("on", schemapb.DataType_Bool, &schemapb.ScalarField{Data: &schemapb.ScalarField_BoolData{BoolData: &schemapb.BoolArray{Data: []bool{true}}}}),
		field("price", schemapb.DataType_Double, &schemapb.ScalarField{Data: &schemapb.ScalarField_DoubleData{DoubleData: &schemapb.DoubleArray{Data: []float64{1}}}}),
		field("more", schemapb.DataType_JSON, &schemapb.ScalarField{Data: &schemapb.ScalarField_JsonData{JsonData: &schemapb.JSONArray{Data: [][]byte{[]byte(`{}`)}}}}),
		meta,
	}}
}

// doubtful is how long a write may be on its way before answers say that they may lack it. A busy Milvus can take
// longer to refuse one.
const doubtful = 50 * time.Millisecond

// interval is the time that a call took.
type interval struct{ began, ended time.Time }

func (i interval) overlaps(other interval) bool {
	return i.began.Before(other.ended) && other.began.Before(i.ended)
}

// TestALiarBeforeMilvusChangesNothing is TestALiarChangesNothing before a Milvus with users, whose
// liars have a wrong password, no user, or a user without rights.
func TestALiarBeforeMilvusChangesNothing(t *testing.T) {
	db := servers.MilvusForTest(t, servers.Options{Authorization: true})
	config := client.Config{Address: db.Address, Username: "root", Password: "Milvus"}
	fillMilvus(t, config, client.WithConsistencyLevel(entity.ClStrong))
	root, err := client.NewClient(t.Context(), config)
	must2(t, err)
	defer root.Close()
	must2(t, root.CreateCredential(t.Context(), "nobody", "no-rights"))
	password := filepath.Join(t.TempDir(), "password")
	must2(t, os.WriteFile(password, []byte("Milvus"), 0o600))
	at := startSidecar(t, fmt.Sprintf(`
state_dir: %q
stores: {main: {kind: milvus, address: %q, username: root, password_file: %q}}
routes: {things: {store: main, collection: routed, model: w, strategy: scan, table: %q, table_live: true, latency_budget: 20s, rate: 200, burst: 20}}
proxy: {store: main, listen_grpc: "127.0.0.1:0"}
`, t.TempDir(), db.Address, password, milvusTable(t, adapter.Options{Address: db.Address, Username: "root", Password: "Milvus"})))
	honestly, proxy := asMilvusUser(t.Context(), "root:Milvus"), milvuspb.NewMilvusServiceClient(connect(t, at.Proxy.GRPC))
	var want []hit
	soon(t, "a certified answer", func(context.Context) error {
		hits, state, err := searchMilvus(honestly, proxy)
		if want = hits; err == nil && !strings.HasPrefix(state, ofTheTable) {
			err = fmt.Errorf("status %q", state)
		}
		return err
	})
	h := &honest{at: at}
	before := h.count(t)

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	pace, honest := time.NewTicker(5*time.Millisecond), time.NewTicker(50*time.Millisecond) // busier machines certify nothing in time
	defer pace.Stop()
	defer honest.Stop()
	var liars sync.WaitGroup
	lies, slow := make([]int, 3), make([][]interval, 3)
	for i := range lies {
		seed, conn := rand.Uint64(), connect(t, at.Proxy.GRPC)
		liars.Go(func() {
			random := rand.New(rand.NewPCG(seed, 0))
			for ; ctx.Err() == nil; lies[i]++ {
				select {
				case <-ctx.Done():
					return
				case <-pace.C:
				}
				began := time.Now()
				if what := lieToMilvus(ctx, random, milvuspb.NewMilvusServiceClient(conn)); what != "" {
					t.Errorf("seed %d: %s", seed, what)
				}
				if time.Since(began) > doubtful {
					slow[i] = append(slow[i], interval{began, time.Now()})
				}
			}
		})
	}
	end := time.Now()
	if os.Getenv(soak) != "" || os.Getenv("LIAR_FOR") != "" {
		end = end.Add(liarFor(t))
	}
	searches, unknown := 0, []interval(nil)
	for ; searches < 40 || time.Now().Before(end); searches++ {
		<-honest.C
		began := time.Now()
		hits, state, err := searchMilvus(honestly, proxy)
		if err != nil || !slices.Equal(hits, want) {
			t.Errorf("search %d: %q, %v, %v; want %v", searches, state, hits, err, want)
		}
		if !strings.HasPrefix(state, ofTheTable) {
			unknown = append(unknown, interval{began, time.Now()})
		}
	}
	stop()
	liars.Wait()
	for _, u := range unknown {
		if !slices.ContainsFunc(slices.Concat(slow...), u.overlaps) {
			t.Error("an answer is not certified, and no write was on its way for long")
		}
	}
	h.wantOnly(t, searches, before)
	t.Logf("%v lies beside %d honest searches, %d of them beside a write that was on its way for long", lies, searches, len(unknown))
}

// lieToMilvus asks for something that Milvus refuses to the caller, and returns what went wrong.
func lieToMilvus(ctx context.Context, random *rand.Rand, c milvuspb.MilvusServiceClient) (problem string) {
	within, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if user := []string{"root:wrong", "nobody:no-rights", "nobody:wrong", "", "absent:Milvus", fmt.Sprint("root:", random.Uint64())}[random.IntN(6)]; user != "" {
		within = asMilvusUser(within, user)
	}
	var trailer metadata.MD
	told := grpc.Trailer(&trailer)
	search := milvusSearch("routed", [][]float32{query}, 1+random.IntN(30), 0, []string{"", "price < 3", strings.Repeat("(", 500), "name in [" + strings.Repeat(`"k",`, 3000) + `"k"]`}[random.IntN(4)])
	mutation := func(r *milvuspb.MutationResult, err error) (*commonpb.Status, error) { return r.GetStatus(), err }
	results := func(r *milvuspb.SearchResults, err error) (*commonpb.Status, error) { return r.GetStatus(), err }
	var s *commonpb.Status
	var err error
	what := random.IntN(8)
	switch what {
	case 0, 1:
		s, err = results(c.Search(within, search, told))
	case 2:
		s, err = results(c.HybridSearch(within, hybridOf(3, search, search), told))
	case 3:
		s, err = mutation(c.Upsert(within, milvusUpsertion(random.Int64N(milvusRows)-5, []float32{99, 99, 99, 99}), told))
	case 4:
		s, err = mutation(c.Delete(within, &milvuspb.DeleteRequest{CollectionName: "routed", Expr: []string{"id in [1, 2, 3]", "price >= 0"}[random.IntN(2)]}, told))
	case 5:
		s, err = c.DropCollection(within, &milvuspb.DropCollectionRequest{CollectionName: "routed"}, told)
	case 6:
		s, err = c.CreateAlias(within, &milvuspb.CreateAliasRequest{CollectionName: "plain", Alias: "other"}, told)
	case 7:
		s, err = c.DropPartition(within, &milvuspb.DropPartitionRequest{CollectionName: "routed", PartitionName: "_default"}, told)
	}
	carriedOut := err == nil && s.GetCode() == 0 && s.GetErrorCode() == commonpb.ErrorCode_Success //nolint:staticcheck // older servers set only this one
	if carriedOut || len(trailer.Get("likeness-status")) > 0 {
		return fmt.Sprintf("lie %d: %v, %v, trailer %v", what, s, err, trailer)
	}
	return ""
}

// TestWritesPastTheProxyOfMilvus: where a route declares that all writes pass its proxy, a write past
// it is found within twice reconcile.interval, and then no answer is exact.
func TestWritesPastTheProxyOfMilvus(t *testing.T) {
	db := servers.MilvusLiteForTest(t, servers.Options{})
	fillMilvus(t, client.Config{Address: db.Address})
	at := startSidecar(t, fmt.Sprintf(`
state_dir: %q
stores: {main: {kind: milvus, address: %q}}
routes: {things: {store: main, collection: routed, model: w, strategy: scan, table: %q, table_live: true, writes: proxy, latency_budget: 20s, reconcile: {interval: %v, rows_per_second: 0}}}
proxy: {store: main, listen_grpc: "127.0.0.1:0"}
`, t.TempDir(), db.Address, milvusTable(t, adapter.Options{Address: db.Address}), comparison))
	direct, proxy := milvuspb.NewMilvusServiceClient(connect(t, db.Address)), milvuspb.NewMilvusServiceClient(connect(t, at.Proxy.GRPC))
	first := func(certificate string) (id string) {
		t.Helper()
		soon(t, "certificate="+certificate, func(ctx context.Context) error {
			hits, state, err := searchMilvus(ctx, proxy)
			if err == nil && (len(hits) == 0 || !strings.Contains(state, "certificate="+certificate)) {
				err = fmt.Errorf("status %q, %v", state, hits)
			}
			if err == nil {
				id = hits[0].id
			}
			return err
		})
		return id
	}
	write := func(c milvuspb.MilvusServiceClient, id int64, length float32) {
		t.Helper()
		best := []float32{-2.5 * length, length, -.5 * length, 3 * length} // testModel's W makes the query such a vector
		r, err := c.Upsert(t.Context(), milvusUpsertion(id, best))
		if must2(t, err); r.GetStatus().GetCode() != 0 {
			t.Fatal(r.GetStatus())
		}
	}
	first("exact")
	write(proxy, 1000, 100)
	if id := first("exact"); id != "1000" {
		t.Errorf("exact, and %s is first after a write through the proxy", id)
	}
	write(direct, 1001, 200)
	detected := time.Now().Add(detection)
	if id := first("snapshot"); id != "1000" && id != "1001" {
		t.Errorf("%s is first after a write past the proxy", id)
	}
	if late := time.Since(detected); late > detection { // twice as long, because the machine may be busy
		t.Errorf("the write was found %v after the window", late)
	}
	soon(t, "the row in the table", func(ctx context.Context) error {
		hits, state, err := searchMilvus(ctx, proxy)
		switch {
		case err != nil:
			return err
		case strings.Contains(state, "certificate=exact"):
			t.Errorf("%q after a write past the proxy was found", state)
		case len(hits) == 0 || hits[0].id != "1001":
			return fmt.Errorf("%v", hits)
		}
		return nil
	})
}
