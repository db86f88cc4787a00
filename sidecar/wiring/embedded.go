package wiring

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/embedded"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/npy"
	"github.com/likenessdb/likeness/sidecar/config"
)

// ErrFile: a file of an embedded collection cannot be used.
var ErrFile = errors.New("file of an embedded collection is not valid")

// embeddedCollection names a collection of an embedded store.
type embeddedCollection struct{ store, name string }

// openEmbedded opens an embedded store. With Part.KeepBroken it leaves out the collections
// whose files cannot be used.
func (a *Assembly) openEmbedded(name string, s config.Store) (adapters.Store, error) {
	store := embedded.New(embedded.WithLimits(limits(s.Limits)), embedded.WithTurns(a.Turns))
	for _, collection := range sortedKeys(s.Collections) {
		err := a.loadCollection(store, collection, s.Collections[collection])
		if err != nil && !keepsBroken(a.part, err) {
			return nil, err
		}
		if err != nil {
			a.brokenCollections[embeddedCollection{name, collection}] = fmt.Errorf("stores.%s: %w", name, err)
		}
	}
	return store, nil
}

// loadCollection reads the files of a collection into a store. Closing the assembly closes the
// files.
func (a *Assembly) loadCollection(store *embedded.Store, name string, c config.Collection) error {
	read, files, err := openCollection(c)
	if err == nil {
		err = store.Load(name, read)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("collections.%s: %w", name, err), closeAll(files))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.files = append(a.files, files...)
	return nil
}

// brokenCollection returns why a route's collection, or its companion, was left out of its embedded
// store, or nil if neither was.
func (a *Assembly) brokenCollection(r config.Route) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return cmp.Or(a.brokenCollections[embeddedCollection{r.StoreName, r.Collection}], a.brokenCollections[embeddedCollection{r.StoreName, r.Companion}])
}

// reloadCollections loads a route's collection and companion again if they were left out of its
// embedded store.
func (a *Assembly) reloadCollections(c *config.Config, r config.Route) error {
	for _, name := range []string{r.Collection, r.Companion} {
		key := embeddedCollection{r.StoreName, name}
		a.mu.Lock()
		isBroken := a.brokenCollections[key] != nil
		a.mu.Unlock()
		if !isBroken {
			continue
		}
		store, _ := a.Stores[r.StoreName].(*embedded.Store)
		if err := a.loadCollection(store, name, c.Stores[r.StoreName].Collections[name]); err != nil {
			return fmt.Errorf("stores.%s: %w", r.StoreName, err)
		}
		a.mu.Lock()
		delete(a.brokenCollections, key)
		a.mu.Unlock()
	}
	return nil
}

// BrokenCollections returns, sorted by name, why collections of embedded stores were left out under
// Part.KeepBroken.
func (a *Assembly) BrokenCollections() []error {
	a.mu.Lock()
	defer a.mu.Unlock()
	keys := slices.SortedFunc(maps.Keys(a.brokenCollections), func(x, y embeddedCollection) int {
		return cmp.Or(strings.Compare(x.store, y.store), strings.Compare(x.name, y.name))
	})
	problems := make([]error, len(keys))
	for i, key := range keys {
		problems[i] = a.brokenCollections[key]
	}
	return problems
}

func closeAll(all []io.Closer) error {
	var failed []error
	for _, c := range all {
		failed = append(failed, c.Close())
	}
	return errors.Join(failed...)
}

// openCollection reads a collection. It maps the files of its vectors, which the caller closes
// after an error too.
func openCollection(c config.Collection) (out embedded.Collection, files []io.Closer, err error) {
	out.OwnerField = c.Owner
	addField := func(name string, f config.VectorFile) error {
		m, err := npy.Open(f.File)
		if err != nil {
			return err
		}
		files = append(files, m)
		starts, err := readCounts(f.Counts)
		out.Fields = append(out.Fields, embedded.Field{VectorField: adapters.VectorField{Name: name, Metric: adapters.Metric(f.Metric)}, Vectors: m.Matrix, Starts: starts})
		return err
	}
	if c.Vectors != "" {
		if err := addField("", config.VectorFile{File: c.Vectors, Metric: c.Metric}); err != nil {
			return out, files, fmt.Errorf("vectors: %w", err)
		}
	}
	for _, name := range sortedKeys(c.Fields) {
		if err := addField(name, c.Fields[name]); err != nil {
			return out, files, fmt.Errorf("fields.%s: %w", name, err)
		}
	}
	if out.IDs, err = readIDs(c.IDs); err != nil {
		return out, files, fmt.Errorf("ids: %w", err)
	}
	if out.Payloads, err = readPayloads(c.Payload); err != nil {
		return out, files, fmt.Errorf("payload: %w", err)
	}
	if out.Owners, err = readIDs(c.Owners); err != nil {
		return out, files, fmt.Errorf("owners: %w", err)
	}
	if c.Owner != "" && c.Owners == "" {
		out.Owners, err = ownersOf(c.Owner, out.Payloads)
	}
	return out, files, err
}

// readCounts reads how many vectors each row has, and returns where the vectors of each row begin. It
// returns nil if no file is named.
func readCounts(file string) ([]int32, error) {
	if file == "" {
		return nil, nil
	}
	counts, err := npy.ReadInts(file)
	if err != nil {
		return nil, fmt.Errorf("counts: %w", err)
	}
	starts, sum := make([]int32, 1, len(counts)+1), int64(0)
	for row, n := range counts {
		if n < 0 || n > math.MaxInt32-sum {
			return nil, fmt.Errorf("%w: counts: row %d has %d vectors; want 0 at least, and fewer than 2^31 together", ErrFile, row, n)
		}
		sum += n
		starts = append(starts, int32(sum))
	}
	return starts, nil
}

// readIDs reads numbers from an .npy file, or strings from the lines of any other file. It
// returns nil if no file is named.
func readIDs(file string) ([]rerank.ID, error) {
	if file == "" {
		return nil, nil
	}
	if filepath.Ext(file) == ".npy" {
		numbers, err := npy.ReadInts(file)
		if err != nil {
			return nil, err
		}
		ids := make([]rerank.ID, len(numbers))
		for i, n := range numbers {
			ids[i] = rerank.IntID(n)
		}
		return ids, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFile, err)
	}
	var ids []rerank.ID
	for line := range strings.Lines(string(data)) {
		ids = append(ids, rerank.TextID(strings.TrimRight(line, "\r\n")))
	}
	return ids, nil
}

// readPayloads reads a JSON object from each line. It returns nil if no file is named.
func readPayloads(file string) ([]json.RawMessage, error) {
	if file == "" {
		return nil, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFile, err)
	}
	var rows []json.RawMessage
	for line := range bytes.Lines(data) {
		rows = append(rows, bytes.TrimSpace(line))
	}
	return rows, nil
}

// ownersOf reads the item of each row from a field of its payload.
func ownersOf(field string, payloads []json.RawMessage) ([]rerank.ID, error) {
	owners := make([]rerank.ID, len(payloads))
	for i, p := range payloads {
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(p, &fields); err != nil {
			return nil, fmt.Errorf("%w: payload of row %d: %w", ErrFile, i, err)
		}
		if err := owners[i].UnmarshalJSON(fields[field]); err != nil || owners[i].IsZero() {
			return nil, fmt.Errorf("%w: payload of row %d: field %q must be a 64-bit integer or a string", ErrFile, i, field)
		}
	}
	return owners, nil
}

func sortedKeys[V any](m map[string]V) []string {
	var all []string
	for k := range m {
		all = append(all, k)
	}
	slices.Sort(all)
	return all
}
