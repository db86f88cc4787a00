package config

import (
	"time"
)

// The comments of this file and of schema_route.go are the documentation: `likeness config print
// --default`, the JSON schema and docs/reference/config.md are made from them.
// Tags: enum lists the values allowed, min and max are bounds, required says
// that a value must be given, path marks a file name, reload says when a change
// of the file takes effect, where that is before a restart.

// Config is the whole configuration.
type Config struct {
	// Where the sidecar listens, and whom it answers.
	Listen Listen `yaml:"listen"`
	// What a request, a connection and the process may use.
	Limits Limits `yaml:"limits"`
	// The loops that score candidates: auto takes the fastest that the processor runs.
	Kernel string `yaml:"kernel" enum:"auto,go,avx2,avx512,neon"`
	// The log on stderr.
	Log Log `yaml:"log"`
	// Traces, sent by OTLP over gRPC.
	Trace Trace `yaml:"trace"`
	// How the process ends.
	Shutdown Shutdown `yaml:"shutdown"`
	// How a change of this file comes into force.
	Reload Reload `yaml:"reload"`
	// Folder of what the sidecar remembers: the active version of a route and its calibration in routes/ROUTE, the
	// journal of the writes that it saw in stores/STORE/COLLECTION. Empty remembers nothing. One process can use it.
	StateDir string `yaml:"state_dir" path:"true"`
	// The vector stores, by name.
	Stores map[string]Store `yaml:"stores"`
	// The learned similarities, by name.
	Models map[string]Model `yaml:"models"`
	// Processes that likeness starts and watches, or reaches where they run, by name.
	Plugins map[string]Plugin `yaml:"plugins"`
	// Heavy rankers, by name.
	Rankers map[string]Ranker `yaml:"rankers"`
	// The routes, by the name that a request gives. A route binds a collection to a model.
	Routes map[string]Route `yaml:"routes"`
	// A listener for clients of a Qdrant store, whose searches the routes answer; without an address there is none.
	Proxy Proxy `yaml:"proxy"`

	origin origin
}

// Listen is where the sidecar listens.
type Listen struct {
	// Address of the gRPC API. Port 0 takes a free one.
	GRPC string `yaml:"grpc" required:"true"`
	// Address of the same API as JSON over HTTP, with the TLS and tokens of the gRPC API; empty is none. Port 0 takes a
	// free one.
	REST string `yaml:"rest"`
	// Address of the page, metrics, health and profiles over plain HTTP; empty is none. Keep it private.
	Admin string `yaml:"admin"`
	// TLS of the admin port; without a certificate it is plain HTTP. Where client_ca_file is set, /livez, /readyz and /healthz
	// alone are answered without a client certificate, since probes have none.
	AdminTLS TLS `yaml:"admin_tls"`
	// Who may use the admin port: callers with admin: true and no routes; /livez, /readyz and /healthz are everybody's.
	// Without a tokens file everybody who can connect.
	AdminAuth AdminAuth `yaml:"admin_auth"`
	// TLS of the API, both forms; without a certificate it is plain text.
	TLS TLS `yaml:"tls"`
	// Who may call the API; without a tokens file everybody who can connect.
	Auth Auth `yaml:"auth"`
	// Host names by which rest, and admin, may be asked where no credentials are: of rest on a loopback address without
	// tokens, and of admin without tokens and client certificates. Addresses, localhost, and a name that the listener is
	// given are always allowed. A page in a browser can point any other name here (DNS rebinding).
	AllowedHosts []string `yaml:"allowed_hosts"`
}

// TLS is a listener's certificate. The files are read again when they change.
type TLS struct {
	// Certificate chain, PEM.
	CertFile string `yaml:"cert_file" path:"true"`
	// Private key, PEM.
	KeyFile string `yaml:"key_file" path:"true"`
	// Authorities of client certificates, PEM; where set, a client must present one.
	ClientCAFile string `yaml:"client_ca_file" path:"true"`
	// Oldest version that is accepted.
	MinVersion string `yaml:"min_version" enum:"1.2,1.3"`
}

// Auth says who may call.
type Auth struct {
	// YAML list of callers: name, token or sha256 (hex, of the token), routes (empty: all), and admin (true: may
	// also activate versions of them).
	// The file is read again when it changes.
	TokensFile string `yaml:"tokens_file" path:"true" reload:"live"`
}

// AdminAuth says who may use the admin port.
type AdminAuth struct {
	// A file like that of listen.auth; it may be the same. The file is read again when it changes.
	TokensFile string `yaml:"tokens_file" path:"true"`
}

// Limits are the limits of the sidecar.
type Limits struct {
	// Largest message, either way, after decompression. Over the proxy only requests that come compressed are held to it.
	MaxMessageBytes Bytes `yaml:"max_message_bytes" min:"1024" max:"2147483647"`
	// Bytes of requests that are received and not yet answered, of all listeners together; 0 is an eighth of the memory limit
	// with which the process starts, or no bound without one: a request takes about four times its length. Requests that find it full wait with their senders, those of more than a quarter
	// of it come one at a time, and one that is larger than all of it is refused, or streamed where nobody has to read it.
	// An answer of the database that the proxy holds counts until its client has it, and is never kept back itself. Messages of
	// 16 KiB and less do not count.
	MaxReceivedBytes Bytes `yaml:"max_received_bytes" min:"0"`
	// Calls in flight on one connection, of the API and of the proxy.
	MaxConcurrentStreams int `yaml:"max_concurrent_streams" min:"1"`
	// Searches in flight in the process; one more is refused at once. A batch counts each of its searches.
	MaxSearches int `yaml:"max_searches" min:"1" reload:"live"`
	// Find each route's own limit below max_searches from the times of its searches: when more in flight
	// make all of them slower, fewer are let in, some wait a little, and the rest are refused at once.
	Adaptive bool `yaml:"adaptive" reload:"live"`
	// Greatest k of any route.
	MaxK int `yaml:"max_k" min:"1" reload:"live"`
	// Most rows asked of one first-stage search of any route.
	MaxDepth int `yaml:"max_depth" min:"1" reload:"live"`
	// Most searches of one SearchBatch.
	MaxBatch int `yaml:"max_batch" min:"1" max:"1024" reload:"live"`
	// Searches of one SearchBatch that run at the same time.
	BatchParallelism int `yaml:"batch_parallelism" min:"1" reload:"live"`
	// Soft limit of the Go heap; 0 is GOMEMLIMIT, or nine tenths of the container's memory, or none. Mapped files do not
	// count. Searches are refused while little of it is left.
	Memory Bytes `yaml:"memory" min:"0" reload:"live"`
}

// Log is the log.
type Log struct {
	// Least level that is written.
	Level string `yaml:"level" enum:"debug,info,warn,error" reload:"live"`
	// auto is text on a terminal and JSON elsewhere.
	Format string `yaml:"format" enum:"auto,text,json"`
	// Share of the searches that get a line of level info: route, strategy, rounds, candidates, times, certificate and
	// outcome, and never what was searched for.
	Queries float64 `yaml:"queries" min:"0" max:"1" reload:"live"`
	// Searches that take so long get such a line of level warn, at most ten in a second; 0 is none.
	Slow time.Duration `yaml:"slow" min:"0" reload:"live"`
}

// Trace is where traces go.
type Trace struct {
	// host:port of an OTLP/gRPC collector; empty sends none.
	Endpoint string `yaml:"endpoint"`
	// Send without TLS.
	Insecure bool `yaml:"insecure"`
	// Share of the traces that start here and are kept. A caller's decision is followed.
	SampleRatio float64 `yaml:"sample_ratio" min:"0" max:"1"`
}

// Shutdown is how the process ends.
type Shutdown struct {
	// After SIGTERM, how long calls are still taken while /readyz and the gRPC health say that it ends, for balancers that look
	// at those; clients that balance themselves need none.
	Delay time.Duration `yaml:"delay" min:"0"`
	// After that, how long calls in flight may take before they are cut.
	Grace time.Duration `yaml:"grace" min:"0"`
}

// Reload is how a changed configuration comes into force: at SIGHUP, at POST
// /reload of the admin port, or by looking.
type Reload struct {
	// Read this file again so often, beside SIGHUP and POST /reload of the admin port; 0 is never. What cannot be used
	// changes nothing, and what needs a restart is named in the log.
	Interval time.Duration `yaml:"interval" min:"0" reload:"live"`
}

// Store is a vector store.
type Store struct {
	// embedded is an exact search in this process, over .npy files.
	Kind string `yaml:"kind" enum:"qdrant,milvus,embedded" required:"true"`
	// host:port of the store's gRPC API; qdrant and milvus only.
	Address string `yaml:"address"`
	// API key of Qdrant, or token of Milvus: the file that holds it.
	APIKeyFile string `yaml:"api_key_file" path:"true"`
	// The same, from this variable of the environment.
	APIKeyEnv string `yaml:"api_key_env"`
	// User of Milvus, with a password.
	Username string `yaml:"username"`
	// The file that holds the password.
	PasswordFile string `yaml:"password_file" path:"true"`
	// The same, from this variable of the environment.
	PasswordEnv string `yaml:"password_env"`
	// Database of Milvus; empty is its default one.
	Database string `yaml:"database"`
	// TLS towards the store.
	TLS StoreTLS `yaml:"tls"`
	// The store's limits; 0 is what the adapter knows or the server tells.
	Limits StoreLimits `yaml:"limits"`
	// What its faults may cost; qdrant and milvus only.
	Guard StoreGuard `yaml:"guard"`
	// The collections of an embedded store, by name.
	Collections map[string]Collection `yaml:"collections"`
}

// StoreTLS is TLS towards a store.
type StoreTLS struct {
	// Use TLS.
	Enabled bool `yaml:"enabled"`
	// Authorities of the store's certificate, PEM; empty is the system's.
	CAFile string `yaml:"ca_file" path:"true"`
	// Client certificate, PEM.
	CertFile string `yaml:"cert_file" path:"true"`
	// Client key, PEM.
	KeyFile string `yaml:"key_file" path:"true"`
	// Name to verify, where it is not the address.
	ServerName string `yaml:"server_name"`
}

// StoreLimits are a store's limits.
type StoreLimits struct {
	// Rows of one list.
	MaxDepth int `yaml:"max_depth" min:"0"`
	// Probes of one call.
	MaxProbes int `yaml:"max_probes" min:"0"`
	// Vector fields of one collection.
	MaxVectorFields int `yaml:"max_vector_fields" min:"0"`
	// Largest message of the store.
	MaxMessageBytes Bytes `yaml:"max_message_bytes" min:"0" max:"2147483647"`
}

// StoreGuard bounds what faults of a store cost. Calls that the proxy passes are not concerned.
type StoreGuard struct {
	// Failures in a row of the reads of a collection after which it is not read for a while.
	BreakAfter int `yaml:"break_after" min:"1"`
	// That while, a fifth more or less; one read at a time is then sent until one succeeds.
	BreakFor time.Duration `yaml:"break_for" min:"1"`
	// Share of the reads, over ten seconds, that may be sent again after a failure that can pass; 0 is none. Writes are
	// never sent again.
	RetryBudget float64 `yaml:"retry_budget" min:"0" max:"1"`
	// Send a first-stage search a second time where no answer came for so long; the first answer counts. At most one search
	// in twenty is; 0 is none.
	HedgeAfter time.Duration `yaml:"hedge_after" min:"0"`
}

// Collection is a collection of an embedded store, mapped from files.
type Collection struct {
	// The vectors, .npy: float32 or float16, one row a vector.
	Vectors string `yaml:"vectors" path:"true"`
	// Named vector fields, each from an .npy file of the same number of rows; beside vectors or instead.
	Fields map[string]VectorFile `yaml:"fields"`
	// How vectors are compared.
	Metric string `yaml:"metric" enum:"inner_product,cosine,l2"`
	// The ids: .npy of int64 or int32, or a text file with one string id a line. Empty numbers the rows from 0.
	IDs string `yaml:"ids" path:"true"`
	// The payload, JSON lines, one object a row.
	Payload string `yaml:"payload" path:"true"`
	// Name of the field with the item that a row belongs to; for max-sim.
	Owner string `yaml:"owner"`
	// The items that the rows belong to, in a file like ids; empty takes them from the payload's field owner.
	Owners string `yaml:"owners" path:"true"`
}

// VectorFile is a named vector field of an embedded collection.
type VectorFile struct {
	// The vectors, .npy.
	File string `yaml:"file" path:"true" required:"true"`
	// How its vectors are compared.
	Metric string `yaml:"metric" enum:"inner_product,cosine,l2"`
}

// Model is a learned similarity.
type Model struct {
	// A native model file (.safetensors), or a directory with model.safetensors and config.json.
	Path string `yaml:"path" path:"true" required:"true" reload:"activation"`
}

// Plugin is a process that serves likeness.plugin.v1: a scorer, or a device.
type Plugin struct {
	// The executable. It is started in its own process group, without the sidecar's environment.
	Path string `yaml:"path" path:"true"`
	// Its arguments.
	Args []string `yaml:"args"`
	// Names of the sidecar's environment variables that it may see.
	Env []string `yaml:"env"`
	// SHA-256 of the executable, hexadecimal; it is not started with another.
	SHA256 string `yaml:"sha256"`
	// A file with a line `SHA-256  path` for each file that belongs to it, relative to that file, as sha256sum writes it.
	Manifest string `yaml:"manifest" path:"true"`
	// Where it runs already, in place of path: unix:///folder/socket in a folder that others cannot enter, or host:port.
	Address string `yaml:"address"`
	// TLS to an address; host:port takes certificates on both sides.
	TLS StoreTLS `yaml:"tls"`
	// How long it may take to start and to say what it is.
	StartTimeout time.Duration `yaml:"start_timeout" min:"1"`
	// How often it is asked whether it is well.
	HealthInterval time.Duration `yaml:"health_interval" min:"1"`
	// How long that answer may take.
	HealthTimeout time.Duration `yaml:"health_timeout" min:"1"`
	// It is killed and started again above this resident memory; 0 is no limit.
	Memory Bytes `yaml:"memory" min:"0"`
	// Greatest message either way.
	MaxMessageBytes Bytes `yaml:"max_message_bytes" min:"1024" max:"2147483647"`
	// It is left alone for a while after so many ends within a minute.
	QuarantineAfter int `yaml:"quarantine_after" min:"1"`
	// That while.
	Quarantine time.Duration `yaml:"quarantine" min:"1"`
}

// Ranker is a relevance R(x, q) whose calls cost: a plugin, or a service that speaks a rerank dialect over HTTP.
type Ranker struct {
	// Name of a plugin.
	Plugin string `yaml:"plugin"`
	// A rerank service.
	HTTP RankerHTTP `yaml:"http"`
	// Items of one call; 0 is what the ranker says of itself.
	MaxItems int `yaml:"max_items" min:"0"`
	// Calls at the same time; 0 is what the ranker says.
	Parallel int `yaml:"parallel" min:"0"`
	// Time for one call of it.
	Timeout time.Duration `yaml:"timeout" min:"1"`
	// Failures in a row after which it is not asked for a while.
	BreakAfter int `yaml:"break_after" min:"1"`
	// That while.
	BreakFor time.Duration `yaml:"break_for" min:"1"`
	// Share of the calls, over ten seconds, that may be repeated after a failure that can pass.
	RetryBudget float64 `yaml:"retry_budget" min:"0" max:"1"`
	// Ask of one item of each call twice, beside the calls of a search: two different scores tell a ranker that answers in
	// another order than asked, or whose scores depend on the other items.
	Twice bool `yaml:"twice"`
}

// RankerHTTP is a rerank service.
type RankerHTTP struct {
	// The address of its rerank method, https://host/rerank.
	URL string `yaml:"url"`
	// The form of its requests and answers.
	Dialect string `yaml:"dialect" enum:"tei,cohere,jina"`
	// The model that a request names, where the dialect has one.
	Model string `yaml:"model"`
	// File with the bearer token.
	TokenFile string `yaml:"token_file" path:"true"`
	// Environment variable with it.
	TokenEnv string `yaml:"token_env"`
	// Payload fields that make an item's text, joined by a newline.
	Fields []string `yaml:"fields"`
	// Names the scores that it gives, as a version does; kept scores of another are not used.
	Version string `yaml:"version"`
	// What scoring one item costs, in a unit of your own.
	Cost float64 `yaml:"cost" min:"0"`
}
