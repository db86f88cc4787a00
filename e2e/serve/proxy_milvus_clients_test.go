package serve_test

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/e2e/harness"
)

const (
	clientsCache  = "../../.cache/clients"
	clientScripts = "../harness/clients/"
	milvusScript  = clientScripts + "milvus/"
)

// clientHit is a hit as the scripts print it.
type clientHit struct {
	ID     int64          `json:"id"`
	Score  float32        `json:"score"`
	Entity map[string]any `json:"entity"`
}

// skipUninstalled skips the test where a client's packages could not be installed. In CI
// it fails the test.
func skipUninstalled(t *testing.T, err error) {
	t.Helper()
	switch {
	case err == nil:
	case os.Getenv("CI") == "true":
		t.Fatal(err)
	default:
		t.Skipf("the client cannot be installed (offline?): %v", err)
	}
}

// milvusScripts are the clients that make routed's searches.
func milvusScripts(t *testing.T) []harness.Client {
	t.Helper()
	if servers.Dir() == "" {
		t.Skipf("%s is not set", servers.EnvDir)
	}
	asked, err := json.Marshal(query)
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"--address", "{grpc}", "--query", string(asked)}
	python, err := harness.Python(t.Context(), clientsCache, milvusScript+"requirements.txt")
	var node *harness.Program
	if err == nil {
		node, err = harness.Node(t.Context(), clientsCache, milvusScript)
	}
	skipUninstalled(t, err)
	return []harness.Client{
		harness.Script("pymilvus", python, append([]string{milvusScript + "routed.py"}, args...)...),
		harness.Script("Node", node, append([]string{milvusScript + "routed.cjs"}, args...)...),
	}
}

// Each client sees in a rescored answer what the API answers, with the fields
// that it asked for, and in the others what the database answers.
func TestMilvusClientsOnARoute(t *testing.T) {
	scripts := milvusScripts(t)
	p := startMilvusProxied(t)
	for _, c := range scripts {
		t.Run(c.Name, func(t *testing.T) {
			through, err := c.Run(t.Context(), harness.Address{GRPC: p.address})
			if err != nil {
				t.Fatal(err)
			}
			direct, err := c.Run(t.Context(), harness.Address{GRPC: p.database})
			if err != nil {
				t.Fatal(err)
			}
			rescored := func(s harness.Step) bool { return strings.HasPrefix(s.Name, "rescored: ") }
			for _, s := range through {
				if rescored(s) {
					p.checkRescored(t, s)
				}
			}
			for _, d := range harness.Compare(slices.DeleteFunc(through, rescored), slices.DeleteFunc(direct, rescored), harness.MilvusRules()) {
				t.Error(d)
			}
		})
	}
}

// checkRescored compares a step with the API's answer and the rows.
func (p *milvusProxied) checkRescored(t *testing.T, s harness.Step) {
	t.Helper()
	var lists [][]clientHit
	if s.Error != nil || json.Unmarshal(s.Result, &lists) != nil || len(lists) == 0 {
		t.Fatalf("%s: %+v, %s", s.Name, s.Error, s.Result)
	}
	offset, filter := 0, ""
	switch s.Name {
	case "rescored: offset":
		offset = 2
	case "rescored: filter":
		filter = "on == true"
	case "rescored: several":
		if len(lists) != 2 {
			t.Errorf("%s: %d lists", s.Name, len(lists))
		}
	}
	const limit = 5
	want := p.expected(t, query, int32(limit+offset), filter)[offset:]
	for _, list := range lists {
		if len(list) != limit {
			t.Errorf("%s: %d hits", s.Name, len(list))
			continue
		}
		for i, h := range list {
			id := int64(want[i].GetId().GetNumber()) + want[i].GetId().GetNegative()
			if h.ID != id || h.Score != want[i].GetScore() {
				t.Errorf("%s: row %d is %d with %g, the API says %d with %g", s.Name, i, h.ID, h.Score, id, want[i].GetScore())
			}
			if strings.HasSuffix(s.Name, "field") || strings.HasSuffix(s.Name, "fields") {
				checkEntity(t, s.Name, h)
			}
		}
	}
}

// checkEntity compares the fields of a hit, if it has any, with its row.
func checkEntity(t *testing.T, step string, h clientHit) {
	t.Helper()
	row := int(h.ID) + 5
	for name, want := range map[string]any{"name": "n" + strconv.Itoa(row), "on": row%2 == 0, "extra": float64(row), "more": map[string]any{"i": float64(row)}} {
		got, ok := h.Entity[name]
		if meta, whole := h.Entity["$meta"].(map[string]any); whole && name == "extra" { // so the Node client shows it
			got, ok = meta[name]
		}
		if !ok {
			if step != "rescored: field" {
				t.Errorf("%s: row %d has no %s: %v", step, row, name, h.Entity)
			}
			continue
		}
		a, _ := json.Marshal(got)
		b, _ := json.Marshal(want)
		if !bytes.Equal(a, b) {
			t.Errorf("%s: %s of row %d is %s, want %s", step, name, row, a, b)
		}
	}
}
