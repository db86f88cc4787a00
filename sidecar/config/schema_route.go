package config

import (
	"time"

	"github.com/likenessdb/likeness/rerank"
)

// Placement says where the feature rows of the items are kept.
type Placement string

// The placements.
const (
	// PlacementAuto stands for the placement that suits model, parts and vector field. An
	// empty placement means the same.
	PlacementAuto Placement = "auto"
	// PlacementRewrite needs no feature rows. The store searches by the pulled-back vector,
	// and φ of a row is its score times a scale plus an offset.
	PlacementRewrite Placement = "rewrite"
	// PlacementTable keeps feature rows in the sidecar, in a table that `likeness index` built.
	PlacementTable Placement = "table"
	// PlacementStored computes feature rows from the vectors that the store returns.
	PlacementStored Placement = "stored"
	// PlacementDerived keeps feature rows in a companion collection that `likeness index` wrote.
	PlacementDerived Placement = "derived"
)

// ScoresStored reports whether an item is scored by its stored vector as the database has it
// at the time of the search.
func (p Placement) ScoresStored() bool { return p == PlacementStored || p == PlacementRewrite }

// FailurePolicy says what a route answers when it cannot rescore.
type FailurePolicy string

// The failure policies.
const (
	// FailOpen answers with the store's own order, marked degraded.
	FailOpen FailurePolicy = "fail_open"
	// FailClosed answers with an error.
	FailClosed FailurePolicy = "fail_closed"
)

// StrategyAuto stands for the strategy that suits model and placement best. An empty
// strategy means the same.
const StrategyAuto rerank.Strategy = "auto"

// Fallback says when a client of the proxy gets the database's own answer.
type Fallback string

// The fallbacks.
const (
	// FallbackLate sends the original request when rescoring fails or the time runs out.
	FallbackLate Fallback = "late"
	// FallbackEager sends the original request at once, beside rescoring.
	FallbackEager Fallback = "eager"
)

// ScoreKind says whose scores the clients of the proxy see.
type ScoreKind string

// The kinds of score.
const (
	ScoreLearned ScoreKind = "learned"
	ScoreStore   ScoreKind = "store"
)

// Writes says who writes to a route's collection.
type Writes string

// The declarations of Writes.
const (
	// WritesAny: other clients or sidecars may write to the database directly.
	WritesAny Writes = "any"
	// WritesProxy: every write to the collection passes through the proxy of this sidecar.
	WritesProxy Writes = "proxy"
)

// Policy holds the operator's settings of how a route answers searches. Package route
// serves a Policy as it is.
//
// A Policy written by hand may leave fields zero. Strategy, Depth, Weights, Failure,
// MaxRounds, Calls and RankRounds then have the values of DefaultPolicy, MaxK and MaxDepth
// the limits of Default, AverageDepth is Depth, and Placement follows from the open parts
// of the route. A Timeout of 0 sets no limit; a Ramp of 0 rescores no query of the proxy.
type Policy struct {
	// Name is the route's key in Config.Routes. Config.RouteAt sets it.
	Name string `yaml:"-"`

	// Name of a store.
	StoreName string `yaml:"store" required:"true" reload:"restart"`
	// The collection that is searched.
	Collection string `yaml:"collection" required:"true" reload:"restart"`
	// The vector field that is searched; empty takes the collection's only field, or its unnamed one.
	Vector string `yaml:"vector" reload:"restart"`
	// The multi-vector field that holds an item's vectors, for a model of kind late.
	Vectors string `yaml:"vectors" reload:"restart"`
	// Name of a model. Either the route or each of its versions must name one.
	ModelName string `yaml:"model" reload:"activation"`
	// Where the items' features come from: a table in the sidecar, the stored vectors, or a companion (derived).
	// rewrite needs none: one search by another vector is the answer. auto takes table if the route names one, derived
	// for behavioural vectors, stored beside another companion, otherwise rewrite where it can, otherwise stored.
	Placement Placement `yaml:"placement" enum:"auto,rewrite,table,stored,derived" reload:"activation"`
	// The companion collection that `likeness index` wrote.
	Companion string `yaml:"companion" reload:"activation"`
	// First-stage searches of a request that names no strategy (docs/concepts.md).
	Strategy rerank.Strategy `yaml:"strategy" enum:"auto,per_embedding,average,combined,distilled,companion,scan" reload:"live"`
	// For requests that name no strategy: scan the table, with exact answers, while that is not slower than searching
	// the store.
	ScanIfFaster bool `yaml:"scan_if_faster" reload:"live"`
	// Rows that each first-stage search returns.
	Depth int `yaml:"depth" min:"1" reload:"live"`
	// Rows that the averaged search of the combined strategy returns.
	AverageDepth int `yaml:"average_depth" min:"1" reload:"live"`
	// How the averaged search weighs the pairs of components.
	Weights rerank.Weights `yaml:"weights" enum:"uniform,gates" reload:"live"`
	// Which learned search the distilled strategy sends if the model has several; empty takes the first.
	Head string `yaml:"head" reload:"live"`
	// Search deeper until no missing item can beat the K-th score by more than this. Empty asks for no proof.
	MaxGap *float32 `yaml:"max_gap" min:"0" reload:"live"`
	// Time limit of a request, which may set a shorter one.
	Timeout time.Duration `yaml:"timeout" min:"1" reload:"live"`
	// Time within which a client of the proxy gets an answer, the database's own if need be. 0 leaves the call's
	// deadline.
	LatencyBudget time.Duration `yaml:"latency_budget" min:"0" reload:"live"`
	// When the proxy sends the original request to the database. late: at the first failure, or the last moment for an
	// answer. eager: at once; the first answer counts.
	Fallback Fallback `yaml:"fallback" enum:"late,eager" reload:"live"`
	// Percentage of the proxy's queries that the route answers; a hash of vector, field and filter decides.
	Ramp int `yaml:"ramp" min:"0" max:"100" reload:"live"`
	// Serve the proxy's clients the database's order, and measure how the rescored order differs.
	Shadow Shadow `yaml:"shadow"`
	// Which scores the proxy's clients see: the learned scores, or the store's in the learned order.
	Score ScoreKind `yaml:"score" enum:"learned,store" reload:"live"`
	// Kinds of request that this route answers although rescoring changes their meaning (docs/proxy.md): score-threshold,
	// indexed-only, consistency, round-decimal, prefetch, hybrid.
	OptIn []string `yaml:"opt_in" reload:"live"`
	// Where the route rewrites: also prefetches of Qdrant's queries and lists of Milvus's hybrid searches by a
	// vector of this field (docs/proxy.md).
	RewriteLegs bool `yaml:"rewrite_legs" reload:"live"`
	// Candidates of an HNSW index (hnsw_ef of Qdrant, ef of Milvus) in a rewritten search, unless the client names
	// a number. 0 leaves it to the database.
	EF int `yaml:"ef" min:"0" reload:"live"`
	// Ask the store for exhaustive search, so that answers can be proved exact. The proxy adds this to a rewritten
	// request of Qdrant's unless the request names exact, hnsw_ef or indexed_only. Milvus is exhaustive by a FLAT index
	// alone.
	ExactSearch bool `yaml:"exact_search" reload:"live"`
	// Who writes to the collection. any: writes may bypass the proxy, so answers from a table or companion are
	// snapshots. proxy: all writes pass through this sidecar's proxy, or those that share its journal, and such
	// answers can be exact (docs/proxy.md).
	Writes Writes `yaml:"writes" enum:"any,proxy" reload:"restart"`
	// Declares that the stored vectors have norm 1, where the database does not see to it.
	UnitVectors bool `yaml:"unit_vectors" reload:"live"`
	// Field that names the item of each row, for max-sim; empty for a multi-vector field of Qdrant.
	Owner string `yaml:"owner" reload:"activation"`
	// Read consistency, in the store's words; empty takes the store's default.
	Consistency string `yaml:"consistency" reload:"live"`
	// Partitions to search; empty searches all.
	Partitions []string `yaml:"partitions" reload:"live"`
	// The answer when scoring fails: the store's order, marked degraded, or the error UNAVAILABLE.
	Failure FailurePolicy `yaml:"failure" enum:"fail_open,fail_closed" reload:"live"`
	// Name of the embedder of queries that are only text; of a relevance-based model it makes the vector for mix.
	EmbedderName string `yaml:"embedder" reload:"activation"`
	// Embeds the items of a bridge again, a few at a time.
	Reembed Reembed `yaml:"reembed"`
	// Name of a ranker, which orders the best candidates.
	RankerName string `yaml:"ranker" reload:"activation"`
	// Items that the ranker may score for one search, including the supports of a relevance-based model.
	Calls int `yaml:"calls" min:"1" reload:"live"`
	// Rounds over which the calls are spread; after each the query's vector is fitted to the scores so far. Above 1
	// the model must be one inner product.
	RankRounds int `yaml:"rank_rounds" min:"1" max:"16" reload:"live"`
	// Share of the first round that is taken from the database's own order. For rbe the query then needs a
	// stored_vector or a text for the embedder.
	Mix float64 `yaml:"mix" min:"0" max:"1" reload:"live"`
	// Greatest k; 0 means limits.max_k.
	MaxK int `yaml:"max_k" min:"0" reload:"live"`
	// Most rows of one first-stage search; 0 means limits.max_depth.
	MaxDepth int `yaml:"max_depth" min:"0" reload:"live"`
	// How many times a search may go deeper.
	MaxRounds int `yaml:"max_rounds" min:"1" reload:"live"`
}

// Reembeds reports whether the route embeds its items again.
func (p *Policy) Reembeds() bool { return p.Reembed.Text != "" }

// IsEager reports whether the proxy sends the original request at once, beside rescoring.
func (p *Policy) IsEager() bool { return p.Fallback == FallbackEager }

// PassPercent returns the percentage of the proxy's queries that the database answers
// without rescoring.
func (p *Policy) PassPercent() int { return 100 - p.Ramp }

// KeepsStoreScores reports whether the proxy's clients see the store's scores, in the
// learned order.
func (p *Policy) KeepsStoreScores() bool { return p.Score == ScoreStore }

// Reembed embeds the items of a bridge again by the route's embedder, while the route answers searches. An item's new vector
// takes the place of what the bridge makes of its old one in the companion.
type Reembed struct {
	// Payload field with the text of an item. Empty embeds nothing again. Needs placement derived, an embedder and state_dir.
	Text string `yaml:"text" reload:"restart"`
	// Most items that each sidecar embeds in a second. Those that answers showed come first.
	Rate float64 `yaml:"rate" min:"0.001" max:"100000" reload:"live"`
}

// Shadow measures rescoring while clients get the database's answers.
type Shadow struct {
	// Share of the queries that are rescored for comparison. Above 0 every client gets the database's order.
	Share float64 `yaml:"share" min:"0" max:"1" reload:"live"`
}

// Route binds a collection to a model. Beside the Policy it says what is opened for the
// route, how the route follows writes, and which versions it has.
type Route struct {
	Policy `yaml:",inline"`

	// The table file that `likeness index` wrote. The scan strategy and the table placement need one.
	Table string `yaml:"table" path:"true" reload:"activation"`
	// Number format of the table. bfloat16 and float16 take half the memory of float32, int8 a quarter; certificates
	// account for the rounding.
	TableFormat string `yaml:"table_format" enum:"float32,bfloat16,float16,int8" reload:"activation"`
	// Layout of the table: row after row, or sixteen rows side by side, which only a scan reads faster.
	TableLayout string `yaml:"table_layout" enum:"rows,tiles" reload:"activation"`
	// Also keep the rows in float32, to make scores exact.
	TableFullPrecision bool `yaml:"table_full_precision" reload:"activation"`
	// Open the table for writes while it is searched. Only one process can.
	TableLive bool `yaml:"table_live" reload:"restart"`
	// Name of a plugin that serves a device, which keeps a copy of the table and scores large batches.
	Device string `yaml:"device" reload:"activation"`
	// Searches of this route in flight; one more is refused at once. 0 means limits.max_searches.
	MaxSearches int `yaml:"max_searches" min:"0" reload:"live"`
	// Searches of this route in a second. More are refused, or over the proxy answered by the database. 0 sets no
	// limit.
	Rate float64 `yaml:"rate" min:"0" reload:"live"`
	// Searches that may come at once after a pause; 0 means the searches of one second.
	Burst int `yaml:"burst" min:"0" reload:"live"`
	// How long the proxy may hold a write back until the journal has it.
	WriteBudget time.Duration `yaml:"write_budget" min:"1" reload:"restart"`
	// Compares all rows of the collection with the live table and the companion, to find writes that bypassed the proxy.
	Reconcile Reconcile `yaml:"reconcile"`
	// Lets a route without a calibration make one of its live answers.
	SelfCalibration bool `yaml:"self_calibration" reload:"live"`
	// Reads the whole collection to calibrate the route, where it has no table and the store gives no exact answers.
	CalibrationScan CalibrationScan `yaml:"calibration_scan"`
	// Audits in the background a share of the live answers that carry the route's calibration.
	Audit Audit `yaml:"audit"`
	// Keeps which items answers showed, and what people did with them: the log from which the next model learns.
	Events Events `yaml:"events"`
	// Compares the version in service with another one on live traffic.
	Experiment Experiment `yaml:"experiment"`
	// Versions of the route by name, each with the keys in which it differs from the route. `likeness model activate`
	// reads this file again and switches the running sidecar to a version.
	Versions map[string]Version `yaml:"versions"`
	// The version to serve. A later `likeness model activate` takes precedence until this key is changed.
	Active string `yaml:"active" reload:"live"`
	// How many of the versions that were served `likeness model gc` keeps. The active and the previous one are always
	// among them.
	KeepVersions int `yaml:"keep_versions" min:"2" reload:"activation"`
	// An alias that activation points at the companion of the new version, for clients that search it themselves.
	CompanionAlias string `yaml:"companion_alias" reload:"activation"`
}

// Version is another model of a route, with the table and companion that were built for it. Its keys that
// are not empty replace the keys of the route.
type Version struct {
	// Name of a model.
	ModelName string `yaml:"model" reload:"activation"`
	// The table file that `likeness index --version` wrote.
	Table string `yaml:"table" path:"true" reload:"activation"`
	// The companion collection that `likeness index --version` wrote.
	Companion string `yaml:"companion" reload:"activation"`
	// The version's placement: table, stored or derived.
	Placement Placement `yaml:"placement" reload:"activation"`
	// The version's strategy.
	Strategy rerank.Strategy `yaml:"strategy" reload:"live"`
	// The version's depth; 0 means the route's.
	Depth int `yaml:"depth" min:"0" reload:"live"`
	// The version's average_depth; 0 means the route's.
	AverageDepth int `yaml:"average_depth" min:"0" reload:"live"`
	// The version's weights.
	Weights rerank.Weights `yaml:"weights" reload:"live"`
	// The version's head.
	Head string `yaml:"head" reload:"live"`
}

// Reconcile compares all rows of a collection with the data derived from them, and repairs the differences.
type Reconcile struct {
	// Pause between two comparisons. With 0 rows are compared only after a missed write, or on request.
	Interval time.Duration `yaml:"interval" min:"0" reload:"restart"`
	// Rows that are read in a second; 0 reads as fast as the store delivers.
	RowsPerSecond int `yaml:"rows_per_second" min:"0" reload:"restart"`
}

// CalibrationScan bounds how a route that calibrates itself reads its collection.
type CalibrationScan struct {
	// Local time, HH:MM, in whose hour a scan may begin. The first begins at once if it takes ten minutes at most.
	At string `yaml:"at" reload:"live"`
	// Rows that are read in a second, on one core, none while the sidecar is busy. 0 never scans.
	RowsPerSecond int `yaml:"rows_per_second" min:"0" reload:"live"`
}

// TimeOfDay returns At as the time since midnight.
func (s CalibrationScan) TimeOfDay() (time.Duration, error) {
	at, err := time.Parse("15:04", s.At)
	return time.Duration(at.Hour())*time.Hour + time.Duration(at.Minute())*time.Minute, err
}

// Audit compares live answers with exact answers.
type Audit struct {
	// Share of the answers drawn for an audit, which scores the whole table on one core. Some are skipped, and
	// counted in likeness_audited_answers_total.
	Share float64 `yaml:"share" min:"0" max:"1" reload:"live"`
	// Most audits in a second; more are skipped, outcome="rate".
	PerSecond float64 `yaml:"per_second" min:"0" reload:"live"`
	// Probability that the audit ever rejects a calibration that holds.
	Alpha float64 `yaml:"alpha" min:"0.000001" max:"0.5" reload:"live"`
}

// Events says which answers of a route are kept in state_dir/events, and what of them (SECURITY.md).
type Events struct {
	// Share of the answers that are kept. Above 0 every answer has an id, which feedback names. 0 keeps nothing and takes no feedback.
	Share float64 `yaml:"share" min:"0" max:"1" reload:"restart"`
	// What is kept of a request beside the ids, scores and certificate of its answer: vector (as float16), text, user, filter (a hash).
	Keep []string `yaml:"keep" reload:"restart"`
	// Which of text and user are replaced by a keyed hash.
	Hash []string `yaml:"hash" reload:"restart"`
	// Most bytes on disk; the oldest events are deleted in time.
	Size Bytes `yaml:"size" min:"1048576" reload:"restart"`
	// Age at which a new file begins.
	Age time.Duration `yaml:"age" min:"1000000000" reload:"restart"`
	// How long events are kept, and feedback on an answer is taken.
	Retention time.Duration `yaml:"retention" min:"1000000000" reload:"restart"`
	// A file of 16 bytes or more, the key of answer ids and hashes; empty makes one. Sidecars that share it take
	// feedback on each other's answers.
	KeyFile string `yaml:"key_file" path:"true" reload:"restart"`
}

// Experiment compares the version in service with a candidate, by what people choose.
type Experiment struct {
	// The version that is tried. Empty: there is no experiment.
	Candidate string `yaml:"candidate" reload:"live"`
	// interleave mixes the answers of both versions, best first, and sees whose items are chosen. ab answers each session by one
	// version, and needs about a hundred times as many answers.
	Kind string `yaml:"kind" enum:"interleave,ab" reload:"live"`
	// Share of the users, or of the queries of unknown users, that takes part. With promote: auto it is the share to begin with.
	Share float64 `yaml:"share" min:"0.0001" max:"1" reload:"live"`
	// What each kind of feedback is worth. Other kinds are worth nothing.
	Feedback map[string]float64 `yaml:"feedback" reload:"live"`
	// How long the answers to one user, or to one query of unknown users, count as one session. Feedback counts until the end of
	// the next one.
	Session time.Duration `yaml:"session" min:"1000000000" reload:"live"`
	// Probability of a wrong verdict where no version is better, however often one looks.
	Alpha float64 `yaml:"alpha" min:"0.0001" max:"0.4" reload:"live"`
	// Limits that end the experiment.
	Guard ExperimentGuard `yaml:"guard"`
	// auto raises the share while no limit is exceeded, to a quarter at most, and once the candidate is better to all; then the
	// candidate goes into service. ask waits for `likeness model activate`.
	Promote string `yaml:"promote" enum:"auto,ask" reload:"live"`
}

// ExperimentGuard has the limits of a candidate. The experiment ends where one is exceeded beyond chance.
type ExperimentGuard struct {
	// Time within which 99 % of the candidate's answers come. An answer waits no longer for the candidate.
	LatencyP99 time.Duration `yaml:"latency_p99" min:"1000000" reload:"live"`
	// Greatest share of degraded answers.
	Degraded float64 `yaml:"degraded" min:"0.0001" max:"1" reload:"live"`
	// Greatest share of empty answers where the version in service finds something.
	Empty float64 `yaml:"empty" min:"0.0001" max:"1" reload:"live"`
	// Greatest share of failed searches.
	Errors float64 `yaml:"errors" min:"0.0001" max:"1" reload:"live"`
}

// Proxy is a listener for clients of a Qdrant or Milvus store.
type Proxy struct {
	// Name of the store that receives everything that no route answers.
	Store string `yaml:"store"`
	// Address where the store's gRPC clients connect; empty opens no listener. Port 0 takes a free port.
	ListenGRPC string `yaml:"listen_grpc"`
	// Address where Qdrant's REST clients connect; empty opens no listener. Port 0 takes a free port.
	ListenREST string `yaml:"listen_rest"`
	// TLS of both listeners; without a certificate they speak plain text.
	TLS TLS `yaml:"tls"`
	// URL of Qdrant's REST API, http://host:port; listen_rest needs it.
	RESTURL string `yaml:"rest_url"`
	// Names of the routes that answer searches; empty means every route of the store.
	Routes []string `yaml:"routes"`
}

// Listens reports whether there is a proxy at all.
func (p Proxy) Listens() bool { return p.ListenGRPC != "" || p.ListenREST != "" }
