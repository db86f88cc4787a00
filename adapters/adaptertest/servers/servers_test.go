package servers_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
)

func TestMain(m *testing.M) { os.Exit(servers.Isolate(m)) }

func TestQdrantKeepsPortsAndDataOverACrash(t *testing.T) {
	defer goleak.VerifyNone(t)
	for _, version := range []string{servers.QdrantOldest, servers.QdrantNewest} {
		t.Run(version, func(t *testing.T) {
			s := servers.QdrantForTest(t, version, servers.Options{APIKey: "secret"})
			if got := get(t, s.REST+"/collections", ""); got != http.StatusUnauthorized {
				t.Errorf("without the key: status %d, want 401", got)
			}
			if got := put(t, s.REST+"/collections/c"); got != http.StatusOK {
				t.Fatalf("create a collection: status %d", got)
			}
			if err := s.Kill(); err != nil {
				t.Fatal(err)
			}
			if conn, err := net.Dial("tcp", s.Address); err == nil {
				conn.Close()
				t.Error("a killed server still accepts connections")
			}
			address := s.Address
			if err := s.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			if s.Address != address {
				t.Errorf("restarted at %s, was at %s", s.Address, address)
			}
			if got := get(t, s.REST+"/collections/c", "secret"); got != http.StatusOK {
				t.Errorf("the collection after the restart: status %d", got)
			}
			if err := s.Stop(); err != nil {
				t.Fatal(err)
			}
			if err := s.Stop(); err != nil {
				t.Errorf("stop a stopped server: %v", err)
			}
		})
	}
}

// TestQdrantWithoutItsPort: where a connection of another process has the gRPC port, Qdrant goes on
// without it. The start fails at once, so that a caller can try other ports.
func TestQdrantWithoutItsPort(t *testing.T) {
	s := servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{})
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	elsewhere, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer elsewhere.Close()
	port, err := net.ResolveTCPAddr("tcp", s.Address)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := (&net.Dialer{LocalAddr: port}).DialContext(t.Context(), "tcp", elsewhere.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := s.Restart(t.Context()); err == nil || !strings.Contains(err.Error(), "another process has its gRPC port") {
		t.Errorf("a start without the gRPC port: %v", err)
	}
}

func TestMilvusLiteStarts(t *testing.T) {
	s := servers.MilvusLiteForTest(t, servers.Options{})
	dial(t, s.Address)
	if err := s.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := s.Kill(); err != nil {
		t.Errorf("kill a hung server: %v", err)
	}
}

func TestMilvusStartsAndRestarts(t *testing.T) {
	if testing.Short() {
		t.Skip("Milvus takes several seconds to start")
	}
	s := servers.MilvusForTest(t, servers.Options{})
	dial(t, s.Address)
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	dial(t, s.Address)
}

func TestStartNamesAMissingBinary(t *testing.T) {
	_, err := servers.Qdrant(t.Context(), t.TempDir(), "0.0.1", servers.Options{})
	if !errors.Is(err, servers.ErrMissing) {
		t.Errorf("got %v, want ErrMissing", err)
	}
}

func TestStartShowsWhyAServerEnded(t *testing.T) {
	if servers.Dir() == "" {
		t.Skip(servers.EnvDir + " is not set")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := servers.Qdrant(ctx, servers.Dir(), servers.QdrantNewest, servers.Options{Env: []string{"QDRANT__SERVICE__HTTP_PORT=no-port"}})
	if err == nil {
		t.Fatal("a server with a broken configuration started")
	}
	t.Log(err)
}

func TestOptionsOfAnotherServerAreRefused(t *testing.T) {
	if _, err := servers.MilvusLite(t.Context(), "", servers.Options{APIKey: "k"}); err == nil {
		t.Error("milvus-lite took an API key")
	}
	if _, err := servers.Milvus(t.Context(), "", servers.Options{APIKey: "k"}); err == nil {
		t.Error("Milvus took an API key")
	}
	if _, err := servers.Qdrant(t.Context(), "", "", servers.Options{Authorization: true}); err == nil {
		t.Error("Qdrant took Milvus's authorization")
	}
}

func dial(t *testing.T, address string) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}

func get(t *testing.T, url, key string) int {
	t.Helper()
	return do(t, http.MethodGet, url, key, "")
}

func put(t *testing.T, url string) int {
	t.Helper()
	return do(t, http.MethodPut, url, "secret", "{}")
}

func do(t *testing.T, method, url, key, body string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Api-Key", key)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}
