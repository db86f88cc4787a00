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

// qdrantPython returns the Python client of an age, over REST and over gRPC.
func qdrantPython(t *testing.T, age harness.Age) (rest, grpc harness.Client) {
	t.Helper()
	file := "qdrant/" + age.Requirements()
	python, err := harness.Python(t.Context(), cache, script(file))
	python = program(t, python, err)
	name := "Python qdrant-client " + pinned(t, file, "qdrant-client")
	args := []string{script("qdrant/scenario.py"), "--url", "{rest}", "--grpc-port", "{port}", "--key", qdrantKey}
	return harness.Script(name+", REST", python, args...), harness.Script(name+", gRPC", python, append(args, "--grpc")...)
}

// TestQdrantClients has the newest Python client make every call over REST and over
// gRPC, and then the clients of other languages make the same requests. All of
// them on the oldest server too, the oldest Python client, and every one directly twice, is for
// `make compatibility` and `make soak`.
func TestQdrantClients(t *testing.T) {
	node, err := harness.Node(t.Context(), cache, script("qdrant"))
	node = program(t, node, err)
	pythonREST, pythonGRPC := qdrantPython(t, harness.Newest)
	var rest []restRequest
	var grpc []grpcRequest
	check := func(version string, c harness.Client) (crossed []harness.Exchange) {
		db := qdrant(version)
		t.Run(version+" "+c.Name, func(t *testing.T) {
			if strings.Contains(c.Name, "js-client-grpc") {
				db.rules = append(db.rules, harness.NodeRule())
			}
			crossed = conform(t, db, c)
		})
		return crossed
	}
	for _, version := range []string{servers.QdrantNewest, servers.QdrantOldest} {
		if version == servers.QdrantOldest && !thorough() {
			check(version, goClient(grpc))
			continue
		}
		if thorough() {
			oldREST, oldGRPC := qdrantPython(t, harness.Oldest)
			check(version, oldREST)
			check(version, oldGRPC)
		}
		rest, grpc = restRequests(check(version, pythonREST)), grpcRequests(check(version, pythonGRPC))
		file := requestFile(t, rest)
		scriptREST := harness.Script("JavaScript js-client-rest "+pinned(t, "qdrant/package.json", "@qdrant/js-client-rest"), node, script("qdrant/replay.cjs"), "--rest", "{rest}", "--key", qdrantKey, "--requests", file)
		check(version, scriptREST)
		file = requestFile(t, grpc)
		check(version, harness.Script("JavaScript js-client-grpc "+pinned(t, "qdrant/package.json", "@qdrant/js-client-grpc"), node, script("qdrant/replay.cjs"), "--grpc", "http://{grpc}", "--key", qdrantKey, "--requests", file))
		check(version, goClient(grpc))
	}
}

// thorough reports whether this run makes every check, because its results are recorded.
func thorough() bool { return os.Getenv(harness.RecordTo) != "" }
