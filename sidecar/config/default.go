package config

import (
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/likenessdb/likeness/rerank"
)

// Default returns the configuration of an empty file.
func Default() Config {
	return Config{
		Listen: Listen{GRPC: "127.0.0.1:7600", Admin: "127.0.0.1:7601", TLS: TLS{MinVersion: "1.2"}, AdminTLS: TLS{MinVersion: "1.2"}},
		Limits: Limits{
			MaxMessageBytes:      64 << 20,
			MaxConcurrentStreams: 1000,
			MaxSearches:          1024,
			Adaptive:             true,
			MaxK:                 1000,
			MaxDepth:             16384,
			MaxBatch:             256,
			BatchParallelism:     8,
		},
		Proxy:    Proxy{TLS: TLS{MinVersion: "1.2"}},
		Kernel:   "auto",
		Replicas: 1,
		Log:      Log{Level: "info", Format: "auto"},
		Trace:    Trace{SampleRatio: 1},
		Shutdown: Shutdown{Grace: 30 * time.Second},
	}
}

// DefaultPolicy returns the policy of a route whose section of the configuration is empty.
func DefaultPolicy() Policy {
	return Policy{
		Placement:    PlacementAuto,
		Strategy:     StrategyAuto,
		Depth:        200,
		AverageDepth: 200,
		Weights:      rerank.UniformWeights,
		Timeout:      5 * time.Second,
		Fallback:     FallbackLate,
		Ramp:         100,
		Score:        ScoreLearned,
		Writes:       WritesAny,
		Failure:      FailOpen,
		Calls:        100,
		RankRounds:   1,
		MaxRounds:    8,
		Reembed:      Reembed{Rate: 10},
	}
}

func defaultRoute() Route {
	return Route{
		Policy:          DefaultPolicy(),
		TableFormat:     "float32",
		TableLayout:     "rows",
		WriteBudget:     5 * time.Millisecond,
		Reconcile:       Reconcile{Interval: time.Hour, RowsPerSecond: 10_000},
		Audit:           Audit{PerSecond: 1, Alpha: 0.01},
		SelfCalibration: true,
		CalibrationScan: CalibrationScan{At: "03:00", RowsPerSecond: 2_000},
		Events:          Events{Keep: []string{"vector", "filter"}, Size: 1 << 30, Age: time.Hour, Retention: 30 * 24 * time.Hour},
		Experiment: Experiment{
			Kind: "interleave", Share: 0.01, Session: 30 * time.Minute, Alpha: 0.05, Promote: "ask",
			Guard: ExperimentGuard{LatencyP99: 100 * time.Millisecond, Degraded: 0.01, Empty: 0.01, Errors: 0.01},
		},
		KeepVersions: 3,
	}
}

func defaultPlugin() Plugin {
	return Plugin{
		StartTimeout:    10 * time.Second,
		HealthInterval:  200 * time.Millisecond, // with the timeout below, a plugin that hangs is restarted within a second
		HealthTimeout:   500 * time.Millisecond,
		MaxMessageBytes: 64 << 20,
		QuarantineAfter: 5,
		Quarantine:      time.Minute,
	}
}

func defaultRanker() Ranker {
	return Ranker{
		HTTP:        RankerHTTP{Dialect: "tei"},
		Timeout:     5 * time.Second,
		BreakAfter:  5,
		BreakFor:    500 * time.Millisecond,
		RetryBudget: 0.1,
		Twice:       true,
	}
}

func defaultEmbedder() Embedder {
	return Embedder{
		Form:        "auto",
		Batch:       32,
		Parallel:    4,
		Timeout:     5 * time.Second,
		Cache:       16 << 20,
		BreakAfter:  5,
		BreakFor:    500 * time.Millisecond,
		RetryBudget: 0.1,
	}
}

func defaultStore() Store {
	return Store{Guard: StoreGuard{BreakAfter: 5, BreakFor: 500 * time.Millisecond, RetryBudget: 0.1}}
}

func defaultCollection() Collection { return Collection{Metric: "inner_product"} }

func defaultVectorFile() VectorFile { return VectorFile{Metric: "inner_product"} }

// UnmarshalYAML decodes a route over its defaults.
func (r *Route) UnmarshalYAML(n *yaml.Node) error {
	type plain Route
	p := plain(defaultRoute())
	err := n.Decode(&p)
	*r = Route(p)
	return err
}

// UnmarshalYAML decodes a store over its defaults.
func (s *Store) UnmarshalYAML(n *yaml.Node) error {
	type plain Store
	p := plain(defaultStore())
	err := n.Decode(&p)
	*s = Store(p)
	return err
}

// UnmarshalYAML decodes a collection over its defaults.
func (c *Collection) UnmarshalYAML(n *yaml.Node) error {
	type plain Collection
	p := plain(defaultCollection())
	err := n.Decode(&p)
	*c = Collection(p)
	return err
}

// UnmarshalYAML decodes a vector field over its defaults.
func (v *VectorFile) UnmarshalYAML(n *yaml.Node) error {
	type plain VectorFile
	p := plain(defaultVectorFile())
	err := n.Decode(&p)
	*v = VectorFile(p)
	return err
}

// UnmarshalYAML decodes a plugin over its defaults.
func (p *Plugin) UnmarshalYAML(n *yaml.Node) error {
	type plain Plugin
	with := plain(defaultPlugin())
	err := n.Decode(&with)
	*p = Plugin(with)
	return err
}

// UnmarshalYAML decodes a ranker over its defaults.
func (r *Ranker) UnmarshalYAML(n *yaml.Node) error {
	type plain Ranker
	with := plain(defaultRanker())
	err := n.Decode(&with)
	*r = Ranker(with)
	return err
}

// UnmarshalYAML decodes an embedder over its defaults.
func (e *Embedder) UnmarshalYAML(n *yaml.Node) error {
	type plain Embedder
	with := plain(defaultEmbedder())
	err := n.Decode(&with)
	*e = Embedder(with)
	return err
}
