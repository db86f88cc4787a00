package serve_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
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
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"cert.pem": {Type: "CERTIFICATE", Bytes: der}, "key.pem": {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	return roots
}
