package config_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/sidecar/config"
)

// TestWrites: a declaration that all writes pass through this sidecar is refused where that
// cannot be so, and where nothing would find that it is not.
func TestWrites(t *testing.T) {
	whole := map[string]string{
		"state": "state_dir: /var/lib/likeness\n", "replicas": "replicas: 1\n",
		"proxy": "proxy: {store: db, listen_grpc: ':6334'}\n", "table": "table: t.table, table_live: true, ", "interval": "1m",
	}
	for name, c := range map[string]struct{ part, value, want string }{
		"nothing is missing":           {},
		"a companion follows as well":  {part: "table", value: "companion: c, "},
		"two sidecars":                 {"replicas", "replicas: 2\n", "set journal.shared"},
		"two that share a journal":     {"replicas", "replicas: 2\njournal: {shared: /journal, replica: a}\n", ""},
		"no proxy":                     {"proxy", "", "no proxy stands before store"},
		"a proxy of another store":     {"proxy", "proxy: {store: other, listen_grpc: ':6334'}\n", "no proxy stands before store"},
		"nothing derived":              {"table", "", "remove it"},
		"a table that does not follow": {"table", "table: t.table, ", "set table_live"},
		"no journal":                   {"state", "", "state_dir, which is not set"},
		"no comparison":                {"interval", "0s", "set an interval"},
	} {
		part := func(of string) string {
			if of == c.part {
				return c.value
			}
			return whole[of]
		}
		text := part("state") + part("replicas") + part("proxy") + `
stores: {db: {kind: qdrant, address: 'db:6334'}, other: {kind: qdrant, address: 'other:6334'}}
models: {m: {path: m}}
routes:
  r: {store: db, collection: c, model: m, ` + part("table") + `writes: proxy, reconcile: {interval: ` + part("interval") + `}}
`
		_, err := config.Parse("likeness.yaml", []byte(text), nil, nil)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (!errors.Is(err, config.ErrConfig) || !strings.Contains(err.Error(), "routes.r.writes: ") || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// TestSharedJournal: sidecars that share a journal share no companion under writes: proxy, and
// a name needs a folder.
func TestSharedJournal(t *testing.T) {
	for name, c := range map[string]struct{ top, route, want string }{
		"a companion":           {"replicas: 2\njournal: {shared: /journal}", "companion: d, ", "routes.r.writes: replicas is 2, and each sidecar writes the companion"},
		"a companion of one":    {"replicas: 1\njournal: {shared: /journal}", "companion: d, ", ""},
		"a name without folder": {"journal: {replica: a}", "companion: d, ", "journal.replica: "},
	} {
		_, err := config.Parse("likeness.yaml", []byte(c.top+`
state_dir: /var/lib/likeness
proxy: {store: db, listen_grpc: ':6334'}
stores: {db: {kind: qdrant, address: 'db:6334'}}
models: {m: {path: m}}
routes:
  r: {store: db, collection: c, model: m, `+c.route+`writes: proxy}
`), nil, nil)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
