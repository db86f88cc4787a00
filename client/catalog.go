package client

import (
	"context"
	"time"

	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
)

// Route describes how a sidecar serves a collection.
type Route struct {
	Name, Store, Collection, VectorField string
	Model, ModelVersion                  string
	// Placement says where the items' feature rows are: "table", "stored" or "derived" (in
	// Companion). "rewrite" needs none: one search by the pulled-back vector is the answer.
	Placement, Companion string
	// WhyNotRewritten says why Placement is not "rewrite" although the operator named none.
	WhyNotRewritten     string
	Strategy            Strategy
	Depth, AverageDepth int
	Timeout             time.Duration
	// FailOpen means that the route answers in the store's own order if it cannot
	// score.
	FailOpen       bool
	MaxK, MaxDepth int
	// TableItems is the number of items of the route's table, nil without a table.
	TableItems *int64
	// Calibration is the audited promise of the route's answers. Uncalibrated says why
	// answers carry none.
	Calibration  *Calibration
	Uncalibrated string
	// Ranker names the ranker that orders the best items, with at most Calls scores
	// for a search. It is empty without a ranker.
	Ranker string
	Calls  int
}

// Model is a loaded learned similarity.
type Model struct {
	Name string
	// Version is the digest of the model's file. The content of a version never
	// changes.
	Version string
	// Kind is "dot", "bilinear", "mol", "maxsim" or "rbe".
	Kind              string
	QueryDim, ItemDim int
	// UserIDs means that queries must name a user.
	UserIDs    bool
	Provenance map[string]string
}

// Routes returns the routes, sorted by name.
func (c *Client) Routes(ctx context.Context) ([]Route, error) {
	r, _, err := call(ctx, c, &likenessv1.ListRoutesRequest{}, c.catalog.ListRoutes)
	if err != nil {
		return nil, err
	}
	out := make([]Route, len(r.GetRoutes()))
	for i, m := range r.GetRoutes() {
		out[i] = fromRoute(m)
	}
	return out, nil
}

// Route returns the route with the given name, or ErrNotFound.
func (c *Client) Route(ctx context.Context, name string) (*Route, error) {
	r, _, err := call(ctx, c, &likenessv1.GetRouteRequest{Name: name}, c.catalog.GetRoute)
	if err != nil {
		return nil, err
	}
	route := fromRoute(r.GetRoute())
	return &route, nil
}

// Models returns the models, sorted by name.
func (c *Client) Models(ctx context.Context) ([]Model, error) {
	r, _, err := call(ctx, c, &likenessv1.ListModelsRequest{}, c.catalog.ListModels)
	if err != nil {
		return nil, err
	}
	out := make([]Model, len(r.GetModels()))
	for i, m := range r.GetModels() {
		out[i] = Model{
			Name: m.GetName(), Version: m.GetVersion(), Kind: m.GetKind(), QueryDim: int(m.GetQueryDim()), ItemDim: int(m.GetItemDim()),
			UserIDs: m.GetUserIds(), Provenance: m.GetProvenance(),
		}
	}
	return out, nil
}

func fromRoute(m *likenessv1.Route) Route {
	return Route{
		Name: m.GetName(), Store: m.GetStore(), Collection: m.GetCollection(), VectorField: m.GetVectorField(),
		Model: m.GetModel().GetName(), ModelVersion: m.GetModel().GetVersion(),
		Placement: m.GetPlacement(), WhyNotRewritten: m.GetWhyNotRewritten(), Companion: m.GetCompanion(), Strategy: Strategy(word(m.GetStrategy(), "STRATEGY_")),
		Depth: int(m.GetDepth()), AverageDepth: int(m.GetAverageDepth()), Timeout: m.GetTimeout().AsDuration(),
		FailOpen: m.GetFailure() == "fail_open", MaxK: int(m.GetMaxK()), MaxDepth: int(m.GetMaxDepth()),
		TableItems: m.TableItems, Calibration: fromCalibration(m.GetCalibration()), Uncalibrated: m.GetUncalibrated(),
		Ranker: m.GetRanker(), Calls: int(m.GetCalls()),
	}
}
