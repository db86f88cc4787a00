// Package dataset reads the data on which a similarity is fitted and judged: item and
// query vectors, their ids, and a log of the items that were chosen.
//
// Vectors come from .npy, .safetensors and .parquet files, or straight from a store;
// the log from CSV, JSON lines or Parquet. Files are memory-mapped where the format
// allows it and read in pieces otherwise. No length that a file claims is allocated
// before it is checked.
package dataset

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"

	"github.com/likenessdb/likeness/learn/clicks"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/npy"
	"github.com/likenessdb/likeness/sidecar/embed"
)

// ErrInput means that a file cannot be read, is damaged, holds invalid values, or does
// not match another file. The message names the file, the place in it and the remedy.
var ErrInput = errors.New("input is not valid")

// ErrUnknown means that most rows of a log name ids that the items or queries do not have. Its errors are ErrInput too.
var ErrUnknown = errors.New("ids not known")

// Sources names the files, or the collection, that hold the parts of a dataset. A file
// of vectors or ids can hold several arrays: FILE#NAME selects a tensor of
// .safetensors or a column of .parquet.
type Sources struct {
	// Items is the file of item vectors. Collection, if set, takes its place.
	Items      string
	Collection *Collection
	// Read, if set, takes the place of both: item vectors that were read already. ReadName
	// names them in messages.
	Read     *Vectors
	ReadName string
	// Queries is the file of query vectors, or of texts that Embedder turns into vectors; see
	// OpenQueries.
	Queries  string
	Embedder embed.Embedder
	// History, if it has a file, replaces Queries: each query is the mean of items, and has the
	// query id of the file.
	History History
	// Pairs is the file of the log: .jsonl or .ndjson, .parquet, or CSV under any
	// other name. If empty, there is no log.
	Pairs string
	// Seen is a file of items that were seen before a query and that no answer to it has, in the
	// form of a log. With times, a query is without the items that were seen until then. The log
	// may have a column "seen" instead, which marks rows of seen items.
	Seen string
	// ItemIDs and QueryIDs are files of the ids by which the log names items and
	// queries. If empty, the log uses the ids that came with the vectors, or else row
	// numbers from 0.
	ItemIDs, QueryIDs string
	// ManyVectors permits items and queries of several vectors.
	ManyVectors bool
	// ItemCounts and QueryCounts are .npy files with the number of vectors of each item and query, whose
	// vectors follow each other. If empty, each has one. A collection says it itself.
	ItemCounts, QueryCounts string
	// UserIDs is a .npy file with one integer for each query row. It may be empty.
	UserIDs string
	// RowPerTime makes a separate row for each query and time, repeating the query's
	// vector, so that a split by time can divide the pairs of one query.
	RowPerTime bool
	// CountRows makes the weight of a pair the number of its rows, if the log has neither weights nor
	// positions.
	CountRows bool
	// NaNItems permits items that are not finite. Queries must always be finite.
	NaNItems bool
	Progress Progress
}

// Progress reports the progress of long work. It is called at the start of a stage
// with the stage's number of steps, or −1 if that is unknown. The returned function is
// called with the number of steps just done.
type Progress func(stage string, steps int) (done func(n int))

func (p Progress) begin(stage string, steps int) func(n int) {
	if p == nil {
		return func(int) {}
	}
	return p(stage, steps)
}

// Dataset holds the vectors, ids and log that Open read. It is read-only and safe for
// concurrent use. It must not be used after Close, because its matrices may be mapped
// files.
type Dataset struct {
	Items, Queries rerank.Matrix
	// ItemStarts and QueryStarts divide the rows among items and queries of several vectors, as
	// rerank.Items.Starts does. If nil, each has one, and its row is its number; otherwise every other
	// field names items and queries by their numbers.
	ItemStarts, QueryStarts []int32
	// ItemIDs and QueryIDs hold one id for each item and query. If nil, ids are their numbers.
	ItemIDs, QueryIDs []rerank.ID
	// Relevant[q] holds the rows of the items chosen for query row q, ascending and
	// distinct. Relevant is nil without a log.
	Relevant [][]int32
	// Weights[q][i] > 0 is the weight of the pair (q, Relevant[q][i]). If nil, every
	// weight is 1.
	Weights [][]float32
	// Asked holds how often each query row was asked: the weight, in all lines of the log, of
	// the item that it chose most often. A line without a weight counts 1. It is nil without a
	// log.
	Asked []float64
	// Seen[q] holds the rows of the items that were seen before query row q, ascending and
	// distinct, without items of Relevant[q]. It is nil if none are known.
	Seen [][]int32
	// Answers holds the lists that were shown, if the log has positions: items that were chosen and
	// items that were not. It is nil if the log has none.
	Answers []clicks.Answer
	// Times holds the time of each query row in Unix seconds: the latest time of its
	// pairs, 0 for a row without pairs. It is nil if the log has no times.
	Times []int64
	// UserIDs holds one user id for each query row. It may be nil.
	UserIDs []int64
	Counts  Counts

	sources []digestedSource
	closers []io.Closer
}

// digestedSource names a source and its digest.
type digestedSource struct {
	name, file string
	digest     func() (string, error)
}

// Counts says how much was read, how much was left out, and why.
type Counts struct {
	Items   int `json:"items"`
	Queries int `json:"queries"`
	// Rows counts the rows of the log, Pairs the distinct pairs that remain of them.
	Rows  int `json:"rows"`
	Pairs int `json:"pairs"`
	// DuplicatePairs counts rows that repeat an earlier pair. Their weights are added
	// if the log has weights, and the rows are counted with Sources.CountRows; otherwise a pair counts once.
	DuplicatePairs int `json:"duplicate_pairs"`
	// UnknownItems and UnknownQueries count rows that were dropped because they name
	// an unknown item or query. A row with both counts as an unknown query.
	UnknownItems   int `json:"unknown_items"`
	UnknownQueries int `json:"unknown_queries"`
	// Seen counts the pairs of a query and an item that was seen before it, UnknownSeen the rows
	// of such pairs that were dropped because they name an unknown item or query.
	Seen        int `json:"seen,omitempty"`
	UnknownSeen int `json:"unknown_seen,omitempty"`
	// UnknownHistory counts rows of a history that were dropped because their item is unknown,
	// NoHistory the query rows that have no vector because no item of their history came before
	// them. Their pairs were dropped. Rows that have no pairs anyway do not count.
	UnknownHistory int `json:"unknown_history,omitempty"`
	NoHistory      int `json:"no_history,omitempty"`
	// ZeroWeights counts rows that were dropped because their weight is 0.
	ZeroWeights int `json:"zero_weights"`
	// Shown counts rows of items that an answer showed and nobody chose: rows with a position and
	// the weight 0.
	Shown int `json:"shown,omitempty"`
	// SeveralTimes counts queries whose pairs have different times; see
	// Sources.RowPerTime.
	SeveralTimes int `json:"several_times"`
	// NotFiniteItems counts items with NaN or an infinity in their vector; see
	// Sources.NaNItems.
	NotFiniteItems int `json:"not_finite_items"`
	// MissingItems counts rows of a collection that were left out because they lack
	// the vector. FirstMissingItem is the id of the first such row.
	MissingItems     int    `json:"missing_items,omitempty"`
	FirstMissingItem string `json:"first_missing_item,omitempty"`
	// Ignored names the columns of the log that were not recognised.
	Ignored []string `json:"ignored_columns,omitempty"`
}

// Open reads a dataset, which the caller closes. It returns ErrInput, the store's
// error, or the context's error.
func Open(ctx context.Context, s Sources) (*Dataset, error) {
	d := &Dataset{}
	if err := d.open(ctx, s); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (d *Dataset) open(ctx context.Context, s Sources) error {
	if err := d.openItems(ctx, s); err != nil {
		return err
	}
	if err := d.readIDFile("item_ids", s.ItemIDs, &d.ItemIDs, d.ItemCount()); err != nil {
		return err
	}
	h, err := d.openQueries(ctx, s)
	if err != nil {
		return err
	}
	d.Counts.Queries = d.QueryCount()
	switch {
	case s.QueryCounts != "" && s.RowPerTime && s.Pairs != "":
		return fmt.Errorf("%w: queries of several vectors (%s) cannot be split by time", ErrInput, s.QueryCounts)
	case s.Pairs == "" && s.Seen != "":
		return fmt.Errorf("%w: %s holds items that were seen, and there is no log of pairs", ErrInput, s.Seen)
	case s.Pairs != "":
		return d.readPairs(ctx, s, h)
	case h != nil:
		return h.fill(d, nil)
	}
	return nil
}

// openQueries opens the query vectors with their ids. If the queries are histories, it returns
// these, and the vectors are made when the log is read.
func (d *Dataset) openQueries(ctx context.Context, s Sources) (*itemHistory, error) {
	if s.History.Path != "" {
		if s.Queries != "" || s.QueryIDs != "" || s.UserIDs != "" || s.QueryCounts != "" {
			return nil, fmt.Errorf("%w: %s makes the queries and names them; leave out other queries, query ids and user ids", ErrInput, s.History.Path)
		}
		if d.ItemStarts != nil {
			return nil, fmt.Errorf("%w: the mean of items of several vectors is no query; bring queries in place of %s", ErrInput, s.History.Path)
		}
		h, err := d.readHistory(ctx, s)
		if err != nil {
			return nil, err
		}
		d.Queries, d.QueryIDs = rerank.Matrix{Rows: len(h.ids), Cols: d.Items.Cols}, h.ids
		return h, nil
	}
	queries, err := OpenQueries(ctx, s.Queries, s.Embedder, s.Progress)
	if err != nil {
		return nil, fmt.Errorf("queries: %w", err)
	}
	d.closers = append(d.closers, queries)
	d.Queries, d.QueryIDs = queries.Matrix, queries.IDs
	if _, err := countNotFinite(queries.name, d.Queries, false); err != nil {
		return nil, fmt.Errorf("queries: %w", err)
	}
	d.addFile("queries", s.Queries)
	if err := d.readCounts("query_counts", s.QueryCounts, &d.QueryStarts, d.Queries.Rows); err != nil {
		return nil, err
	}
	if err := d.readIDFile("query_ids", s.QueryIDs, &d.QueryIDs, d.QueryCount()); err != nil {
		return nil, err
	}
	return nil, d.readUserIDs(s)
}

func (d *Dataset) openItems(ctx context.Context, s Sources) error {
	var (
		items *Vectors
		err   error
	)
	switch {
	case s.Read != nil:
		items = s.Read
		items.name = s.ReadName
	case s.Collection != nil:
		items, err = s.Collection.scanVectors(ctx, s.Progress)
	default:
		items, err = OpenVectors(ctx, s.Items)
	}
	if err != nil {
		return fmt.Errorf("items: %w", err)
	}
	d.closers = append(d.closers, items)
	d.Items, d.ItemIDs, d.ItemStarts = items.Matrix, items.IDs, items.Starts
	if d.Counts.NotFiniteItems, err = countNotFinite(items.name, d.Items, s.NaNItems); err != nil {
		return fmt.Errorf("items: %w", err)
	}
	if m := items.missing; m.Rows > 0 {
		d.Counts.MissingItems, d.Counts.FirstMissingItem = m.Rows, m.First.String()
	}
	switch {
	case s.Read != nil: // has no file and no digest
	case s.Collection != nil:
		d.sources = append(d.sources, digestedSource{"items", items.name, func() (string, error) { return items.digest, nil }})
	default:
		d.addFile("items", s.Items)
	}
	if err := d.readCounts("item_counts", s.ItemCounts, &d.ItemStarts, d.Items.Rows); err != nil {
		return err
	}
	if d.ItemStarts != nil && !s.ManyVectors {
		return fmt.Errorf("%w: items of %s have several vectors each; name a field of one vector", ErrInput, items.name)
	}
	d.Counts.Items = d.ItemCount()
	return nil
}

// ItemCount returns the number of items.
func (d *Dataset) ItemCount() int { return countRows(d.Items, d.ItemStarts) }

// QueryCount returns the number of queries.
func (d *Dataset) QueryCount() int { return countRows(d.Queries, d.QueryStarts) }

func countRows(m rerank.Matrix, starts []int32) int {
	if starts != nil {
		return len(starts) - 1
	}
	return m.Rows
}

// readCounts reads how many vectors each item or query has, if there is a file of it.
func (d *Dataset) readCounts(name, file string, starts *[]int32, rows int) error {
	if file == "" {
		return nil
	}
	counts, err := npy.ReadInts(file)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInput, err)
	}
	out, sum := make([]int32, 1, len(counts)+1), int64(0)
	for i, n := range counts {
		if n < 1 || n > int64(rows)-sum {
			return fmt.Errorf("%w: %s: number %d has %d vectors, want 1 at least and %d together", ErrInput, file, i, n, rows)
		}
		sum += n
		out = append(out, int32(sum))
	}
	if sum != int64(rows) || rows > math.MaxInt32 {
		return fmt.Errorf("%w: %s counts %d vectors, and there are %d", ErrInput, file, sum, rows)
	}
	*starts = out
	d.addFile(name, file)
	return nil
}

// readIDFile reads the ids of rows, if there is a file of them.
func (d *Dataset) readIDFile(name, file string, to *[]rerank.ID, rows int) error {
	if file == "" {
		return nil
	}
	read, err := ReadIDs(file)
	if err != nil {
		return err
	}
	if len(read) != rows {
		return fmt.Errorf("%w: %s has %d ids for %d rows of vectors", ErrInput, file, len(read), rows)
	}
	*to = read
	d.addFile(name, file)
	return nil
}

func (d *Dataset) readUserIDs(s Sources) error {
	if s.UserIDs == "" {
		return nil
	}
	users, err := npy.ReadInts(s.UserIDs)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInput, err)
	}
	if len(users) != d.QueryCount() {
		return fmt.Errorf("%w: %s has %d user ids for %d queries", ErrInput, s.UserIDs, len(users), d.QueryCount())
	}
	d.UserIDs = users
	d.addFile("user_ids", s.UserIDs)
	return nil
}

// Forget gives the memory of vectors that are mapped from files back to the system. They are read from the
// files again when they are next used.
func (d *Dataset) Forget() {
	for _, c := range d.closers {
		if v, ok := c.(*Vectors); ok {
			v.Forget()
		}
	}
}

// Close frees the vectors. A second Close does nothing.
func (d *Dataset) Close() error {
	var failed []error
	for _, c := range d.closers {
		failed = append(failed, c.Close())
	}
	d.closers = nil
	d.Items, d.Queries = rerank.Matrix{}, rerank.Matrix{}
	return errors.Join(failed...)
}

func (d *Dataset) addFile(name, spec string) {
	path, _ := splitSpec(spec)
	d.sources = append(d.sources, digestedSource{name, filepath.Base(spec), func() (string, error) { return FileDigest(path) }})
}

// Digests returns the SHA-256 of every source in the form "items.npy sha256:…", by the
// source's name (items, queries, history, pairs, seen, item_ids, query_ids, item_counts, query_counts, user_ids). It reads the
// files again.
func (d *Dataset) Digests() (map[string]string, error) {
	digests := map[string]string{}
	for _, p := range d.sources {
		digest, err := p.digest()
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrInput, err)
		}
		digests[p.name] = p.file + " sha256:" + digest
	}
	return digests, nil
}
