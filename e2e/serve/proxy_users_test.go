package serve_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
)

func asMilvusUser(ctx context.Context, userAndPassword string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "authorization", base64.StdEncoding.EncodeToString([]byte(userAndPassword)))
}

// A Milvus with users and aliases: each caller gets what it may see, by any name
// of the collection, of the partitions that it asks for.
func TestMilvusProxyWithUsers(t *testing.T) {
	db := servers.MilvusForTest(t, servers.Options{Authorization: true})
	config := client.Config{Address: db.Address, Username: "root", Password: "Milvus"}
	fillMilvus(t, config, client.WithConsistencyLevel(entity.ClStrong))
	root, err := client.NewClient(t.Context(), config)
	if err == nil {
		defer root.Close()
		err = root.CreateAlias(t.Context(), "routed", "also")
	}
	if err == nil {
		err = root.CreateCredential(t.Context(), "nobody", "no-rights")
	}
	password := filepath.Join(t.TempDir(), "password")
	if err == nil {
		err = os.WriteFile(password, []byte("Milvus"), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	at := startSidecar(t, fmt.Sprintf(`
stores: {main: {kind: milvus, address: %q, username: root, password_file: %q}}
routes: {things: {store: main, collection: routed, model: w, placement: stored, depth: 30, latency_budget: 10s}}
proxy: {store: main, listen_grpc: "127.0.0.1:0"}
`, db.Address, password))
	p := &milvusProxied{direct: milvuspb.NewMilvusServiceClient(connect(t, db.Address)), proxy: milvuspb.NewMilvusServiceClient(connect(t, at.Proxy.GRPC)),
		api: likenessv1.NewSearchServiceClient(connect(t, at.GRPC))}
	for _, tc := range []struct{ user, collection, state string }{
		{"root:Milvus", "routed", "rescored;"},
		{"root:Milvus", "also", "rescored;"},
		{"root:Milvus", "plain", ""},
		{"root:wrong", "routed", ""}, // a caller whom the database refuses is told nothing of the route
		{"nobody:no-rights", "routed", ""},
		{"", "routed", ""},
	} {
		ctx := t.Context()
		if tc.user != "" {
			ctx = asMilvusUser(ctx, tc.user)
		}
		r := milvusSearch(tc.collection, [][]float32{query}, 5, 0, "", "name")
		var trailer metadata.MD
		got, err := p.proxy.Search(ctx, r, grpc.Trailer(&trailer))
		want, wantErr := p.direct.Search(ctx, r)
		state := strings.Join(trailer.Get("likeness-status"), "|")
		if !strings.HasPrefix(state, tc.state) || tc.state == "" && state != "" || fmt.Sprint(err) != fmt.Sprint(wantErr) {
			t.Errorf("%q on %s: %q, %v; directly %v", tc.user, tc.collection, state, err, wantErr)
		}
		if tc.state != "rescored;" {
			if !proto.Equal(got.GetStatus(), want.GetStatus()) || len(got.GetResults().GetScores()) != len(want.GetResults().GetScores()) {
				t.Errorf("%q on %s: %v, directly %v", tc.user, tc.collection, got, want)
			}
			continue
		}
		for i, h := range p.expected(t, query, 5, "") {
			if id := int64(h.GetId().GetNumber()) + h.GetId().GetNegative(); got.GetResults().GetIds().GetIntId().GetData()[i] != id {
				t.Errorf("%s: row %d is %v, want %d", tc.collection, i, got.GetResults().GetIds(), id)
			}
		}
	}
}
