package search

import (
	"cmp"
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search/plan"
	"github.com/likenessdb/likeness/sidecar/search/rank"
	"github.com/likenessdb/likeness/sidecar/search/span"
)

// begin makes the plan without calling the store. If the request needs the store, and the route was
// never checked against it, begin then checks the route and plans again (restart).
func (s *search) begin(ctx context.Context, version *route.Version, asked Request) error {
	r, err := plan.Resolve(s.view.Checked, asked)
	if err != nil {
		return err
	}
	if s.spending, r, err = rank.Begin(ctx, s.view, r, s.engine.log); err != nil {
		return err
	}
	if s.plan, err = plan.New(ctx, s.view, r, asked.Strategy != ""); err != nil {
		return err
	}
	s.scope.Common = append(s.scope.Common, attribute.String("likeness.strategy", string(s.plan.Request.Strategy)))
	s.plan.Widen(s.view, s.spending.Candidates())
	if err := s.start(ctx, s.plan); err != nil {
		return err
	}
	if !s.view.StoreAsked && s.plan.Request.NeedsStore() {
		if err := s.restart(ctx, version, asked, r.Query); err != nil {
			return err
		}
	}
	p, model := s.plan, s.view.Model
	s.answer.Strategy, s.answer.Plan, s.answer.Model, s.answer.Version = p.Request.Strategy, p.Reason, model.Name, model.Version
	if s.spending != nil {
		s.answer.Ranking = &s.spending.Ranking
	}
	if p.Reason != "" {
		trace.SpanFromContext(ctx).SetAttributes(attribute.String("likeness.plan", p.Reason))
	}
	return nil
}

// restart checks the route against its store, which may narrow its limits. It then resolves the
// request again, with the strategy and the query vector that were found before.
func (s *search) restart(ctx context.Context, version *route.Version, asked Request, q rerank.Query) error {
	checked, err := version.Check(ctx)
	if err != nil {
		return err
	}
	checked = checked.ForCollection(cmp.Or(asked.Collection, checked.OwnName)) // the name may be an alias
	s.view = s.view.WithChecked(checked)
	s.spending.UseView(s.view)
	asked.Strategy, asked.Query = s.plan.Request.Strategy, q
	if s.plan.Request, err = plan.Resolve(checked, asked); err != nil {
		return err
	}
	s.plan.Widen(s.view, s.spending.Candidates())
	return s.start(ctx, s.plan)
}

// start makes the probes of the first round.
func (s *search) start(ctx context.Context, p *plan.Plan) error {
	if p.Request.Strategy == rerank.Scan {
		return nil
	}
	_, sp := span.Step(ctx, "probes")
	defer sp.End()
	return p.Start(s.view)
}
