package plugin

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/likenessdb/likeness/internal/authority"
	pluginv1 "github.com/likenessdb/likeness/proto/gen/likeness/plugin/v1"
	"github.com/likenessdb/likeness/rerank"
)

// TestHostsNeedACertificate of the authority that the plugin was given.
func TestHostsNeedACertificate(t *testing.T) {
	dir := t.TempDir()
	a, err := authority.New("hosts")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := a.Issue(1, "", time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	files := TLS{ClientCAFile: filepath.Join(dir, "ca.pem")}
	if files.CertFile, files.KeyFile, err = pair.Write(dir, "plugin"); err != nil {
		t.Fatal(err)
	}
	if err := authority.Write(files.ClientCAFile, a.PEM()); err != nil {
		t.Fatal(err)
	}
	c, err := files.config()
	if err != nil {
		t.Fatal(err)
	}
	if c.ClientAuth != tls.RequireAndVerifyClientCert || !c.ClientCAs.Equal(authority.Pool(a)) || c.MinVersion != tls.VersionTLS13 || len(c.Certificates) != 1 {
		t.Errorf("%+v", c)
	}
}

// TestMessagesUpToTheHostsLimit: the host says how large a request may be.
func TestMessagesUpToTheHostsLimit(t *testing.T) {
	t.Setenv(MaxMessageEnv, "6291456")
	server := newServer(nil)
	score := function{Description{Version: "1"}, func(_ context.Context, _ Query, items []Item) ([]float32, error) {
		return make([]float32, len(items)), nil
	}}
	pluginv1.RegisterScorerServiceServer(server, newScorerService(score.description, score, nil))
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	for mib, want := range map[int]error{5: nil, 7: ErrTooLarge} {
		if _, err := NewClient(conn).Score(t.Context(), Query{Text: strings.Repeat("x", mib<<20)}, []Item{{ID: rerank.UintID(1)}}); !errors.Is(err, want) {
			t.Errorf("%d MiB: %v, want %v", mib, err, want)
		}
	}
	_ = conn.Close()
	server.Stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
