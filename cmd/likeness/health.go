package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

func newHealthCommand(a *app) *cobra.Command {
	var (
		f       dialFlags
		route   string
		timeout time.Duration
	)
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Ask a running sidecar whether it answers searches",
		Long: `For health checks of containers. The exit code is 0 if the sidecar answers searches, and
4 if it does not or cannot be reached.`,
		Example: `  likeness health
  likeness health --address 127.0.0.1:7600 --route products`,
		Args: cobra.NoArgs,
	}
	f.add(cmd)
	cmd.Flags().StringVarP(&route, "route", "r", "", "ask for this route; empty is the whole sidecar")
	cmd.Flags().DurationVar(&timeout, "timeout", 3*time.Second, "time to wait for an answer")
	out := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
		defer cancel()
		state, err := f.health(ctx, route)
		if err != nil {
			return err
		}
		report := struct {
			Status string `json:"status"`
		}{state.String()}
		if err := a.print(*out, report, func(w io.Writer) error {
			_, err := fmt.Fprintln(w, report.Status)
			return err
		}); err != nil {
			return err
		}
		if state != grpc_health_v1.HealthCheckResponse_SERVING {
			return callError(f.address, status.Error(codes.Unavailable, "searches are not answered now; /readyz of the admin port says why"))
		}
		return nil
	}
	return cmd
}

// health returns the state of the sidecar, or of a route unless route is empty.
func (f *dialFlags) health(ctx context.Context, route string) (s grpc_health_v1.HealthCheckResponse_ServingStatus, err error) {
	conn, err := f.connect()
	if err != nil {
		return s, err
	}
	defer conn.Close()
	options, err := f.callOptions()
	if err != nil {
		return s, err
	}
	request := &grpc_health_v1.HealthCheckRequest{}
	if route != "" {
		request.Service = "route/" + route
	}
	r, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, request, options...)
	if status.Code(err) == codes.NotFound {
		return s, usagef("--route: the sidecar has no route %q", route)
	}
	if err != nil {
		return s, callError(f.address, err)
	}
	return r.GetStatus(), nil
}
