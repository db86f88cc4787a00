package serve_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/internal/authority"
)

func TestProxyOverTLS(t *testing.T) {
	db := servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{APIKey: key})
	fill(t, connect(t, db.Address))
	dir := t.TempDir()
	roots := certificate(t, dir)
	at := startSidecar(t, fmt.Sprintf(`
stores: {main: {kind: qdrant, address: %q, api_key_env: QDRANT_KEY}}
routes: {things: {store: main, collection: routed, model: w, placement: stored, exact_search: true, depth: 20}}
proxy:
  store: main
  listen_grpc: "127.0.0.1:0"
  listen_rest: "127.0.0.1:0"
  rest_url: %q
  tls: {cert_file: %q, key_file: %q}
`, db.Address, db.REST, filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")))
	secure := &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	conn, err := grpc.NewClient(at.Proxy.GRPC, grpc.WithTransportCredentials(credentials.NewTLS(secure)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var trailer metadata.MD
	search := &qdrant.SearchPoints{CollectionName: "routed", Vector: query, Limit: 5}
	if _, err := qdrant.NewPointsClient(conn).Search(asUser(t.Context()), search, grpc.Trailer(&trailer)); err != nil {
		t.Fatal(err)
	}
	rescored(t, trailer.Get("likeness-status"))
	if _, err := qdrant.NewPointsClient(connect(t, at.Proxy.GRPC)).Search(asUser(t.Context()), search); status.Code(err) != codes.Unavailable {
		t.Errorf("in plain text: %v", err)
	}
	for _, http2 := range []bool{false, true} {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: secure.Clone(), ForceAttemptHTTP2: http2}}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+at.Proxy.REST+"/collections/routed/points/search", strings.NewReader(`{"vector":[1,-2,0.5,3],"limit":5}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Api-Key", key)
		answer, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		client.CloseIdleConnections()
		if (answer.ProtoMajor == 2) != http2 || answer.StatusCode != http.StatusOK {
			t.Errorf("HTTP/%d, %s", answer.ProtoMajor, answer.Status)
		}
		rescored(t, answer.Header.Values("Likeness-Status"))
	}
}

// certificate writes cert.pem and key.pem of 127.0.0.1 to dir.
func certificate(t *testing.T, dir string) *x509.CertPool {
	t.Helper()
	ca, err := authority.New("authority")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Issue(2, "", time.Now().Add(time.Hour))
	if err == nil {
		err = errors.Join(authority.Write(filepath.Join(dir, "cert.pem"), pair.Cert), authority.Write(filepath.Join(dir, "key.pem"), pair.Key))
	}
	if err != nil {
		t.Fatal(err)
	}
	return authority.Pool(ca)
}
