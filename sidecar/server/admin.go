package server

import (
	"context"
	"log/slog"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/sidecar/follow"
	"github.com/likenessdb/likeness/sidecar/rollout"
)

// Admin puts versions of a route in service for AdminService; see rollout.Manager.
type Admin interface {
	List(route string) ([]rollout.Info, error)
	Activate(ctx context.Context, route, version string, force bool) (rollout.Activation, error)
	RollBack(ctx context.Context, route string) (rollout.Activation, error)
	Collect(ctx context.Context, route string, remove bool) ([]rollout.Garbage, error)
}

// admin implements AdminService.
type admin struct {
	likenessv1.UnimplementedAdminServiceServer
	*services
}

var _ likenessv1.AdminServiceServer = admin{}

func (a admin) ListVersions(ctx context.Context, r *likenessv1.ListVersionsRequest) (*likenessv1.ListVersionsResponse, error) {
	if err := a.allowAdmin(ctx, r.GetRoute()); err != nil {
		return nil, err
	}
	versions, err := a.admin.List(r.GetRoute())
	if err != nil {
		return nil, err
	}
	out := &likenessv1.ListVersionsResponse{}
	for _, v := range versions {
		out.Versions = append(out.Versions, fromVersion(v))
	}
	return out, nil
}

// begin checks like allowAdmin whether the caller may change a route, and logs who changes what.
func (a admin) begin(ctx context.Context, route string) error {
	if err := a.allowAdmin(ctx, route); err != nil {
		return err
	}
	a.log.LogAttrs(ctx, slog.LevelInfo, "admin call", append(identity(ctx), slog.String("route", route))...)
	return nil
}

func (a admin) ActivateVersion(ctx context.Context, r *likenessv1.ActivateVersionRequest) (*likenessv1.ActivateVersionResponse, error) {
	if err := a.begin(ctx, r.GetRoute()); err != nil {
		return nil, err
	}
	done, err := a.admin.Activate(ctx, r.GetRoute(), r.GetVersion(), r.GetForce())
	if err != nil {
		return nil, err
	}
	return &likenessv1.ActivateVersionResponse{Activation: fromActivation(done)}, nil
}

func (a admin) RollBack(ctx context.Context, r *likenessv1.RollBackRequest) (*likenessv1.RollBackResponse, error) {
	if err := a.begin(ctx, r.GetRoute()); err != nil {
		return nil, err
	}
	done, err := a.admin.RollBack(ctx, r.GetRoute())
	if err != nil {
		return nil, err
	}
	return &likenessv1.RollBackResponse{Activation: fromActivation(done)}, nil
}

func (a admin) CollectVersions(ctx context.Context, r *likenessv1.CollectVersionsRequest) (*likenessv1.CollectVersionsResponse, error) {
	if err := a.begin(ctx, r.GetRoute()); err != nil {
		return nil, err
	}
	found, err := a.admin.Collect(ctx, r.GetRoute(), r.GetRemove())
	if err != nil {
		return nil, err
	}
	out := &likenessv1.CollectVersionsResponse{}
	for _, g := range found {
		out.Garbage = append(out.Garbage, fromGarbage(g))
	}
	return out, nil
}

func fromGarbage(g rollout.Garbage) *likenessv1.Garbage {
	return &likenessv1.Garbage{Version: utf8(g.Version), Kind: g.Kind, Name: utf8(g.Name), Bytes: g.Bytes, Removed: g.Removed}
}

func (a admin) Reconcile(ctx context.Context, r *likenessv1.ReconcileRequest) (*likenessv1.ReconcileResponse, error) {
	if err := a.begin(ctx, r.GetRoute()); err != nil {
		return nil, err
	}
	if a.reconcile == nil {
		return a.UnimplementedAdminServiceServer.Reconcile(ctx, r)
	}
	d, err := a.reconcile(ctx, r.GetRoute())
	if err != nil {
		return nil, err
	}
	return &likenessv1.ReconcileResponse{Drift: fromDrift(d)}, nil
}

func fromDrift(d follow.Drift) *likenessv1.Drift {
	return &likenessv1.Drift{Rows: d.Rows, Missing: d.Missing, Changed: d.Changed, Surplus: d.Surplus, Unfit: d.Unfit}
}

func fromVersion(v rollout.Info) *likenessv1.Version {
	out := &likenessv1.Version{
		Name: utf8(v.Name), Model: utf8(v.Model), ModelVersion: v.ModelVersion, Table: utf8(v.Table), Companion: utf8(v.Companion),
		Active: v.Active, Previous: v.Previous,
	}
	if !v.Activated.IsZero() {
		out.Activated = timestamppb.New(v.Activated)
	}
	return out
}

func fromActivation(a rollout.Activation) *likenessv1.Activation {
	return &likenessv1.Activation{
		Version: fromVersion(a.Version), Previous: utf8(a.Before), Queries: int32(a.Queries), Failed: int32(a.Failed), Recent: a.Recent,
		Took: durationpb.New(a.Took), Remembered: a.Remembered, Alias: utf8(a.Alias),
	}
}
