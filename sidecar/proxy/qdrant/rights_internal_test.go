package qdrant

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/proxy/rawgrpc"
	"github.com/likenessdb/likeness/sidecar/proxy/rest"
	"github.com/likenessdb/likeness/sidecar/proxy/routing"
	"github.com/likenessdb/likeness/sidecar/search"
)

// guarded answers every search with point 1, and lets a caller read the collections that it names.
type guarded struct {
	qdrant.UnimplementedPointsServer

	readable string
}

func (g guarded) Get(_ context.Context, r *qdrant.GetPoints) (*qdrant.GetResponse, error) {
	if r.GetCollectionName() != g.readable {
		return nil, status.Error(codes.PermissionDenied, "forbidden")
	}
	return &qdrant.GetResponse{}, nil
}

func (guarded) Search(ctx context.Context, _ *qdrant.SearchPoints) (*qdrant.SearchResponse, error) {
	if err := errors.Join(grpc.SetHeader(ctx, metadata.Pairs("x-node", "1")), grpc.SetTrailer(ctx, metadata.Pairs("x-usage", "7"))); err != nil {
		return nil, err
	}
	return &qdrant.SearchResponse{Result: []*qdrant.ScoredPoint{{Id: qdrant.NewIDNum(1)}}}, nil
}

// TestRightsForAnAlias: a search by an alias is answered only if the caller may read the collection by that name,
// whatever rights it has for the collection's own name.
func TestRightsForAnAlias(t *testing.T) {
	target := routing.Target{Name: "alias", Routed: "items", Own: "items"}
	all := func() []routing.Ranked {
		return []routing.Ranked{{Hits: []search.Hit{{ID: rerank.UintID(1), Score: 2}}, Limit: 1, All: true}}
	}
	for readable, want := range map[string]error{"alias": nil, "items": errConfirm} {
		listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		server := grpc.NewServer()
		qdrant.RegisterPointsServer(server, guarded{readable: readable})
		served := make(chan error, 1)
		go func() { served <- server.Serve(listener) }()
		upstream, err := rawgrpc.Dial(listener.Addr().String(), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		c := &call{target: target, upstream: upstream, method: qdrant.Points_Search_FullMethodName, request: &qdrant.SearchPoints{CollectionName: "alias", Limit: 1}, answer: (&qdrant.SearchResponse{}).ProtoReflect().Type()}
		if r, err := c.Confirm(t.Context(), all()); !errors.Is(err, want) || (len(r.Message) > 0) != (want == nil) {
			t.Errorf("gRPC: %s is readable: %d bytes, %v; want %v", readable, len(r.Message), err, want)
		} else if got := slices.Concat(r.Header.Get("x-node"), r.Trailer.Get("x-usage")); err == nil && !slices.Equal(got, []string{"1", "7"}) {
			t.Errorf("gRPC: of the database's header and trailer the answer has %q", got)
		}
		if err := upstream.Close(); err != nil {
			t.Error(err)
		}
		server.Stop()
		<-served

		over := &restCall{target: target, in: httptest.NewRequest(http.MethodPost, "/collections/alias/points/search", nil)}
		over.searches = []object{{{"vector", json.RawMessage("[1]")}, {"limit", json.RawMessage("1")}}}
		over.forward = func(_ context.Context, path string, _ []byte) rest.Answer {
			if strings.HasSuffix(path, "/search") {
				return rest.Answer{Status: http.StatusOK, Body: []byte(`{"result":[{"id":1,"score":0}]}`)}
			}
			if path != "/collections/"+readable+"/points" {
				return rest.Answer{Status: http.StatusForbidden}
			}
			return rest.Answer{Status: http.StatusOK}
		}
		if a, err := over.Confirm(t.Context(), all()); !errors.Is(err, want) || (len(a.Body) > 0) != (want == nil) {
			t.Errorf("REST: %s is readable: %s, %v; want %v", readable, a.Body, err, want)
		}
	}
}
