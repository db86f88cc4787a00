package harness_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/e2e/harness"
)

// milvusToken is the token of the standalone Milvus.
const milvusToken = "root:Milvus"

// milvus starts a server, which every run of a scenario shares: a scenario begins
// by dropping what another has left, and only one Milvus fits a network namespace.
func milvus(t *testing.T, version string) database {
	t.Helper()
	var s *servers.Server
	switch version {
	case servers.MilvusLiteVer:
		s = servers.MilvusLiteForTest(t, servers.Options{})
	case servers.MilvusLiteNewest:
		s = servers.NewestMilvusLiteForTest(t, servers.Options{})
	default:
		s = servers.MilvusForTest(t, servers.Options{Authorization: true})
	}
	return database{s.Name, version, harness.MilvusRules(), func(*testing.T) harness.Address { return harness.Address{GRPC: s.Address} }}
}

// conformMilvus is conform with one run after another. Every day the standalone
// Milvus, which mostly waits, is spared the second direct run.
func conformMilvus(t *testing.T, db database, c harness.Client) {
	t.Helper()
	run := func(at harness.Address) []harness.Step {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		steps, err := c.Run(ctx, at)
		if err != nil || len(steps) == 0 {
			t.Fatalf("%d steps, %v", len(steps), err)
		}
		return steps
	}
	at := db.start(t)
	direct := run(at)
	result := harness.Result{Client: c.Name, Server: db.name, Version: db.version}
	for _, s := range direct {
		result.Steps = append(result.Steps, s.Name)
	}
	if thorough() {
		again := harness.Compare(run(at), direct, db.rules)
		report(t, "two direct runs", again)
		result.Direct = len(again)
	}
	through := tapped(t, at)
	proxied := harness.Compare(run(through.at), direct, db.rules)
	report(t, "through the proxy", proxied)
	client, upstream := through.exchanges(t)
	bytes := harness.CompareExchanges(client, upstream)
	report(t, "bytes before and behind the proxy", bytes)
	result.Differences, result.Bytes, result.Requests = len(proxied), len(bytes), harness.Requests(client)
	t.Logf("%d steps, %d calls crossed, %d different requests", len(direct), len(client), result.Requests)
	if err := harness.Record(result); err != nil {
		t.Error(err)
	}
}

func milvusPython(t *testing.T, age harness.Age) (python *harness.Program, name string) {
	t.Helper()
	file := "milvus/" + age.Requirements()
	python, err := harness.Python(t.Context(), cache, script(file))
	return program(t, python, err), "Python pymilvus " + pinned(t, file, "pymilvus")
}

func milvusClients(t *testing.T, version string) []harness.Client {
	t.Helper()
	node, err := harness.Node(t.Context(), cache, script("milvus"))
	node = program(t, node, err)
	args, token := []string{"--address", "{grpc}"}, milvusUser(version)
	if token != "" {
		args = append(args, "--token", token)
	}
	var clients []harness.Client
	for _, age := range []harness.Age{harness.Oldest, harness.Newest} {
		// Every day the newest client meets the newest server, and the oldest the others.
		if thorough() || (age == harness.Newest) == (version == servers.MilvusLiteNewest) {
			python, name := milvusPython(t, age)
			clients = append(clients, harness.Script(name, python, append([]string{script("milvus/scenario.py")}, args...)...))
		}
	}
	sdk := pinned(t, "milvus/package.json", "@zilliz/milvus2-sdk-node")
	return append(clients, harness.Script("Node milvus2-sdk-node "+sdk, node, append([]string{script("milvus/scenario.cjs")}, args...)...), milvusGo(token))
}

// milvusUser is the token that a server asks for.
func milvusUser(version string) string {
	if version == servers.MilvusVer {
		return milvusToken
	}
	return ""
}

// TestMilvusClients has every client make its scenario; the Node client on older
// servers than the newest is for `make compatibility` and `make soak`.
func TestMilvusClients(t *testing.T) {
	for _, version := range []string{servers.MilvusLiteVer, servers.MilvusLiteNewest, servers.MilvusVer} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			db := milvus(t, version)
			for _, c := range milvusClients(t, version) {
				if version != servers.MilvusLiteNewest && strings.HasPrefix(c.Name, "Node") && !thorough() {
					continue
				}
				t.Run(c.Name, func(t *testing.T) { conformMilvus(t, db, c) })
			}
		})
	}
}
