package harness_test

import (
	"testing"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/sidecar/proxy/harness"
)

// milvusToken is what the standalone Milvus asks for.
const milvusToken = "root:Milvus"

// milvusServers are of one process each: a scenario begins by dropping what
// another has left.
func milvusServers() map[string]func(t *testing.T) *servers.Server {
	return map[string]func(t *testing.T) *servers.Server{
		servers.MilvusLiteVer: func(t *testing.T) *servers.Server {
			t.Helper()
			return servers.MilvusLiteForTest(t, servers.Options{})
		},
		servers.MilvusVer: func(t *testing.T) *servers.Server {
			t.Helper()
			return servers.MilvusForTest(t, servers.Options{Authorization: true})
		},
	}
}

func milvusPython(t *testing.T) *harness.Program {
	t.Helper()
	python, err := harness.Python(t.Context(), cache, script("milvus/requirements.txt"))
	return program(t, python, err)
}

func milvusClients(t *testing.T, version string) []harness.Client {
	t.Helper()
	args := []string{script("milvus/scenario.py"), "--address", "{grpc}"}
	if version == servers.MilvusVer {
		args = append(args, "--token", milvusToken)
	}
	return []harness.Client{harness.Script("Python pymilvus 2.6.17", milvusPython(t), args...)}
}

func TestMilvusClients(t *testing.T) {
	for version, start := range milvusServers() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			server := start(t)
			db := database{server.Name, version, harness.MilvusRules(), func(*testing.T) harness.Address {
				return harness.Address{GRPC: server.Address}
			}}
			for _, c := range milvusClients(t, version) {
				t.Run(c.Name, func(t *testing.T) { conform(t, db, c) })
			}
		})
	}
}
