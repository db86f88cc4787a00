package harness_test

import (
	"testing"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/e2e/harness"
)

// TestIdleMilvusClientsStay: pymilvus pings without a call, which milvus-lite
// itself and gRPC's own defaults answer by going away. The interval is shortened.
func TestIdleMilvusClientsStay(t *testing.T) {
	db := servers.MilvusLiteForTest(t, servers.Options{})
	python, _ := milvusPython(t, harness.Oldest)
	c := harness.Script("idle", python, script("milvus/idle.py"), "--address", "{grpc}", "--every", "600", "--pings", "5")
	through := tapped(t, harness.Address{GRPC: db.Address})
	steps, err := c.Run(t.Context(), through.at)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range steps {
		if s.Error != nil {
			t.Errorf("%s: %+v", s.Name, s.Error)
		}
	}
	through.exchanges(t) // ends all
	pings, away, err := through.client[0].Pings()
	if err != nil || pings < 5 || len(away) > 0 {
		t.Errorf("%d pings, told to go away %q, %v", pings, away, err)
	}
	if _, away, err = through.database[0].Pings(); err != nil || len(away) > 0 {
		t.Errorf("the database told the proxy to go away %q, %v", away, err)
	}
}
