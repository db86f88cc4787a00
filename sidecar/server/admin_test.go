package server_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/sidecar/follow"
	"github.com/likenessdb/likeness/sidecar/rollout"
	"github.com/likenessdb/likeness/sidecar/server"
)

// nothing is an Admin of routes without versions.
type nothing struct{ server.Admin }

func (nothing) List(string) ([]rollout.Info, error) { return nil, nil }

// TestWhoMayActivate: tokens with admin, on their routes. Without tokens, callers on a loopback
// address.
func TestWhoMayActivate(t *testing.T) {
	tokens := filepath.Join(t.TempDir(), "tokens.yaml")
	if err := os.WriteFile(tokens, []byte("- {name: reader, token: reader}\n- {name: operator, token: operator, admin: true, routes: [things]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, tokens, token, route string
		open                       bool
		want                       codes.Code
	}{
		{"no tokens, loopback", "", "", "things", true, codes.OK},
		{"no tokens, any address", "", "", "things", false, codes.PermissionDenied},
		{"no token", tokens, "", "things", true, codes.Unauthenticated},
		{"a token without admin", tokens, "reader", "things", true, codes.PermissionDenied},
		{"an admin's", tokens, "operator", "things", false, codes.OK},
		{"an admin's of another route", tokens, "operator", "other", false, codes.PermissionDenied},
	} {
		w := start(t, func(o *server.Options) { o.TokensFile, o.Admin, o.OpenAdmin = c.tokens, nothing{}, c.open })
		ctx := t.Context()
		if c.token != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+c.token)
		}
		_, err := likenessv1.NewAdminServiceClient(w.conn).ListVersions(ctx, &likenessv1.ListVersionsRequest{Route: c.route})
		if status.Code(err) != c.want {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

// TestDriftOfAReconciliation: the answer has each count of the comparison.
func TestDriftOfAReconciliation(t *testing.T) {
	want := follow.Drift{Rows: 1, Missing: 2, Changed: 3, Surplus: 4, Unfit: 5}
	asked := ""
	w := start(t, func(o *server.Options) {
		o.Admin, o.OpenAdmin = idle{}, true
		o.Reconcile = func(_ context.Context, route string) (follow.Drift, error) {
			asked = route
			return want, nil
		}
	})
	r, err := likenessv1.NewAdminServiceClient(w.conn).Reconcile(t.Context(), &likenessv1.ReconcileRequest{Route: "things"})
	if err != nil {
		t.Fatal(err)
	}
	d := r.GetDrift()
	got := follow.Drift{Rows: d.GetRows(), Missing: d.GetMissing(), Changed: d.GetChanged(), Surplus: d.GetSurplus(), Unfit: d.GetUnfit()}
	if got != want || asked != "things" {
		t.Errorf("%+v of route %q, want %+v", got, asked, want)
	}
}
