package serve_test

import (
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/e2e/harness"
)

// TestProxyWithThePythonClient searches a routed collection through the proxy by the
// official Python client and wants the answers of likeness's own API.
func TestProxyWithThePythonClient(t *testing.T) {
	if servers.Dir() == "" {
		t.Skipf("%s is not set", servers.EnvDir)
	}
	python, err := harness.Python(t.Context(), clientsCache, clientScripts+"qdrant/requirements.txt")
	skipUninstalled(t, err)
	eachVersion(t, func(t *testing.T, p *proxied) {
		_, port, err := net.SplitHostPort(p.proxy.Target())
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), python.Path, "-W", "ignore", "testdata/client.py", p.rest, port, key)
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
