package server_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/likenessdb/likeness/adapters"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/sidecar/search"
	"github.com/likenessdb/likeness/sidecar/server"
)

func tokensOf(t *testing.T, text string) change {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tokens.yaml")
	write(t, file, []byte(text), 1)
	return func(o *server.Options) { o.TokensFile, o.Admin = file, idle{} }
}

func bearing(t *testing.T, token string) context.Context {
	return metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token)
}

// TestFailuresAreFewLines: guessing tokens does not fill the log.
func TestFailuresAreFewLines(t *testing.T) {
	w := start(t, tokensOf(t, "- {name: all, token: canary}\n"))
	const calls = 500
	for i := range calls {
		if _, err := w.search.Search(bearing(t, fmt.Sprint(i)), question()); status.Code(err) != codes.Unauthenticated {
			t.Fatal(err)
		}
	}
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/routes", http.NoBody)
	for range calls {
		_, err := w.server.Authenticate(nil)
		w.server.LogRefused(request, "id", err)
	}
	lines := strings.Count(w.log.String(), `"level":"WARN","msg":"call failed"`)
	if lines == 0 || lines > calls {
		t.Errorf("%d lines of %d failures", lines, 2*calls)
	}
}

// TestFaultsAreLogged: whoever fills the log with other failures, a fault of the sidecar has a line.
func TestFaultsAreLogged(t *testing.T) {
	failure := adapters.ErrUnavailable
	w := start(t, answering(func(context.Context, search.Request) (search.Answer, error) { return search.Answer{}, failure }))
	for range 100 {
		if _, err := w.search.Search(t.Context(), question()); status.Code(err) != codes.Unavailable {
			t.Fatal(err)
		}
	}
	failure = errors.New("a fault")
	if _, err := w.search.Search(t.Context(), question()); status.Code(err) != codes.Internal {
		t.Fatal(err)
	}
	if want := []string{`"level":"ERROR"`, `"error":"a fault"`}; !hasLine(w.log.String(), want) {
		t.Errorf("no line with %v in\n%s", want, w.log)
	}
}

// TestChangesHaveAName: a log line names the caller of each change, and of each refused one.
func TestChangesHaveAName(t *testing.T) {
	w := start(t, tokensOf(t, "- {name: olga, token: first-canary, admin: true}\n- {name: shop, token: second-canary, routes: [other]}\n"))
	admin := likenessv1.NewAdminServiceClient(w.conn)
	if _, err := admin.ActivateVersion(bearing(t, "first-canary"), &likenessv1.ActivateVersionRequest{Route: "things", Version: "v2"}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.search.Search(bearing(t, "second-canary"), question()); status.Code(err) != codes.PermissionDenied {
		t.Fatal(err)
	}
	for _, want := range [][]string{
		{`"msg":"admin call"`, `"method":"/likeness.v1.AdminService/ActivateVersion"`, `"caller":"olga"`, `"peer":"127.0.0.1:`, `"route":"things"`},
		{`"msg":"call failed"`, `"method":"/likeness.v1.SearchService/Search"`, `"caller":"shop"`, `"peer":"127.0.0.1:`},
	} {
		if !hasLine(w.log.String(), want) {
			t.Errorf("no line with %v in\n%s", want, w.log)
		}
	}
}

func hasLine(log string, words []string) bool {
	for line := range strings.Lines(log) {
		found := true
		for _, word := range words {
			found = found && strings.Contains(line, word)
		}
		if found {
			return true
		}
	}
	return false
}

// TestRefusedRequestsHaveAnAddress: the log names the address of HTTP requests that never became a
// call.
func TestRefusedRequestsHaveAnAddress(t *testing.T) {
	w := start(t, tokensOf(t, "- {name: all, token: canary}\n"))
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/routes", http.NoBody)
	request.RemoteAddr = "192.0.2.7:1234"
	_, refusal := w.server.Authenticate([]string{"Bearer guess"})
	w.server.LogRefused(request, "id", refusal)
	if want := []string{`"msg":"call failed"`, `"code":"Unauthenticated"`, `"peer":"192.0.2.7:1234"`}; !hasLine(w.log.String(), want) {
		t.Errorf("no line with %v in\n%s", want, w.log)
	}
	if strings.Contains(w.log.String(), "guess") {
		t.Error("a token is in the log")
	}
	request.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{{Subject: pkix.Name{CommonName: "shop"}}}}}
	w.server.LogRefused(request, "id", server.ErrForeign)
	if want := []string{`"msg":"call failed"`, `"code":"PermissionDenied"`, `"certificate":"CN=shop"`}; !hasLine(w.log.String(), want) {
		t.Errorf("no line with %v in\n%s", want, w.log)
	}
}

// TestEachCallerHasItsLines: a caller whose calls all fail leaves room for the lines of other callers.
func TestEachCallerHasItsLines(t *testing.T) {
	w := start(t, tokensOf(t, "- {name: loud, token: first-canary, routes: [other]}\n- {name: quiet, token: second-canary, routes: [other]}\n"))
	for _, token := range append(slices.Repeat([]string{"first-canary"}, 50), "second-canary") {
		if _, err := w.search.Search(bearing(t, token), question()); status.Code(err) != codes.PermissionDenied {
			t.Fatal(err)
		}
	}
	if want := []string{`"msg":"call failed"`, `"caller":"quiet"`}; !hasLine(w.log.String(), want) {
		t.Errorf("no line with %v in\n%s", want, w.log)
	}
}

// TestReflectionNeedsAToken: who has no token does not learn what the sidecar serves.
func TestReflectionNeedsAToken(t *testing.T) {
	w := start(t, tokensOf(t, "- {name: all, token: canary}\n"))
	for ctx, want := range map[context.Context]codes.Code{t.Context(): codes.Unauthenticated, bearing(t, "canary"): codes.OK} {
		stream, err := reflectionv1.NewServerReflectionClient(w.conn).ServerReflectionInfo(ctx)
		if err == nil {
			_ = stream.Send(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}}) // Recv returns its error
			_, err = stream.Recv()
		}
		if status.Code(err) != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
