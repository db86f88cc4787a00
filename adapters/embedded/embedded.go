// Package embedded is an exact in-process vector store. It searches float32 matrices,
// in memory or mapped from a file, by brute force on every core. It serves collections
// that fit one machine, and is the reference for the other stores.
package embedded

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/internal/turns"
	"github.com/likenessdb/likeness/rerank"
)

var (
	_ adapters.Store     = (*Store)(nil)
	_ adapters.Fetcher   = (*Store)(nil)
	_ adapters.Scanner   = (*Store)(nil)
	_ adapters.Describer = (*Store)(nil)
	_ adapters.Counter   = (*Store)(nil)
	_ adapters.Writer    = (*Store)(nil)
	_ adapters.Deleter   = (*Store)(nil)
	_ adapters.Matcher   = (*Store)(nil)
	_ adapters.Excluder  = (*Store)(nil)
	_ adapters.Aliaser   = (*Store)(nil)
)

// Store holds collections by name. It is safe for concurrent use. A write waits for
// the running searches of its collection, and new searches wait for the write.
type Store struct {
	limits adapters.Limits
	turns  *turns.Turns // limits the workers of all searches

	mu          sync.RWMutex
	collections map[string]*collection
	aliases     map[string]string
}

// Option configures a new store.
type Option func(*Store)

// WithLimits sets the limits of requests. A limit of 0, and the default, is no limit.
func WithLimits(l adapters.Limits) Option { return func(s *Store) { s.limits = l } }

// WithTurns makes searches share processors with the rest of the process. Without it
// searches share them among themselves, with as many workers as there are processors.
func WithTurns(t *turns.Turns) Option { return func(s *Store) { s.turns = t } }

// New returns a store without collections.
func New(opts ...Option) *Store {
	s := &Store{
		collections: map[string]*collection{}, aliases: map[string]string{},
	}
	for _, o := range opts {
		o(s)
	}
	if s.turns == nil {
		s.turns = turns.New(runtime.GOMAXPROCS(0))
	}
	return s
}

// Collection holds the data of a collection for Load.
type Collection struct {
	Fields []Field
	// IDs names the rows. If nil, row r has the id UintID(r).
	IDs []rerank.ID
	// OwnerField names the field that holds each row's item. Owners holds the items.
	OwnerField string
	Owners     []rerank.ID
	// Payloads holds one JSON object for each row, or is nil.
	Payloads []json.RawMessage
}

// Field is a vector field and its vectors, one in each row. An InnerProduct or L2
// field uses the vectors in place, so a mapped file stays on disk. A Cosine field
// copies the vectors and normalises them in float32, as Qdrant does. An empty metric
// means InnerProduct. Dim may be 0.
type Field struct {
	adapters.VectorField
	Vectors rerank.Matrix
	// Starts gives row r the vectors Starts[r]:Starts[r+1]. If it is nil, each row has one vector.
	// A field with Starts is read, and no probe searches it.
	Starts []int32
}

// rows returns the number of rows, and whether Starts, if there are any, divide the vectors.
func (f Field) rows() (n int, ok bool) {
	if f.Starts == nil {
		return f.Vectors.Rows, true
	}
	n = len(f.Starts) - 1
	return n, n >= 0 && f.Starts[0] == 0 && int(f.Starts[n]) == f.Vectors.Rows && slices.IsSorted(f.Starts)
}

// Load adds or replaces a collection, which becomes read-only. The caller must not
// change the data afterwards. Load returns ErrStore if fields, ids, owners and
// payloads differ in length, an id occurs twice, a payload is not a JSON object, or
// two fields have one name.
func (s *Store) Load(name string, c Collection) error {
	col, err := newCollection(name, c)
	if err != nil {
		return fmt.Errorf("collection %q: %w", name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.collections[name] = col
	return nil
}

// Ping returns nil unless the context has ended.
func (s *Store) Ping(ctx context.Context) error { return ctx.Err() }

// Close removes every collection.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.collections)
	clear(s.aliases)
	return nil
}

// Describe returns a collection's rows and fields.
func (s *Store) Describe(ctx context.Context, name string) (adapters.Description, error) {
	c, err := s.open(ctx, name)
	if err != nil {
		return adapters.Description{}, err
	}
	defer c.mu.RUnlock()
	d := adapters.Description{
		Rows:     int64(c.rows),
		TextIDs:  c.textIDs,
		Limits:   s.limits,
		Settings: map[string]string{"index": "brute force"},
	}
	for _, f := range c.fields {
		if f.MaxSim {
			d.MaxSim = append(d.MaxSim, f.VectorField)
		} else {
			d.Fields = append(d.Fields, f.VectorField)
		}
	}
	return d, nil
}

// Count returns the number of rows.
func (s *Store) Count(ctx context.Context, name string) (int64, error) {
	c, err := s.open(ctx, name)
	if err != nil {
		return 0, err
	}
	defer c.mu.RUnlock()
	return int64(c.rows), nil
}

// SwitchAlias points an alias at a collection.
func (s *Store) SwitchAlias(ctx context.Context, alias, name string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.collections[name]; !ok {
		return notFound(name)
	}
	if _, ok := s.collections[alias]; ok {
		return fmt.Errorf("%w: %q is a collection; an alias needs another name", adapters.ErrStore, alias)
	}
	s.aliases[alias] = name
	return nil
}

// open returns the collection with the given name or alias, locked for reading.
func (s *Store) open(ctx context.Context, name string) (*collection, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c, err := s.find(name)
	if err != nil {
		return nil, err
	}
	c.mu.RLock()
	return c, nil
}

func (s *Store) find(name string) (*collection, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	target := name
	if to, ok := s.aliases[name]; ok {
		target = to
	}
	c, ok := s.collections[target]
	if !ok {
		return nil, notFound(name)
	}
	return c, nil
}

func notFound(name string) error {
	return fmt.Errorf("%w: the embedded store has no collection %q", adapters.ErrNotFound, name)
}

// collection holds the rows of one collection. mu guards everything but name.
type collection struct {
	name     string
	mu       sync.RWMutex
	writable bool
	textIDs  bool
	rows     int
	fields   []field
	ids      []rerank.ID       // nil if ids are row numbers
	serials  []int             // a number for each row, ascending and unchanged by deletions, at which a scan resumes; nil if these are row numbers
	next     int               // serial number of the next row
	index    map[rerank.ID]int // nil if ids are row numbers
	owner    string
	owners   []rerank.ID
	payloads []json.RawMessage
	objects  func() ([]map[string]any, error) // payloads, decoded when a filter first needs them
}

type field struct {
	adapters.VectorField
	vectors rerank.Matrix
	starts  []int32        // as Field.Starts
	norm    func() float64 // returns the greatest norm of a row
}

func newCollection(name string, in Collection) (*collection, error) {
	if len(in.Fields) == 0 {
		return nil, fmt.Errorf("%w: it has no vector field", adapters.ErrStore)
	}
	rows, _ := in.Fields[0].rows()
	c := &collection{name: name, rows: rows, owner: in.OwnerField, owners: in.Owners, payloads: in.Payloads}
	for _, f := range in.Fields {
		if slices.ContainsFunc(c.fields, func(g field) bool { return g.Name == f.Name }) {
			return nil, fmt.Errorf("%w: two fields are named %q", adapters.ErrStore, f.Name)
		}
		loaded, err := loadField(f)
		if err != nil {
			return nil, err
		}
		c.fields = append(c.fields, loaded)
	}
	if err := c.checkLengths(in); err != nil {
		return nil, err
	}
	for r, p := range in.Payloads {
		if len(p) > 0 && (firstByte(p) != '{' || !json.Valid(p)) {
			return nil, fmt.Errorf("%w: the payload of row %d is not a JSON object", adapters.ErrStore, r)
		}
	}
	c.discardObjects()
	return c, c.setIDs(in.IDs)
}

func loadField(f Field) (field, error) {
	v := f.VectorField
	if v.Dim == 0 {
		v.Dim = f.Vectors.Cols
	}
	if v.Dim != f.Vectors.Cols || v.Dim < 1 {
		return field{}, fmt.Errorf("%w: field %q has dimension %d and vectors of %d", adapters.ErrStore, v.Name, v.Dim, f.Vectors.Cols)
	}
	if len(f.Vectors.Data) != f.Vectors.Rows*f.Vectors.Cols {
		return field{}, fmt.Errorf("%w: field %q has %d numbers for %d rows of %d", adapters.ErrStore, v.Name, len(f.Vectors.Data), f.Vectors.Rows, v.Dim)
	}
	if _, ok := f.rows(); !ok {
		return field{}, fmt.Errorf("%w: the starts of field %q do not divide its %d vectors; they ascend from 0 to that number", adapters.ErrStore, v.Name, f.Vectors.Rows)
	}
	v, err := completeField(v)
	if err != nil {
		return field{}, err
	}
	v.MaxSim = f.Starts != nil
	m := f.Vectors
	if v.Metric == adapters.Cosine {
		m.Data = slices.Clone(m.Data)
		for r := range m.Rows {
			rerank.Normalise(m.Row(r))
		}
	}
	return field{VectorField: v, vectors: m, starts: f.Starts, norm: sync.OnceValue(func() float64 { return maxNorm(m) })}, nil
}

// completeField fills in the properties that every field of this store has.
func completeField(v adapters.VectorField) (adapters.VectorField, error) {
	switch v.Metric {
	case "":
		v.Metric = adapters.InnerProduct
	case adapters.InnerProduct, adapters.Cosine, adapters.L2:
	default:
		return v, fmt.Errorf("%w: field %q has the metric %q; the embedded store has %s, %s and %s",
			adapters.ErrMetric, v.Name, v.Metric, adapters.InnerProduct, adapters.Cosine, adapters.L2)
	}
	v.FullPrecision, v.Datatype, v.Exact, v.AlwaysExact = true, adapters.Float32, true, true
	return v, nil
}

func maxNorm(m rerank.Matrix) float64 {
	var most float64
	for r := range m.Rows {
		if n := rerank.Norm(m.Row(r)); n > most && !math.IsInf(n, 0) {
			most = n
		}
	}
	return most
}

func firstByte(p []byte) byte {
	for _, b := range p {
		if b != ' ' && b != '\t' && b != '\n' && b != '\r' {
			return b
		}
	}
	return 0
}

func (c *collection) checkLengths(in Collection) error {
	for _, f := range in.Fields {
		if n, _ := f.rows(); n != c.rows {
			return fmt.Errorf("%w: field %q has %d rows, field %q %d", adapters.ErrStore, f.Name, n, in.Fields[0].Name, c.rows)
		}
	}
	for what, n := range map[string]int{"ids": len(in.IDs), "owners": len(in.Owners), "payloads": len(in.Payloads)} {
		if n != 0 && n != c.rows {
			return fmt.Errorf("%w: %d %s for %d rows", adapters.ErrStore, n, what, c.rows)
		}
	}
	return nil
}

func (c *collection) setIDs(ids []rerank.ID) error {
	if ids == nil {
		return nil
	}
	c.ids, c.index = ids, make(map[rerank.ID]int, len(ids))
	for r, id := range ids {
		if id.IsZero() {
			return fmt.Errorf("%w: row %d has no id", adapters.ErrStore, r)
		}
		if before, twice := c.index[id]; twice {
			return fmt.Errorf("%w: rows %d and %d have the id %s", adapters.ErrStore, before, r, id)
		}
		c.index[id] = r
	}
	if len(ids) > 0 {
		_, c.textIDs = ids[0].Text()
	}
	return nil
}

func (c *collection) id(row int) rerank.ID {
	if c.ids == nil {
		return rerank.UintID(uint64(row))
	}
	return c.ids[row]
}

func (c *collection) row(id rerank.ID) (int, bool) {
	if c.index != nil {
		r, ok := c.index[id]
		return r, ok
	}
	n, ok := id.Uint64()
	return int(n), ok && n < uint64(c.rows)
}

// findField returns the field with the given name, or nil. "" finds an unnamed or the only
// field.
func (c *collection) findField(name string) *field {
	for i := range c.fields {
		if c.fields[i].Name == name {
			return &c.fields[i]
		}
	}
	if name == "" && len(c.fields) == 1 {
		return &c.fields[0]
	}
	return nil
}

func (c *collection) field(name string) (*field, error) {
	if f := c.findField(name); f != nil {
		return f, nil
	}
	names := make([]string, len(c.fields))
	for i, f := range c.fields {
		names[i] = f.Name
	}
	return nil, fmt.Errorf("%w: collection %q has no vector field %q; it has %q", adapters.ErrField, c.name, name, names)
}
