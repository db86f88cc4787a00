package trial

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/learn/dataset"
	"github.com/likenessdb/likeness/learn/eval"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/search"
	"github.com/likenessdb/likeness/sidecar/wiring"
)

// Served reports how the written configuration answers searches.
type Served struct {
	Route     string `json:"route"`
	Placement string `json:"placement"`
	// REST is the URL of the API. Proxy has the addresses at which the database's own clients are answered, or is empty
	// where the proxy would pass all their searches on.
	REST    string `json:"rest"`
	Proxy   string `json:"proxy,omitempty"`
	Queries int    `json:"queries"`
	// P50 and P95 are times of a search in milliseconds, one at a time.
	P50 float64 `json:"p50_ms"`
	P95 float64 `json:"p95_ms"`
	// Certificates counts the answers by the status of their certificate.
	Certificates map[string]int `json:"certificates"`
	Examples     []Example      `json:"examples"`
}

// Example is a query with the first rows before, in the database's own order, and after,
// as the route answers.
type Example struct {
	Query string `json:"query"`
	// Own is the row that the query is. It is left out of both lists.
	Own           rerank.ID `json:"own,omitzero"`
	Before, After []Row
}

// Row is one row of an example.
type Row struct {
	ID    rerank.ID `json:"id"`
	Title string    `json:"title"`
	// Right: the log or the label says that the row belongs to the query.
	Right bool `json:"right"`
}

const (
	mostExamples = 10
	exampleRows  = 5
)

// serve opens the written configuration as `likeness serve` does, measures the route and
// makes the examples.
func (t *trial) serve(ctx context.Context, k *task) (err error) {
	c, err := config.Load(config.Source{File: filepath.Join(t.Out, ConfigFile)})
	if err != nil {
		return err
	}
	parts, err := wiring.Open(ctx, c, wiring.Part{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, parts.Close()) }()
	engine, err := search.New(parts.Routes, search.Options{Turns: parts.Turns})
	if err != nil {
		return err
	}
	if err := engine.Open(ctx); err != nil {
		return err
	}
	s := &Served{Route: t.Collection, Certificates: map[string]int{}, Placement: string(engine.Routes()[0].Placement), REST: "http://" + listen().REST}
	if proxy := t.look.proxy(); proxy != nil {
		s.Proxy = proxy.String()
	}
	t.report.Served = s
	if err := t.measureRoute(ctx, engine, k); err != nil {
		return err
	}
	if err := t.addExamples(ctx, engine, k); err != nil {
		return err
	}
	return t.nameRegressions(ctx, k)
}

// nameRegressions fills in the titles of the queries and rows that lose.
func (t *trial) nameRegressions(ctx context.Context, k *task) error {
	r := t.report.Learned.Judgment
	ids := r.RegressionItems()
	lost := r.Models[0].Regressions
	for _, x := range lost {
		if k.rowsAsQueries {
			ids = append(ids, *x.QueryID)
		}
	}
	titles, _, err := Titles(ctx, t.store, t.Collection, ids, t.look.Title)
	if err != nil {
		return t.explain(ctx, err)
	}
	r.NameRegressions(titles)
	for i := range lost {
		if k.rowsAsQueries {
			lost[i].QueryTitle = titles[*lost[i].QueryID]
		}
	}
	return nil
}

// measureRoute asks the route the judging queries.
func (t *trial) measureRoute(ctx context.Context, engine *search.Engine, k *task) error {
	s := t.report.Served
	n := min(probedQueries, k.queries.Rows)
	done := t.progress("searching by the route", n)
	var took []time.Duration
	for began := time.Now(); len(took) < n && time.Since(began) < probeTime; {
		start := time.Now()
		a, err := engine.Search(ctx, search.Request{Route: s.Route, K: t.K, Query: rerank.Query{Vector: k.queries.Row(len(took))}})
		if err != nil {
			return err
		}
		took = append(took, time.Since(start))
		s.Certificates[string(a.Certificate.Status)]++
		done(1)
	}
	done(n - len(took))
	s.Queries = len(took)
	s.P50, s.P95 = eval.Percentile(took, 0.5), eval.Percentile(took, 0.95)
	return nil
}

// addExamples takes the first queries, which a hash has ordered, among whose first rows
// the similarity brings another row.
func (t *trial) addExamples(ctx context.Context, engine *search.Engine, k *task) error {
	s := t.report.Served
	done := t.progress("making examples", mostExamples)
	for q := 0; q < k.queries.Rows && len(s.Examples) < mostExamples; q++ {
		query := k.queries.Row(q)
		before, err := t.search(ctx, query, exampleRows+1, false)
		if err != nil {
			return t.explain(ctx, err)
		}
		after, err := engine.Search(ctx, search.Request{Route: s.Route, K: exampleRows + 1, Query: rerank.Query{Vector: query}})
		if err != nil {
			return err
		}
		var e Example
		if k.rowsAsQueries {
			e.Own = k.queryIDs[q]
		}
		var found []rerank.ID
		for _, hit := range after.Hits {
			found = append(found, hit.ID)
		}
		was, is := t.firstRows(before.IDs, e.Own), t.firstRows(found, e.Own)
		if sameRows(was, is) {
			continue
		}
		if err := t.fillExample(ctx, &e, k, q, was, is); err != nil {
			return t.explain(ctx, err)
		}
		s.Examples = append(s.Examples, e)
		done(1)
	}
	return nil
}

// sameRows reports whether two lists hold the same rows, in any order.
func sameRows(a, b []rerank.ID) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(id rerank.ID) bool { return !slices.Contains(b, id) })
}

// firstRows returns the first rows without the query's own.
func (t *trial) firstRows(ids []rerank.ID, own rerank.ID) []rerank.ID {
	ids = slices.DeleteFunc(slices.Clone(ids), func(id rerank.ID) bool { return id == own })
	return ids[:min(len(ids), exampleRows)]
}

// fillExample reads the titles and says which rows are right.
func (t *trial) fillExample(ctx context.Context, e *Example, k *task, q int, was, is []rerank.ID) error {
	ids := slices.Concat(was, is)
	if !e.Own.IsZero() {
		ids = append(ids, e.Own)
	}
	request := adapters.FetchRequest{Collection: t.Collection, IDs: ids, Payload: true}
	for _, field := range []string{t.look.Title, t.Label} {
		if field != "" {
			request.PayloadFields = append(request.PayloadFields, topKey(field))
		}
	}
	titles, labels := map[rerank.ID]string{}, map[rerank.ID]string{}
	if len(request.PayloadFields) > 0 {
		rows, err := t.can.Fetch.Fetch(ctx, request)
		if err != nil {
			return err
		}
		for i, id := range rows.IDs {
			var payload json.RawMessage
			if i < len(rows.Payloads) {
				payload = rows.Payloads[i]
			}
			titles[id], labels[id] = shorten(dataset.PayloadText(payload, t.look.Title), titleBytes), dataset.PayloadText(payload, t.Label)
		}
	}
	switch {
	case k.rowsAsQueries:
		e.Query = titles[e.Own]
	case k.textQueries:
		e.Query = shorten(k.queryIDs[q].String(), titleBytes)
	default:
		e.Query = "query " + k.queryIDs[q].String()
	}
	right := func(id rerank.ID) bool {
		if k.rowsAsQueries {
			return labels[id] != "" && labels[id] == labels[e.Own]
		}
		return slices.ContainsFunc(k.relevant[q], func(item int32) bool { return k.itemIDs[item] == id })
	}
	rows := func(ids []rerank.ID) []Row {
		var rows []Row
		for _, id := range ids {
			rows = append(rows, Row{id, titles[id], right(id)})
		}
		return rows
	}
	e.Before, e.After = rows(was), rows(is)
	return nil
}

func (o Options) progress(stage string, steps int) func(n int) {
	if o.Progress == nil {
		return func(int) {}
	}
	return o.Progress(stage, steps)
}

func (o Options) note(format string, args ...any) {
	if o.Note != nil {
		o.Note(fmt.Sprintf(format, args...))
	}
}
