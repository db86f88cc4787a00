package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/plugin"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/rbe"
	"github.com/likenessdb/likeness/sidecar/ranker"
)

// supported is a similarity whose query vectors are a ranker's scores of its support
// items.
type supported interface {
	Supports() []rerank.ID
	Ask(ctx context.Context, ranker rbe.Relevance, q rerank.Query) (rerank.Query, error)
}

// spending is what a search asks of its route's ranker, and what that said.
type spending struct {
	Ranking
	query  plugin.Query // as it was asked
	wants  plugin.Description
	rounds int // at most
	// scores are R of every item that has one; asked are the items that the ranker was
	// asked of, and those that are gone.
	scores map[rerank.ID]float32
	asked  map[rerank.ID]bool
	gone   map[rerank.ID]bool
	// found are the candidates of all rounds, rows the features of those with a score,
	// where they are looked at again.
	found *idSet
	rows  map[rerank.ID]rerank.Items
	err   error // why items were not scored
	// planned candidates are to be scored; known scores are those from before.
	planned, known int
	fitted         bool // the features of the support items were read
}

func newSpending(q plugin.Query) *spending {
	return &spending{
		query: q, scores: map[rerank.ID]float32{}, asked: map[rerank.ID]bool{}, gone: map[rerank.ID]bool{},
		found: newIDSet(0), rows: map[rerank.ID]rerank.Items{},
	}
}

// left are the calls that may be spent yet.
func (p *spending) left() int { return max(0, p.Budget-p.Calls) }

// ranks reports whether the ranker has the last word on the answer.
func (s *search) ranks() bool { return s.spending != nil && s.spending.rounds > 0 }

// ranked reports whether an item's place in the answer is the ranker's.
func (s *search) ranked(id rerank.ID) bool {
	if !s.ranks() {
		return false
	}
	_, ok := s.spending.scores[id]
	return ok
}

// ask begins to spend: on the support items, where the query's vector is to be made
// of their scores.
func (s *search) ask(ctx context.Context) error {
	if s.Ranker == nil {
		return nil
	}
	p := newSpending(s.r.Query)
	p.Ranker, p.Budget = s.RankerName, *s.r.Calls
	s.spending, s.answer.Ranking = p, &p.Ranking
	sim, made := s.Model.Similarity.(supported)
	if made {
		p.query.Vector = nil // it is none that the ranker could read
	}
	made = made && len(s.r.Query.Vector) == 0
	switch {
	case p.Budget > 0:
	case made:
		p.Budget = s.opened.supportItems()
	default:
		return nil
	}
	p.wants, p.err = s.Ranker.Describe(ctx)
	p.Version = p.wants.Version
	if p.err == nil && p.wants.Text && p.query.Text == "" {
		return badField("query.text", "ranker %q reads it and it is empty; say in words what is searched for", s.RankerName)
	}
	if made {
		if err := s.askSupports(ctx, sim); err != nil {
			return err
		}
	}
	if *s.r.Calls > 0 && p.left() > 0 {
		p.rounds = s.r.Rounds
	}
	return nil
}

// askSupports makes the query's vector of the ranker's scores of the support items.
func (s *search) askSupports(ctx context.Context, sim supported) error {
	p := s.spending
	ctx, span := s.span(ctx, "supports")
	defer span.End()
	began := time.Now()
	defer func() { s.answer.Timings.Rank += time.Since(began) }()
	err := p.err
	if err == nil {
		s.r.Query, err = sim.Ask(ctx, s.relevance, s.r.Query)
	}
	span.SetAttributes(attribute.Int("likeness.ranker.calls", p.Calls))
	switch {
	case err == nil:
		return nil
	case errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err()
	}
	fail(span, err)
	if errors.Is(err, ranker.ErrQuery) {
		return err
	}
	s.log.LogAttrs(ctx, slog.LevelWarn, "support items not scored", slog.String("route", s.Name), slog.String("ranker", s.RankerName), slog.Any("error", err))
	return fmt.Errorf("%w: route %q: the query has no vector, since ranker %q failed: %w", ErrDegraded, s.Name, s.RankerName, err)
}

// relevance scores support items; an rbe.Relevance.
func (s *search) relevance(ctx context.Context, ids []rerank.ID, _ rerank.Query) ([]float32, error) {
	p := s.spending
	items, err := s.readSupports(ctx, ids)
	if err != nil {
		return nil, err
	}
	if err := s.call(ctx, items); err != nil {
		return nil, err
	}
	scores := make([]float32, len(ids))
	for i, id := range ids {
		score, ok := p.scores[id]
		if !ok {
			return nil, fmt.Errorf("%w: it gave support item %s no score", ranker.ErrAnswer, id)
		}
		scores[i] = score
	}
	return scores, nil
}

// call is one call of the ranker, and keeps what it said. With an error the scores
// that came before it are kept.
func (s *search) call(ctx context.Context, items []plugin.Item) error {
	p := s.spending
	for _, it := range items {
		p.asked[it.ID] = true
	}
	got, err := s.rankWithin(ctx, items)
	p.Calls += got.Calls
	switch {
	case len(got.Scores) != len(items) && (err == nil || len(got.Scores) > 0):
		return errors.Join(err, fmt.Errorf("%w: %d scores of %d items", ranker.ErrAnswer, len(got.Scores), len(items)))
	case len(p.scores) > 0 && got.Version != p.Version:
		return errors.Join(err, fmt.Errorf("%w: its version was %q and then %q, and their scores cannot be compared", ranker.ErrAnswer, p.Version, got.Version))
	}
	for i, score := range got.Scores {
		if finite(score) {
			p.scores[items[i].ID] = score
			p.Version = got.Version
		}
	}
	return err
}

// rankWithin makes the calls that are left at most, where the ranker can be held to that: a
// batch that failed costs them again.
func (s *search) rankWithin(ctx context.Context, items []plugin.Item) (ranker.Result, error) {
	p := s.spending
	if bounded, ok := s.Ranker.(interface {
		RankWithin(ctx context.Context, q plugin.Query, items []plugin.Item, calls int) (ranker.Result, error)
	}); ok {
		return bounded.RankWithin(ctx, p.query, items, max(1, p.left()))
	}
	return s.Ranker.Rank(ctx, p.query, items)
}

// heldFor is how long the rows of support items are believed.
const heldFor = time.Minute

// held are the support items as a ranker wants them. It is safe for concurrent use.
type held struct {
	mu    sync.Mutex
	items []plugin.Item
	wants plugin.Description
	until time.Time
}

// readSupports are the support items as the ranker wants them, read once a minute.
func (s *search) readSupports(ctx context.Context, ids []rerank.ID) ([]plugin.Item, error) {
	wants := s.spending.wants
	h := s.supports
	h.mu.Lock()
	items := h.items
	known := time.Now().Before(h.until) && h.wants.SameItems(wants)
	h.mu.Unlock()
	if known {
		return items, nil
	}
	items, err := s.rankItems(ctx, ids)
	if err != nil {
		return nil, err
	}
	if len(items) != len(ids) {
		return nil, fmt.Errorf("%w: %d of the %d support items of model %q are not in collection %q; fit the model again", adapters.ErrStore,
			len(ids)-len(items), len(ids), s.Model.Name, s.Collection)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.items, h.wants, h.until = items, wants, time.Now().Add(heldFor)
	return items, nil
}

// rankItems are items as the ranker wants them, in the order asked, read by id where
// it wants more than ids; those that the collection does not have are left out.
func (s *search) rankItems(ctx context.Context, ids []rerank.ID) ([]plugin.Item, error) {
	wants := s.spending.wants
	payload := wants.Payload || len(wants.PayloadFields) > 0
	items := make([]plugin.Item, 0, len(ids))
	if !payload && !wants.Vectors {
		for _, id := range ids {
			items = append(items, plugin.Item{ID: id})
		}
		return items, nil
	}
	fetcher, ok := s.Store.(adapters.Fetcher)
	if !ok {
		return nil, fmt.Errorf("%w: ranker %q reads the items' rows, and store %q cannot fetch rows by id", adapters.ErrUnsupported, s.RankerName, s.StoreName)
	}
	owner := s.ownerIn(s.Collection)
	request := adapters.FetchRequest{
		Collection: s.Collection, IDs: ids, Owner: owner, Payload: payload, PayloadFields: wants.PayloadFields, Consistency: s.Consistency,
	}
	if wants.Vectors {
		request.Vectors = []string{s.Vector}
	}
	rows, err := fetcher.Fetch(ctx, request)
	if err != nil {
		return nil, fmt.Errorf("rows for ranker %q: %w", s.RankerName, err)
	}
	return s.fromRows(items, ids, rows, owner)
}

// fromRows makes items of fetched rows; of an item with several rows it takes the first.
func (s *search) fromRows(items []plugin.Item, ids []rerank.ID, rows adapters.Rows, owner string) ([]plugin.Item, error) {
	wants := s.spending.wants
	var fields []string
	if wants.Vectors {
		fields = []string{s.Vector}
	}
	have, starts, _, err := s.align(rows, ids, fields, owner)
	if err != nil {
		return nil, err
	}
	payloads := rows.Payloads
	if !wants.Payload && len(wants.PayloadFields) == 0 {
		payloads = make([]json.RawMessage, len(rows.IDs))
	}
	if len(payloads) != len(rows.IDs) {
		return nil, s.broken("%d payloads of %d rows", len(payloads), len(rows.IDs))
	}
	for i, id := range have {
		row := i
		if starts != nil {
			row = int(starts[i])
		}
		item := plugin.Item{ID: id, Payload: payloads[row]}
		if wants.Vectors {
			item.Vector = rows.Vectors[0].Row(row)
		}
		items = append(items, item)
	}
	return items, nil
}
