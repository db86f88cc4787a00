package serve_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/adapters/qdrant"
	"github.com/likenessdb/likeness/sidecar/buildinfo"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/serve"
)

// aside is a store that is down, which must not prevent the start, and a route of it.
const aside = base + `
  far: {store: db, collection: things, placement: stored, model: plain}
`

// withDatabase puts a store that is down beside the embedded one.
func withDatabase(text string) string {
	return strings.Replace(text, "stores:\n", "stores:\n  db: {kind: qdrant, address: \"127.0.0.1:1\"}\n", 1)
}

// TestCheckRefusesWhatRunRefuses: Check refuses the same configurations as Run at its start, with
// the same error.
func TestCheckRefusesWhatRunRefuses(t *testing.T) {
	far := withDatabase(aside)
	replaced := func(text, old, by string) string {
		t.Helper()
		out := strings.Replace(text, old, by, 1)
		if out == text {
			t.Fatalf("%q is not in\n%s", old, text)
		}
		return out
	}
	database := func(keys string) string {
		return replaced(far, `address: "127.0.0.1:1"`, `address: "127.0.0.1:1", `+keys)
	}
	listen := func(keys string) string { return replaced(base, `admin: "127.0.0.1:0"`, `admin: "127.0.0.1:0", `+keys) }
	proxied := func(keys string) string {
		return far + `
proxy: {store: db, listen_grpc: "127.0.0.1:0", ` + keys + "}\n"
	}
	tests := map[string]struct {
		text, want string
		// write, if set, adds files to the folder of the configuration.
		write func(t *testing.T, dir string)
	}{
		"no route":                    {text: `listen: {grpc: "127.0.0.1:0"}`, want: "it has no route"},
		"no vectors":                  {text: replaced(base, "vectors: things.npy", "vectors: none.npy"), want: "stores.files"},
		"fewer ids than vectors":      {text: base, want: "stores.files", write: put("ids.txt", "a\n")},
		"payloads without the owner":  {text: base, want: "stores.files", write: put("things.jsonl", "{}\n{\n{}\n")},
		"no API key":                  {text: database("api_key_env: NOT_THERE"), want: "the environment has no NOT_THERE"},
		"no file of the API key":      {text: database("api_key_file: none.key"), want: "none.key"},
		"no authorities of a store":   {text: database("tls: {enabled: true, ca_file: none.pem}"), want: "tls.ca_file"},
		"authorities of nobody":       {text: database("tls: {enabled: true, ca_file: ids.txt}"), want: "holds no certificate"},
		"no certificate for a store":  {text: database("tls: {enabled: true, cert_file: none.pem, key_file: none.key}"), want: "tls.cert_file"},
		"no model":                    {text: replaced(base, "path: plain.safetensors", "path: none.safetensors"), want: "models.plain"},
		"a damaged model":             {text: base, want: "models.plain", write: put("plain.safetensors", "no model")},
		"a kernel of other machines":  {text: base + "kernel: neon\n", want: "kernel"},
		"no table":                    {text: replaced(base, "placement: stored", "table: none.table"), want: "build it with `likeness index --route things`"},
		"a damaged table":             {text: replaced(base, "placement: stored", "table: ids.txt"), want: "routes.things: table"},
		"a scan without a table":      {text: replaced(base, "placement: stored", "placement: stored, strategy: scan"), want: "make one with `likeness index`"},
		"a head of other models":      {text: replaced(base, "placement: stored", "placement: stored, strategy: distilled, head: x"), want: `route "things"`},
		"no authorities of a plugin":  {text: far + "plugins: {p: {address: \"127.0.0.1:1\", tls: {enabled: true, ca_file: none.pem}}}\n", want: "plugins.p"},
		"a plugin without TLS":        {text: far + "plugins: {p: {address: \"192.0.2.1:1\"}}\n", want: "plugins"},
		"a plugin of no checksum":     {text: far + "plugins: {p: {path: ids.txt, sha256: xyz}}\n", want: "plugins"},
		"no token of a ranker":        {text: far + "rankers: {r: {http: {url: \"http://127.0.0.1:1\", token_env: NOT_THERE, fields: [title]}}}\n", want: "NOT_THERE"},
		"a ranker at no URL":          {text: far + "rankers: {r: {http: {url: \"ftp://127.0.0.1\", fields: [title]}}}\n", want: "rankers.r"},
		"no tokens":                   {text: listen("auth: {tokens_file: none.yaml}"), want: "none.yaml"},
		"damaged tokens":              {text: listen("auth: {tokens_file: ids.txt}"), want: "ids.txt"},
		"no certificate":              {text: listen("tls: {cert_file: none.pem, key_file: none.key}"), want: "none.pem"},
		"no authorities of clients":   {text: listen("tls: {cert_file: cert.pem, key_file: key.pem, client_ca_file: none.pem}"), want: "none.pem", write: withCertificate},
		"client authorities of none":  {text: listen("tls: {cert_file: cert.pem, key_file: key.pem, client_ca_file: ids.txt}"), want: "holds no certificate", write: withCertificate},
		"a certificate without key":   {text: listen("tls: {cert_file: cert.pem}"), want: "belong together", write: withCertificate},
		"no tokens of the admin port": {text: listen("admin_auth: {tokens_file: none.yaml}"), want: "listen.admin_auth"},
		"no certificate of admin":     {text: listen("admin_tls: {cert_file: none.pem, key_file: none.key}"), want: "listen.admin_tls"},
		"no certificate of the proxy": {text: proxied("tls: {cert_file: none.pem, key_file: none.key}"), want: "none.pem"},
		"two routes on one vector": {
			text: replaced(proxied("routes: []"), "  far:", "  near: {store: db, collection: things, model: plain, placement: stored}\n  far:"),
			want: "both cover vector",
		},
		"rest_url without a scheme": {text: proxied(`listen_rest: "127.0.0.1:0", rest_url: "127.0.0.1:2"`), want: "not the URL of a REST API"},
		"rest_url with a path":      {text: proxied(`listen_rest: "127.0.0.1:0", rest_url: "http://127.0.0.1:2/qdrant"`), want: "without a path"},
		"rest_url is the gRPC API":  {text: proxied(`listen_rest: "127.0.0.1:0", rest_url: "http://127.0.0.1:1"`), want: "speaks gRPC"},
		"rest_url, no scheme, gRPC": {text: proxied(`listen_rest: "127.0.0.1:0", rest_url: "127.0.0.1:1"`), want: "speaks gRPC"},
		"one address for two":       {text: replaced(replaced(base, `grpc: "127.0.0.1:0"`, `grpc: "127.0.0.1:7600"`), `admin: "127.0.0.1:0"`, `admin: "127.0.0.1:7600"`), want: "listen.admin"},
		"the proxy on the API's port": {
			text: replaced(replaced(proxied("routes: []"), `{grpc: "127.0.0.1:0"`, `{grpc: "127.0.0.1:7600"`), `listen_grpc: "127.0.0.1:0"`, `listen_grpc: ":7600"`),
			want: "proxy.listen_grpc",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			file := files(t, tc.text)
			if tc.write != nil {
				tc.write(t, filepath.Dir(file))
			}
			ran, checked := runOnce(t, file), checkOnce(t, file, false)
			switch {
			case ran == nil:
				t.Fatal("Run refused nothing")
			case !strings.Contains(ran.Error(), tc.want):
				t.Errorf("Run: %v\nwant %q", ran, tc.want)
			case checked == nil || checked.Error() != ran.Error():
				t.Errorf("Run:   %v\nCheck: %v", ran, checked)
			}
			if !errors.Is(ran, config.ErrConfig) || !errors.Is(checked, config.ErrConfig) {
				t.Errorf("no error of the configuration: %v; %v", ran, checked)
			}
		})
	}
}

// put writes a file.
func put(name, content string) func(t *testing.T, dir string) {
	return func(t *testing.T, dir string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func withCertificate(t *testing.T, dir string) {
	t.Helper()
	certificate(t, dir)
}

// runOnce runs a sidecar until it listens, and returns why it did not.
func runOnce(t *testing.T, file string) error {
	t.Helper()
	c, err := config.Load(config.Source{File: file, Environ: []string{}})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	return serve.Run(ctx, c, serve.Options{
		Logger: slog.New(slog.DiscardHandler), Build: buildinfo.Read(buildinfo.Stamp{}), Listening: func(serve.Addresses) { stop() },
	})
}

// checkOnce checks a configuration, and asks the stores too if it connects.
func checkOnce(t *testing.T, file string, connect bool) error {
	t.Helper()
	c, err := config.Load(config.Source{File: file, Environ: []string{}})
	if err != nil {
		return err
	}
	_, err = serve.Check(t.Context(), c, serve.CheckOptions{Connect: connect})
	return err
}

// TestCheckOfStores compares Check with a running sidecar's reports about routes and the proxy that
// do not end it.
func TestCheckOfStores(t *testing.T) {
	server := servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{})
	store, err := qdrant.Open(qdrant.Options{Address: server.Address})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	schema := adapters.Schema{Collection: "things", Fields: []adapters.VectorField{{Dim: 2, Metric: adapters.InnerProduct}}}
	if err := store.Create(t.Context(), schema); err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(server.Address)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(withDatabase(aside), `"127.0.0.1:1"`, fmt.Sprintf("%q", server.Address), 1)
	for name, tc := range map[string]struct{ text, want string }{
		"no collection": {strings.Replace(text, "store: db, collection: things", "store: db, collection: others", 1), "others"},
		"no vector":     {strings.Replace(text, "store: db, collection: things", "store: db, collection: things, vector: other", 1), "other"},
		"the gRPC API for REST": {
			text + fmt.Sprintf("\nproxy: {store: db, listen_rest: \"127.0.0.1:0\", rest_url: %q}\n", "http://[::ffff:127.0.0.1]:"+port),
			"does not speak HTTP/1.1",
		},
		"nothing for REST": {
			text + "\nproxy: {store: db, listen_rest: \"127.0.0.1:0\", rest_url: \"http://127.0.0.1:1\"}\n",
			"does not answer",
		},
	} {
		t.Run(name, func(t *testing.T) {
			checked := checkOnce(t, files(t, tc.text), true)
			if checked == nil || !strings.Contains(checked.Error(), tc.want) {
				t.Fatalf("Check: %v, want %q", checked, tc.want)
			}
			// The sidecar says the same, without the names of other collections.
			said, _, _ := strings.Cut(strings.TrimPrefix(checked.Error(), config.ErrConfig.Error()+": "), "; of the ")
			s := start(t, tc.text, false)
			patient := time.Now().Add(time.Minute)
			for {
				_, body := s.get(t, "/readyz")
				if strings.Contains(body, said) {
					break
				}
				if t.Context().Err() != nil || time.Now().After(patient) {
					t.Fatalf("/readyz: %s\nwant: %v", body, checked)
				}
			}
		})
	}
}
