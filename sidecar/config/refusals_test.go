package config_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/likenessdb/likeness/sidecar/config"
)

// TestWhatContradictsItselfIsRefused: settings that cannot both hold, or that nothing would
// heed, are mistakes of the file; the error names the key.
func TestWhatContradictsItselfIsRefused(t *testing.T) {
	const embedded = "stores: {e: {kind: embedded, %s collections: {c: {vectors: v.npy}}}}\n"
	const qdrant = "stores: {q: {kind: qdrant, address: 'a:1'%s}, r: {kind: qdrant, address: 'b:1'}}\n"
	const milvus = "stores: {m: {kind: milvus, address: 'a:1'%s}}\n"
	route := func(more string) string {
		return small + "  b: {store: main, collection: c, model: taste, placement: stored, " + more + "}\n"
	}
	for text, want := range map[string]string{
		"listen: {grpc: 'me:secret@host:1'}\n":                                                                          "listen.grpc: not an address",
		"listen: {grpc: 'host:65536'}\n":                                                                                "listen.grpc: the port must be a number from 0 to 65535",
		"listen: {grpc: 'host:http'}\n":                                                                                 "listen.grpc: the port must be",
		"listen: {tls: {key_file: k.pem}}\n":                                                                            "listen.tls: cert_file and key_file belong together",
		"listen: {admin_tls: {cert_file: c.pem}}\n":                                                                     "listen.admin_tls: cert_file and key_file belong together",
		"listen: {admin_tls: {client_ca_file: a.pem}}\n":                                                                "client certificates need TLS",
		"trace: {endpoint: 'http://x'}\n":                                                                               "trace.endpoint: not an address",
		fmt.Sprintf(embedded, "address: 'a:1',"):                                                                        "an embedded store has no address",
		fmt.Sprintf(embedded, "guard: {break_after: 9},"):                                                               "stores.e.guard: an embedded store is in this process",
		fmt.Sprintf(embedded, "api_key_env: K,"):                                                                        "an embedded store takes no credentials",
		"stores: {e: {kind: embedded, collections: {c: {}}}}\n":                                                         "a collection needs vectors or fields",
		"stores: {e: {kind: embedded, collections: {c: {vectors: v.npy, owners: o.npy}}}}\n":                            "owners needs the name of a field",
		"stores: {e: {kind: embedded, collections: {c: {vectors: v.npy, owner: o}}}}\n":                                 "the items must come from a file or from the payload",
		"stores: {q: {kind: qdrant}}\n":                                                                                 "stores.q.address: qdrant needs the address",
		"stores: {q: {kind: qdrant, address: 'a:1', collections: {c: {vectors: v.npy}}}}\n":                             "only an embedded store is made of files",
		fmt.Sprintf(qdrant, ", username: u, password_env: P"):                                                           "username and database are Milvus's",
		fmt.Sprintf(qdrant, ", database: d"):                                                                            "username and database are Milvus's",
		fmt.Sprintf(qdrant, ", api_key_file: k, api_key_env: K"):                                                        "api_key_env: api_key_file is given too",
		fmt.Sprintf(milvus, ", username: u, password_file: p, password_env: P"):                                         "password_env: password_file is given too",
		fmt.Sprintf(milvus, ", password_env: P"):                                                                        "a username and a password belong together",
		fmt.Sprintf(milvus, ", username: u, password_env: P, api_key_env: K"):                                           "an API key is given too",
		fmt.Sprintf(milvus, ", tls: {cert_file: c}"):                                                                    "stores.m.tls: cert_file and key_file",
		fmt.Sprintf(milvus, ", tls: {ca_file: a}"):                                                                      "stores.m.tls.enabled: it is false",
		fmt.Sprintf(milvus, ", tls: {server_name: x}"):                                                                  "stores.m.tls.enabled: it is false",
		fmt.Sprintf(milvus, "") + "proxy: {store: m, listen_grpc: 'a:2', listen_rest: 'a:3', rest_url: 'http://a:4'}\n": "is proxied over gRPC only",
		fmt.Sprintf(qdrant, "") + "proxy: {store: q, listen_rest: 'a:2', rest_url: 'http://a:1'}\n":                     "it is the address of stores.q, which speaks gRPC",
		fmt.Sprintf(qdrant, "") + "proxy: {store: q, listen_rest: 'a:2', rest_url: 'a:1'}\n":                            "it is the address of stores.q, which speaks gRPC",
		fmt.Sprintf(qdrant, "") + "proxy: {store: q, listen_grpc: 'x'}\n":                                               "proxy.listen_grpc: not an address",
		fmt.Sprintf(qdrant, "") + "proxy: {store: q, listen_grpc: 'a:2', tls: {key_file: k}}\n":                         "proxy.tls: cert_file and key_file",
		small + "proxy: {store: other, listen_grpc: 'a:2', routes: [products]}\n":                                       "proxy.store",
		strings.Replace(small, "models:", "  other: {kind: qdrant, address: 'a:1'}\nmodels:", 1) + "proxy: {store: other, listen_grpc: 'a:2', routes: [products]}\n": `proxy.routes: route "products" is of store "main"`,
		route("opt_in: [everything]"):                            `opt_in: "everything" is no kind of request`,
		route("scan_if_faster: true"):                            "the route has no table to scan",
		route("calibration_scan: {at: '24:00'}"):                 `calibration_scan.at: "24:00" is no time of the day`,
		route("ef: 9"):                                           "placement stored rewrites none",
		route("rewrite_legs: true"):                              "placement stored rewrites none",
		route("table_live: true"):                                "only a table of the layout rows can be written",
		route("table: t, table_live: true, table_layout: tiles"): "only a table of the layout rows can be written",
		route("strategy: scan"):                                  "placement table and strategy scan need a table",
		strings.Replace(route("depth: 1"), "placement: stored", "placement: derived", 1): "placement derived needs a companion",
		route("write_budget: 9ms"):                      "write_budget: the journal of writes is kept in state_dir",
		route("reconcile: {interval: 9m}"):              "reconcile: the journal of writes is kept in state_dir",
		"state_dir: s\n" + route("write_budget: 9ms"):   "the route has nothing that can follow writes",
		route("audit: {share: 0.5}"):                    "audit.share: calibrations and the results of audits are kept in state_dir",
		"state_dir: s\n" + route("audit: {share: 0.5}"): "audit.share: an audit scores a table",
		route("burst: 3"):                               "burst: it needs a rate",
		route("max_searches: 1025"):                     "max_searches: 1025 exceeds limits.max_searches, which is 1024",
		route("max_k: 1001"):                            "max_k: 1001 exceeds limits.max_k, which is 1000",
		route("max_depth: 16385"):                       "max_depth: 16385 exceeds limits.max_depth",
		route("max_depth: 300, depth: 301"):             "depth: 301 exceeds the greatest depth, 300",
		route("max_depth: 300, average_depth: 301"):     "average_depth: 301 exceeds the greatest depth, 300",
		route("max_gap: -1"):                            "max_gap: -1 is too small",
		"\x00bad: {}\n":                                 "likeness.yaml",
	} {
		_, err := config.Parse("likeness.yaml", []byte(text), []string{}, nil)
		if !errors.Is(err, config.ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\nerror %v, want one that contains %q", text, err, want)
		}
	}
	// What is as great as the limit is taken, and no fewer than the least.
	for _, text := range []string{
		route("max_searches: 1024, max_k: 1000, max_depth: 16384, depth: 16384, average_depth: 16384, rate: 1, burst: 3, max_gap: 0"),
		"limits: {max_k: 1}\n", "listen: {grpc: 'host:65535'}\n", "trace: {sample_ratio: 1}\n", "trace: {sample_ratio: 0}\n",
		fmt.Sprintf(embedded, "guard: {break_after: 5},"),
		fmt.Sprintf(milvus, ", username: u, password_env: P"),
		"state_dir: s\n" + route("table: t, table_live: true, write_budget: 9ms, audit: {share: 0.5}"),
	} {
		if _, err := config.Parse("likeness.yaml", []byte(text), []string{}, nil); err != nil {
			t.Errorf("%s\n%v", text, err)
		}
	}
}

// TestDefaultsThatAnOperatorReliesOn: who writes nothing is not reached from the network,
// keeps answering, and asks nobody twice.
func TestDefaultsThatAnOperatorReliesOn(t *testing.T) {
	c := parse(t, small, nil)
	l, r, s := c.Listen, c.Routes["products"], c.Stores["main"]
	for name, ok := range map[string]bool{
		"listens on this machine": l.GRPC == "127.0.0.1:0" && l.Admin == "127.0.0.1:7601" && config.Default().Listen.GRPC == "127.0.0.1:7600" && l.REST == "",
		"TLS 1.2 at least":        l.TLS.MinVersion == "1.2" && l.AdminTLS.MinVersion == "1.2" && c.Proxy.TLS.MinVersion == "1.2",
		"limits of messages":      c.Limits.MaxMessageBytes == 64<<20 && c.Limits.Adaptive && c.Limits.MaxSearches == 1024,
		"limits of searches":      c.Limits.MaxK == 1000 && c.Limits.MaxDepth == 16384 && c.Limits.MaxBatch == 256,
		"fails open, late":        r.Failure == config.FailOpen && r.Fallback == config.FallbackLate && r.Ramp == 100 && r.Score == config.ScoreLearned,
		"a route's budgets":       r.AverageDepth == 200 && r.MaxRounds == 8 && r.Calls == 100 && r.RankRounds == 1 && r.KeepVersions == 3,
		"a reconciliation":        r.Reconcile.Interval == time.Hour && r.Reconcile.RowsPerSecond == 10_000 && r.WriteBudget == 5*time.Millisecond,
		"a tenth is retried":      s.Guard == config.StoreGuard{BreakAfter: 5, BreakFor: 500 * time.Millisecond, RetryBudget: 0.1},
		"half a minute to end":    c.Shutdown.Grace == 30*time.Second,
		"a search's time":         config.DefaultPolicy().Timeout == 5*time.Second,
	} {
		if !ok {
			t.Errorf("%s: the default is another", name)
		}
	}
}

func TestBytes(t *testing.T) {
	for text, want := range map[string]config.Bytes{"0": 0, "7": 7, "1KiB": 1 << 10, "3 MiB": 3 << 20, " 2GiB ": 2 << 30, "8589934591GiB": (1<<33 - 1) << 30} {
		if got, err := config.ParseBytes(text); err != nil || got != want {
			t.Errorf("%q is %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "-1", "1.5GiB", "1 GB", "8589934592GiB", fmt.Sprint(uint64(math.MaxInt64) + 1)} {
		if got, err := config.ParseBytes(text); err == nil {
			t.Errorf("%q is %d", text, got)
		}
	}
}
