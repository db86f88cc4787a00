package harness_test

import (
	"context"
	"testing"

	"go.uber.org/goleak"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/e2e/harness"
)

// TestMain runs the tests in a network namespace of their own, which the
// standalone Milvus needs. Nothing is fetched there: the clients' packages are
// installed before.
func TestMain(m *testing.M) {
	quiet()
	if ok, _ := servers.Isolated(); !ok && servers.Dir() != "" {
		harness.Install(context.Background(), cache, script(""), "qdrant", "milvus")
	}
	goleak.VerifyTestMain(isolated{m})
}

// isolated runs the tests where servers.Isolate does.
type isolated struct{ m *testing.M }

func (i isolated) Run() int { return servers.Isolate(i.m) }
