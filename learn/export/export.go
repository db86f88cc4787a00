// Package export joins what answers showed and what people chose, as sidecars kept it, into the log
// that fits and eval read.
package export

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/likenessdb/likeness/internal/atomicfile"
	"github.com/likenessdb/likeness/internal/statedir"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/events"
)

// ErrInput means that the folders do not have what is to be exported.
var ErrInput = errors.New("nothing to export")

// Options say what is exported, and where to.
type Options struct {
	// StateDirs are the state folders of the sidecars. Sidecars may be running.
	StateDirs []string
	Route     string
	// From and To bound the time of the answers: From is included, To is not. Zero means no bound.
	From, To time.Time
	// Log is the path of the Parquet file that gets the log. Queries is the path of another for the
	// queries' vectors and texts; "" writes none.
	Log, Queries string
	// Weights multiply the weights of feedback, by kind; other kinds have 1. Weight 0 leaves a kind
	// out.
	Weights map[string]float64
}

// Report says what was exported and what was left out.
type Report struct {
	Answers int64 `json:"answers"`
	Rows    int64 `json:"rows"`
	Chosen  int64 `json:"chosen"` // rows with a weight above 0
	Queries int64 `json:"queries"`
	// Feedback counts events, without those that were sent twice, which are Repeated.
	Feedback int64 `json:"feedback"`
	Repeated int64 `json:"repeated"`
	// Unmatched events name an answer that is not in the folders or not in the time span. NotShown
	// events name an item that the answer did not show.
	Unmatched int64 `json:"unmatched"`
	NotShown  int64 `json:"not_shown"`
	// WithoutQuery counts answers that were left out because the events have neither the query's
	// vector nor its text.
	WithoutQuery int64 `json:"without_query"`
	// Damaged counts places of the files that cannot be read.
	Damaged int64 `json:"damaged"`
}

// row is an item that an answer showed.
type row struct {
	Query    string    `parquet:"query,dict"`
	Item     string    `parquet:"item,dict"`
	Weight   float64   `parquet:"weight"` // 0: shown, not chosen
	Time     time.Time `parquet:"time,timestamp(millisecond)"`
	Position int32     `parquet:"position"` // from 1
	Arm      string    `parquet:"arm,dict"`
	Answer   string    `parquet:"answer,dict"`
	User     string    `parquet:"user,dict"`
	Score    float32   `parquet:"score"`
	Version  string    `parquet:"version,dict"`
}

// query is a query of the log.
type query struct {
	ID     string    `parquet:"id"`
	Vector []float32 `parquet:"vector,list"`
	Text   string    `parquet:"text"`
}

// Run writes the files. It holds the feedback and the ids of answers and queries in memory, and
// nothing else. It returns ErrInput if the folders have no answer, or the error of a file.
func Run(ctx context.Context, o Options) (Report, error) {
	e := &exporter{o: o, chosen: map[events.AnswerID][]choice{}, answers: map[events.AnswerID]struct{}{}, queries: map[uint64]struct{}{}}
	if err := e.each(ctx, events.Visitor{Feedback: e.addFeedback()}); err != nil {
		return e.report, err
	}
	e.report.Damaged = 0 // the second pass finds the same
	err := atomicfile.Write(o.Log, func(w io.Writer) error {
		e.log = parquet.NewGenericWriter[row](w, parquet.Compression(&parquet.Snappy))
		if o.Queries == "" {
			return e.writeRows(ctx)
		}
		return atomicfile.Write(o.Queries, func(w io.Writer) error {
			e.vectors = parquet.NewGenericWriter[query](w, parquet.Compression(&parquet.Snappy))
			return errors.Join(e.writeRows(ctx), e.vectors.Close())
		})
	})
	for _, left := range e.chosen {
		e.report.Unmatched += int64(len(left))
	}
	return e.report, err
}

// exporter joins impressions with the feedback on them.
type exporter struct {
	o       Options
	report  Report
	chosen  map[events.AnswerID][]choice // feedback whose impression has not been read yet, by answer
	answers map[events.AnswerID]struct{}
	queries map[uint64]struct{} // keys of the queries in the query file
	log     *parquet.GenericWriter[row]
	vectors *parquet.GenericWriter[query] // nil if Options.Queries is empty
	rows    []row
}

// choice adds up the feedback on one item of an answer.
type choice struct {
	item   rerank.ID
	weight float64
}

// each reads the events of all folders. It returns ErrInput if no folder has any of the route.
func (e *exporter) each(ctx context.Context, v events.Visitor) error {
	found := false
	for _, dir := range e.o.StateDirs {
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, err := os.Stat(dir); err != nil {
			return fmt.Errorf("%w: %w", ErrInput, err)
		}
		damaged, err := events.Read(statedir.Events(dir, e.o.Route), v)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		found = true
		e.report.Damaged += int64(damaged)
	}
	if !found {
		return fmt.Errorf("%w: no events of route %q in %q; set events.share of the route, and give the state_dir of its sidecars", ErrInput, e.o.Route, e.o.StateDirs)
	}
	return nil
}

// addFeedback returns a visitor that collects feedback by answer.
func (e *exporter) addFeedback() func(*events.Feedback) error {
	known := map[events.EventKey]struct{}{}
	return func(f *events.Feedback) error {
		key := f.Key()
		if _, ok := known[key]; ok {
			e.report.Repeated++
			return nil
		}
		known[key] = struct{}{}
		e.report.Feedback++
		weight := f.Weight
		if factor, ok := e.o.Weights[f.Kind]; ok {
			weight *= factor
		}
		e.chosen[f.Answer] = append(e.chosen[f.Answer], choice{f.Item, weight})
		return nil
	}
}

// writeRows writes the rows of all impressions.
func (e *exporter) writeRows(ctx context.Context) error {
	err := e.each(ctx, events.Visitor{Impression: e.addImpression})
	if err == nil && e.report.Answers == 0 {
		err = fmt.Errorf("%w: no answer of route %q with its query was kept in the time span (%d without); set events.keep to have vector or text", ErrInput, e.o.Route, e.report.WithoutQuery)
	}
	return errors.Join(err, e.log.Close())
}

// addImpression writes the rows of an impression, unless it was written before.
func (e *exporter) addImpression(m *events.Impression) error {
	if !e.o.From.IsZero() && m.Time.Before(e.o.From) || !e.o.To.IsZero() && !m.Time.Before(e.o.To) {
		return nil
	}
	if _, ok := e.answers[m.Answer]; ok {
		return nil
	}
	e.answers[m.Answer] = struct{}{}
	chosen := e.chosen[m.Answer]
	delete(e.chosen, m.Answer)
	key := m.QueryKey()
	if key == 0 {
		e.report.WithoutQuery++
		return nil
	}
	e.report.Answers++
	weights := make(map[rerank.ID]float64, len(chosen))
	for _, c := range chosen {
		weights[c.item] += c.weight
	}
	name := fmt.Sprintf("q%016x", key)
	e.rows = e.rows[:0]
	for i, item := range m.Items {
		r := row{
			Query: name, Item: item.ID.String(), Weight: weights[item.ID], Time: m.Time, Position: int32(m.First + i),
			Arm: item.Arm.String(), Answer: m.Answer.String(), User: m.User, Score: item.Score, Version: m.Version,
		}
		if r.Weight > 0 {
			e.report.Chosen++
		}
		e.rows = append(e.rows, r)
	}
	for _, c := range chosen {
		if !m.Shows(c.item) {
			e.report.NotShown++
		}
	}
	e.report.Rows += int64(len(e.rows))
	if _, err := e.log.Write(e.rows); err != nil {
		return err
	}
	return e.addQuery(key, query{name, m.Vector, m.Text})
}

// addQuery writes a query that was not written before.
func (e *exporter) addQuery(key uint64, q query) error {
	if _, ok := e.queries[key]; ok {
		return nil
	}
	e.queries[key] = struct{}{}
	e.report.Queries++
	if e.vectors == nil {
		return nil
	}
	_, err := e.vectors.Write([]query{q})
	return err
}
