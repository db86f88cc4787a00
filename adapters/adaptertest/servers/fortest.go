package servers

import (
	"testing"
)

// QdrantForTest starts a Qdrant server that stops when the test ends. It skips the
// test if LIKENESS_SERVERS is not set, and fails it if the server does not start. If
// the test fails, it logs the server's output.
func QdrantForTest(t testing.TB, version string, o Options) *Server {
	t.Helper()
	return forTest(t, func() (*Server, error) { return Qdrant(t.Context(), Dir(), version, o) })
}

// MilvusLiteForTest starts milvus-lite in the manner of QdrantForTest.
func MilvusLiteForTest(t testing.TB, o Options) *Server {
	t.Helper()
	return forTest(t, func() (*Server, error) { return MilvusLite(t.Context(), Dir(), o) })
}

// NewestMilvusLiteForTest starts the newest milvus-lite in the manner of QdrantForTest.
func NewestMilvusLiteForTest(t testing.TB, o Options) *Server {
	t.Helper()
	return forTest(t, func() (*Server, error) { return NewestMilvusLite(t.Context(), Dir(), o) })
}

// MilvusForTest starts a standalone Milvus in the manner of QdrantForTest. It needs a
// TestMain that calls Isolate, and skips the test if the machine permits no network
// namespace.
func MilvusForTest(t testing.TB, o Options) *Server {
	t.Helper()
	if Dir() != "" {
		if ok, reason := Isolated(); !ok {
			t.Skipf("Milvus listens on every interface and is started in a network namespace only: %s", reason)
		}
	}
	return forTest(t, func() (*Server, error) { return Milvus(t.Context(), Dir(), o) })
}

func forTest(t testing.TB, start func() (*Server, error)) *Server {
	t.Helper()
	if Dir() == "" {
		t.Skipf("%s is not set: run `make servers` and set it to .cache/servers, or run `make test`", EnvDir)
	}
	s, err := start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s %s wrote:\n%s", s.Name, s.Version, s.Log())
		}
		if err := s.Close(); err != nil {
			t.Errorf("close %s: %v", s.Name, err)
		}
	})
	return s
}
