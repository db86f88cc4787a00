package proxy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/sidecar/proxy"
)

// isolated runs the tests in a network namespace, which Milvus needs.
type isolated struct{ *testing.M }

func (m isolated) Run() int { return servers.Isolate(m.M) }

func TestMain(m *testing.M) { goleak.VerifyTestMain(isolated{m}) }

// start runs a proxy until the test ends.
func start(t testing.TB, o proxy.Options) proxy.Addresses {
	t.Helper()
	o.Logger, o.Grace = slog.New(slog.DiscardHandler), 20*time.Second
	if o.GRPC.Upstream != "" {
		o.GRPC.Listen = "127.0.0.1:0"
	}
	if o.REST.Upstream != "" {
		o.REST.Listen = "127.0.0.1:0"
	}
	p, err := proxy.Listen(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return p.Addresses()
}

// startREST runs a proxy for REST.
func startREST(t *testing.T, s *servers.Server) (base string) {
	t.Helper()
	return "http://" + start(t, proxy.Options{REST: proxy.Endpoint{Upstream: s.REST}}).REST
}

// eachQdrant runs a test on the oldest and the newest Qdrant.
func eachQdrant(t *testing.T, o servers.Options, test func(t *testing.T, s *servers.Server)) {
	t.Helper()
	for _, version := range []string{servers.QdrantOldest, servers.QdrantNewest} {
		t.Run(version, func(t *testing.T) { test(t, servers.QdrantForTest(t, version, o)) })
	}
}

// step is a request; {c} in it is a collection's name.
type step struct{ method, path, body string }

var restSteps = []step{
	{"GET", "/", ""},
	{"GET", "/collections/{c}", ""},
	{"PUT", "/collections/{c}", `{"vectors":{"size":4,"distance":"Dot"}}`},
	{"PUT", "/collections/{c}", `{"vectors":{"size":4,"distance":"Dot"}}`},
	{"PUT", "/collections/{c}/points?wait=true", `{"points":[{"id":18446744073709551615,"vector":[1,2,3,4],"payload":{"n":9223372036854775807,"f":1e308,"t":"<&>\u0000 ü","":[null,true,{}]}},{"id":"5c56c793-69f3-4fbf-87e6-c4bf54c28c26","vector":[0.1,0,-0.0,1e-30]},{"id":3,"vector":[1,1,1,1]}]}`},
	{"POST", "/collections/{c}/points/search", `{"vector":[1,2,3,4],"limit":3,"with_payload":true,"with_vector":true}`},
	{"POST", "/collections/{c}/points/search", `{"vector":[1,2],"limit":3}`},
	{"POST", "/collections/{c}/points/search", `{"vector":[1,2,3,4],"limit":3,"tomorrow":{"x":1}}`},
	{"POST", "/collections/{c}/points/search", `{"vector":[1,2,3,4],"limit":`},
	{"POST", "/collections/{c}/points/search?timeout=bad", `{"vector":[1,2,3,4],"limit":3}`},
	{"POST", "/collections/{c}/points/query", `{"query":[1,2,3,4],"limit":2,"filter":{"must":[{"key":"n","match":{"value":9223372036854775807}}]}}`},
	{"POST", "/collections/{c}/points/query/batch", `{"searches":[{"query":3,"limit":1},{"query":{"fusion":"rrf"},"prefetch":[{"query":[1,2,3,4]}],"limit":2}]}`},
	{"POST", "/collections/{c}/points/recommend", `{"positive":[3],"limit":2}`},
	{"POST", "/collections/{c}/points/scroll", `{"limit":10,"with_vector":true}`},
	{"POST", "/collections/{c}/points/count", ""},
	{"POST", "/collections/{c}/points/count", "{}"},
	{"POST", "/collections/{c}/points", `{"ids":[18446744073709551615,7]}`},
	{"GET", "/collections/{c}/points/18446744073709551615", ""},
	{"GET", "/collections/{c}/points/18446744073709551616", ""},
	{"GET", "/collections/{c}/", ""},
	{"GET", "//collections/{c}", ""},
	{"GET", "/collections/{c}//points", ""},
	{"GET", "/nowhere/{c}", ""},
	{"PURGE", "/collections/{c}", ""},
	{"HEAD", "/collections/{c}", ""},
	{"OPTIONS", "/collections/{c}", ""},
	{"GET", "/metrics?nothing={c}", ""},
	{"GET", "/healthz", ""},
	{"PUT", "/collections/{c}/index?wait=true", `{"field_name":"n","field_schema":"integer"}`},
	{"POST", "/collections/{c}/points/payload?wait=true", `{"payload":{"a":1},"points":[3]}`},
	{"POST", "/collections/{c}/points/delete?wait=true", `{"points":[3]}`},
	{"POST", "/collections/{c}/facet", `{"key":"n"}`},
	{"POST", "/collections/aliases", `{"actions":[{"create_alias":{"collection_name":"{c}","alias_name":"other-{c}"}}]}`},
	{"GET", "/collections/other-{c}/exists", ""},
	{"PATCH", "/collections/{c}", `{"optimizers_config":{"indexing_threshold":10}}`},
	{"DELETE", "/collections/{c}", ""},
	{"DELETE", "/collections/{c}", ""},
}

// answer is a REST answer as a client sees it.
type answer struct {
	status int
	header string
	body   string
}

func (s step) do(t *testing.T, base, collection, key string) answer {
	t.Helper()
	named := strings.NewReplacer("{c}", collection)
	r, err := http.NewRequestWithContext(t.Context(), s.method, base+named.Replace(s.path), strings.NewReader(named.Replace(s.body)))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Api-Key", key)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true}}
	got, err := client.Do(r)
	if err != nil {
		t.Fatalf("%s %s: %v", s.method, s.path, err)
	}
	defer got.Body.Close()
	b, err := io.ReadAll(got.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", s.method, s.path, err)
	}
	for _, name := range []string{"Date", "Connection", "Content-Length", "Access-Control-Allow-Methods"} {
		got.Header.Del(name) // one connection's, or in random order
	}
	if s.path == "/metrics?nothing={c}" || got.Header.Get("Content-Type") == "" && len(b) == 0 {
		b = nil
	}
	return answer{got.StatusCode, fmt.Sprint(got.Header), strings.ReplaceAll(normalised(b), collection, "{c}")}
}

// normalised removes the parts in which two direct answers differ: the time, the usage, and the
// order of payload keys.
func normalised(b []byte) string {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var object map[string]any
	if err := d.Decode(&object); err != nil {
		return string(b)
	}
	delete(object, "time")
	delete(object, "usage")
	out, err := json.Marshal(object)
	if err != nil {
		return err.Error()
	}
	return string(out)
}

func TestQdrantRESTAnswersAsDirectly(t *testing.T) {
	eachQdrant(t, servers.Options{APIKey: "secret"}, func(t *testing.T, s *servers.Server) {
		base := startREST(t, s)
		for _, step := range restSteps {
			for _, key := range []string{"secret", "wrong"} {
				direct := step.do(t, s.REST, "direct", key)
				if proxied := step.do(t, base, "proxied", key); direct != proxied {
					t.Errorf("%s %s %s:\nproxied %+v\ndirect  %+v", step.method, step.path, step.body, proxied, direct)
				}
			}
		}
	})
}

func TestQdrantBigBodies(t *testing.T) {
	eachQdrant(t, servers.Options{}, func(t *testing.T, s *servers.Server) {
		base := startREST(t, s)
		for _, size := range []int{1 << 20, 31 << 20} {
			big := step{"POST", "/collections/{c}/points/count", `{"exact":true` + strings.Repeat(" ", size) + "}"}
			direct := big.do(t, s.REST, "none", "")
			if proxied := big.do(t, base, "none", ""); direct != proxied {
				t.Errorf("%d bytes: proxied %+v, direct %+v", size, proxied, direct)
			}
		}
	})
}

// A bad query argument makes Qdrant close the connection. The next request is not affected.
func TestQdrantClosesConnections(t *testing.T) {
	eachQdrant(t, servers.Options{}, func(t *testing.T, s *servers.Server) {
		base := startREST(t, s)
		bad, good := step{"POST", "/collections/{c}/points/count?timeout=x", `{}`}, step{"POST", "/collections/{c}/points/count", `{}`}
		for i := range 200 {
			bad.do(t, base, "none", "")
			if got := good.do(t, base, "none", ""); got.status != http.StatusNotFound {
				t.Fatalf("request %d: answer %+v", i, got)
			}
		}
	})
}

func TestQdrantSnapshots(t *testing.T) {
	s := servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{})
	base := startREST(t, s)
	for _, step := range restSteps[2:5] {
		step.do(t, base, "c", "")
	}
	made := step{"POST", "/collections/{c}/snapshots?wait=true", ""}.do(t, base, "c", "")
	var name struct{ Result struct{ Name string } }
	if err := json.Unmarshal([]byte(made.body), &name); err != nil {
		t.Fatal(err)
	}
	download := step{"GET", "/collections/c/snapshots/" + strings.ReplaceAll(name.Result.Name, "{c}", "c"), ""}
	snapshot, direct := download.do(t, base, "not in it", ""), download.do(t, s.REST, "not in it", "")
	if snapshot != direct || snapshot.status != http.StatusOK {
		t.Fatalf("download: status %d, %d bytes, directly %d bytes", snapshot.status, len(snapshot.body), len(direct.body))
	}
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	part, err := w.CreateFormFile("snapshot", "s.snapshot")
	if err == nil {
		_, err = io.WriteString(part, snapshot.body)
	}
	if err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/collections/copy/snapshots/upload?wait=true", struct{ io.Reader }{&form})
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", w.FormDataContentType())
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	got, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	got.Body.Close()
	count := step{"POST", "/collections/{c}/points/count", "{}"}.do(t, base, "copy", "")
	if got.StatusCode != http.StatusOK || !strings.Contains(count.body, `"count":3`) {
		t.Errorf("upload: %s, then %s", got.Status, count.body)
	}
}
