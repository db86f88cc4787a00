package jsonhttp_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/likenessdb/likeness/internal/jsonhttp"
)

var kinds = jsonhttp.Errors{Unavailable: errors.New("unavailable"), TooLarge: errors.New("too large"), Request: errors.New("request"), Answer: errors.New("answer")}

// client returns a client of a service that answers by a handler.
func client(t *testing.T, token string, handle http.HandlerFunc) *jsonhttp.Client {
	t.Helper()
	service := httptest.NewServer(handle)
	t.Cleanup(service.Close)
	c, err := jsonhttp.New(jsonhttp.Options{URL: service.URL + "/rank", Token: token, Parallel: 1, Errors: kinds})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// TestPost: a text is sent as it is, of the length that the limit of the answer is told, with the token.
func TestPost(t *testing.T) {
	var body, method, path string
	var header http.Header
	c := client(t, "canary", func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		body, method, path, header = string(b), r.Method, r.URL.Path, r.Header
		_, _ = io.WriteString(w, "[1]")
	})
	told := 0
	reply, err := c.Post(t.Context(), map[string]string{"text": "a & <b>"}, 1, func(size int) int { told = size; return 3 })
	if want := `{"text":"a & <b>"}` + "\n"; err != nil || string(reply) != "[1]" || body != want || told != len(want) || method != http.MethodPost || path != "/rank" {
		t.Errorf("%s of %d bytes is sent by %s to %s; %q, %v", body, told, method, path, reply, err)
	}
	for name, want := range map[string]string{"Authorization": "Bearer canary", "Content-Type": "application/json", "Accept": "application/json"} {
		if got := header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// TestRefusedReplies: a reply beyond its limit is no answer, and nobody is redirected with a token.
func TestRefusedReplies(t *testing.T) {
	visits := 0
	c := client(t, "canary", func(w http.ResponseWriter, r *http.Request) {
		if visits++; r.URL.Path == "/rank" && r.Method == http.MethodPost {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
			return
		}
		_, _ = io.WriteString(w, "four")
	})
	if _, err := c.Post(t.Context(), 1, 1, func(int) int { return 100 }); err == nil || visits != 1 {
		t.Errorf("a redirect: %v after %d requests", err, visits)
	}
	if _, reply, err := c.Get(t.Context(), "/info", 4); err != nil || string(reply) != "four" {
		t.Errorf("%q, %v", reply, err)
	}
	if _, _, err := c.Get(t.Context(), "/info", 3); !errors.Is(err, kinds.Answer) {
		t.Errorf("a reply that is too long: %v", err)
	}
}
