package config

import (
	"time"
)

// The field comments of this file and of schema_route.go are user documentation: `likeness
// config print --default`, the JSON schema and docs/reference/config.md are made from them.
// Tags: enum lists the allowed values, min and max are bounds, required demands a value,
// path marks a file name, and reload says when a changed value takes effect: live,
// activation, or restart. Without a reload tag a change takes effect at a restart; keys of
// routes always have the tag.

// Config is the whole configuration.
type Config struct {
	// Addresses where the sidecar listens, and who may call it.
	Listen Listen `yaml:"listen"`
	// Limits of a request, a connection and the process.
	Limits Limits `yaml:"limits"`
	// Implementation of the scoring loops; auto takes the fastest that the processor runs.
	Kernel string `yaml:"kernel" enum:"auto,go,avx2,avx512,neon"`
	// The log on stderr.
	Log Log `yaml:"log"`
	// Traces, sent by OTLP over gRPC.
	Trace Trace `yaml:"trace"`
	// How the process ends after SIGTERM.
	Shutdown Shutdown `yaml:"shutdown"`
	// How a change of this file takes effect.
	Reload Reload `yaml:"reload"`
	// Folder for what outlives a restart: active versions, calibrations, journals of writes, events. Empty keeps no
	// state. A second sidecar on one folder does not start.
	StateDir string `yaml:"state_dir" path:"true"`
	// How many sidecars serve this configuration. With more than one, writes: proxy needs a shared journal.
	Replicas int `yaml:"replicas" min:"1"`
	// Where the journals of writes are kept if several sidecars read each other's.
	Journal Journal `yaml:"journal"`
	// The vector stores, by name.
	Stores map[string]Store `yaml:"stores"`
	// The learned similarities, by name.
	Models map[string]Model `yaml:"models"`
	// Plugins by name: processes that likeness starts and watches, or connects to.
	Plugins map[string]Plugin `yaml:"plugins"`
	// Rankers by name: expensive relevance models that order the best candidates.
	Rankers map[string]Ranker `yaml:"rankers"`
	// Embedders by name: services that turn the text of a query into its vector.
	Embedders map[string]Embedder `yaml:"embedders"`
	// The routes, by the name that requests use. A route binds a collection to a model.
	Routes map[string]Route `yaml:"routes"`
	// A listener for clients of a Qdrant or Milvus store, whose searches the routes answer. It needs an address.
	Proxy Proxy `yaml:"proxy"`

	origin origin
}

// Journal says where the journals of writes are kept.
type Journal struct {
	// Folder on a volume that all sidecars of this configuration share, for their journals (docs/proxy.md).
	Shared string `yaml:"shared" path:"true"`
	// Name of this sidecar in the shared folder, unique and the same after a restart. Empty takes the host's name.
	Replica string `yaml:"replica"`
}

// Listen says where the sidecar listens.
type Listen struct {
	// Address of the gRPC API. Port 0 takes a free port.
	GRPC string `yaml:"grpc" required:"true"`
	// Address of the same API as JSON over HTTP, with the same TLS and tokens. Empty opens no listener.
	REST string `yaml:"rest"`
	// Address of the status page, metrics, health checks and profiles, over HTTP. Empty opens no listener. Keep it private.
	Admin string `yaml:"admin"`
	// TLS of the admin port; without a certificate it speaks plain HTTP. With client_ca_file set, callers without a
	// certificate, such as health probes, reach only /livez, /readyz and /healthz.
	AdminTLS TLS `yaml:"admin_tls"`
	// Who may use the admin port: callers with admin: true and no routes. Everybody may use /livez, /readyz and /healthz.
	// Without a tokens file everybody who can connect may use all of it.
	AdminAuth AdminAuth `yaml:"admin_auth"`
	// TLS of the API, gRPC and JSON; without a certificate both speak plain text.
	TLS TLS `yaml:"tls"`
	// Who may call the API. Without a tokens file everybody who can connect may.
	Auth Auth `yaml:"auth"`
	// Further host names under which a listener without credentials answers, beside IP addresses, localhost and its
	// own name.
	AllowedHosts []string `yaml:"allowed_hosts"`
}

// TLS names the certificate of a listener. The files are read again when they change.
type TLS struct {
	// Certificate chain, PEM.
	CertFile string `yaml:"cert_file" path:"true"`
	// Private key, PEM.
	KeyFile string `yaml:"key_file" path:"true"`
	// Authorities of client certificates, PEM. If set, a client must present a certificate.
	ClientCAFile string `yaml:"client_ca_file" path:"true"`
	// Oldest TLS version that is accepted.
	MinVersion string `yaml:"min_version" enum:"1.2,1.3"`
}

// Auth says who may call.
type Auth struct {
	// YAML list of callers, each with: name; token, or sha256 of the token in hexadecimal; routes that it may call (empty:
	// all); admin (true: it may also activate versions of those routes).
	TokensFile string `yaml:"tokens_file" path:"true" reload:"live"`
}

// AdminAuth says who may use the admin port.
type AdminAuth struct {
	// A file like listen.auth.tokens_file, or the same file.
	TokensFile string `yaml:"tokens_file" path:"true"`
}

// Limits are the limits of the sidecar.
type Limits struct {
	// Largest message in either direction, after decompression; over the proxy only of compressed requests that a
	// route may answer.
	MaxMessageBytes Bytes `yaml:"max_message_bytes" min:"1024" max:"2147483647"`
	// Most bytes of unanswered requests, and of the database's answers that the proxy's clients do not have yet. As
	// many again are for likeness's own answers, from before they are made until they are sent. 0
	// means an eighth of the memory limit; without a limit there is no bound. Requests beyond it wait with their
	// senders; one larger than the whole is refused, or streamed if the proxy need not read it. Messages up to 16
	// KiB do not count.
	MaxReceivedBytes Bytes `yaml:"max_received_bytes" min:"0"`
	// Most calls in flight on one connection.
	MaxConcurrentStreams int `yaml:"max_concurrent_streams" min:"1"`
	// Most searches in flight in the process; one more is refused at once. Each search of a batch counts.
	MaxSearches int `yaml:"max_searches" min:"1" reload:"live"`
	// Admit fewer searches of a route than max_searches when more would make all slower; the others wait briefly or
	// are refused.
	Adaptive bool `yaml:"adaptive" reload:"live"`
	// Greatest k of any route.
	MaxK int `yaml:"max_k" min:"1" reload:"live"`
	// Most rows asked of one first-stage search of any route.
	MaxDepth int `yaml:"max_depth" min:"1" reload:"live"`
	// Most searches in one SearchBatch.
	MaxBatch int `yaml:"max_batch" min:"1" max:"1024" reload:"live"`
	// Searches of one SearchBatch that run at the same time.
	BatchParallelism int `yaml:"batch_parallelism" min:"1" reload:"live"`
	// Soft limit of the Go heap, without mapped files. 0 takes GOMEMLIMIT, or nine tenths of the container's memory, or
	// sets no limit. Searches are refused while little is left.
	Memory Bytes `yaml:"memory" min:"0" reload:"live"`
}

// Log configures the log.
type Log struct {
	// Lowest level that is written.
	Level string `yaml:"level" enum:"debug,info,warn,error" reload:"live"`
	// auto writes text to a terminal and JSON to anything else.
	Format string `yaml:"format" enum:"auto,text,json"`
	// Share of the searches that are logged at level info. The query itself is never logged.
	Queries float64 `yaml:"queries" min:"0" max:"1" reload:"live"`
	// Searches that take at least this long are logged at level warn, at most ten in a second. 0 logs none.
	Slow time.Duration `yaml:"slow" min:"0" reload:"live"`
}

// Trace says where traces go.
type Trace struct {
	// host:port of an OTLP/gRPC collector; empty sends no traces.
	Endpoint string `yaml:"endpoint"`
	// Send without TLS.
	Insecure bool `yaml:"insecure"`
	// Share of the traces that are kept, where the caller has not decided.
	SampleRatio float64 `yaml:"sample_ratio" min:"0" max:"1"`
}

// Shutdown says how the process ends.
type Shutdown struct {
	// How long calls are accepted after SIGTERM, while /readyz and gRPC health report the end to load balancers.
	Delay time.Duration `yaml:"delay" min:"0"`
	// How long calls in flight may take after the delay.
	Grace time.Duration `yaml:"grace" min:"0"`
}

// Reload says when the configuration is read again, beside SIGHUP and POST /reload of the
// admin port.
type Reload struct {
	// Read this file again at this interval; 0 never does.
	Interval time.Duration `yaml:"interval" min:"0" reload:"live"`
}

// Store is a vector store.
type Store struct {
	// embedded searches .npy files exactly, within this process.
	Kind string `yaml:"kind" enum:"qdrant,milvus,embedded" required:"true"`
	// host:port of the store's gRPC API; qdrant and milvus only.
	Address string `yaml:"address"`
	// File with the API key of Qdrant or the token of Milvus.
	APIKeyFile string `yaml:"api_key_file" path:"true"`
	// Environment variable with the API key or token.
	APIKeyEnv string `yaml:"api_key_env"`
	// User of Milvus; needs a password.
	Username string `yaml:"username"`
	// File with the password.
	PasswordFile string `yaml:"password_file" path:"true"`
	// Environment variable with the password.
	PasswordEnv string `yaml:"password_env"`
	// Database of Milvus; empty means its default database.
	Database string `yaml:"database"`
	// TLS of the connection to the store.
	TLS StoreTLS `yaml:"tls"`
	// Limits of the store. 0 takes the limit that the server reports or the adapter knows.
	Limits StoreLimits `yaml:"limits"`
	// Protection against faults of the store; qdrant and milvus only.
	Guard StoreGuard `yaml:"guard"`
	// The collections of an embedded store, by name.
	Collections map[string]Collection `yaml:"collections"`
}

// StoreTLS configures TLS to a store or a plugin.
type StoreTLS struct {
	// Use TLS.
	Enabled bool `yaml:"enabled"`
	// Authorities that sign the server's certificate, PEM; empty trusts the system's.
	CAFile string `yaml:"ca_file" path:"true"`
	// Client certificate, PEM.
	CertFile string `yaml:"cert_file" path:"true"`
	// Client key, PEM.
	KeyFile string `yaml:"key_file" path:"true"`
	// Name to verify in the server's certificate, if it differs from the address.
	ServerName string `yaml:"server_name"`
}

// StoreLimits are the limits of a store.
type StoreLimits struct {
	// Most rows of one search.
	MaxDepth int `yaml:"max_depth" min:"0"`
	// Most first-stage searches (probes) in one call.
	MaxProbes int `yaml:"max_probes" min:"0"`
	// Most vector fields of one collection.
	MaxVectorFields int `yaml:"max_vector_fields" min:"0"`
	// Largest message that the store accepts.
	MaxMessageBytes Bytes `yaml:"max_message_bytes" min:"0" max:"2147483647"`
}

// StoreGuard bounds the damage that faults of a store do. It does not affect calls that the
// proxy forwards.
type StoreGuard struct {
	// Failed reads in a row that open the circuit breaker of a collection, if a read of likeness's own fails too.
	BreakAfter int `yaml:"break_after" min:"1"`
	// How long an open breaker refuses reads; then one at a time is tried until it, or one of likeness's own, succeeds.
	BreakFor time.Duration `yaml:"break_for" min:"1"`
	// Share of the reads, over ten seconds, that may be retried after a transient failure. Writes are never retried.
	RetryBudget float64 `yaml:"retry_budget" min:"0" max:"1"`
	// Send a first-stage search again if it has no answer after this long, at most one in twenty. 0 hedges none.
	HedgeAfter time.Duration `yaml:"hedge_after" min:"0"`
}

// Collection is a collection of an embedded store, mapped from files.
type Collection struct {
	// The vectors, an .npy file of float32 or float16 with one row for each vector.
	Vectors string `yaml:"vectors" path:"true"`
	// Named vector fields, beside vectors or instead of it. Each is an .npy file; all have the same number of rows.
	Fields map[string]VectorFile `yaml:"fields"`
	// How vectors are compared.
	Metric string `yaml:"metric" enum:"inner_product,cosine,l2"`
	// The ids: an .npy file of int64 or int32, or text with one a line. Empty numbers the rows from 0.
	IDs string `yaml:"ids" path:"true"`
	// The payload: a file with one JSON object a line for each row.
	Payload string `yaml:"payload" path:"true"`
	// Name of the field that holds the item of each row; for max-sim.
	Owner string `yaml:"owner"`
	// The item of each row, in a file like ids; empty takes them from the field of the payload that owner names.
	Owners string `yaml:"owners" path:"true"`
}

// VectorFile is a named vector field of an embedded collection.
type VectorFile struct {
	// The vectors, an .npy file.
	File string `yaml:"file" path:"true" required:"true"`
	// How the vectors are compared.
	Metric string `yaml:"metric" enum:"inner_product,cosine,l2"`
	// How many vectors each row has, for a model of kind late: an .npy file of int64 or int32. Empty gives each row
	// one.
	Counts string `yaml:"counts" path:"true"`
}

// Model is a learned similarity.
type Model struct {
	// A model file (.safetensors), or a directory with model.safetensors and config.json.
	Path string `yaml:"path" path:"true" required:"true" reload:"activation"`
}

// Plugin is a process that serves likeness.plugin.v1: a scorer, or a device.
type Plugin struct {
	// The executable. It runs in a process group of its own, without the sidecar's environment.
	Path string `yaml:"path" path:"true"`
	// Arguments of the executable.
	Args []string `yaml:"args"`
	// Names of the sidecar's environment variables that the plugin may see.
	Env []string `yaml:"env"`
	// SHA-256 of the executable, in hexadecimal; an executable with another hash is not started.
	SHA256 string `yaml:"sha256"`
	// A file with a line `SHA-256 path` for each of the plugin's files, relative to its folder, as sha256sum writes
	// it.
	Manifest string `yaml:"manifest" path:"true"`
	// Address of a plugin that runs already, instead of path: unix:///folder/socket, or host:port.
	Address string `yaml:"address"`
	// TLS to an address. host:port needs certificates on both sides.
	TLS StoreTLS `yaml:"tls"`
	// Time for the plugin to start and describe itself.
	StartTimeout time.Duration `yaml:"start_timeout" min:"1"`
	// Time between two health checks.
	HealthInterval time.Duration `yaml:"health_interval" min:"1"`
	// Time limit of a health check.
	HealthTimeout time.Duration `yaml:"health_timeout" min:"1"`
	// Resident memory above which the plugin is killed and restarted; 0 sets no limit.
	Memory Bytes `yaml:"memory" min:"0"`
	// Largest message in either direction.
	MaxMessageBytes Bytes `yaml:"max_message_bytes" min:"1024" max:"2147483647"`
	// Ends within a minute after which the plugin is not restarted for the time of quarantine.
	QuarantineAfter int `yaml:"quarantine_after" min:"1"`
	// How long such a plugin is not restarted.
	Quarantine time.Duration `yaml:"quarantine" min:"1"`
}

// Ranker is an expensive relevance R(x, q): a plugin, or a service that speaks a rerank
// dialect over HTTP.
type Ranker struct {
	// Name of the plugin that is the ranker.
	Plugin string `yaml:"plugin"`
	// The rerank service that is the ranker.
	HTTP RankerHTTP `yaml:"http"`
	// Most items in one call; 0 takes the number that the ranker reports.
	MaxItems int `yaml:"max_items" min:"0"`
	// Most calls at the same time; 0 takes the number that the ranker reports.
	Parallel int `yaml:"parallel" min:"0"`
	// Time limit of one call.
	Timeout time.Duration `yaml:"timeout" min:"1"`
	// Failed calls in a row that open the circuit breaker, if an item that was scored before fails too.
	BreakAfter int `yaml:"break_after" min:"1"`
	// How long the ranker is not called while the breaker is open.
	BreakFor time.Duration `yaml:"break_for" min:"1"`
	// Share of the calls, over ten seconds, that may be retried after a transient failure.
	RetryBudget float64 `yaml:"retry_budget" min:"0" max:"1"`
	// Score one item of each call again, to find wrong order, or scores that depend on other items.
	Twice bool `yaml:"twice"`
}

// RankerHTTP is a rerank service.
type RankerHTTP struct {
	// URL of the service's rerank method, https://host/rerank.
	URL string `yaml:"url"`
	// Format of requests and answers.
	Dialect string `yaml:"dialect" enum:"tei,cohere,jina"`
	// Model that requests name; cohere and jina need it.
	Model string `yaml:"model"`
	// File with the bearer token.
	TokenFile string `yaml:"token_file" path:"true"`
	// Environment variable with the bearer token.
	TokenEnv string `yaml:"token_env"`
	// Payload fields whose texts, joined by newlines, describe an item to the service.
	Fields []string `yaml:"fields"`
	// Version of the scores, of your own choice. Cached scores of another version are not used.
	Version string `yaml:"version"`
	// Cost of scoring one item, in a unit of your own.
	Cost float64 `yaml:"cost" min:"0"`
}

// Embedder is a service that turns texts into vectors.
type Embedder struct {
	// URL of the service's method: https://host/v1/embeddings (OpenAI, vLLM, Ollama, LocalAI), or https://host/embed (TEI).
	URL string `yaml:"url" required:"true"`
	// Format of requests and answers. auto takes tei if the path ends in /embed, otherwise openai.
	Form string `yaml:"form" enum:"auto,openai,tei"`
	// The model that embedded the collection, as requests name it; openai needs it.
	Model string `yaml:"model"`
	// Text put before a query, as the model was trained: "query: " for E5.
	QueryPrefix string `yaml:"query_prefix"`
	// Text put before a document: "passage: " for E5.
	DocumentPrefix string `yaml:"document_prefix"`
	// File with the bearer token.
	TokenFile string `yaml:"token_file" path:"true"`
	// Environment variable with the bearer token.
	TokenEnv string `yaml:"token_env"`
	// Elements of a vector; an answer of another length is refused. 0 takes the length of the first answer.
	Dimension int `yaml:"dimension" min:"0" max:"65536"`
	// Ask the model for vectors of the length dimension; openai only.
	Shorten bool `yaml:"shorten"`
	// Most texts in one call. Texts that wait at the same time share calls.
	Batch int `yaml:"batch" min:"1" max:"4096"`
	// Most calls at the same time. One caller has at most one less.
	Parallel int `yaml:"parallel" min:"1" max:"1024"`
	// Time limit of one call.
	Timeout time.Duration `yaml:"timeout" min:"1"`
	// Memory for vectors of earlier texts; 0 keeps none.
	Cache Bytes `yaml:"cache" min:"0"`
	// Failed calls in a row that open the circuit breaker, if a text of likeness's own fails too.
	BreakAfter int `yaml:"break_after" min:"1"`
	// How long the service is not called while the breaker is open.
	BreakFor time.Duration `yaml:"break_for" min:"1"`
	// Share of the calls, over ten seconds, that may be retried after a transient failure.
	RetryBudget float64 `yaml:"retry_budget" min:"0" max:"1"`
}
