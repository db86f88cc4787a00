package client

import (
	"context"
	"time"

	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
)

// Route is a collection's rule, as a sidecar serves it.
type Route struct {
	Name, Store, Collection, VectorField string
	Model, ModelVersion                  string
	// Placement is where the items' features lie: "table", "stored" or "derived" (in Companion).
	// It is "rewrite" where none are needed, since one search by the pulled-back vector is the answer.
	Placement, Companion string
	// WhyNotRewritten says why it is not "rewrite", where the operator named no placement.
	WhyNotRewritten     string
	Strategy            Strategy
	Depth, AverageDepth int
	Timeout             time.Duration
	// FailOpen: it answers in the store's own order where it cannot score.
	FailOpen       bool
	MaxK, MaxDepth int
	// TableItems are the items of its table; nil without one.
	TableItems *int64
	// Calibration is what was audited; Uncalibrated says why answers do not carry it.
	Calibration  *Calibration
	Uncalibrated string
	// Ranker has the last word, of so many Calls; empty is none.
	Ranker string
	Calls  int
}

// Model is a learned similarity, as loaded.
type Model struct {
	Name string
	// Version is the digest of its file; a version never changes.
	Version string
	// Kind is "dot", "bilinear", "mol", "maxsim" or "rbe".
	Kind              string
	QueryDim, ItemDim int
	// UserIDs: queries must carry a user.
	UserIDs    bool
	Provenance map[string]string
}

// Routes lists the routes by name.
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

// Route shows one route. It returns ErrNotFound if there is none of that name.
func (c *Client) Route(ctx context.Context, name string) (*Route, error) {
	r, _, err := call(ctx, c, &likenessv1.GetRouteRequest{Name: name}, c.catalog.GetRoute)
	if err != nil {
		return nil, err
	}
	route := fromRoute(r.GetRoute())
	return &route, nil
}

// Models lists the models by name.
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
