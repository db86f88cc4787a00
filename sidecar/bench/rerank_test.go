package bench_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/sidecar/bench"
)

// TestRerankOfAnotherPort: a URL without the rerank API, such as an admin port's, gets the remedy.
func TestRerankOfAnotherPort(t *testing.T) {
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	_, err := bench.Rerank{URL: other.URL, Route: "r", Query: "q", Calls: 1}.Run(t.Context(), other.Client())
	if err == nil || !strings.Contains(err.Error(), "give the URL of listen.rest") {
		t.Errorf("%v", err)
	}
}
