package harness_test

import (
	"os"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/e2e/harness"
)

// qdrantKey is the API key of the servers.
const qdrantKey = "secret"

func qdrant(version string) database {
	return database{"Qdrant", version, harness.QdrantRules(), func(t *testing.T) harness.Address {
		t.Helper()
		s := servers.QdrantForTest(t, version, servers.Options{APIKey: qdrantKey, Env: []string{"QDRANT__STORAGE__WAL__WAL_CAPACITY_MB=1"}}) // many collections
		return harness.Address{GRPC: s.Address, REST: s.REST}
	}}
}

// TestQdrantClients has the Python client make every call over REST and over
// gRPC, and then the clients of other languages make the same requests. All of
// them on the oldest server too, and every one directly twice, is for
// `make compatibility` and `make soak`.
func TestQdrantClients(t *testing.T) {
	python, err := harness.Python(t.Context(), cache, script("qdrant/requirements.txt"))
	python = program(t, python, err)
	node, err := harness.Node(t.Context(), cache, script("qdrant"))
	node = program(t, node, err)
	args := []string{script("qdrant/scenario.py"), "--url", "{rest}", "--grpc-port", "{port}", "--key", qdrantKey}
	pythonREST := harness.Script("Python qdrant-client 1.17.1, REST", python, args...)
	pythonGRPC := harness.Script("Python qdrant-client 1.17.1, gRPC", python, append(args, "--grpc")...)
	var rest []restRequest
	var grpc []grpcRequest
	check := func(version string, c harness.Client) (crossed []harness.Exchange) {
		db := qdrant(version)
		t.Run(version+" "+c.Name, func(t *testing.T) {
			if strings.Contains(c.Name, "js-client-grpc") {
				db.rules = append(db.rules, harness.NodeRule())
			}
			crossed = conform(t, db, c, thorough() || strings.HasPrefix(c.Name, "Python"))
		})
		return crossed
	}
	for _, version := range []string{servers.QdrantNewest, servers.QdrantOldest} {
		if version == servers.QdrantOldest && !thorough() {
			check(version, goClient(grpc))
			continue
		}
		rest, grpc = restRequests(check(version, pythonREST)), grpcRequests(check(version, pythonGRPC))
		file := requestFile(t, rest)
		scriptREST := harness.Script("JavaScript js-client-rest 1.18.0", node, script("qdrant/replay.cjs"), "--rest", "{rest}", "--key", qdrantKey, "--requests", file)
		check(version, scriptREST)
		file = requestFile(t, grpc)
		check(version, harness.Script("JavaScript js-client-grpc 1.18.0", node, script("qdrant/replay.cjs"), "--grpc", "http://{grpc}", "--key", qdrantKey, "--requests", file))
		check(version, goClient(grpc))
	}
}

// thorough says that the run is not an everyday one: its results are recorded.
func thorough() bool { return os.Getenv(harness.RecordTo) != "" }
