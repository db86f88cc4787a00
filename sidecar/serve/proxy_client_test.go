package serve_test

import (
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// The official Python client, unchanged, gets the answers of likeness's own API.
// LIKENESS_QDRANT_CLIENT names a Python that has it.
func TestProxyWithThePythonClient(t *testing.T) {
	python := os.Getenv("LIKENESS_QDRANT_CLIENT")
	if python == "" {
		t.Skip("LIKENESS_QDRANT_CLIENT is not set: name a Python with qdrant-client")
	}
	eachVersion(t, func(t *testing.T, p *proxied) {
		_, port, err := net.SplitHostPort(p.proxy.Target())
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), python, "-W", "ignore", "testdata/client.py", p.rest, port, key)
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		all, filtered := p.expected(t, 20, ""), p.expected(t, 10, `{"must":[{"key":"n","match":{"value":1}}]}`)
		want := [][]hit{all[:10], all[2:7], filtered, all[:4], filtered}
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		if len(lines) != 2*len(want) {
			t.Fatalf("%d answers, want %d", len(lines), 2*len(want))
		}
		for i, line := range lines {
			var pairs [][2]any
			if err := json.Unmarshal([]byte(line), &pairs); err != nil {
				t.Fatal(err)
			}
			var got []hit
			for _, pair := range pairs {
				got = append(got, hit{pair[0].(string), float32(pair[1].(float64))})
			}
			same(t, line, got, want[i%len(want)])
		}
	})
}
