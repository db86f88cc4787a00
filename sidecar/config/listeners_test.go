package config_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/sidecar/config"
)

func load(t *testing.T, text string) (*config.Config, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "likeness.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return config.Load(config.Source{File: file, Environ: []string{}})
}

// TestCredentialsInURLs: no URL shows its credentials, in an error or in print.
func TestCredentialsInURLs(t *testing.T) {
	const proxied = `
stores: {db: {kind: qdrant, address: "127.0.0.1:6334"}}
proxy: {store: db, listen_rest: "127.0.0.1:0", rest_url: "http://me:s3cret@127.0.0.1:6333"}
`
	if _, err := load(t, proxied); err == nil || strings.Contains(err.Error(), "s3cret") || !strings.Contains(err.Error(), "holds credentials") {
		t.Errorf("proxy.rest_url: %v", err)
	}
	for _, url := range []string{"http://me:s3cret@127.0.0.1:8080/rerank", "http://s3cret@127.0.0.1:8080", "https://me:s3cret@x@127.0.0.1:8080"} {
		c, err := load(t, `
rankers: {r: {http: {url: "`+url+`", fields: [title]}}}
`)
		if err != nil {
			if strings.Contains(err.Error(), "s3cret") {
				t.Errorf("%s: %v", url, err)
			}
			continue
		}
		var printed bytes.Buffer
		if err := c.Print(&printed); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(printed.String(), "s3cret") || !strings.Contains(printed.String(), "[redacted]@127.0.0.1:8080") {
			t.Errorf("%s: %s", url, printed.String())
		}
	}
}

// TestListenersOfOneAddress: two listeners cannot have one port of one host.
func TestListenersOfOneAddress(t *testing.T) {
	for text, refused := range map[string]bool{
		`{grpc: "127.0.0.1:7600", admin: "127.0.0.1:7600"}`:                true,
		`{grpc: "0.0.0.0:7600", admin: "127.0.0.1:7600"}`:                  true,
		`{grpc: "127.0.0.1:7600", rest: ":7600"}`:                          true,
		`{grpc: "[::]:7600", rest: "10.0.0.1:7600"}`:                       true,
		`{grpc: "127.0.0.1:7600", admin: "127.0.0.2:7600"}`:                false,
		`{grpc: "127.0.0.1:0", rest: "127.0.0.1:0", admin: "127.0.0.1:0"}`: false,
	} {
		if _, err := load(t, "listen: "+text); (err != nil) != refused {
			t.Errorf("%s: %v", text, err)
		}
	}
	for host, refused := range map[string]bool{"likeness.svc": false, "localhost": false, "likeness.svc:7601": true, "*.svc": true, "http://likeness": true, "": true} {
		if _, err := load(t, `listen: {allowed_hosts: ["`+host+`"]}`); (err != nil) != refused {
			t.Errorf("allowed_hosts %q: %v", host, err)
		}
	}
}
