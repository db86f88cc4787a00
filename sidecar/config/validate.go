package config

import (
	"fmt"
	"math"
	"net"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/likenessdb/likeness/rerank"
)

// validator collects what is wrong with a configuration.
type validator struct {
	c     *Config
	found []string
}

// Validate checks every value, and that every name which one section uses exists in
// another. It opens no file and no connection. It returns ErrConfig with all mistakes.
func (c *Config) Validate() error {
	v := &validator{c: c}
	eachLeaf(reflect.ValueOf(c).Elem(), "", v.tags)
	v.listen()
	v.journal()
	v.proxy()
	v.listeners()
	for _, name := range c.StoreNames() {
		v.store(name, c.Stores[name])
	}
	for _, name := range c.ModelNames() {
		v.name(join("models", name), name)
	}
	for _, name := range c.PluginNames() {
		v.plugin(name, c.Plugins[name])
	}
	for _, name := range c.RankerNames() {
		v.ranker(name, c.Rankers[name])
	}
	for _, name := range c.EmbedderNames() {
		v.embedder(name, c.Embedders[name])
	}
	for _, name := range c.RouteNames() {
		v.route(name, c.Routes[name])
	}
	return problems(v.found)
}

// StoreNames lists the stores by name.
func (c *Config) StoreNames() []string { return mapKeys(reflect.ValueOf(c.Stores)) }

// ModelNames lists the models by name.
func (c *Config) ModelNames() []string { return mapKeys(reflect.ValueOf(c.Models)) }

// RouteNames lists the routes by name.
func (c *Config) RouteNames() []string { return mapKeys(reflect.ValueOf(c.Routes)) }

func (v *validator) fail(path, format string, args ...any) {
	v.found = append(v.found, v.c.origin.at(path)+": "+fmt.Sprintf(format, args...))
}

// tags checks a value against the tags required, enum, min and max of its field.
func (v *validator) tags(path string, f reflect.StructField, value reflect.Value) {
	if value.Kind() == reflect.Pointer {
		if value.IsNil() {
			return
		}
		value = value.Elem()
	}
	if f.Tag.Get("required") != "" && value.IsZero() {
		v.fail(path, "a value is required")
		return
	}
	if enum := f.Tag.Get("enum"); enum != "" && !contains(strings.Split(enum, ","), value.String()) {
		v.fail(path, "%q is not one of %s", value.String(), strings.ReplaceAll(enum, ",", ", "))
	}
	v.bounds(path, f, value)
}

func (v *validator) bounds(path string, f reflect.StructField, value reflect.Value) {
	var have float64
	switch value.Kind() {
	case reflect.Int, reflect.Int64:
		have = float64(value.Int())
	case reflect.Float32, reflect.Float64:
		have = value.Float()
	default:
		return
	}
	if have != have {
		v.fail(path, "must be a number")
	}
	if least, err := strconv.ParseFloat(f.Tag.Get("min"), 64); err == nil && have < least {
		v.fail(path, "%v is too small, at least %s", value.Interface(), boundText(least, value))
	}
	if most, err := strconv.ParseFloat(f.Tag.Get("max"), 64); err == nil && have > most {
		v.fail(path, "%v is too large, at most %s", value.Interface(), boundText(most, value))
	}
}

func boundText(bound float64, like reflect.Value) string {
	switch like.Interface().(type) {
	case time.Duration:
		return time.Duration(bound).String()
	case Bytes:
		return Bytes(bound).String()
	default:
		return strconv.FormatFloat(bound, 'f', -1, 64)
	}
}

func (v *validator) listen() {
	l := v.c.Listen
	v.address("listen.grpc", l.GRPC)
	v.address("listen.rest", l.REST)
	v.address("listen.admin", l.Admin)
	v.address("trace.endpoint", v.c.Trace.Endpoint)
	for _, host := range l.AllowedHosts {
		if host == "" || strings.ContainsAny(host, "/@:* ") {
			v.fail("listen.allowed_hosts", "%q is no host name; write it without scheme, port and wildcard", host)
		}
	}
	v.tls("listen.tls", l.TLS)
	v.tls("listen.admin_tls", l.AdminTLS)
}

// listeners refuses two listeners on one address.
func (v *validator) listeners() {
	l, p := v.c.Listen, v.c.Proxy
	taken := map[string]map[string]string{} // port, host → key
	for _, at := range []struct{ path, address string }{
		{"listen.grpc", l.GRPC}, {"listen.rest", l.REST}, {"listen.admin", l.Admin},
		{"proxy.listen_grpc", p.ListenGRPC}, {"proxy.listen_rest", p.ListenREST},
	} {
		host, port, err := net.SplitHostPort(at.address)
		if err != nil || port == "0" {
			continue
		}
		if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
			host = ""
		}
		for other, path := range taken[port] {
			if host == other || host == "" || other == "" {
				v.fail(at.path, "%s listens on port %s too; give each listener a port of its own", path, port)
				break
			}
		}
		if taken[port] == nil {
			taken[port] = map[string]string{}
		}
		taken[port][host] = at.path
	}
}

func (v *validator) tls(at string, t TLS) {
	if (t.CertFile == "") != (t.KeyFile == "") {
		v.fail(at, "cert_file and key_file belong together; give both or none")
	}
	if t.ClientCAFile != "" && t.CertFile == "" {
		v.fail(at+".client_ca_file", "client certificates need TLS; give cert_file and key_file")
	}
}

// address checks that an address has the form host:port. Error texts leave the value out: it
// may contain a password by mistake.
func (v *validator) address(path, address string) {
	if address == "" {
		return
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil || strings.ContainsAny(address, "/@") {
		v.fail(path, "not an address; write host:port, without a scheme and without credentials")
		return
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		v.fail(path, "the port must be a number from 0 to 65535")
	}
}

func (v *validator) proxy() {
	p := v.c.Proxy
	if !p.Listens() {
		return
	}
	v.address("proxy.listen_grpc", p.ListenGRPC)
	v.address("proxy.listen_rest", p.ListenREST)
	v.tls("proxy.tls", p.TLS)
	switch v.c.Stores[p.Store].Kind {
	case "qdrant":
	case "milvus":
		if p.ListenREST != "" {
			v.fail("proxy.listen_rest", "%q is a store of kind milvus, which is proxied over gRPC only; leave listen_rest out", p.Store)
		}
	default:
		v.fail("proxy.store", "%q is no store of kind qdrant or milvus, and a proxy needs one", p.Store)
	}
	if (p.ListenREST == "") != (p.RESTURL == "") {
		v.fail("proxy.rest_url", "listen_rest and rest_url belong together; give both or none")
	}
	if u, err := url.Parse(p.RESTURL); p.RESTURL != "" && (p.RESTURL == v.c.Stores[p.Store].Address || err == nil && u.Host == v.c.Stores[p.Store].Address) {
		v.fail("proxy.rest_url", "it is the address of stores.%s, which speaks gRPC; give the port of the REST API, usually 6333", p.Store)
	}
	if u, err := url.Parse(p.RESTURL); err == nil && u.User != nil {
		v.fail("proxy.rest_url", "it holds credentials, which are not used: clients send their own; write http://host:port")
	}
	for _, name := range p.Routes {
		if r, ok := v.c.Routes[name]; !ok {
			v.fail("proxy.routes", "there is no route %q%s", name, hint(name, v.c.RouteNames()))
		} else if r.StoreName != p.Store {
			v.fail("proxy.routes", "route %q is of store %q; name routes of %q", name, r.StoreName, p.Store)
		}
	}
}

func (v *validator) name(path, name string) {
	if name == "" || len(name) > 256 || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' }) {
		v.fail(path, "a name has 1 to 256 bytes and no control characters")
	}
}

func (v *validator) store(name string, s Store) {
	at := join("stores", name)
	v.name(at, name)
	v.address(at+".address", s.Address)
	switch s.Kind {
	case "embedded":
		v.embedded(at, s)
	case "qdrant", "milvus":
		if s.Address == "" {
			v.fail(at+".address", "%s needs the address of its gRPC API", s.Kind)
		}
		if len(s.Collections) > 0 {
			v.fail(at+".collections", "only an embedded store is made of files; remove it")
		}
	}
	v.credentials(at, s)
}

func (v *validator) embedded(at string, s Store) {
	if s.Address != "" || s.TLS != (StoreTLS{}) {
		v.fail(at, "an embedded store has no address and no TLS; remove them")
	}
	if s.Guard != defaultStore().Guard {
		v.fail(at+".guard", "an embedded store is in this process and has no faults of its own; remove it")
	}
	if len(s.Collections) == 0 {
		v.fail(at+".collections", "an embedded store needs at least one collection")
	}
	for _, name := range mapKeys(reflect.ValueOf(s.Collections)) {
		v.name(at+".collections."+name, name)
		v.collection(at+".collections."+name, s.Collections[name])
	}
}

func (v *validator) collection(at string, c Collection) {
	if c.Vectors == "" && len(c.Fields) == 0 {
		v.fail(at, "a collection needs vectors or fields")
	}
	if c.Owners != "" && c.Owner == "" {
		v.fail(at+".owner", "owners needs the name of a field; give owner")
	}
	if c.Owner != "" && c.Owners == "" && c.Payload == "" {
		v.fail(at+".owners", "the items must come from a file or from the payload; give owners or payload")
	}
}

func (v *validator) credentials(at string, s Store) {
	key := s.APIKeyFile != "" || s.APIKeyEnv != ""
	password := s.PasswordFile != "" || s.PasswordEnv != ""
	switch {
	case s.APIKeyFile != "" && s.APIKeyEnv != "":
		v.fail(at+".api_key_env", "api_key_file is given too; keep one of them")
	case s.PasswordFile != "" && s.PasswordEnv != "":
		v.fail(at+".password_env", "password_file is given too; keep one of them")
	case password != (s.Username != ""):
		v.fail(at+".username", "a username and a password belong together; give both or none")
	case password && key:
		v.fail(at+".username", "an API key is given too; keep one of them")
	case s.Kind == "embedded" && (key || password):
		v.fail(at, "an embedded store takes no credentials; remove them")
	case s.Kind == "qdrant" && (password || s.Database != ""):
		v.fail(at, "username and database are Milvus's; for Qdrant use api_key_file")
	}
	v.clientTLS(at+".tls", s.TLS)
}

// clientTLS checks the TLS settings of a connection to a store or a plugin.
func (v *validator) clientTLS(at string, t StoreTLS) {
	if (t.CertFile == "") != (t.KeyFile == "") {
		v.fail(at, "cert_file and key_file belong together; give both or none")
	}
	if !t.Enabled && t != (StoreTLS{}) {
		v.fail(at+".enabled", "it is false, so that the connection would not be encrypted and the other keys of tls do nothing; set it to true, or remove them")
	}
}

func (v *validator) route(name string, r Route) {
	at := join("routes", name)
	v.name(at, name)
	store, ok := v.c.Stores[r.StoreName]
	if !ok && r.StoreName != "" {
		v.fail(at+".store", "there is no store %q%s", r.StoreName, hint(r.StoreName, v.c.StoreNames()))
	}
	if _, ok := store.Collections[r.Collection]; !ok && store.Kind == "embedded" && r.Collection != "" {
		v.fail(at+".collection", "store %q has no collection %q%s", r.StoreName, r.Collection,
			hint(r.Collection, mapKeys(reflect.ValueOf(store.Collections))))
	}
	for _, reason := range r.OptIn {
		if !contains(optIns, reason) {
			v.fail(at+".opt_in", "%q is no kind of request that a route can opt in to; name some of %s", reason, strings.Join(optIns, ", "))
		}
	}
	v.ranked(at, r)
	v.embeds(at, r)
	v.offloaded(at, r)
	v.events(at+".events", r.Events)
	v.experiment(at+".experiment", r)
	if len(r.Versions) == 0 {
		v.version(at, r)
	}
	v.versions(at, r)
}

// version checks the settings that can differ between the versions of a route.
func (v *validator) version(at string, r Route) {
	if r.ModelName == "" {
		v.fail(at+".model", "a value is required")
	} else if _, ok := v.c.Models[r.ModelName]; !ok {
		v.fail(at+".model", "there is no model %q%s", r.ModelName, hint(r.ModelName, v.c.ModelNames()))
	}
	v.placement(at, r)
	v.audit(at+".audit", r)
	v.calibrationScan(at+".calibration_scan.at", r.CalibrationScan)
	v.follow(at, r)
	v.writes(at, r)
	v.routeLimits(at, r)
}

// optIns lists the kinds of request that a route can opt in to answer.
var optIns = []string{"score-threshold", "indexed-only", "consistency", "round-decimal", "prefetch", "hybrid"}

// versions checks the route in each of its versions.
func (v *validator) versions(at string, r Route) {
	if _, ok := r.Versions[r.Active]; !ok && (len(r.Versions) > 0 || r.Active != "") {
		v.fail(at+".active", "%q is none of the route's versions %q", r.Active, r.VersionNames())
	}
	live := map[string]string{}
	for _, name := range r.VersionNames() {
		in := at + ".versions." + name
		v.name(in, name)
		merged, _ := r.At(name)
		own := map[string]bool{} // keys that the version sets
		eachLeaf(reflect.ValueOf(r.Versions[name]), in, func(path string, _ reflect.StructField, value reflect.Value) {
			own[path] = !value.IsZero()
		})
		eachLeaf(reflect.ValueOf(merged), in, func(path string, f reflect.StructField, value reflect.Value) {
			if own[path] {
				v.tags(path, f, value)
			}
		})
		v.version(in, merged)
		if other := live[merged.Table]; merged.TableLive && other != "" {
			v.fail(in+".table", "it is also the table of version %q; a live table belongs to a single version", other)
		}
		live[merged.Table] = name
	}
}

// keptFields lists what a route can keep of a request, and hashedFields what it can hash.
var (
	keptFields   = []string{"vector", "text", "user", "filter"}
	hashedFields = []string{"text", "user"}
)

// events checks what a route keeps of its answers.
func (v *validator) events(at string, e Events) {
	for _, field := range e.Keep {
		if !contains(keptFields, field) {
			v.fail(at+".keep", "%q is nothing that can be kept; name some of %s", field, strings.Join(keptFields, ", "))
		}
	}
	for _, field := range e.Hash {
		switch {
		case !contains(hashedFields, field):
			v.fail(at+".hash", "%q cannot be hashed; name some of %s", field, strings.Join(hashedFields, ", "))
		case !contains(e.Keep, field):
			v.fail(at+".hash", "%q is not kept; name it in keep too, or remove it", field)
		}
	}
	if e.Share > 0 && v.c.StateDir == "" {
		v.fail(at+".share", "events are kept in state_dir, which is not set")
	}
}

// experiment checks an experiment of a route.
func (v *validator) experiment(at string, r Route) {
	e := r.Experiment
	for kind, worth := range e.Feedback {
		if kind == "" || !(worth > 0) || math.IsInf(worth, 0) {
			v.fail(at+".feedback", "%q is worth %v; name a kind of feedback, and a number above 0", kind, worth)
		}
	}
	if e.Candidate == "" {
		if len(e.Feedback) > 0 {
			v.fail(at+".candidate", "the experiment has no candidate; name a version, or remove experiment")
		}
		return
	}
	candidate, ok := r.At(e.Candidate)
	switch {
	case !ok:
		v.fail(at+".candidate", "%q is none of the route's versions %q", e.Candidate, r.VersionNames())
	case candidate.TableLive:
		v.fail(at+".candidate", "the live table of version %q would not follow writes during the experiment; remove table_live while it runs", e.Candidate)
	}
	if r.Events.Share == 0 {
		v.fail(at+".candidate", "an experiment counts what people choose, and the route keeps no events; set events.share above 0")
	}
	if len(e.Feedback) == 0 {
		v.fail(at+".feedback", "nothing that people do is worth anything; write {click: 1}")
	}
	if r.Shadow.Share > 0 {
		v.fail(at+".candidate", "shadow.share is above 0, so that people see the database's order; set it to 0")
	}
}

// WhyUncertain says why the verdict of the route's experiment may be surer than it should be, or "".
func (r Route) WhyUncertain() string {
	if r.Experiment.Candidate == "" || slices.Contains(r.Events.Keep, "user") {
		return ""
	}
	return "events.keep lacks user, so that the experiment counts each query of a person as a person of its own, and may decide too soon; " +
		"write keep: [user] and hash: [user], and name the user in searches"
}

func (v *validator) placement(at string, r Route) {
	if r.Table == "" && (r.Placement == PlacementTable || r.Strategy == rerank.Scan) {
		v.fail(at+".table", "placement table and strategy scan need a table; make one with `likeness index`, "+
			"or set placement: stored")
	}
	if r.ScanIfFaster && r.Table == "" {
		v.fail(at+".scan_if_faster", "the route has no table to scan; make one with `likeness index` and name it as table")
	}
	if rewrites := slices.Contains([]Placement{"", PlacementAuto, PlacementRewrite}, r.Placement); !rewrites && (r.RewriteLegs || r.EF > 0) {
		v.fail(at+".placement", "rewrite_legs and ef are of rewritten searches, and placement %s rewrites none; remove them, or the placement", r.Placement)
	}
	if r.TableLive && (r.Table == "" || r.TableLayout == "tiles") {
		v.fail(at+".table_live", "only a table of the layout rows can be written; name one as table")
	}
	if r.Placement == PlacementDerived && r.Companion == "" {
		v.fail(at+".companion", "placement derived needs a companion collection; make one with `likeness index`")
	}
}

// follow refuses settings for following writes on a route that cannot follow any.
func (v *validator) follow(at string, r Route) {
	usual := defaultRoute()
	for _, s := range []struct {
		key   string
		given bool
	}{{"write_budget", r.WriteBudget != usual.WriteBudget}, {"reconcile", r.Reconcile != usual.Reconcile}} {
		switch {
		case !s.given:
		case v.c.StateDir == "":
			v.fail(at+"."+s.key, "the journal of writes is kept in state_dir, which is not set")
		case len(r.Versions) == 0 && !r.TableLive && r.Companion == "":
			v.fail(at+"."+s.key, "the route has nothing that can follow writes; set table_live, or name a companion")
		case v.c.Stores[r.StoreName].Kind == "embedded":
			v.fail(at+"."+s.key, "the collections of an embedded store never change; remove it")
		}
	}
}

// writes refuses the declaration that all writes pass through this sidecar where the sidecar
// cannot see them all, or where nothing would find a broken declaration.
func (v *validator) writes(at string, r Route) {
	p := v.c.Proxy
	switch {
	case r.Writes != WritesProxy:
	case v.c.Replicas > 1 && v.c.Journal.Shared == "":
		v.fail(at+".writes", "replicas is %d, and no sidecar sees the writes that pass through another; set journal.shared, run a single one, or set writes: any", v.c.Replicas)
	case v.c.Replicas > 1 && r.Companion != "":
		v.fail(at+".writes", "replicas is %d, and each sidecar writes the companion, so that one can undo what another wrote; use a live table alone, run a single sidecar, or set writes: any", v.c.Replicas)
	case !p.Listens() || p.Store != r.StoreName:
		v.fail(at+".writes", "no proxy stands before store %q, so that no write passes through this sidecar; set proxy.store to it, or set writes: any", r.StoreName)
	case r.Table == "" && r.Companion == "":
		v.fail(at+".writes", "the route has no table and no companion, and its answers do not depend on it; remove it")
	case r.Table != "" && !r.TableLive:
		v.fail(at+".writes", "the table does not follow writes, so that its answers are snapshots; set table_live, or remove writes")
	case v.c.StateDir == "":
		v.fail(at+".writes", "the journal of writes is kept in state_dir, which is not set")
	case r.Reconcile.Interval == 0:
		v.fail(at+".writes", "reconcile.interval is 0, so that nothing would find a write that bypasses the proxy; set an interval")
	}
}

// journal refuses a name in a folder that is not given.
func (v *validator) journal() {
	if j := v.c.Journal; j.Replica != "" && j.Shared == "" {
		v.fail("journal.replica", "it names this sidecar in journal.shared, which is not set; set it, or remove journal.replica")
	}
}

// calibrationScan refuses a time that is not HH:MM.
func (v *validator) calibrationScan(at string, s CalibrationScan) {
	if _, err := s.TimeOfDay(); err != nil {
		v.fail(at, "%q is no time of the day; write it as 03:00", s.At)
	}
}

func (v *validator) audit(at string, r Route) {
	if r.Audit.Share == 0 {
		return
	}
	if v.c.StateDir == "" {
		v.fail(at+".share", "calibrations and the results of audits are kept in state_dir, which is not set")
	}
	if r.Table == "" {
		v.fail(at+".share", "an audit scores a table, and the route has none; make one with `likeness index` and name it as table")
	}
}

func (v *validator) routeLimits(at string, r Route) {
	limits := v.c.Limits
	if r.MaxSearches > limits.MaxSearches {
		v.fail(at+".max_searches", "%d exceeds limits.max_searches, which is %d; raise that or lower this", r.MaxSearches, limits.MaxSearches)
	}
	if r.Burst > 0 && r.Rate == 0 {
		v.fail(at+".burst", "it needs a rate; give rate, or remove it")
	}
	if r.MaxK > limits.MaxK {
		v.fail(at+".max_k", "%d exceeds limits.max_k, which is %d; raise that or lower this", r.MaxK, limits.MaxK)
	}
	if r.MaxDepth > limits.MaxDepth {
		v.fail(at+".max_depth", "%d exceeds limits.max_depth, which is %d; raise that or lower this", r.MaxDepth, limits.MaxDepth)
	}
	most := limits.MaxDepth
	if r.MaxDepth > 0 {
		most = min(most, r.MaxDepth)
	}
	if r.Depth > most {
		v.fail(at+".depth", "%d exceeds the greatest depth, %d; lower it or raise max_depth", r.Depth, most)
	}
	if r.AverageDepth > most {
		v.fail(at+".average_depth", "%d exceeds the greatest depth, %d; lower it or raise max_depth", r.AverageDepth, most)
	}
}
