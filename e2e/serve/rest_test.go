package serve_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/serve"
)

// withREST is base with JSON over HTTP, and more of its own.
func withREST(more string) string {
	return strings.Replace(base, `admin: "127.0.0.1:0"`, `admin: "127.0.0.1:0", rest: "127.0.0.1:0"`+more, 1)
}

// exchange is a request and what is to come back.
type exchange struct {
	name, method, path, body string
	header                   map[string]string
	status                   int
	// want is in the answer's body.
	want []string
	// head are headers of the answer; "*" is any value.
	head map[string]string
}

func (e exchange) check(t *testing.T, client *http.Client, base string) {
	t.Helper()
	method := e.method
	if method == "" {
		method = http.MethodPost
	}
	r, err := http.NewRequestWithContext(t.Context(), method, base+e.path, strings.NewReader(e.body))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range e.header {
		r.Header.Set(name, value)
		if name == "Host" {
			r.Host = value
		}
	}
	answer, err := client.Do(r)
	if err != nil {
		t.Fatalf("%s: %v", e.name, err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatalf("%s: %v", e.name, err)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, text); err != nil {
		t.Errorf("%s: the answer is not JSON: %q", e.name, text)
	}
	if answer.StatusCode != e.status {
		t.Errorf("%s: %s, want %d: %s", e.name, answer.Status, e.status, text)
	}
	for _, want := range e.want {
		if !strings.Contains(compact.String(), want) {
			t.Errorf("%s: want %s in %s", e.name, want, &compact)
		}
	}
	for name, want := range e.head {
		if got := answer.Header.Get(name); got != want && (want != "*" || got == "") {
			t.Errorf("%s: header %s is %q, want %q", e.name, name, got, want)
		}
	}
	if answer.Header.Get("X-Request-Id") == "" {
		t.Errorf("%s: no X-Request-Id", e.name)
	}
}

func plainClient() *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
}

func zipped(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, text)
	_ = w.Close()
	return b.String()
}

const searchThings = "/v1/routes/things:search"

// TestREST asks every path, and everything that is wrong with a request.
func TestREST(t *testing.T) {
	s := start(t, strings.Replace(withREST(""), "stores:", "limits: {max_message_bytes: 4096}\nstores:", 1), true)
	at := "http://" + s.at.REST
	for _, e := range []exchange{
		{
			name: "search", path: searchThings, body: `{"query":{"vector":[1,2]},"k":2,"payload":{}}`, status: 200,
			want: []string{`"hits":[{"id":{"text":"c"},"score":3,`, `"payload_json":"{\"group\": \"x\"}"`, `"status":"CERTIFICATE_STATUS_EXACT"`, `"candidates":"3"`},
			head: map[string]string{"Content-Type": "application/json", "Likeness-Status": ""},
		},
		{
			name: "names of both forms, and an id", path: searchThings, body: `{"query":{"vector":[1,2],"userId":null},"k":1,"averageDepth":"5"}`,
			status: 200, header: map[string]string{"X-Request-Id": "mine"}, head: map[string]string{"X-Request-Id": "mine"},
		},
		{
			name: "batch", path: "/v1/search:batch", body: `{"searches":[{"route":"things","query":{"vector":[1,2]},"k":1},{"route":"none","query":{"vector":[1]},"k":1}]}`, status: 200,
			want: []string{`"results":[{"response":{"hits":[{"id":{"text":"c"}`, `{"error":{"code":5,"message":"route not found`},
		},
		{
			name: "score", path: "/v1/routes/things:score", body: `{"query":{"vector":[1,2]},"ids":{"ids":[{"text":"a"},{"text":"zz"}]}}`, status: 200,
			want: []string{`"scores":[1,"NaN"]`, `"missing":[{"text":"zz"}]`},
		},
		{
			name: "explain", path: "/v1/routes/things:explain", body: `{"query":{"vector":[1,2]},"ids":{"ids":[{"text":"b"}]}}`, status: 200,
			want: []string{`"explanations":[{"score":2,"terms":[`},
		},
		{name: "routes", method: "GET", path: "/v1/routes", status: 200, want: []string{`"name":"things"`}},
		{name: "route", method: "GET", path: "/v1/routes/things", status: 200, want: []string{`"collection":"things"`}},
		{name: "models", method: "GET", path: "/v1/models", status: 200, want: []string{`"kind":"dot"`}},
		{name: "model", method: "GET", path: "/v1/models/plain", status: 200, want: []string{`"query_dim":2`}},
		{name: "versions", method: "GET", path: "/v1/routes/things/versions", status: 200, want: []string{`"versions":[`}},
		{name: "nothing to go back to", path: "/v1/routes/things:rollBack", body: `{}`, status: 400, want: []string{`"code":9`, `NO_PREVIOUS_VERSION`}},
		{name: "schema", method: "GET", path: "/openapi.json", status: 200, want: []string{`"/v1/routes/{route}:search"`}},
		{name: "health", method: "GET", path: "/healthz", status: 200, want: []string{`"status":"SERVING"`}},
		{name: "health of a route", method: "GET", path: "/healthz?service=route/things", status: 200, want: []string{`"status":"SERVING"`}},
		{name: "health of no route", method: "GET", path: "/healthz?service=route/none", status: 404, want: []string{`"code":5`}},
		{name: "health of no text", method: "GET", path: "/healthz?service=%ff", status: 400},
		{name: "health is read", path: "/healthz", body: `{}`, status: 405, want: []string{`PATH_NOT_FOUND`}},
		{name: "gzip", path: searchThings, body: zipped(`{"query":{"vector":[1,2]},"k":1}`), header: map[string]string{"Content-Encoding": "gzip"}, status: 200},

		{name: "no route", path: "/v1/routes/none:search", body: `{"query":{"vector":[1,2]},"k":1}`, status: 404, want: []string{`"code":5`, `"reason":"ROUTE_NOT_FOUND"`}},
		{
			name: "a field out of range", path: searchThings, body: `{"query":{"vector":[1,2]},"k":-1}`, status: 400,
			want: []string{`"code":3`, `"@type":"type.googleapis.com/google.rpc.BadRequest"`, `"field":"k"`},
		},
		{name: "not finite", path: searchThings, body: `{"query":{"vector":["NaN",2]},"k":1}`, status: 400, want: []string{`query.vector[0]`}},
		{name: "no such field", path: searchThings, body: `{"query":{"vector":[1,2]},"k":1,"dept":3}`, status: 400, want: []string{`MESSAGE_INVALID`, `unknown field \"dept\"`}},
		{name: "not JSON", path: searchThings, body: `k=3`, status: 400, want: []string{`MESSAGE_INVALID`}},
		{name: "two messages", path: searchThings, body: `{} {}`, status: 400, want: []string{`MESSAGE_INVALID`}},
		{name: "no body", path: searchThings, status: 400, want: []string{`FIELD_INVALID`}},
		{name: "no such path", path: "/v1/search", body: `{}`, status: 404, want: []string{`PATH_NOT_FOUND`, `POST /v1/search:batch, `}},
		{name: "no such method", method: "DELETE", path: searchThings, status: 405, want: []string{`PATH_NOT_FOUND`}},
		{name: "another method by header", method: "GET", path: searchThings, header: map[string]string{"X-Http-Method-Override": "POST"}, status: 404, want: []string{`ROUTE_NOT_FOUND`}},
		{name: "too large", path: searchThings, body: strings.Repeat(" ", 4097), status: 413, want: []string{`"code":8`, `MESSAGE_TOO_LARGE`}},
		{name: "too large inside", path: searchThings, body: zipped(strings.Repeat(" ", 1<<20)), header: map[string]string{"Content-Encoding": "gzip"}, status: 413, want: []string{`MESSAGE_TOO_LARGE`}},
		{name: "not gzip", path: searchThings, body: `{}`, header: map[string]string{"Content-Encoding": "gzip"}, status: 400, want: []string{`MESSAGE_INVALID`}},
		{name: "brotli", path: searchThings, body: `{}`, header: map[string]string{"Content-Encoding": "br"}, status: 415, want: []string{`gzip`}},
		{name: "no time", path: searchThings, body: `{"query":{"vector":[1,2]},"k":1}`, header: map[string]string{"Grpc-Timeout": "1n"}, status: 504, want: []string{`DEADLINE_EXCEEDED`}},
		{name: "not a time", path: searchThings, body: `{"query":{"vector":[1,2]},"k":1}`, header: map[string]string{"Grpc-Timeout": "soon"}, status: 400, want: []string{`timeout`}},
		{name: "another site's page", path: "/v1/routes/things:rollBack", body: `{}`, header: map[string]string{"Sec-Fetch-Site": "cross-site"}, status: 403, want: []string{`CROSS_ORIGIN`}},
		{name: "another site's name", method: "GET", path: "/v1/routes", header: map[string]string{"Host": "example.com"}, status: 403, want: []string{`CROSS_ORIGIN`}},
	} {
		e.check(t, plainClient(), at)
	}
	if _, metrics := s.get(t, "/metrics"); !strings.Contains(metrics, `likeness_rpc_calls_total{code="OK",method="likeness.v1.SearchService/Search"}`) ||
		!strings.Contains(metrics, `likeness_rpc_calls_total{code="NotFound",method="rest"}`) {
		t.Error("the metrics do not have the calls")
	}
	s.stop()
	if err := s.wait(); err != nil {
		t.Errorf("Run: %v", err)
	}
}

// TestRESTSecured: REST requires the same tokens and certificates as the gRPC API, over HTTP/1 and
// HTTP/2.
func TestRESTSecured(t *testing.T) {
	dir := t.TempDir()
	roots := certificate(t, dir)
	tokens := filepath.Join(dir, "tokens.yaml")
	if err := os.WriteFile(tokens, []byte("- {name: shop, token: open, routes: [things]}\n- {name: other, token: shut, routes: [none]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, withREST(fmt.Sprintf(", auth: {tokens_file: %q}, tls: {cert_file: %q, key_file: %q}",
		tokens, filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"))), true)
	at := "https://" + s.at.REST
	search := `{"query":{"vector":[1,2]},"k":1}`
	rerank, rerankTEI := `{"model":"things","query":"x","documents":["x"]}`, `{"query":"x","texts":["x"]}`
	for _, http2 := range []bool{false, true} {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: http2}
		client := &http.Client{Transport: transport}
		for _, e := range []exchange{
			{name: "a token", path: searchThings, body: search, header: map[string]string{"Authorization": "Bearer open"}, status: 200},
			{name: "of another route", path: searchThings, body: search, header: map[string]string{"Authorization": "Bearer shut"}, status: 403, want: []string{`ROUTE_FORBIDDEN`}},
			{name: "no admin", path: "/v1/routes/things:rollBack", body: `{}`, header: map[string]string{"Authorization": "Bearer open"}, status: 403, want: []string{`ADMIN_FORBIDDEN`}},
			{name: "none", path: searchThings, body: search, status: 401, want: []string{`TOKEN_INVALID`}, head: map[string]string{"WWW-Authenticate": "Bearer"}},
			{name: "wrong", path: searchThings, body: search, header: map[string]string{"Authorization": "Bearer guess"}, status: 401},
			{name: "rerank", path: "/v2/rerank", body: rerank, header: map[string]string{"Authorization": "Bearer open"}, status: 400, want: []string{`"message":"request not valid: documents: \"x\" is no id, and route \"things\" has no embedder`}},
			{name: "rerank of another route", path: "/v1/rerank", body: rerank, header: map[string]string{"Authorization": "Bearer shut"}, status: 403, want: []string{`ROUTE_FORBIDDEN`, `"message":"`}},
			{name: "rerank by the only route", path: "/rerank", body: rerankTEI, header: map[string]string{"Authorization": "Bearer open"}, status: 400, want: []string{`"error":"request not valid: documents: `, `"error_type":"Validation"`}},
			{name: "rerank by no route", path: "/rerank", body: rerankTEI, header: map[string]string{"Authorization": "Bearer shut"}, status: 400, want: []string{`there are 0 routes`}},
			{name: "rerank of nobody", path: "/v2/rerank", body: rerank, status: 401, want: []string{`TOKEN_INVALID`}},
			{name: "the schema", method: "GET", path: "/openapi.json", status: 200},
			{name: "health", method: "GET", path: "/healthz", status: 200},
		} {
			e.check(t, client, at)
		}
		transport.CloseIdleConnections()
	}
	exchange{name: "plain text"}.refused(t, "http://"+s.at.REST)
	s.stop()
	if err := s.wait(); err != nil {
		t.Errorf("Run: %v", err)
	}
}

// refused wants an answer other than success, or none.
func (e exchange) refused(t *testing.T, base string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/openapi.json", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if answer, err := plainClient().Do(r); err == nil {
		_ = answer.Body.Close()
		if answer.StatusCode == http.StatusOK {
			t.Errorf("%s: %s", e.name, answer.Status)
		}
	}
}

// FuzzREST sends arbitrary paths and bodies: the answer is JSON, and never a
// fault of the sidecar.
func FuzzREST(f *testing.F) {
	f.Add("/v1/routes/things:search", `{"query":{"vector":[1,2]},"k":2,"payload":{"fields":["group"]}}`)
	f.Add("/v1/search:batch", `{"searches":[{"route":"things","query":{"vector":[1e39,2]},"k":1}]}`)
	f.Add("/v1/routes/%ff:explain", `{"query":{"context":{"a":"Infinity"}},"ids":{"ids":[{"number":"18446744073709551616"}]}}`)
	f.Add("/v1/routes/things:score", `{"vectors":{"vectors":[{"values":[null]}]},"query":{}}`)
	f.Add("v1/routes/\xc2:search", `{"query":{"vector":[1,2]},"k":2}`) // no UTF-8, and not escaped
	c, err := config.Load(config.Source{File: files(f, withREST("")), Environ: []string{}})
	if err != nil {
		f.Fatal(err)
	}
	ctx, stop := context.WithCancel(f.Context())
	ready, ended := make(chan serve.Addresses, 1), make(chan error, 1)
	go func() {
		ended <- serve.Run(ctx, c, serve.Options{Logger: slog.New(slog.DiscardHandler), Ready: func(at serve.Addresses) { ready <- at }})
	}()
	at := <-ready
	transport := &http.Transport{}
	client := &http.Client{Transport: transport}
	f.Cleanup(func() {
		transport.CloseIdleConnections()
		stop()
		if err := <-ended; err != nil {
			f.Error(err)
		}
	})
	f.Fuzz(func(t *testing.T, path, body string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+at.REST, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.URL.Opaque = "//" + at.REST + "/" + strings.TrimPrefix(path, "/")
		if strings.ContainsAny(path, "\r\n \t\x00") || strings.HasPrefix(path, "//") {
			t.Skip("not a line of HTTP")
		}
		answer, err := client.Do(r)
		if err != nil {
			t.Skip(err) // the client does not send it
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		if answer.StatusCode >= http.StatusInternalServerError {
			t.Errorf("%s %q: %s %s", path, body, answer.Status, text)
		}
		if strings.HasPrefix(answer.Header.Get("Content-Type"), "application/json") && !json.Valid(text) {
			t.Errorf("%s %q: not JSON: %q", path, body, text)
		}
	})
}
