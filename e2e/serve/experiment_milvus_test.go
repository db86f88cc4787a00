package serve_test

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/sidecar/experiment"
	"github.com/likenessdb/likeness/sidecar/trial"
)

// TestExperimentBeforeMilvus: clients of Milvus get interleaved answers through the proxy, whose
// impressions and clicks are kept, and decide.
func TestExperimentBeforeMilvus(t *testing.T) {
	db := servers.MilvusLiteForTest(t, servers.Options{})
	fillMilvus(t, client.Config{Address: db.Address})
	dir, state := t.TempDir(), t.TempDir()
	vectors, ids := rerank.NewMatrix(milvusRows, 4), make([]string, milvusRows)
	for i := range ids {
		copy(vectors.Row(i), milvusVector(i))
		ids[i] = strconv.Itoa(i - 5)
	}
	const k = 8
	lists := map[string][]string{}
	for name, m := range map[string]*model.Model{"w": testModel(t), "other": otherModel(t)} {
		must2(t, model.Write(filepath.Join(dir, name+".safetensors"), m))
		lists[name] = bestRows(t, m, query, vectors, ids, k)
	}
	s := startIn(t, fmt.Sprintf(`
listen: {grpc: "127.0.0.1:0", admin: "127.0.0.1:0"}
state_dir: %q
models: {w: {path: %q}, other: {path: %q}}
stores: {main: {kind: milvus, address: %q}}
routes:
  things:
    store: main
    collection: routed
    placement: stored
    depth: 30
    active: v1
    versions: {v1: {model: w}, v2: {model: other}}
    events: {share: 0.0001, keep: [user, vector]}
    experiment: {candidate: v2, share: 1, session: 1s, feedback: {click: 1}, guard: {latency_p99: 60s}, promote: ask}
proxy: {store: main, listen_grpc: "127.0.0.1:0"}
`, state, filepath.Join(dir, "w.safetensors"), filepath.Join(dir, "other.safetensors"), db.Address), nil, true, slog.New(slog.NewTextHandler(t.Output(), nil)))
	s.experimentWhen(t, func(s trial.Status) bool { return s.Searched })
	proxy := milvuspb.NewMilvusServiceClient(connect(t, s.at.Proxy.GRPC))
	const people = 16
	for person := range people {
		var trailer metadata.MD
		ctx := metadata.AppendToOutgoingContext(t.Context(), "likeness-user", fmt.Sprint("person ", person))
		answer, err := proxy.Search(ctx, milvusSearch("routed", [][]float32{query}, k, 0, "", "name"), grpc.Trailer(&trailer))
		must2(t, err)
		status := strings.Join(trailer.Get("likeness-status"), "")
		if answer.GetStatus().GetCode() != 0 || !strings.HasPrefix(status, "rescored; route=things; certificate=unknown; experiment=interleave; answer=") {
			t.Fatalf("%v, %s", answer.GetStatus(), status)
		}
		var list []string
		for _, id := range answer.GetResults().GetIds().GetIntId().GetData() {
			list = append(list, strconv.FormatInt(id, 10))
		}
		if !isDraft(list, lists["w"], lists["other"]) || len(list) != k {
			t.Fatalf("%v of %v and %v", list, lists["w"], lists["other"])
		}
		for i, id := range list {
			if slices.Contains(lists["other"], id) && !slices.Contains(lists["w"], id) {
				item := &likenessv1.ItemId{Id: &likenessv1.ItemId_Number{Number: uint64(answer.GetResults().GetIds().GetIntId().GetData()[i])}}
				if list[i][0] == '-' {
					item.Id = &likenessv1.ItemId_Negative{Negative: answer.GetResults().GetIds().GetIntId().GetData()[i]}
				}
				if got := feed(t, s.conn, "things", answerOf(t, status), item); got.GetAccepted() != 1 {
					t.Fatal(got)
				}
				break
			}
		}
	}
	if got := s.experimentWhen(t, func(s trial.Status) bool { return s.Stage != experiment.Running }); got.Stage != experiment.Waiting || got.Decision != experiment.Better || got.Unnamed != 0 {
		t.Errorf("%+v", got)
	}
	s.stop()
	must2(t, s.wait())
	shown, chosen := readEvents(t, state, "things")
	if len(shown) != people || len(chosen) != people {
		t.Errorf("%d impressions, %d clicks are kept of %d people", len(shown), len(chosen), people)
	}
	for _, m := range shown {
		if !strings.HasPrefix(m.User, "person ") || len(m.Items) != k || !m.Shows(chosen[0].Item) || m.Items[0].Arm == experiment.Neither {
			t.Errorf("%+v", m)
		}
	}
}
