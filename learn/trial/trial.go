// Package trial tries likeness on a collection that somebody else filled. It only reads:
// it finds out what server answers, looks at the collection, measures the database's own
// search, learns a similarity from what is there, judges it on queries that it did not
// learn from, and writes a folder with a report and a configuration that serves it.
package trial

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/learn/eval"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/wiring"
)

// RefusalError says in one sentence why a collection cannot be tried, and what to do. It
// wraps the error that was met, if there was one.
type RefusalError struct {
	Sentence string
	Cause    error
}

func (r *RefusalError) Error() string { return r.Sentence }

// Unwrap returns the cause.
func (r *RefusalError) Unwrap() error { return r.Cause }

// Options says what to try and how.
type Options struct {
	Access
	// Collection is the collection to try. If empty, Run refuses with the names of all collections.
	Collection string
	// Vector is the vector field. If empty, it is the only or unnamed one.
	Vector string
	// Label is a payload field: rows of one value belong together.
	Label string
	// Log is a log of chosen items.
	Log Log
	// Embedder makes vectors of the log's queries, if these are texts.
	Embedder Embedder
	// Title is the payload field that examples show. If empty, Run picks one.
	Title string
	// Rows is the greatest number of rows that are read.
	Rows int
	K    int
	// Metric is the metric of the verdict. If empty, it is mrr@K for a log and ndcg@K for
	// a label.
	Metric string
	Seed   uint64
	// Out is the folder that is written. It must not exist, be empty or hold a report alone, or Force must be set.
	Out   string
	Force bool
	// Progress reports long work, Note single lines. Either may be nil.
	Progress eval.Progress
	Note     func(string)
}

// Log names the files of a log: the queries' vectors or texts, the chosen items, and the
// ids by which the log names the queries, if they are no row numbers. Lines of JSON can be
// both files.
type Log struct{ Queries, Pairs, QueryIDs string }

// Report is the outcome of a trial.
type Report struct {
	Look     Look     `json:"look"`
	Database Database `json:"database"`
	// Missing says what is missing to learn a similarity, and which payload fields may
	// serve as a label. It is empty if a similarity was learned.
	Missing string   `json:"missing,omitempty"`
	Learned *Learned `json:"learned,omitempty"`
	Served  *Served  `json:"served,omitempty"`
	// Folder is the folder that was written.
	Folder string `json:"folder"`
}

// Learned is a similarity that was learned and judged.
type Learned struct {
	// From says what was learned from, and what judged it.
	From     string       `json:"from"`
	Judgment *eval.Report `json:"judgment"`
}

// trial is one run of Run.
type trial struct {
	Options
	store  adapters.Store
	can    adapters.Abilities
	look   *Look
	sample *sample
	report *Report
}

// Run tries a collection. It returns a *RefusalError for everything that the user can mend,
// and otherwise the store's error or the context's.
func Run(ctx context.Context, o Options) (_ *Report, err error) {
	o.note("looking for a server at %s", o.URL)
	server, err := Find(ctx, o.Access)
	if err != nil {
		return nil, err
	}
	if variable := keyVariable(server.Kind); o.KeyEnv == "" && o.KeyFile == "" && os.Getenv(variable) != "" {
		o.KeyEnv = variable
	}
	parts, err := open(ctx, o.Access, server)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, parts.Close()) }()
	t := &trial{Options: o, store: parts.Stores[storeName], report: &Report{Folder: o.Out}}
	t.can = adapters.AbilitiesOf(t.store)
	if server.Version == "" { // which some servers tell only with credentials
		server.Version, _ = t.can.Inspect.Version(ctx)
	}
	t.report.Look.Server = server
	t.look = &t.report.Look
	return t.report, t.run(ctx)
}

func (t *trial) run(ctx context.Context) error {
	if t.Collection == "" {
		return t.nameOne(ctx)
	}
	if err := t.lookAt(ctx); err != nil {
		return err
	}
	if err := t.checkOut(); err != nil {
		return err
	}
	if err := t.readSample(ctx); err != nil {
		return err
	}
	t.look.tellSimilarities(t.sample)
	task, err := t.newTask(ctx)
	if err != nil {
		return err
	}
	if err := t.makeFolder(); err != nil {
		return err
	}
	if err := t.measureDatabase(ctx); err != nil {
		return err
	}
	if task == nil {
		t.report.Missing = t.missing()
		return nil
	}
	m, err := t.learn(ctx, task)
	if err != nil {
		return err
	}
	if err := t.writeFolder(m); err != nil {
		return err
	}
	return t.serve(ctx, task)
}

// Names in the configuration that is written.
const (
	storeName    = "db"
	modelName    = "learned"
	embedderName = "questions"
)

// open opens the store of a server.
func open(ctx context.Context, a Access, s Server) (*wiring.Assembly, error) {
	c, err := parse(a, s)
	if err != nil {
		return nil, err
	}
	return wiring.Open(ctx, c, wiring.OnlyStore(storeName))
}

// parse makes the configuration of a server. Variables that set keys of a sidecar's configuration
// do not apply: it has a store alone.
func parse(a Access, s Server) (*config.Config, error) {
	text, err := storesYAML(a, s)
	if err != nil {
		return nil, err
	}
	environ := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, config.EnvPrefix) && !strings.HasPrefix(v, a.KeyEnv+"=")
	})
	return config.Parse("likeness.yaml", text, environ, nil)
}
