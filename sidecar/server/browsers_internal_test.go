package server

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/likenessdb/likeness/sidecar/gate"
)

// TestBrowsers: which requests another site's page may have made, by their headers and
// their host.
func TestBrowsers(t *testing.T) {
	for name, c := range map[string]struct {
		checkHost bool
		method    string
		host      string
		headers   map[string]string
		refused   bool
	}{
		"a program":                       {true, "POST", "127.0.0.1:8080", nil, false},
		"by IPv6":                         {true, "POST", "[::1]:8080", nil, false},
		"by IPv6 without a port":          {true, "POST", "[::1]", nil, false},
		"by localhost":                    {true, "POST", "localhost:8080", nil, false},
		"by a name of ours":               {true, "POST", "Search.Example:8080", nil, false},
		"with a dot at the end":           {true, "POST", "search.example.", nil, false},
		"by another name":                 {true, "POST", "evil.example:8080", nil, true},
		"by a name that begins with ours": {true, "POST", "search.example.evil", nil, true},
		"by no name":                      {true, "POST", "", nil, true},
		"with credentials, by any name":   {false, "POST", "evil.example", nil, false},
		"from another site":               {false, "POST", "127.0.0.1", map[string]string{"Sec-Fetch-Site": "cross-site"}, true},
		"from another port":               {false, "POST", "127.0.0.1", map[string]string{"Sec-Fetch-Site": "same-site"}, true},
		"from another origin":             {false, "POST", "127.0.0.1", map[string]string{"Origin": "https://evil.example"}, true},
		"from our own page":               {false, "POST", "127.0.0.1", map[string]string{"Sec-Fetch-Site": "same-origin"}, false},
		"an image of another site":        {false, "GET", "127.0.0.1", map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, true},
		"an image of another port":        {false, "GET", "127.0.0.1", map[string]string{"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"}, true},
		"a link on another site":          {false, "GET", "127.0.0.1", map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, false},
	} {
		r := httptest.NewRequest(c.method, "/", nil)
		r.Host = c.host
		for key, value := range c.headers {
			r.Header.Set(key, value)
		}
		b := NewBrowsers(c.checkHost, "search.EXAMPLE")
		if err := b.Check(r); errors.Is(err, ErrForeign) != c.refused {
			t.Errorf("%s: err = %v, want refused: %v", name, err, c.refused)
		}
		answer := httptest.NewRecorder()
		b.Before(http.NotFoundHandler()).ServeHTTP(answer, r)
		if want := map[bool]int{true: http.StatusForbidden, false: http.StatusNotFound}[c.refused]; answer.Code != want {
			t.Errorf("%s: status %d, want %d", name, answer.Code, want)
		}
	}
}

// TestGuard: who may ask the admin port.
func TestGuard(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens.yaml")
	text := "- {name: admin, token: admin-canary, admin: true}\n- {name: some, token: some-canary, routes: [r]}\n" +
		"- {name: all, token: all-canary}\n- {name: narrow, token: narrow-canary, admin: true, routes: [r]}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	g, err := NewGuard(slog.New(slog.DiscardHandler), file)
	if err != nil {
		t.Fatal(err)
	}
	g.Open = []string{"/healthz"}
	for name, c := range map[string]struct {
		path, token string
		want        int
	}{
		"an open path":                {"/healthz", "", http.StatusNotFound},
		"below an open path":          {"/healthz/x", "", http.StatusUnauthorized},
		"no token":                    {"/metrics", "", http.StatusUnauthorized},
		"another token":               {"/metrics", "x", http.StatusUnauthorized},
		"an admin":                    {"/metrics", "admin-canary", http.StatusNotFound},
		"a caller of a route":         {"/metrics", "some-canary", http.StatusForbidden},
		"a caller of all routes":      {"/metrics", "all-canary", http.StatusForbidden},
		"an admin of one route alone": {"/metrics", "narrow-canary", http.StatusForbidden},
	} {
		r := httptest.NewRequest(http.MethodGet, c.path, nil)
		if c.token != "" {
			r.Header.Set("Authorization", "Bearer "+c.token)
		}
		answer := httptest.NewRecorder()
		g.Before(http.NotFoundHandler()).ServeHTTP(answer, r)
		if answer.Code != c.want || (answer.Header().Get("WWW-Authenticate") == "Bearer") != (c.want == http.StatusUnauthorized) {
			t.Errorf("%s: status %d, want %d; %v", name, answer.Code, c.want, answer.Header())
		}
	}
	byCertificate := &Guard{Certificates: true, Open: []string{"/healthz"}}
	for name, c := range map[string]struct {
		tls  *tls.ConnectionState
		path string
		want int
	}{
		"without TLS":           {nil, "/metrics", http.StatusUnauthorized},
		"without a certificate": {&tls.ConnectionState{}, "/metrics", http.StatusUnauthorized},
		"with one":              {&tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{}}}, "/metrics", http.StatusNotFound},
		"an open path":          {nil, "/healthz", http.StatusNotFound},
	} {
		r := httptest.NewRequest(http.MethodGet, c.path, nil)
		r.TLS = c.tls
		answer := httptest.NewRecorder()
		byCertificate.Before(http.NotFoundHandler()).ServeHTTP(answer, r)
		if answer.Code != c.want {
			t.Errorf("%s: status %d, want %d", name, answer.Code, c.want)
		}
	}
}

// TestRefusedFilesAreLeftAlone: a file that cannot be used is not read at every call, but once in a
// while, even if it looks the same.
func TestRefusedFilesAreLeftAlone(t *testing.T) {
	file, reads := filepath.Join(t.TempDir(), "f"), 0
	w, err := watch(slog.New(slog.DiscardHandler), func() (int, error) {
		if reads++; reads == 1 {
			return 7, nil
		}
		return 0, errors.New("half written")
	}, file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if got := w.get(); got != 7 {
			t.Fatalf("the content in force is %d, want 7", got)
		}
	}
	if reads != 2 {
		t.Errorf("read %d times, want once at first and once since the file changed", reads)
	}
	w.again = time.Now()
	if w.get(); reads != 3 {
		t.Errorf("read %d times after a while, want 3", reads)
	}
}

// TestCallerDigest: a caller has a token or its SHA-256, and not both; the token itself is
// not kept.
func TestCallerDigest(t *testing.T) {
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte("canary")))
	for name, c := range map[string]struct {
		caller Caller
		ok     bool
	}{
		"a token":              {Caller{Name: "a", Token: "canary"}, true},
		"a digest":             {Caller{Name: "a", SHA256: sum}, true},
		"a digest in capitals": {Caller{Name: "a", SHA256: strings.ToUpper(sum)}, true},
		"no name":              {Caller{Token: "canary"}, false},
		"neither":              {Caller{Name: "a"}, false},
		"both":                 {Caller{Name: "a", Token: "canary", SHA256: sum}, false},
		"a short digest":       {Caller{Name: "a", SHA256: sum[:62]}, false},
		"half a byte short":    {Caller{Name: "a", SHA256: sum[:63]}, false},
		"a long digest":        {Caller{Name: "a", SHA256: sum + "00"}, false},
		"no hex":               {Caller{Name: "a", SHA256: "z" + sum[1:]}, false},
	} {
		d, err := c.caller.digest()
		if (err == nil) != c.ok || c.ok && (d.sum != sha256.Sum256([]byte("canary")) || d.caller != &c.caller || c.caller.Token != "") {
			t.Errorf("%s: %x, %v", name, d.sum, err)
		}
	}
}

// TestFind: a token is known by its whole digest.
func TestFind(t *testing.T) {
	sum := sha256.Sum256([]byte("canary"))
	var known tokens
	for i := range sum {
		d := digest{sum: sum, caller: &Caller{Name: "other"}}
		d.sum[i] ^= 1
		known.callers = append(known.callers, d)
	}
	if c := known.find("canary"); c != nil {
		t.Errorf("a digest that differs in one bit is taken for that of %q", c.Name)
	}
	known.callers = append(known.callers, digest{sum: sum, caller: &Caller{Name: "one"}})
	if c := known.find("canary"); c == nil || c.Name != "one" {
		t.Errorf("the token is of %+v", c)
	}
}

// TestRefusals: a caller is told why its own call was refused.
func TestRefusals(t *testing.T) {
	var s services
	full, large := fmt.Errorf("%w: no place", gate.ErrOverload), fmt.Errorf("%w: 9 bytes", gate.ErrTooLarge)
	for _, err := range []error{full, full, large, full} {
		r := s.refusalOf(err)
		if want := statusOf(err).Proto(); !proto.Equal(r.status, want) {
			t.Errorf("%v is refused with %v, want %v", err, r.status, want)
		}
		if again := s.refusalOf(err); again != r {
			t.Errorf("the status of %v was made twice", err)
		}
	}
}
