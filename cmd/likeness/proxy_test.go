package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/sidecar/proxy"
)

func TestProxyUsage(t *testing.T) {
	for want, args := range map[string][]string{
		"no database to forward to":                        {"proxy"},
		"gRPC needs both":                                  {"proxy", "--milvus", "127.0.0.1:1"},
		"REST needs both":                                  {"proxy", "--qdrant-rest", "http://127.0.0.1:1"},
		"write http://host:port":                           {"proxy", "--qdrant-rest", "127.0.0.1:1", "--listen-rest", "127.0.0.1:0"},
		"leave out all but one of --milvus, --qdrant-grpc": {"proxy", "--milvus", "127.0.0.1:1", "--qdrant-grpc", "127.0.0.1:2"},
		"log level":                                        {"proxy", "--log-level", "loud"},
	} {
		if r := execute(t, "", args...); r.code != 2 || !strings.Contains(r.err, want) {
			t.Errorf("%v: code %d, want 2 with %q in\n%s", args, r.code, want, r.err)
		}
	}
}

func TestProxyForwardsAndEnds(t *testing.T) {
	database := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.RequestURI)
	}))
	defer database.Close()
	ready := filepath.Join(t.TempDir(), "ready.json")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	var out, errs bytes.Buffer
	go func() {
		ended <- run(ctx, []string{"proxy", "--qdrant-rest", database.URL, "--listen-rest", "127.0.0.1:0", "--ready-file", ready}, nil, &out, &errs)
	}()
	var at proxy.Addresses
	for at.REST == "" {
		select {
		case err := <-ended:
			t.Fatal(err)
		default:
			if b, err := os.ReadFile(ready); err == nil && json.Unmarshal(b, &at) != nil {
				t.Fatalf("ready file %s", b)
			}
		}
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+at.REST+"//collections", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if b, err := io.ReadAll(answer.Body); err != nil || string(b) != "//collections" {
		t.Errorf("%q, %v", b, err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("%v\n%s", err, errs.String())
	}
	if _, err := os.Stat(ready); err == nil {
		t.Error("the ready file is still there")
	}
}
