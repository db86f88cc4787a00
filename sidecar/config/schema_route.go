package config

import "time"

// Route binds a collection to a model.
type Route struct {
	// Name of a store.
	Store string `yaml:"store" required:"true"`
	// The collection that is searched.
	Collection string `yaml:"collection" required:"true"`
	// Its vector field; empty is the only or unnamed one.
	Vector string `yaml:"vector"`
	// Name of a model; it, or each of the versions, must name one.
	Model string `yaml:"model" reload:"activation"`
	// Where the items' features live: a table in the sidecar, computed from the stored vectors, or a companion
	// collection that `likeness index` wrote.
	Placement string `yaml:"placement" enum:"table,stored,derived" reload:"activation"`
	// The table, as `likeness index` wrote it. The scan strategy and the table placement need one.
	Table string `yaml:"table" path:"true" reload:"activation"`
	// How `likeness index` stores the numbers of the table. Narrower formats take a half or a quarter of the memory;
	// certificates know what they lose.
	TableFormat string `yaml:"table_format" enum:"float32,bfloat16,float16,int8" reload:"activation"`
	// How it lays the rows out: one after the other, or sixteen side by side, which only a scan reads faster.
	TableLayout string `yaml:"table_layout" enum:"rows,tiles" reload:"activation"`
	// Keep the rows in float32 too, in a part of the file that is read where scores are made exact.
	TableFullPrecision bool `yaml:"table_full_precision" reload:"activation"`
	// Open the table so that it can be written while it is searched; its log lies beside it. One process can.
	TableLive bool `yaml:"table_live"`
	// Name of a plugin that serves a device. It keeps a copy of the table and scores it where there is much to score;
	// while it cannot, the sidecar does.
	Device string `yaml:"device" reload:"activation"`
	// The companion collection, as `likeness index` wrote it.
	Companion string `yaml:"companion" reload:"activation"`
	// First-stage searches of a request that does not say; auto is average for a model that is one inner product,
	// otherwise the first of distilled, average, per_embedding and scan that model and placement can serve.
	Strategy string `yaml:"strategy" enum:"auto,per_embedding,average,combined,distilled,scan" reload:"live"`
	// Scan the table in place of the first stage, where a request names no strategy, while that takes no longer here:
	// both are measured, the scan when the route is opened. Its answers are exact.
	ScanIfFaster bool `yaml:"scan_if_faster" reload:"live"`
	// Rows asked of each first-stage search.
	Depth int `yaml:"depth" min:"1" reload:"live"`
	// Rows asked of the averaged search of the combined strategy.
	AverageDepth int `yaml:"average_depth" min:"1" reload:"live"`
	// Weights of the component pairs in the averaged search.
	Weights string `yaml:"weights" enum:"uniform,gates" reload:"live"`
	// The learned search of the distilled strategy, where the model has several; empty is its first.
	Head string `yaml:"head" reload:"live"`
	// Search deeper until no missing item can exceed the K-th score by more than this; unset asks for no proof.
	MaxGap *float32 `yaml:"max_gap" min:"0" reload:"live"`
	// Time for a request, where its own deadline is not shorter.
	Timeout time.Duration `yaml:"timeout" min:"1" reload:"live"`
	// Time within which a client of the proxy has an answer, rescored or, where that takes too long, the
	// database's own; 0 is the deadline of the call alone.
	LatencyBudget time.Duration `yaml:"latency_budget" min:"0" reload:"live"`
	// When a client of the proxy gets the database's own answer instead: late sends the original request when it has to
	// leave to be back in time, or at the first failure, while rescoring goes on; eager sends it at once. The first
	// complete answer is the client's.
	Fallback string `yaml:"fallback" enum:"late,eager" reload:"live"`
	// Percentage of the proxy's queries that are rescored, chosen by a hash of vector and filter; the rest pass.
	Ramp int `yaml:"ramp" min:"0" max:"100" reload:"live"`
	// Serve the proxy's clients the database's order, and measure how the rescored one would differ.
	Shadow Shadow `yaml:"shadow"`
	// The score that the proxy's clients see, and that their score_threshold is compared with: the learned one, or the
	// store's own, in the learned order.
	Score string `yaml:"score" enum:"learned,store" reload:"live"`
	// What the proxy passes because its meaning changes, and this route answers all the same: score-threshold,
	// indexed-only, consistency, round-decimal, prefetch, hybrid. docs/proxy.md says what each comes to mean.
	OptIn []string `yaml:"opt_in" reload:"live"`
	// Ask the store for exhaustive search; answers can then be proved exact.
	ExactSearch bool `yaml:"exact_search" reload:"live"`
	// The stored vectors have norm 1.
	UnitVectors bool `yaml:"unit_vectors" reload:"live"`
	// Payload or scalar field with the item that a row belongs to; for max-sim. Of a model with behavioural vectors
	// it is a field of the companion, likeness_owner if empty.
	Owner string `yaml:"owner" reload:"activation"`
	// Read consistency, in the store's words; empty is its default.
	Consistency string `yaml:"consistency" reload:"live"`
	// Partitions to search; empty is all.
	Partitions []string `yaml:"partitions" reload:"live"`
	// What to answer when scoring fails: the store's own order, marked degraded, or UNAVAILABLE.
	Failure string `yaml:"failure" enum:"fail_open,fail_closed" reload:"live"`
	// Name of a ranker, which has the last word on the order of the best candidates. A relevance-based model (rbe) takes a
	// query's vector from it, too.
	Ranker string `yaml:"ranker" reload:"activation"`
	// Items that it may score for a search, the supports of a relevance-based model among them.
	Calls int `yaml:"calls" min:"1" reload:"live"`
	// Rounds in which they are spent. Between two, a relevance-based model's query vector is fitted to the true scores so
	// far, and candidates are fetched again.
	RankRounds int `yaml:"rank_rounds" min:"1" max:"16" reload:"live"`
	// Greatest k; 0 is limits.max_k.
	MaxK int `yaml:"max_k" min:"0" reload:"live"`
	// Most rows of one first-stage search; 0 is limits.max_depth.
	MaxDepth int `yaml:"max_depth" min:"0" reload:"live"`
	// Its searches in flight; one more is refused at once. 0 is limits.max_searches.
	MaxSearches int `yaml:"max_searches" min:"0" reload:"live"`
	// Its searches a second, each of a batch counted; what exceeds it is refused at once, and over the proxy answered by the
	// database. 0 is no limit.
	Rate float64 `yaml:"rate" min:"0" reload:"live"`
	// How many of them may come at once after a pause; 0 is a second's worth.
	Burst int `yaml:"burst" min:"0" reload:"live"`
	// Most rounds of deepening.
	MaxRounds int `yaml:"max_rounds" min:"1" reload:"live"`
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
	Active string `yaml:"active" reload:"live"`
	// How many of the versions that were served, the active and the previous one among them, `likeness model gc` keeps.
	KeepVersions int `yaml:"keep_versions" min:"2" reload:"activation"`
	// An alias in the store that activation points at the version's companion, for clients that search it themselves.
	CompanionAlias string `yaml:"companion_alias" reload:"activation"`
}

// Version is a route's other model: the keys that are not empty count in place of the route's.
type Version struct {
	// Name of a model.
	Model string `yaml:"model" reload:"activation"`
	// The table that `likeness index --version` wrote.
	Table string `yaml:"table" path:"true" reload:"activation"`
	// The companion collection that it wrote.
	Companion string `yaml:"companion" reload:"activation"`
	// Where the items' features live: table, stored or derived.
	Placement string `yaml:"placement" reload:"activation"`
	// First-stage searches of a request that does not say.
	Strategy string `yaml:"strategy" reload:"live"`
	// Rows asked of each first-stage search; 0 is the route's.
	Depth int `yaml:"depth" min:"0" reload:"live"`
	// Rows asked of the averaged search of the combined strategy; 0 is the route's.
	AverageDepth int `yaml:"average_depth" min:"0" reload:"live"`
	// Weights of the component pairs in the averaged search.
	Weights string `yaml:"weights" reload:"live"`
	// The learned search of the distilled strategy.
	Head string `yaml:"head" reload:"live"`
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
	Share float64 `yaml:"share" min:"0" max:"1" reload:"live"`
	// Most audits in a second; answers beyond it are left out.
	PerSecond float64 `yaml:"per_second" min:"0" reload:"live"`
	// The probability that a calibration is rejected although it holds, however long it is audited.
	Alpha float64 `yaml:"alpha" min:"0.000001" max:"0.5" reload:"live"`
}

// Shadow is a comparison beside what clients are served.
type Shadow struct {
	// Share of the queries that are rescored for comparison; above 0 no query is answered rescored.
	Share float64 `yaml:"share" min:"0" max:"1" reload:"live"`
}
