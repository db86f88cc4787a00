package server_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/sidecar/rollout"
	"github.com/likenessdb/likeness/sidecar/server"
)

// idle is an Admin that does nothing.
type idle struct{ nothing }

func (idle) Activate(context.Context, string, string, bool) (rollout.Activation, error) {
	return rollout.Activation{}, nil
}
func (idle) RollBack(context.Context, string) (rollout.Activation, error) {
	return rollout.Activation{}, nil
}
func (idle) Collect(context.Context, string, bool) ([]rollout.Garbage, error) { return nil, nil }

// rule says who may call an RPC.
type rule struct {
	// request returns a request for a route, or a request without one if the RPC has none.
	request func(route string) proto.Message
	// admin: the caller needs admin: true. routed: the route has to be the caller's.
	admin, routed bool
	// inside: a batch, whose searches have results of their own.
	inside bool
}

// rules returns the rule of every RPC of the API. TestPermissions fails for an RPC without a rule.
func rules() map[string]rule {
	q := &likenessv1.Query{Vector: []float32{1, 2}}
	ids := &likenessv1.ItemIds{Ids: []*likenessv1.ItemId{{Id: &likenessv1.ItemId_Number{Number: 1}}}}
	search := func(route string) *likenessv1.SearchRequest {
		return &likenessv1.SearchRequest{Route: route, K: 1, Query: q}
	}
	return map[string]rule{
		"likeness.v1.SearchService.Search": {routed: true, request: func(r string) proto.Message { return search(r) }},
		"likeness.v1.SearchService.SearchBatch": {inside: true, request: func(r string) proto.Message {
			return &likenessv1.SearchBatchRequest{Searches: []*likenessv1.SearchRequest{search(r)}}
		}},
		"likeness.v1.SearchService.Score": {routed: true, request: func(r string) proto.Message {
			return &likenessv1.ScoreRequest{Route: r, Query: q, Items: &likenessv1.ScoreRequest_Ids{Ids: ids}}
		}},
		"likeness.v1.SearchService.Explain": {routed: true, request: func(r string) proto.Message {
			return &likenessv1.ExplainRequest{Route: r, Query: q, Items: &likenessv1.ExplainRequest_Ids{Ids: ids}}
		}},
		"likeness.v1.FeedbackService.Feedback": {routed: true, request: func(r string) proto.Message {
			return &likenessv1.FeedbackRequest{Route: r, Events: []*likenessv1.FeedbackEvent{{Kind: "click"}}}
		}},
		"likeness.v1.CatalogService.ListModels":    {request: func(string) proto.Message { return &likenessv1.ListModelsRequest{} }},
		"likeness.v1.CatalogService.GetModel":      {request: func(string) proto.Message { return &likenessv1.GetModelRequest{Name: "none"} }},
		"likeness.v1.CatalogService.ListRoutes":    {request: func(string) proto.Message { return &likenessv1.ListRoutesRequest{} }},
		"likeness.v1.CatalogService.GetRoute":      {routed: true, request: func(r string) proto.Message { return &likenessv1.GetRouteRequest{Name: r} }},
		"likeness.v1.AdminService.ListVersions":    {admin: true, routed: true, request: func(r string) proto.Message { return &likenessv1.ListVersionsRequest{Route: r} }},
		"likeness.v1.AdminService.ActivateVersion": {admin: true, routed: true, request: func(r string) proto.Message { return &likenessv1.ActivateVersionRequest{Route: r, Version: "v"} }},
		"likeness.v1.AdminService.RollBack":        {admin: true, routed: true, request: func(r string) proto.Message { return &likenessv1.RollBackRequest{Route: r} }},
		"likeness.v1.AdminService.CollectVersions": {admin: true, routed: true, request: func(r string) proto.Message { return &likenessv1.CollectVersionsRequest{Route: r} }},
		"likeness.v1.AdminService.Reconcile":       {admin: true, routed: true, request: func(r string) proto.Message { return &likenessv1.ReconcileRequest{Route: r} }},
	}
}

// TestPermissions calls every RPC as every kind of caller: each needs a token, routes must be the
// caller's, and changes need admin: true.
func TestPermissions(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens.yaml")
	text := fmt.Sprintf("- {name: admin, token: admin-canary, admin: true, routes: [things]}\n- {name: some, sha256: %x, routes: [things]}\n", sha256.Sum256([]byte("some-canary")))
	write(t, file, []byte(text), 1)
	w := start(t, func(o *server.Options) { o.TokensFile, o.Admin = file, idle{} })
	all := rules()
	seen := 0
	protoregistry.GlobalFiles.RangeFilesByPackage("likeness.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			for methods, j := f.Services().Get(i).Methods(), 0; j < methods.Len(); j++ {
				m := methods.Get(j)
				r, ok := all[string(m.FullName())]
				if !ok {
					t.Errorf("%s has no rule of who may call it", m.FullName())
					continue
				}
				seen++
				for _, token := range []string{"", "wrong", "some-canary", "admin-canary"} {
					for _, route := range []string{"things", "foreign"} {
						want := permitted(r, token, route)
						if got := invoke(t, w, m, r, token, route); !want[got] {
							t.Errorf("%s with token %q on route %q: %v, want one of %v", m.FullName(), token, route, got, want)
						}
					}
				}
			}
		}
		return true
	})
	if seen != len(all) {
		t.Errorf("%d RPCs, and %d rules", seen, len(all))
	}
	if strings.Contains(w.log.String(), "canary") {
		t.Error("the log holds a token")
	}
}

// permitted returns the codes that an answer may have: for a permitted caller, any code but those
// for a missing right.
func permitted(r rule, token, route string) map[codes.Code]bool {
	switch {
	case token == "" || token == "wrong":
		return map[codes.Code]bool{codes.Unauthenticated: true}
	case r.admin && token != "admin-canary", (r.routed || r.inside) && route == "foreign":
		return map[codes.Code]bool{codes.PermissionDenied: true}
	}
	let := map[codes.Code]bool{}
	for c := codes.OK; c <= codes.Unauthenticated; c++ {
		let[c] = c != codes.Unauthenticated && c != codes.PermissionDenied
	}
	return let
}

func invoke(t *testing.T, w *world, m protoreflect.MethodDescriptor, r rule, token, route string) codes.Code {
	t.Helper()
	ctx := context.Background()
	if token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	}
	answer := dynamicpb.NewMessage(m.Output())
	err := w.conn.Invoke(ctx, "/"+string(m.Parent().FullName())+"/"+string(m.Name()), r.request(route), answer)
	if err != nil || !r.inside {
		return status.Code(err)
	}
	results := answer.Get(m.Output().Fields().ByName("results")).List()
	one := results.Get(0).Message()
	failed := one.Descriptor().Fields().ByName("error")
	if !one.Has(failed) {
		return codes.OK
	}
	e := one.Get(failed).Message()
	return codes.Code(e.Get(e.Descriptor().Fields().ByName("code")).Int())
}
