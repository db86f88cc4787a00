// Package recorder wraps a real store and records every call with all of its
// arguments. Tests compare the records with the original request, field by field, and
// so find the place where an argument gets lost.
package recorder

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
)

// ErrAbilities means that no recorder matches the store's set of optional abilities.
var ErrAbilities = errors.New("no recorder has the abilities of the store")

// Method names a method of the interfaces of package adapters.
type Method string

// Recorded methods.
const (
	Search      Method = "Search"
	Ping        Method = "Ping"
	Fetch       Method = "Fetch"
	Scan        Method = "Scan"
	Cut         Method = "Cut"
	Describe    Method = "Describe"
	Count       Method = "Count"
	Create      Method = "Create"
	Write       Method = "Write"
	Drop        Method = "Drop"
	Delete      Method = "Delete"
	Match       Method = "Match"
	SwitchAlias Method = "SwitchAlias"
	Identify    Method = "Identify"
)

// Call holds the arguments of one call and the values of its context. Arguments are
// copies, which later changes by the caller do not affect.
type Call struct {
	Method Method
	// Argument is the request of a method that has a request type
	// (adapters.SearchRequest, FetchRequest, ScanRequest), or Arguments for any other
	// method.
	Argument any
	// AsCaller says whether the call used the caller's credentials.
	AsCaller bool
	// Metadata is the outgoing gRPC metadata, which carries a caller's credentials.
	Metadata metadata.MD
	// Deadline is the deadline of the context, or zero.
	Deadline time.Time
}

// Arguments holds the arguments of a method without a request type.
type Arguments struct {
	Collection, Filter, Alias string
	Parts                     int
	IDs                       []rerank.ID
	Schema                    adapters.Schema
	Rows                      adapters.Rows
}

// Collection returns the name of the collection that the call reads or writes.
func (c Call) Collection() string {
	switch r := c.Argument.(type) {
	case adapters.SearchRequest:
		return r.Collection
	case adapters.FetchRequest:
		return r.Collection
	case adapters.ScanRequest:
		return r.Collection
	case Arguments:
		return r.Collection
	}
	return ""
}

// Hooks change a call after it was recorded. The zero value changes nothing.
type Hooks struct {
	// Before runs before the call. It may wait, or make the call fail with an error.
	Before func(ctx context.Context, c Call) error
	// Forward changes a search before it reaches the store, for example to imitate a
	// store without partitions.
	Forward func(r adapters.SearchRequest) adapters.SearchRequest
	// Lists changes the answer to a search.
	Lists func(lists []rerank.List) []rerank.List
}

// Recorder holds the calls to the stores that New made with it. It is safe for
// concurrent use.
type Recorder struct {
	mu    sync.Mutex
	calls []Call
}

// Calls returns the recorded calls of the given methods, or of every method if none is
// given, in the order in which they began.
func (r *Recorder) Calls(of ...Method) []Call {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []Call
	for _, c := range r.calls {
		if len(of) == 0 || slices.Contains(of, c.Method) {
			out = append(out, c)
		}
	}
	return out
}

// Forget discards the recorded calls.
func (r *Recorder) Forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = nil
}

func (r *Recorder) note(ctx context.Context, m Method, argument any) Call {
	c := Call{Method: m, Argument: copyOf(argument), AsCaller: adapters.IsAsCaller(ctx)}
	if md, ok := metadata.FromOutgoingContext(ctx); ok {
		c.Metadata = md.Copy()
	}
	c.Deadline, _ = ctx.Deadline()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, c)
	return c
}

// New returns a store that records its calls in r and has exactly the abilities of
// inner. It returns ErrAbilities if inner's abilities match neither a store of
// likeness nor a store that only searches.
func New(inner adapters.Store, r *Recorder, h Hooks) (adapters.Store, error) {
	bare := &store{Store: inner, recorder: r, hooks: h}
	rows, hasRows := inner.(rowStore)
	if !hasRows {
		if countAbilities(inner) > 0 {
			return nil, fmt.Errorf("%w: %T has some of those of an embedded store", ErrAbilities, inner)
		}
		return bare, nil
	}
	resident := embedded{bare, rows}
	identifier, identifies := inner.(adapters.Identifier)
	partitioner, cuts := inner.(adapters.Partitioner)
	switch {
	case identifies && cuts:
		return cutter{server{resident, identifier}, partitioner}, nil
	case identifies:
		return server{resident, identifier}, nil
	case cuts:
		return nil, fmt.Errorf("%w: %T cuts collections and does not identify them", ErrAbilities, inner)
	}
	return resident, nil
}

// rowStore combines the abilities that the embedded store shares with every server.
type rowStore interface {
	adapters.Store
	adapters.Fetcher
	adapters.Scanner
	adapters.Describer
	adapters.Counter
	adapters.Writer
	adapters.Deleter
	adapters.Matcher
	adapters.Excluder
	adapters.Aliaser
}

// countAbilities counts the optional interfaces of a store.
func countAbilities(s adapters.Store) (n int) {
	_, fetches := s.(adapters.Fetcher)
	_, scans := s.(adapters.Scanner)
	_, cuts := s.(adapters.Partitioner)
	_, describes := s.(adapters.Describer)
	_, counts := s.(adapters.Counter)
	_, writes := s.(adapters.Writer)
	_, deletes := s.(adapters.Deleter)
	_, matches := s.(adapters.Matcher)
	_, excludes := s.(adapters.Excluder)
	_, aliases := s.(adapters.Aliaser)
	_, identifies := s.(adapters.Identifier)
	for _, has := range []bool{fetches, scans, cuts, describes, counts, writes, deletes, matches, excludes, aliases, identifies} {
		if has {
			n++
		}
	}
	return n
}

// store records the calls that every store supports.
type store struct {
	adapters.Store
	recorder *Recorder
	hooks    Hooks
}

// begin records a call and returns the error of the Before hook.
func (s *store) begin(ctx context.Context, m Method, argument any) error {
	c := s.recorder.note(ctx, m, argument)
	if s.hooks.Before == nil {
		return nil
	}
	return s.hooks.Before(ctx, c)
}

func (s *store) Search(ctx context.Context, r adapters.SearchRequest) ([]rerank.List, error) {
	if err := s.begin(ctx, Search, r); err != nil {
		return nil, err
	}
	if s.hooks.Forward != nil {
		r = s.hooks.Forward(r)
	}
	lists, err := s.Store.Search(ctx, r)
	if err == nil && s.hooks.Lists != nil {
		lists = s.hooks.Lists(lists)
	}
	return lists, err
}

func (s *store) Ping(ctx context.Context) error {
	if err := s.begin(ctx, Ping, Arguments{}); err != nil {
		return err
	}
	return s.Store.Ping(ctx)
}

// embedded records the calls that an embedded store supports.
type embedded struct {
	*store
	rows rowStore
}

func (s embedded) Fetch(ctx context.Context, r adapters.FetchRequest) (adapters.Rows, error) {
	if err := s.begin(ctx, Fetch, r); err != nil {
		return adapters.Rows{}, err
	}
	return s.rows.Fetch(ctx, r)
}

func (s embedded) Scan(ctx context.Context, r adapters.ScanRequest, yield func(rows adapters.Rows, cursor string) error) error {
	if err := s.begin(ctx, Scan, r); err != nil {
		return err
	}
	return s.rows.Scan(ctx, r, yield)
}

func (s embedded) Describe(ctx context.Context, collection string) (adapters.Description, error) {
	if err := s.begin(ctx, Describe, Arguments{Collection: collection}); err != nil {
		return adapters.Description{}, err
	}
	return s.rows.Describe(ctx, collection)
}

func (s embedded) Count(ctx context.Context, collection string) (int64, error) {
	if err := s.begin(ctx, Count, Arguments{Collection: collection}); err != nil {
		return 0, err
	}
	return s.rows.Count(ctx, collection)
}

func (s embedded) Create(ctx context.Context, schema adapters.Schema) error {
	if err := s.begin(ctx, Create, Arguments{Collection: schema.Collection, Schema: schema}); err != nil {
		return err
	}
	return s.rows.Create(ctx, schema)
}

func (s embedded) Write(ctx context.Context, collection string, schema adapters.Schema, rows adapters.Rows) error {
	if err := s.begin(ctx, Write, Arguments{Collection: collection, Schema: schema, Rows: rows}); err != nil {
		return err
	}
	return s.rows.Write(ctx, collection, schema, rows)
}

func (s embedded) Drop(ctx context.Context, collection string) error {
	if err := s.begin(ctx, Drop, Arguments{Collection: collection}); err != nil {
		return err
	}
	return s.rows.Drop(ctx, collection)
}

func (s embedded) Delete(ctx context.Context, collection string, ids []rerank.ID) error {
	if err := s.begin(ctx, Delete, Arguments{Collection: collection, IDs: ids}); err != nil {
		return err
	}
	return s.rows.Delete(ctx, collection, ids)
}

func (s embedded) Match(ctx context.Context, collection, filter string) ([]rerank.ID, error) {
	if err := s.begin(ctx, Match, Arguments{Collection: collection, Filter: filter}); err != nil {
		return nil, err
	}
	return s.rows.Match(ctx, collection, filter)
}

// Excluded is not recorded: it calls no server.
func (s embedded) Excluded(ids []rerank.ID, filter string) (all []rerank.ID, rest string, err error) {
	return s.rows.Excluded(ids, filter)
}

func (s embedded) SwitchAlias(ctx context.Context, alias, collection string) error {
	if err := s.begin(ctx, SwitchAlias, Arguments{Collection: collection, Alias: alias}); err != nil {
		return err
	}
	return s.rows.SwitchAlias(ctx, alias, collection)
}

// server records the calls that a store across a network supports.
type server struct {
	embedded
	identifier adapters.Identifier
}

func (s server) Identify(ctx context.Context, name string) (adapters.Identity, error) {
	if err := s.begin(ctx, Identify, Arguments{Collection: name}); err != nil {
		return adapters.Identity{}, err
	}
	return s.identifier.Identify(ctx, name)
}

// cutter records the calls of a server that is also an adapters.Partitioner.
type cutter struct {
	server
	partitioner adapters.Partitioner
}

func (s cutter) Cut(ctx context.Context, collection string, parts int) ([]string, error) {
	if err := s.begin(ctx, Cut, Arguments{Collection: collection, Parts: parts}); err != nil {
		return nil, err
	}
	return s.partitioner.Cut(ctx, collection, parts)
}
