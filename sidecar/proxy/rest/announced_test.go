package rest_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/internal/cost"
	"github.com/likenessdb/likeness/sidecar/proxy/rest"
)

// A body that is announced takes memory as it comes, also where nothing bounds all of them.
func TestAnnouncedBodiesTakeMemoryAsTheyCome(t *testing.T) {
	s, err := rest.NewServer(rest.Options{Upstream: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	const announced, most = 32 << 20, 256 << 10
	allocated := cost.Allocated(func() {
		r := httptest.NewRequest(http.MethodPost, "/collections/c/points/search", io.MultiReader(strings.NewReader(strings.Repeat(" ", 100)), failing{}))
		r.ContentLength = announced
		s.ServeHTTP(httptest.NewRecorder(), r)
	})
	if allocated > most {
		t.Errorf("%d bytes were allocated for 100 of %d, at most %d", allocated, announced, most)
	}
}

// failing is the end of a body whose client has left.
type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
