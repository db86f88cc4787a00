package config

import (
	"time"
)

// The comments of this file are the documentation: `likeness config print
// --default`, the JSON schema and docs/reference/config.md are made from them.
// Tags: enum lists the values allowed, min and max are bounds, required says
// that a value must be given, path marks a file name.

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
	// Address of metrics, health and profiles over plain HTTP; empty is none. Keep it private.
	Admin string `yaml:"admin"`
	// TLS of the gRPC API; without a certificate it is plain text.
	TLS TLS `yaml:"tls"`
	// Who may call the gRPC API; without a tokens file everybody who can connect.
	Auth Auth `yaml:"auth"`
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
	TokensFile string `yaml:"tokens_file" path:"true"`
}

// Limits are the limits of the sidecar.
type Limits struct {
	// Largest message, either way, after decompression.
	MaxMessageBytes Bytes `yaml:"max_message_bytes" min:"1024" max:"2147483647"`
	// Calls in flight on one connection.
	MaxConcurrentStreams int `yaml:"max_concurrent_streams" min:"1"`
	// Searches in flight in the process; one more is refused at once. A batch counts each of its searches.
	MaxSearches int `yaml:"max_searches" min:"1"`
	// Find each route's own limit below max_searches from the times of its searches: when more in flight
	// make all of them slower, fewer are let in, some wait a little, and the rest are refused at once.
	Adaptive bool `yaml:"adaptive"`
	// Greatest k of any route.
	MaxK int `yaml:"max_k" min:"1"`
	// Most rows asked of one first-stage search of any route.
	MaxDepth int `yaml:"max_depth" min:"1"`
	// Most searches of one SearchBatch.
	MaxBatch int `yaml:"max_batch" min:"1" max:"1024"`
	// Searches of one SearchBatch that run at the same time.
	BatchParallelism int `yaml:"batch_parallelism" min:"1"`
	// Soft limit of the Go heap; 0 is GOMEMLIMIT or none. Mapped files do not count.
	Memory Bytes `yaml:"memory" min:"0"`
}

// Log is the log.
type Log struct {
	// Least level that is written.
	Level string `yaml:"level" enum:"debug,info,warn,error"`
	// auto is text on a terminal and JSON elsewhere.
	Format string `yaml:"format" enum:"auto,text,json"`
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
	// After SIGTERM, how long calls in flight may take before they are cut.
	Grace time.Duration `yaml:"grace" min:"0"`
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
	Path string `yaml:"path" path:"true" required:"true"`
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

// Route binds a collection to a model.
type Route struct {
	// Name of a store.
	Store string `yaml:"store" required:"true"`
	// The collection that is searched.
	Collection string `yaml:"collection" required:"true"`
	// Its vector field; empty is the only or unnamed one.
	Vector string `yaml:"vector"`
	// Name of a model; it, or each of the versions, must name one.
	Model string `yaml:"model"`
	// Where the items' features live: a table in the sidecar, computed from the stored vectors, or a companion
	// collection that `likeness index` wrote.
	Placement string `yaml:"placement" enum:"table,stored,derived"`
	// The table, as `likeness index` wrote it. The scan strategy and the table placement need one.
	Table string `yaml:"table" path:"true"`
	// How `likeness index` stores the numbers of the table. Narrower formats take a half or a quarter of the memory;
	// certificates know what they lose.
	TableFormat string `yaml:"table_format" enum:"float32,bfloat16,float16,int8"`
	// How it lays the rows out: one after the other, or sixteen side by side, which only a scan reads faster.
	TableLayout string `yaml:"table_layout" enum:"rows,tiles"`
	// Keep the rows in float32 too, in a part of the file that is read where scores are made exact.
	TableFullPrecision bool `yaml:"table_full_precision"`
	// Open the table so that it can be written while it is searched; its log lies beside it. One process can.
	TableLive bool `yaml:"table_live"`
	// Name of a plugin that serves a device. It keeps a copy of the table and scores it where there is much to score;
	// while it cannot, the sidecar does.
	Device string `yaml:"device"`
	// The companion collection, as `likeness index` wrote it.
	Companion string `yaml:"companion"`
	// First-stage searches of a request that does not say; auto is average for a model that is one inner product,
	// otherwise the first of distilled, average, per_embedding and scan that model and placement can serve.
	Strategy string `yaml:"strategy" enum:"auto,per_embedding,average,combined,distilled,scan"`
	// Scan the table in place of the first stage, where a request names no strategy, while that takes no longer here:
	// both are measured, the scan when the route is opened. Its answers are exact.
	ScanIfFaster bool `yaml:"scan_if_faster"`
	// Rows asked of each first-stage search.
	Depth int `yaml:"depth" min:"1"`
	// Rows asked of the averaged search of the combined strategy.
	AverageDepth int `yaml:"average_depth" min:"1"`
	// Weights of the component pairs in the averaged search.
	Weights string `yaml:"weights" enum:"uniform,gates"`
	// The learned search of the distilled strategy, where the model has several; empty is its first.
	Head string `yaml:"head"`
	// Search deeper until no missing item can exceed the K-th score by more than this; unset asks for no proof.
	MaxGap *float32 `yaml:"max_gap" min:"0"`
	// Time for a request, where its own deadline is not shorter.
	Timeout time.Duration `yaml:"timeout" min:"1"`
	// Time within which a client of the proxy has an answer, rescored or, where that takes too long, the
	// database's own; 0 is the deadline of the call alone.
	LatencyBudget time.Duration `yaml:"latency_budget" min:"0"`
	// When a client of the proxy gets the database's own answer instead: late sends the original request when it has to
	// leave to be back in time, or at the first failure, while rescoring goes on; eager sends it at once. The first
	// complete answer is the client's.
	Fallback string `yaml:"fallback" enum:"late,eager"`
	// Percentage of the proxy's queries that are rescored, chosen by a hash of vector and filter; the rest pass.
	Ramp int `yaml:"ramp" min:"0" max:"100"`
	// Serve the proxy's clients the database's order, and measure how the rescored one would differ.
	Shadow Shadow `yaml:"shadow"`
	// The score that the proxy's clients see, and that their score_threshold is compared with: the learned one, or the
	// store's own, in the learned order.
	Score string `yaml:"score" enum:"learned,store"`
	// What the proxy passes because its meaning changes, and this route answers all the same: score-threshold,
	// indexed-only, consistency, round-decimal, prefetch, hybrid. docs/proxy.md says what each comes to mean.
	OptIn []string `yaml:"opt_in"`
	// Ask the store for exhaustive search; answers can then be proved exact.
	ExactSearch bool `yaml:"exact_search"`
	// The stored vectors have norm 1.
	UnitVectors bool `yaml:"unit_vectors"`
	// Payload or scalar field with the item that a row belongs to; for max-sim. Of a model with behavioural vectors
	// it is a field of the companion, likeness_owner if empty.
	Owner string `yaml:"owner"`
	// Read consistency, in the store's words; empty is its default.
	Consistency string `yaml:"consistency"`
	// Partitions to search; empty is all.
	Partitions []string `yaml:"partitions"`
	// What to answer when scoring fails: the store's own order, marked degraded, or UNAVAILABLE.
	Failure string `yaml:"failure" enum:"fail_open,fail_closed"`
	// Name of a ranker, which has the last word on the order of the best candidates. A relevance-based model (rbe) takes a
	// query's vector from it, too.
	Ranker string `yaml:"ranker"`
	// Items that it may score for a search, the supports of a relevance-based model among them.
	Calls int `yaml:"calls" min:"1"`
	// Rounds in which they are spent. Between two, a relevance-based model's query vector is fitted to the true scores so
	// far, and candidates are fetched again.
	RankRounds int `yaml:"rank_rounds" min:"1" max:"16"`
	// Greatest k; 0 is limits.max_k.
	MaxK int `yaml:"max_k" min:"0"`
	// Most rows of one first-stage search; 0 is limits.max_depth.
	MaxDepth int `yaml:"max_depth" min:"0"`
	// Most rounds of deepening.
	MaxRounds int `yaml:"max_rounds" min:"1"`
	// How long a write that comes by the proxy may be kept back until the journal in state_dir has it; beyond that it is
	// forwarded, and all rows are compared later. A live table and a companion follow such writes.
	WriteBudget time.Duration `yaml:"write_budget" min:"1"`
	// The comparison of all rows of the collection with the live table and the companion, which finds what bypassed
	// the proxy.
	Reconcile Reconcile `yaml:"reconcile"`
	// A share of the live answers that carry the route's calibration, audited in the background.
	Audit Audit `yaml:"audit"`
	// Versions of the route by name, each with the keys in which it differs. `likeness model activate` puts one in
	// service while the sidecar runs, and reads this file again for it. None: the route is served as it stands.
	Versions map[string]Version `yaml:"versions"`
	// The version that is served. What `likeness model activate` chose since counts more, until this key is changed.
	Active string `yaml:"active"`
	// How many of the versions that were served, the active and the previous one among them, `likeness model gc` keeps.
	KeepVersions int `yaml:"keep_versions" min:"2"`
	// An alias in the store that activation points at the version's companion, for clients that search it themselves.
	CompanionAlias string `yaml:"companion_alias"`
}

// Version is a route's other model: the keys that are not empty count in place of the route's.
type Version struct {
	// Name of a model.
	Model string `yaml:"model"`
	// The table that `likeness index --version` wrote.
	Table string `yaml:"table" path:"true"`
	// The companion collection that it wrote.
	Companion string `yaml:"companion"`
	// Where the items' features live: table, stored or derived.
	Placement string `yaml:"placement"`
	// First-stage searches of a request that does not say.
	Strategy string `yaml:"strategy"`
	// Rows asked of each first-stage search; 0 is the route's.
	Depth int `yaml:"depth" min:"0"`
	// Rows asked of the averaged search of the combined strategy; 0 is the route's.
	AverageDepth int `yaml:"average_depth" min:"0"`
	// Weights of the component pairs in the averaged search.
	Weights string `yaml:"weights"`
	// The learned search of the distilled strategy.
	Head string `yaml:"head"`
}

// Proxy is a listener for clients of a Qdrant or Milvus store.
type Proxy struct {
	// Name of the store that everything else is forwarded to.
	Store string `yaml:"store"`
	// Where the store's gRPC clients connect; empty is nowhere. Port 0 takes a free one.
	ListenGRPC string `yaml:"listen_grpc"`
	// Where Qdrant's REST clients connect; empty is nowhere. Port 0 takes a free one.
	ListenREST string `yaml:"listen_rest"`
	// TLS of both listeners; without a certificate they are plain text.
	TLS TLS `yaml:"tls"`
	// URL of Qdrant's REST API, http://host:port; listen_rest needs it.
	RESTURL string `yaml:"rest_url"`
	// Names of the routes that answer searches; empty is every route of the store.
	Routes []string `yaml:"routes"`
}

// Reconcile compares all rows of a collection with what was derived from them, and repairs what differs.
type Reconcile struct {
	// Time from the end of one to the next; 0 is none but those after a write was missed, or when asked.
	Interval time.Duration `yaml:"interval" min:"0"`
	// How many rows are read in a second; 0 is as many as the store gives.
	RowsPerSecond int `yaml:"rows_per_second" min:"0"`
}

// Audit compares live answers with the exact ones.
type Audit struct {
	// The share of the answers that is audited, each by scoring the whole table on one core; 0 is none.
	Share float64 `yaml:"share" min:"0" max:"1"`
	// Most audits in a second; answers beyond it are left out.
	PerSecond float64 `yaml:"per_second" min:"0"`
	// The probability that a calibration is rejected although it holds, however long it is audited.
	Alpha float64 `yaml:"alpha" min:"0.000001" max:"0.5"`
}

// Shadow is a comparison beside what clients are served.
type Shadow struct {
	// Share of the queries that are rescored for comparison; above 0 no query is answered rescored.
	Share float64 `yaml:"share" min:"0" max:"1"`
}
