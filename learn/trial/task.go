package trial

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"strings"

	"github.com/likenessdb/likeness/learn/dataset"
	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/embed"
)

// task has the data from which a trial learns, and the queries that judge it. No query of one side is a query,
// or an item, of the other.
type task struct {
	from   string // a sentence about the data
	metric string
	// teach is learned from.
	teach fit.Data
	// pairsPerQuery bounds the pairs that one query teaches.
	pairsPerQuery int
	// The judges: queries that nothing was learned from, and the items among which they
	// are to find theirs.
	items    rerank.Matrix
	itemIDs  []rerank.ID
	queries  rerank.Matrix
	queryIDs []rerank.ID
	relevant [][]int32
	weights  [][]float32 // of relevant; nil: all 1
	// popularity is the number of pairs of each item that teach.
	popularity []float64
	// rowsAsQueries: queryIDs are rows of the collection, which a search finds first.
	rowsAsQueries bool
	// textQueries: queryIDs are the texts of the queries.
	textQueries bool
	// repeated is the number of queries that judge nothing, because their vectors teach.
	repeated int
}

// Bounds of a task, so that a trial takes minutes and not hours.
const (
	mostJudges = 1000
	// teachingNumbers is the number of elements of the teaching queries' vectors, which
	// with the dimension decides how long the fit takes.
	teachingNumbers = 3000 * 384
	judgingShare    = 0.2 // of labelled rows
	loggedJudges    = 0.3 // of the queries of a log
	pairsOfLabel    = 4
	pairsOfLog      = 8
	leastQueries    = 20 // on each side
)

// newTask returns what the options give to learn from, or nil if they give nothing.
func (t *trial) newTask(ctx context.Context) (*task, error) {
	switch {
	case t.Log.Pairs != "" && dataset.HoldsTexts(t.Log.Queries):
		return t.taskOfTexts(ctx)
	case t.Log.Pairs != "":
		return t.taskOfLog(ctx, nil)
	case t.Label != "":
		return t.taskOfLabel()
	}
	return nil, nil //nolint:nilnil // nothing to learn from, and no failure
}

// missing says what a trial needs in order to learn, and what would do.
func (t *trial) missing() string {
	text := "Nothing was learned, because there is nothing to learn from: give a log of queries and the rows that people chose (--queries and --pairs, or --questions and --embedder, if the queries are texts)"
	if labels := t.look.labels(); len(labels) > 0 {
		return text + ", or a field whose values say which rows belong together, as --label " + strings.Join(labels[:min(len(labels), 4)], " or --label ") + "."
	}
	return text + ", or a payload field whose values say which rows belong together (--label)."
}

// groupsOf returns the labelled rows of each label, ascending.
func groupsOf(labels []string) map[string][]int {
	groups := map[string][]int{}
	for row, label := range labels {
		if label != "" {
			groups[label] = append(groups[label], row)
		}
	}
	return groups
}

// taskOfLabel makes queries of labelled rows: a query looks for the other rows of its label. The
// rows that judge are neither learned from nor found. Rows with equal vectors are all learned from
// or all judge.
func (t *trial) taskOfLabel() (*task, error) {
	s := t.sample
	groups := groupsOf(s.labels)
	var order []int // labelled rows with another row of the label
	for _, rows := range groups {
		if len(rows) > 1 {
			order = append(order, rows...)
		}
	}
	if len(order) < 2*leastQueries || len(groups) < 2 {
		return nil, t.labelRefusal(len(groups), len(order))
	}
	hashes := hashRows(s.vectors)
	slices.SortFunc(order, func(a, b int) int { return cmp.Or(cmp.Compare(hashes[a], hashes[b]), a-b) })
	judges := min(mostJudges, int(judgingShare*float64(len(order))))
	for judges < len(order) && hashes[order[judges]] == hashes[order[judges-1]] {
		judges++
	}
	judging := make([]bool, len(s.ids))
	for _, row := range order[:judges] {
		judging[row] = true
	}
	k := &task{metric: fmt.Sprintf("ndcg@%d", t.K), pairsPerQuery: pairsOfLabel, rowsAsQueries: true}
	k.items = rerank.Matrix{Cols: s.vectors.Cols}
	itemGroups := map[string][]int32{}
	for row := range s.ids {
		if judging[row] {
			continue
		}
		if label := s.labels[row]; label != "" {
			itemGroups[label] = append(itemGroups[label], int32(k.items.Rows))
		}
		k.items.Data = append(k.items.Data, s.vectors.Row(row)...)
		k.items.Rows++
		k.itemIDs = append(k.itemIDs, s.ids[row])
	}
	k.queries = rerank.Matrix{Cols: s.vectors.Cols}
	for _, row := range order[:judges] {
		if same := itemGroups[s.labels[row]]; len(same) > 0 {
			k.queries.Data = append(k.queries.Data, s.vectors.Row(row)...)
			k.queries.Rows++
			k.queryIDs = append(k.queryIDs, s.ids[row])
			k.relevant = append(k.relevant, same)
		}
	}
	k.teach = fit.Data{Items: k.items, Queries: rerank.Matrix{Cols: s.vectors.Cols}}
	for _, row := range order[judges:] {
		same := itemGroups[s.labels[row]]
		if len(same) < 2 || len(k.teach.Queries.Data) >= teachingNumbers {
			continue
		}
		k.teach.Queries.Data = append(k.teach.Queries.Data, s.vectors.Row(row)...)
		k.teach.Queries.Rows++
		k.teach.Relevant = append(k.teach.Relevant, same) // with the row itself, which a fit knows as a twin
	}
	if k.queries.Rows < leastQueries || k.teach.Queries.Rows < leastQueries {
		return nil, t.labelRefusal(len(groups), len(order))
	}
	k.from = fmt.Sprintf("%d rows, as queries for the other rows of their %s, taught; %d other rows, which are no items, judged", k.teach.Queries.Rows, t.Label, k.queries.Rows)
	return k, nil
}

func (t *trial) labelRefusal(labels, rows int) error {
	hint := "; name another field, or bring a log with --pairs"
	if others := t.look.labels(); len(others) > 0 {
		hint = "; fields that group rows are " + strings.Join(others, ", ")
	}
	of := fmt.Sprintf("of the %d rows read of collection %q", len(t.sample.ids), t.Collection)
	if labels == 0 {
		if nearest := nearestFields(t.Label, t.look.Fields); nearest != "" {
			hint = "; " + nearest + hint
		} else if within := fieldsWithin(t.Label, t.look.Fields); within != nil {
			hint = fmt.Sprintf("; within it are %q%s", within, hint)
		}
		return &RefusalError{fmt.Sprintf("none %s has a text or a number in field %q%s", of, t.Label, hint), nil}
	}
	return &RefusalError{fmt.Sprintf("field %q groups too few %s: different values: %d, rows that share theirs with another: %d; a trial needs 2 and %d%s",
		t.Label, of, labels, rows, 2*leastQueries, hint), nil}
}

// hashRows hashes the vectors. Sorting by the hashes gives an order that looks random, and that is
// the same whenever the vectors are.
func hashRows(m rerank.Matrix) []uint64 {
	hashes := make([]uint64, m.Rows)
	for r := range hashes {
		hashes[r] = hashVector(m.Row(r))
	}
	return hashes
}

// taskOfLog reads a log of the rows that were read, and divides its queries. An embedder
// makes vectors of queries that are texts.
func (t *trial) taskOfLog(ctx context.Context, by embed.Embedder) (*task, error) {
	d, err := dataset.Open(ctx, dataset.Sources{
		Read: &dataset.Vectors{Matrix: t.sample.vectors, IDs: t.sample.ids}, ReadName: "collection " + t.Collection,
		Queries: t.Log.Queries, Embedder: by, Pairs: t.Log.Pairs, QueryIDs: t.Log.QueryIDs,
		RowPerTime: true, Progress: dataset.Progress(t.Progress),
	})
	switch {
	case errors.Is(err, dataset.ErrUnknown):
		return nil, &RefusalError{err.Error() + t.unreadText(), err}
	case errors.Is(err, dataset.ErrInput):
		return nil, &RefusalError{err.Error(), err}
	}
	if err != nil {
		return nil, err
	}
	if d.Queries.Cols != t.sample.vectors.Cols {
		return nil, errors.Join(&RefusalError{fmt.Sprintf("the queries of the log have %d dimensions, and %s of collection %q has %d; embed them with the model that made the vectors",
			d.Queries.Cols, t.look.Vector.phrase(), t.Collection, t.sample.vectors.Cols), nil}, d.Close())
	}
	k := &task{
		metric: fmt.Sprintf("mrr@%d", t.K), pairsPerQuery: pairsOfLog,
		items: t.sample.vectors, itemIDs: t.sample.ids, popularity: make([]float64, len(t.sample.ids)),
		queries: rerank.Matrix{Cols: d.Queries.Cols}, teach: fit.Data{Items: t.sample.vectors, Queries: rerank.Matrix{Cols: d.Queries.Cols}},
	}
	k.divide(d)
	if k.queries.Rows < leastQueries || k.teach.Queries.Rows < leastQueries {
		return nil, errors.Join(&RefusalError{fmt.Sprintf("the log %s has pairs of too few queries with rows of collection %q: %d to learn from and %d to judge by, and there have to be %d of each; bring a longer log",
			t.Log.Pairs, t.Collection, k.teach.Queries.Rows, k.queries.Rows, leastQueries), nil}, d.Close())
	}
	k.from = fmt.Sprintf("%d queries of %s taught, %d other queries judged", k.teach.Queries.Rows, t.Log.Pairs, k.queries.Rows)
	if d.Times != nil {
		k.from += ", which were asked later"
	}
	if k.repeated > 0 {
		k.from += fmt.Sprintf("; %d that also taught were left out", k.repeated)
	}
	return k, d.Close()
}

// unreadText says that the log names more rows than the trial reads, or is "".
func (t *trial) unreadText() string {
	if t.look.named <= t.Rows {
		return ""
	}
	return fmt.Sprintf("; the log names %d rows, and --rows %d reads no more: raise it", t.look.named, t.Rows)
}

// divide gives the queries of a log to the two sides: the later ones judge, or if there
// are no times, those that a hash of the vector chooses. Equal vectors are on one side;
// a vector that was asked on both sides of the time judges nothing.
func (k *task) divide(d *dataset.Dataset) {
	hashes := hashRows(d.Queries)
	var order []int
	for q, items := range d.Relevant {
		if len(items) > 0 {
			order = append(order, q)
		}
	}
	slices.SortFunc(order, func(a, b int) int {
		if d.Times != nil {
			return cmp.Or(cmp.Compare(d.Times[b], d.Times[a]), cmp.Compare(hashes[a], hashes[b]), a-b)
		}
		return cmp.Or(cmp.Compare(hashes[a], hashes[b]), a-b)
	})
	judges := int(loggedJudges * float64(len(order)))
	taught := map[uint64]bool{}
	for _, q := range order[judges:] {
		taught[hashes[q]] = true
	}
	for _, q := range order[:judges] {
		if taught[hashes[q]] {
			k.repeated++
			continue
		}
		if k.queries.Rows >= mostJudges {
			break
		}
		k.queries.Data = append(k.queries.Data, d.Queries.Row(q)...)
		k.queries.Rows++
		k.queryIDs = append(k.queryIDs, idOf(d, q))
		k.relevant = append(k.relevant, d.Relevant[q])
		if d.Weights != nil {
			k.weights = append(k.weights, d.Weights[q])
		}
	}
	for _, q := range order[judges:] {
		for i, item := range d.Relevant[q] {
			k.popularity[item] += weightOf(d, q, i)
		}
		if len(k.teach.Queries.Data) >= teachingNumbers {
			continue
		}
		k.teach.Queries.Data = append(k.teach.Queries.Data, d.Queries.Row(q)...)
		k.teach.Queries.Rows++
		k.teach.Relevant = append(k.teach.Relevant, d.Relevant[q])
		if d.Weights != nil {
			k.teach.Weights = append(k.teach.Weights, d.Weights[q])
		}
	}
}

func idOf(d *dataset.Dataset, row int) rerank.ID {
	if d.QueryIDs == nil {
		return rerank.UintID(uint64(row))
	}
	return d.QueryIDs[row]
}

func weightOf(d *dataset.Dataset, query, at int) float64 {
	if d.Weights == nil {
		return 1
	}
	return float64(d.Weights[query][at])
}

// hashVector hashes the bits of a vector.
func hashVector(v []float32) uint64 {
	h := fnv.New64a()
	var b [4]byte
	for _, x := range v {
		binary.LittleEndian.PutUint32(b[:], math.Float32bits(x))
		_, _ = h.Write(b[:])
	}
	return h.Sum64()
}
