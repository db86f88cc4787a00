package server

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/durationpb"

	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/sidecar/route"
)

// catalog implements CatalogService.
type catalog struct {
	likenessv1.UnimplementedCatalogServiceServer
	*services
}

var _ likenessv1.CatalogServiceServer = catalog{}

// visible lists the models of the routes that the caller's token allows, or all models if the
// caller may use all routes.
func (c catalog) visible(ctx context.Context) []*model.Model {
	all := c.models()
	caller := callerOf(ctx)
	if caller == nil || len(caller.Routes) == 0 {
		return all
	}
	mine := map[string]bool{}
	for _, r := range c.searcher.Routes() {
		mine[r.Model.Name] = mine[r.Model.Name] || allow(ctx, r.Name) == nil
	}
	return slices.DeleteFunc(slices.Clone(all), func(m *model.Model) bool { return !mine[m.Name] })
}

func (c catalog) ListModels(ctx context.Context, _ *likenessv1.ListModelsRequest) (*likenessv1.ListModelsResponse, error) {
	out := &likenessv1.ListModelsResponse{}
	for _, m := range c.visible(ctx) {
		out.Models = append(out.Models, fromModel(m))
	}
	return out, nil
}

func (c catalog) GetModel(ctx context.Context, r *likenessv1.GetModelRequest) (*likenessv1.GetModelResponse, error) {
	models := c.visible(ctx)
	names := make([]string, len(models))
	for i, m := range models {
		if m.Name == r.GetName() {
			return &likenessv1.GetModelResponse{Model: fromModel(m)}, nil
		}
		names[i] = m.Name
	}
	return nil, fmt.Errorf("%w: %q; there are: %s", errModel, r.GetName(), strings.Join(names, ", "))
}

// ListRoutes lists the routes that the caller's token allows.
func (c catalog) ListRoutes(ctx context.Context, _ *likenessv1.ListRoutesRequest) (*likenessv1.ListRoutesResponse, error) {
	out := &likenessv1.ListRoutesResponse{}
	for _, r := range c.allowed(ctx) {
		out.Routes = append(out.Routes, fromRoute(r))
	}
	return out, nil
}

// allowed returns the routes that the caller's token allows.
func (s *services) allowed(ctx context.Context) []*route.Route {
	return slices.DeleteFunc(s.searcher.Routes(), func(r *route.Route) bool { return allow(ctx, r.Name) != nil })
}

func (c catalog) GetRoute(ctx context.Context, r *likenessv1.GetRouteRequest) (*likenessv1.GetRouteResponse, error) {
	if err := allow(ctx, r.GetName()); err != nil {
		return nil, err
	}
	rt, err := c.searcher.Route(r.GetName())
	if err != nil {
		return nil, err
	}
	return &likenessv1.GetRouteResponse{Route: fromRoute(rt)}, nil
}

func fromModel(m *model.Model) *likenessv1.Model {
	spec := m.Spec()
	return &likenessv1.Model{
		Name:               m.Name,
		Version:            m.Version,
		Kind:               string(spec.Kind),
		QueryDim:           int32(spec.QueryDim),
		ItemDim:            int32(spec.ItemDim),
		Normalise:          spec.Normalise,
		UserIds:            spec.UserIDs,
		SingleInnerProduct: spec.SingleInnerProduct,
		QueryComponents:    int32(spec.PairsQuery),
		ItemComponents:     int32(spec.PairsItem),
		Provenance:         validTexts(m.Provenance),
	}
}

func validTexts(texts map[string]string) map[string]string {
	out := make(map[string]string, len(texts))
	for k, v := range texts {
		out[utf8(k)] = utf8(v)
	}
	return out
}

func fromRoute(r *route.Route) *likenessv1.Route {
	out := &likenessv1.Route{
		Name:         r.Name,
		Store:        r.StoreName,
		Collection:   r.Collection,
		VectorField:  r.Vector,
		Model:        &likenessv1.ModelRef{Name: r.Model.Name, Version: r.Model.Version},
		Placement:    string(r.Placement),
		Companion:    r.Companion,
		Strategy:     enumOf(strategies, r.Strategy),
		Depth:        int32(r.Depth),
		AverageDepth: int32(r.AverageDepth),
		Weights:      enumOf(weights, r.Weights),
		ExactSearch:  r.ExactSearch,
		MaxGap:       r.MaxGap,
		Timeout:      durationpb.New(r.Timeout),
		Failure:      string(r.Failure),
		MaxK:         int32(r.MaxK),
		MaxDepth:     int32(r.MaxDepth),
		MaxRounds:    int32(r.MaxRounds),
		Ranker:       r.RankerName,
		Embedder:     r.EmbedderName,
		Calls:        int32(r.Calls),
		RankRounds:   int32(r.RankRounds),
		Mix:          float32(r.Mix),

		WhyNotRewritten: utf8(r.WhyNotRewritten),
	}
	if r.Promise != nil {
		c, void := r.Promise.Calibration()
		out.Calibration, out.Uncalibrated = fromCalibration(c), void
	}
	if t := r.CurrentTable(); t != nil {
		items := int64(t.Count())
		t.Release()
		out.TableItems = &items
	}
	return out
}
