package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/learn/dataset"
	"github.com/likenessdb/likeness/learn/fit"
	fitrbe "github.com/likenessdb/likeness/learn/fit/rbe"
	"github.com/likenessdb/likeness/learn/index"
	"github.com/likenessdb/likeness/learn/relevance"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/npy"
	"github.com/likenessdb/likeness/sidecar/config"
)

// rbeScores is the matrix R of scores (items by queries), read from a file or asked of the ranker.
type rbeScores struct {
	rerank.Matrix

	item, query func(int) rerank.ID
	questions   []rerank.Query    // contents of the queries; nil: unknown
	digests     map[string]string // digests of the files from which R was made
	asked       *rbeAsked         // nil for a file
	close       func() error
}

// rbeAsked reports the ranker's calls for a fit.
type rbeAsked struct {
	relevance.Estimate
	// Asked counts the calls of this run, including the measurement's.
	Asked int64  `json:"asked"`
	Cache string `json:"cache"`
	// Sampled is the number of items that the fit's items were drawn from, or 0 if all were used.
	Sampled int `json:"sampled_of,omitempty"`
	// LeftOut counts the items that lack the ranker's score for some query.
	LeftOut int `json:"left_out,omitempty"`
}

// readScores reads --scores, or asks the ranker.
func (f *fitRBEFlags) readScores(ctx context.Context, p *progress, stderr io.Writer) (*rbeScores, error) {
	if f.scores == "" {
		return f.askScores(ctx, p, stderr)
	}
	m, err := npy.Open(f.scores)
	if err != nil {
		return nil, usageError{err}
	}
	s := &rbeScores{Matrix: m.Matrix, close: m.Close, digests: map[string]string{}}
	if err := f.describe(ctx, s); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return s, nil
}

// describe adds ids, queries and digests to a matrix from a file.
func (f *fitRBEFlags) describe(ctx context.Context, s *rbeScores) (err error) {
	if err := s.digest("scores", f.scores); err != nil {
		return err
	}
	if s.item, err = idsOf(f.ids, s.Rows); err != nil {
		return usageError{err}
	}
	if s.query, err = idsOf(f.queryIDs, s.Cols); err != nil {
		return usageError{err}
	}
	if f.Queries == "" {
		return nil
	}
	asked, err := dataset.ReadAsked(ctx, f.Queries)
	if err != nil {
		return usageError{err}
	}
	if len(asked.Queries) != s.Cols {
		return usagef("%s has %d queries, %s has scores for %d", f.Queries, len(asked.Queries), f.scores, s.Cols)
	}
	s.questions = asked.Queries
	if f.queryIDs == "" {
		s.query = func(i int) rerank.ID { return asked.IDs[i] }
	}
	return s.digest("queries", f.Queries)
}

func (s *rbeScores) digest(name, file string) error {
	digest, err := dataset.FileDigest(file)
	if err == nil {
		s.digests[name] = filepath.Base(file) + " sha256:" + digest
	}
	return err
}

// askScores asks the ranker for the scores that the fit reads.
func (f *fitRBEFlags) askScores(ctx context.Context, p *progress, stderr io.Writer) (_ *rbeScores, err error) {
	queries, err := dataset.ReadAsked(ctx, f.Queries)
	if err != nil {
		return nil, usageError{err}
	}
	if f.queryIDs != "" {
		if queries.IDs, err = dataset.ReadIDs(f.queryIDs); err != nil || len(queries.IDs) != len(queries.Queries) {
			return nil, usagef("--query-ids: %d ids for %d queries %v", len(queries.IDs), len(queries.Queries), err)
		}
	}
	if len(queries.Ignored) > 0 {
		p.note(fmt.Sprintf("keys of %s that are not used: %q", f.Queries, queries.Ignored))
	}
	load := func() (*config.Config, error) { return config.Load(f.config.Source) }
	if err := f.routeRanker(load); err != nil {
		return nil, err
	}
	ranker, err := f.ask.open(ctx, load, f.out+".scores", false, stderr)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, ranker.Close()) }()
	items, err := f.readItems(ctx, ranker, p)
	if err != nil {
		return nil, err
	}
	s := &rbeScores{questions: queries.Queries, asked: &rbeAsked{Cache: ranker.dir}, close: func() error { return nil }, digests: map[string]string{}}
	s.query = func(i int) rerank.ID { return queries.IDs[i] }
	items = f.sample(items, s.asked)
	if err := f.fill(ctx, s, ranker, items, p); err != nil {
		return s, ranker.withStoredScores(err)
	}
	d := ranker.Description()
	s.digests["ranker"] = rankerName(d.Name, d.Version)
	return s, f.itemDigests(s)
}

// rankerKey is the provenance key with the ranker that the model was fitted to.
const rankerKey = "data.ranker"

// rankerName returns the value of rankerKey.
func rankerName(name, version string) string { return name + " " + version }

// routeRanker uses the ranker of --route if no flag names a ranker.
func (f *fitRBEFlags) routeRanker(load func() (*config.Config, error)) error {
	if f.ask.given() {
		return nil
	}
	if f.route != "" {
		c, err := load()
		if err != nil {
			return err
		}
		f.ask.ranker = c.Routes[f.route].RankerName
	}
	if !f.ask.given() {
		return usagef("give --scores, or a ranker: --ranker, --scorer or --scorer-url")
	}
	return nil
}

// itemDigests adds the digests of the item files, if items come from files.
func (f *fitRBEFlags) itemDigests(s *rbeScores) error {
	failed := []error{s.digest("queries", f.Queries)}
	for name, file := range map[string]string{"items": f.Items, "payload": f.payload} {
		if file != "" {
			failed = append(failed, s.digest(name, file))
		}
	}
	if f.Collection != nil {
		s.digests["items"] = "collection " + f.Collection.Name
	}
	return errors.Join(failed...)
}

// readItems reads the items from a collection or from files.
func (f *fitRBEFlags) readItems(ctx context.Context, ranker *openRanker, p *progress) (all relevance.Items, err error) {
	if f.route == "" && f.collection == "" {
		rows, err := f.fileRows(ctx)
		if err != nil {
			return all, usageError{err}
		}
		f.noteCategories(rows)
		return ranker.Items(rows)
	}
	c, err := config.Load(f.config.Source)
	if err != nil {
		return all, err
	}
	store, err := f.openCollection(ctx, c)
	if err != nil {
		return all, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	done := p.begin("reading collection "+f.Collection.Name, -1)
	source := index.Source{
		Store: f.Collection.Store, Collection: f.Collection.Name, Vector: f.Collection.Vector,
		Base: categoryBase{Base: &relevance.Base{Asker: ranker.Asker}, field: f.supportCategory},
	}
	err = source.Read(ctx, func(rows adapters.Rows) error {
		done(len(rows.IDs))
		f.noteCategories(rows)
		items, err := ranker.Items(rows)
		all = all.With(items)
		return err
	})
	return all, err
}

// categoryBase also reads the payload field of --support-category, if it is given.
type categoryBase struct {
	index.Base

	field string
}

// Reads implements index.Base.
func (b categoryBase) Reads() (payload bool, fields []string, vector bool) {
	payload, fields, vector = b.Base.Reads()
	if b.field == "" || payload && len(fields) == 0 {
		return payload, fields, vector
	}
	key, _, _ := strings.Cut(b.field, ".")
	return true, append(slices.Clone(fields), key), vector
}

// noteCategories keeps the category of each row for --support-category.
func (f *fitRBEFlags) noteCategories(rows adapters.Rows) {
	if f.supportCategory == "" || rows.Payloads == nil {
		return
	}
	if f.categories == nil {
		f.categories = map[rerank.ID]string{}
	}
	for i, id := range rows.IDs {
		f.categories[id] = dataset.PayloadText(rows.Payloads[i], f.supportCategory)
	}
}

// fileRows reads the items of --items, --item-ids and --payload. The first file that is named
// determines their number.
func (f *fitRBEFlags) fileRows(ctx context.Context) (rows adapters.Rows, err error) {
	n := -1
	if f.Items != "" {
		v, err := dataset.OpenVectors(ctx, f.Items)
		if err != nil {
			return rows, err
		}
		defer v.Close()
		m := rerank.Matrix{Rows: v.Rows, Cols: v.Cols, Data: slices.Clone(v.Data)}
		rows.Vectors, rows.IDs, n = []rerank.Matrix{m}, v.IDs, v.Rows
	}
	if f.payload != "" {
		if rows.Payloads, err = dataset.ReadPayloads(f.payload); err != nil {
			return rows, err
		}
		if n < 0 {
			n = len(rows.Payloads)
		}
	}
	if f.ids != "" {
		if rows.IDs, err = dataset.ReadIDs(f.ids); err != nil {
			return rows, err
		}
		if n < 0 {
			n = len(rows.IDs)
		}
	}
	if n < 0 {
		return rows, errors.New("items are missing: give --route, --collection, or --items, --payload or --item-ids")
	}
	if rows.IDs == nil {
		for i := range n {
			rows.IDs = append(rows.IDs, rerank.UintID(uint64(i)))
		}
	}
	if len(rows.IDs) != n || rows.Payloads != nil && len(rows.Payloads) != n {
		return rows, fmt.Errorf("there are %d items, %d ids and %d lines of payload; want as many of each", n, len(rows.IDs), len(rows.Payloads))
	}
	return rows, nil
}

// sample draws --sample-items of the items and keeps their order. If support items are chosen at
// random and no queries are held out, it draws the support items alone, because no other item needs
// a score.
func (f *fitRBEFlags) sample(items relevance.Items, r *rbeAsked) relevance.Items {
	o, n := f.options, f.sampleItems
	if o.Select == fitrbe.SelectRandom && o.HeldOut == 0 && (n == 0 || n > o.Supports) {
		n = o.Supports
	}
	if n <= 0 || n >= items.Len() {
		return items
	}
	r.Sampled = items.Len()
	at := rand.New(rand.NewPCG(o.Seed, 0x1735)).Perm(items.Len())[:n]
	slices.Sort(at)
	return items.Pick(at)
}

// errEstimated ends a fit with --estimate.
var errEstimated = errors.New("estimated")

// fill asks the ranker for the matrix, and drops the items that it does not score.
func (f *fitRBEFlags) fill(ctx context.Context, s *rbeScores, ranker *openRanker, items relevance.Items, p *progress) error {
	if err := f.options.Check(items.Len(), len(s.questions)); err != nil {
		return usageError{err}
	}
	columns := f.options.AskedQueries(len(s.questions))
	e := ranker.Estimate()
	ranker.Add(&e, items, s.questions, columns)
	if err := f.ask.permit(e); err != nil {
		return err
	}
	err := ranker.Probe(ctx, &e, items, s.questions, columns)
	s.asked.Estimate, s.asked.Asked = e, ranker.Asked()
	if err != nil {
		return err
	}
	if f.ask.estimate {
		return errEstimated
	}
	p.note(estimateText(e))
	ranker.Tell(p.begin("asking the ranker", int(max(0, e.Calls-ranker.Asked()))))
	s.Matrix = rerank.NewMatrix(items.Len(), len(s.questions))
	err = ranker.Fill(ctx, s.Matrix, items, s.questions, columns)
	s.asked.Asked = ranker.Asked()
	if err != nil {
		return err
	}
	return s.leaveOut(items)
}

// leaveOut drops the items that lack a score, from the matrix too.
func (s *rbeScores) leaveOut(items relevance.Items) error {
	var rows []int
	for r := range s.Rows {
		if rerank.CheckFinite("scores", s.Row(r)) == nil {
			rows = append(rows, r)
		}
	}
	s.asked.LeftOut = s.Rows - len(rows)
	if 2*s.asked.LeftOut > s.Rows {
		return fmt.Errorf("%w: the ranker gave no score of %d of %d items for some query; see what it makes of them", fit.ErrData, s.asked.LeftOut, s.Rows)
	}
	s.item = func(i int) rerank.ID { return items.ID(rows[i]) }
	if s.asked.LeftOut == 0 {
		return nil
	}
	kept := rerank.NewMatrix(len(rows), s.Cols)
	for to, from := range rows {
		copy(kept.Row(to), s.Row(from))
	}
	s.Matrix = kept
	return nil
}
