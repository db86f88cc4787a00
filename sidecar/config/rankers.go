package config

import (
	"net/url"
	"reflect"
	"regexp"
)

// PluginNames lists the plugins by name.
func (c *Config) PluginNames() []string { return mapKeys(reflect.ValueOf(c.Plugins)) }

// RankerNames lists the rankers by name.
func (c *Config) RankerNames() []string { return mapKeys(reflect.ValueOf(c.Rankers)) }

// PluginEnv returns the environment of a plugin as NAME=value strings: those variables of
// the sidecar that the plugin may see and that are set.
func (c *Config) PluginEnv(plugin string) []string {
	var env []string
	for _, name := range c.Plugins[plugin].Env {
		if value, ok := c.origin.env[name]; ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// RankerToken reads the bearer token of a ranker over HTTP. It returns what APIKey returns.
func (c *Config) RankerToken(ranker string) (Secret, error) {
	h := c.Rankers[ranker].HTTP
	return c.secret(join("rankers", ranker)+".http.token", h.TokenFile, h.TokenEnv)
}

var sha256Digits = regexp.MustCompile(`^[0-9a-fA-F]{64}$`)

func (v *validator) plugin(name string, p Plugin) {
	at := join("plugins", name)
	v.name(at, name)
	switch {
	case p.Path == "" && p.Address == "":
		v.fail(at, "neither path nor address is given; give the executable to start, or where the plugin runs already")
	case p.Path != "" && p.Address != "":
		v.fail(at+".address", "path is given too; keep one of them")
	case p.Address != "":
		v.reached(at, p)
	case p.TLS != (StoreTLS{}):
		v.fail(at+".tls", "TLS needs an address; for a plugin that it starts, likeness makes the certificates itself")
	}
	if p.SHA256 != "" && !sha256Digits.MatchString(p.SHA256) {
		v.fail(at+".sha256", "not a SHA-256; write its 64 hexadecimal digits, as sha256sum does")
	}
	if p.HealthTimeout > p.StartTimeout {
		v.fail(at+".health_timeout", "%v is longer than start_timeout, %v; lower it", p.HealthTimeout, p.StartTimeout)
	}
	v.clientTLS(at+".tls", p.TLS)
}

// reached checks the settings of a plugin that is already running at an address.
func (v *validator) reached(at string, p Plugin) {
	for _, s := range []struct {
		key   string
		given bool
	}{
		{"args", len(p.Args) > 0},
		{"env", len(p.Env) > 0},
		{"sha256", p.SHA256 != ""},
		{"manifest", p.Manifest != ""},
		{"memory", p.Memory > 0},
	} {
		if s.given {
			v.fail(at+"."+s.key, "it applies only to a plugin that likeness starts, not to a plugin at an address; remove it")
		}
	}
	if u, err := url.Parse(p.Address); err == nil && u.Scheme == "unix" {
		if u.Path == "" || u.Host != "" {
			v.fail(at+".address", "not a socket; write unix:///folder/socket")
		}
		return
	}
	v.address(at+".address", p.Address)
	if p.TLS.CertFile == "" || p.TLS.CAFile == "" {
		v.fail(at+".tls", "a plugin at host:port needs certificates on both sides; give ca_file, cert_file and key_file, or a unix socket")
	}
}

func (v *validator) ranker(name string, r Ranker) {
	at := join("rankers", name)
	v.name(at, name)
	switch {
	case r.Plugin == "" && r.HTTP.URL == "":
		v.fail(at, "neither plugin nor http.url is given; name a plugin, or a rerank service")
	case r.Plugin != "" && r.HTTP.URL != "":
		v.fail(at+".http.url", "plugin is given too; keep one of them")
	case r.HTTP.URL != "":
		v.http(at+".http", r.HTTP)
	case !reflect.DeepEqual(r.HTTP, defaultRanker().HTTP):
		v.fail(at+".http", "it configures a rerank service, but http.url is not set; set it, or remove this")
	}
	if _, ok := v.c.Plugins[r.Plugin]; r.Plugin != "" && !ok {
		v.fail(at+".plugin", "there is no plugin %q%s", r.Plugin, hint(r.Plugin, v.c.PluginNames()))
	}
}

// http checks the settings of a rerank service.
func (v *validator) http(at string, h RankerHTTP) {
	v.service(at, h.URL, "https://host/rerank", h.TokenFile, h.TokenEnv)
	if h.Model == "" && h.Dialect != "tei" {
		v.fail(at+".model", "requests of the dialect %s name a model; set it", h.Dialect)
	}
	if len(h.Fields) == 0 {
		v.fail(at+".fields", "a rerank service reads texts; name the payload fields that describe an item")
	}
}

// ranked checks the settings of a route that concern its ranker.
func (v *validator) ranked(at string, r Route) {
	usual := defaultRoute()
	if r.RankerName == "" {
		if r.RankRounds != usual.RankRounds {
			v.fail(at+".rank_rounds", "the route has no ranker to call in rounds; name one as ranker, or remove this")
		}
		if r.Mix != usual.Mix {
			v.fail(at+".mix", "the route has no ranker whose calls could be mixed; name one as ranker, or remove this")
		}
		if r.Calls != usual.Calls {
			v.fail(at+".calls", "the route has no ranker to call; name one as ranker, or remove this")
		}
		return
	}
	if _, ok := v.c.Rankers[r.RankerName]; !ok {
		v.fail(at+".ranker", "there is no ranker %q%s", r.RankerName, hint(r.RankerName, v.c.RankerNames()))
	}
	if r.MaxGap != nil {
		v.fail(at+".max_gap", "it bounds the similarity, but ranker %q decides the order of the answers, and nothing is proved about that order; remove one of them", r.RankerName)
	}
	if r.Audit.Share > 0 {
		v.fail(at+".audit.share", "an audit checks the order of the similarity, but ranker %q decides the order of the answers; remove one of them", r.RankerName)
	}
}

// offloaded checks the settings of a route that concern its device.
func (v *validator) offloaded(at string, r Route) {
	if r.Device == "" {
		return
	}
	if _, ok := v.c.Plugins[r.Device]; !ok {
		v.fail(at+".device", "there is no plugin %q%s", r.Device, hint(r.Device, v.c.PluginNames()))
	}
	tables := r.Table != ""
	for _, version := range r.Versions {
		tables = tables || version.Table != ""
	}
	if !tables {
		v.fail(at+".device", "a device scores a table and the route has none; name one as table, or remove the device")
	}
}
