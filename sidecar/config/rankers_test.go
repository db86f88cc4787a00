package config_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/sidecar/config"
)

const ranked = `
  ranked: {store: main, collection: products, model: taste, placement: stored, ranker: judge, calls: 60}
plugins:
  judge: {path: bin/judge, args: [-v], env: [JUDGE_KEY, JUDGE_NONE]}
rankers:
  judge: {plugin: judge}
  service: {http: {url: "https://models:8443/rerank", fields: [title, text], token_env: MODELS_TOKEN}}
`

// A plugin and a ranker start from their defaults; a plugin sees the variables that it
// names and nothing else, and a token is read and never shown.
func TestRankers(t *testing.T) {
	c := parse(t, small+ranked, []string{"JUDGE_KEY=canary", "OTHER=x", "MODELS_TOKEN=canary"})
	if r := c.Routes["ranked"]; r.RankerName != "judge" || r.Calls != 60 || r.RankRounds != 1 {
		t.Errorf("%+v", r)
	}
	if p := c.Plugins["judge"]; p.Path != "/etc/likeness/bin/judge" || p.QuarantineAfter != 5 || p.MaxMessageBytes != 64<<20 {
		t.Errorf("%+v", p)
	}
	if env := c.PluginEnv("judge"); !slices.Equal(env, []string{"JUDGE_KEY=canary"}) {
		t.Errorf("environment %q", env)
	}
	token, err := c.RankerToken("service")
	if err != nil || token.Reveal() != "canary" || strings.Contains(fmt.Sprint(token), "canary") {
		t.Errorf("token %v, %v", token, err)
	}
	var out strings.Builder
	if err := c.Print(&out); err != nil || strings.Contains(out.String(), "canary") || !strings.Contains(out.String(), "MODELS_TOKEN") {
		t.Errorf("%v\n%s", err, out.String())
	}
	if _, err := parse(t, small+ranked, nil).RankerToken("service"); !errors.Is(err, config.ErrConfig) || !strings.Contains(err.Error(), "MODELS_TOKEN") {
		t.Errorf("a token that is not there: %v", err)
	}
}

func TestRankerErrorsNameThePlace(t *testing.T) {
	route := func(more string) string {
		return small + "  b: {store: main, collection: c, model: taste, placement: stored, " + more + "}\n"
	}
	const digest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	tests := []struct{ name, text, want string }{
		{"nothing to start", "plugins: {p: {args: [a]}}", "plugins.p: neither path nor address"},
		{"path and address", "plugins: {p: {path: a, address: 'unix:///run/p/s'}}", "plugins.p.address: path is given too"},
		{"arguments of an address", "plugins: {p: {address: 'unix:///run/p/s', args: [a]}}", "plugins.p.args: it applies only to a plugin that likeness starts"},
		{"digest of an address", "plugins: {p: {address: 'unix:///run/p/s', sha256: " + digest + "}}", "plugins.p.sha256"},
		{"a port in the open", "plugins: {p: {address: 'host:1'}}", "plugins.p.tls: a plugin at host:port needs certificates on both sides"},
		{"no authority", "plugins: {p: {address: 'host:1', tls: {enabled: true, cert_file: c, key_file: k}}}", "plugins.p.tls: a plugin at host:port needs certificates on both sides"},
		{"no certificate", "plugins: {p: {address: 'host:1', tls: {enabled: true, ca_file: a}}}", "plugins.p.tls: a plugin at host:port needs certificates on both sides"},
		{"TLS is off", "plugins: {p: {address: 'host:1', tls: {ca_file: a, cert_file: c, key_file: k}}}", "plugins.p.tls.enabled: it is false"},
		{"half a certificate", "plugins: {p: {address: 'unix:///run/p/s', tls: {enabled: true, key_file: k}}}", "plugins.p.tls: cert_file and key_file"},
		{"environment of an address", "plugins: {p: {address: 'unix:///run/p/s', env: [A]}}", "plugins.p.env: it applies only"},
		{"manifest of an address", "plugins: {p: {address: 'unix:///run/p/s', manifest: m}}", "plugins.p.manifest: it applies only"},
		{"memory of an address", "plugins: {p: {address: 'unix:///run/p/s', memory: 1MiB}}", "plugins.p.memory: it applies only"},
		{"no model", "rankers: {r: {http: {url: 'https://h/r', fields: [a], dialect: cohere}}}", "rankers.r.http.model: requests of the dialect cohere name a model"},
		{"no such device", route("device: juge, table: t") + "plugins: {judge: {path: a}}", `routes.b.device: there is no plugin "juge"; did you mean "judge"?`},
		{"a device for nothing", route("device: judge") + "plugins: {judge: {path: a}}", "routes.b.device: a device scores a table and the route has none"},
		{"no socket", "plugins: {p: {address: 'unix://host'}}", "plugins.p.address: not a socket"},
		{"no address", "plugins: {p: {address: 'http://host/'}}", "plugins.p.address: not an address"},
		{"TLS of a process", "plugins: {p: {path: a, tls: {enabled: true}}}", "plugins.p.tls"},
		{"digest", "plugins: {p: {path: a, sha256: abc}}", "plugins.p.sha256: not a SHA-256"},
		{"health", "plugins: {p: {path: a, health_timeout: 1m}}", "plugins.p.health_timeout: 1m0s is longer than start_timeout, 10s"},
		{"unknown key", "plugins: {p: {pth: a}}", `did you mean "path"?`},
		{"an inline token", "rankers: {r: {http: {url: 'https://h/r', fields: [a], token: canary}}}", `unknown key "token" in rankers.r.http`},
		{"no ranker", "rankers: {r: {timeout: 1s}}", "rankers.r: neither plugin nor http.url"},
		{"two rankers", "plugins: {p: {path: a}}\nrankers: {r: {plugin: p, http: {url: 'https://h/r', fields: [a]}}}", "rankers.r.http.url: plugin is given too"},
		{"no such plugin", "plugins: {judge: {path: a}}\nrankers: {r: {plugin: juge}}", `rankers.r.plugin: there is no plugin "juge"; did you mean "judge"?`},
		{"a service of a plugin", "plugins: {p: {path: a}}\nrankers: {r: {plugin: p, http: {fields: [a]}}}", "rankers.r.http: it configures a rerank service"},
		{"no fields", "rankers: {r: {http: {url: 'https://h/r'}}}", "rankers.r.http.fields: a rerank service reads texts"},
		{"no URL", "rankers: {r: {http: {url: 'h/r', fields: [a]}}}", "rankers.r.http.url: not the address"},
		{"a password in the URL", "rankers: {r: {http: {url: 'https://canary:canary@h/r', fields: [a]}}}", "rankers.r.http.url: it holds credentials"},
		{"dialect", "rankers: {r: {http: {url: 'https://h/r', fields: [a], dialect: bge}}}", `"bge" is not one of tei, cohere, jina`},
		{"two tokens", "rankers: {r: {http: {url: 'https://h/r', fields: [a], token_file: f, token_env: E}}}", "rankers.r.http.token_env: token_file is given too"},
		{"no such ranker", route("ranker: juge") + "plugins: {judge: {path: a}}\nrankers: {judge: {plugin: judge}}", `routes.b.ranker: there is no ranker "juge"; did you mean "judge"?`},
		{"calls of nobody", route("calls: 9"), "routes.b.calls: the route has no ranker"},
		{"rounds of nobody", route("rank_rounds: 2"), "routes.b.rank_rounds: the route has no ranker"},
		{"a mix for nobody", route("mix: 0.5"), "routes.b.mix: the route has no ranker"},
		{"too much of a mix", route("mix: 1.5"), "routes.b.mix: 1.5 is too"},
		{"no calls", route("calls: 0"), "routes.b.calls: 0 is too small, at least 1"},
		{"a gap", route("ranker: judge, max_gap: 1") + "plugins: {judge: {path: a}}\nrankers: {judge: {plugin: judge}}", "routes.b.max_gap: it bounds the similarity"},
		{"an audit", route("ranker: judge, audit: {share: 0.1}") + "plugins: {judge: {path: a}}\nrankers: {judge: {plugin: judge}}", "routes.b.audit.share: an audit checks the order"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			_, err := config.Parse("likeness.yaml", []byte(tc.text+"\n"), nil, nil)
			if !errors.Is(err, config.ErrConfig) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one that contains %q", err, tc.want)
			}
			if err != nil && strings.Contains(err.Error(), "canary") {
				t.Error("the error repeats a secret")
			}
		})
	}
}

// TestPluginsThatAreTaken: what the errors ask for is enough.
func TestPluginsThatAreTaken(t *testing.T) {
	for _, text := range []string{
		"plugins: {p: {address: 'host:1', tls: {enabled: true, ca_file: a, cert_file: c, key_file: k}}}",
		"plugins: {p: {address: 'unix:///run/p/s'}}",
		"plugins: {p: {path: a, health_timeout: 10s, start_timeout: 10s}}",
		"rankers: {r: {http: {url: 'https://h/r', fields: [a], dialect: jina, model: m}}}",
		small + "  b: {store: main, collection: c, device: p, active: v1, versions: {v1: {model: taste, placement: stored, table: t}}}\nplugins: {p: {path: a}}",
	} {
		if _, err := config.Parse("likeness.yaml", []byte(text), nil, nil); err != nil {
			t.Errorf("%s\n%v", text, err)
		}
	}
}
