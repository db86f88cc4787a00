package harness_test

import (
	"testing"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/sidecar/proxy/harness"
)

// qdrantKey is what the servers ask for.
const qdrantKey = "secret"

func qdrant(version string) database {
	return database{"Qdrant", version, harness.QdrantRules(), func(t *testing.T) harness.Address {
		t.Helper()
		s := servers.QdrantForTest(t, version, servers.Options{APIKey: qdrantKey})
		return harness.Address{GRPC: s.Address, REST: s.REST}
	}}
}

func qdrantClients(t *testing.T) []harness.Client {
	t.Helper()
	python, err := harness.Python(t.Context(), cache, script("qdrant/requirements.txt"))
	python = program(t, python, err)
	args := []string{script("qdrant/scenario.py"), "--url", "{rest}", "--grpc-port", "{port}", "--key", qdrantKey}
	return []harness.Client{
		harness.Script("Python qdrant-client 1.17.1, REST", python, args...),
		harness.Script("Python qdrant-client 1.17.1, gRPC", python, append(args, "--grpc")...),
	}
}

func TestQdrantClients(t *testing.T) {
	clients := qdrantClients(t)
	for _, version := range []string{servers.QdrantOldest, servers.QdrantNewest} {
		for _, c := range clients {
			t.Run(version+" "+c.Name, func(t *testing.T) { conform(t, qdrant(version), c) })
		}
	}
}
