package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
)

// adminFlags say how to reach the AdminService of a running sidecar.
type adminFlags struct {
	dial    dialFlags
	route   string
	timeout time.Duration
}

func (f *adminFlags) add(cmd *cobra.Command) *output {
	f.dial.add(cmd)
	cmd.Flags().StringVarP(&f.route, "route", "r", "", "the route")
	cmd.Flags().DurationVar(&f.timeout, "timeout", 10*time.Minute, "time for the whole call")
	_ = cmd.MarkFlagRequired("route")
	return addOutput(cmd)
}

// ask calls the AdminService and prints its answer.
func ask[R proto.Message](a *app, cmd *cobra.Command, f *adminFlags, out output,
	call func(context.Context, likenessv1.AdminServiceClient, ...grpc.CallOption) (R, error), text func(io.Writer, R) error,
) error {
	answer, err := callAdmin(cmd.Context(), f, call)
	if err != nil {
		return err
	}
	if out == outputJSON {
		return a.printMessage(answer)
	}
	return a.print(out, nil, func(w io.Writer) error { return text(w, answer) })
}

// callAdmin connects to the AdminService and makes a call.
func callAdmin[R proto.Message](ctx context.Context, f *adminFlags, call func(context.Context, likenessv1.AdminServiceClient, ...grpc.CallOption) (R, error)) (answer R, err error) {
	options, err := f.dial.callOptions()
	if err != nil {
		return answer, err
	}
	conn, err := f.dial.connect()
	if err != nil {
		return answer, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	if answer, err = call(ctx, likenessv1.NewAdminServiceClient(conn), options...); err != nil {
		return answer, callError(f.dial.address, err)
	}
	return answer, nil
}

const adminNote = `
A sidecar with a tokens file requires a token with admin: true (--token-file). A sidecar
without one answers only if it listens on a loopback address.`

// activateFlags are the flags of `likeness model activate`.
type activateFlags struct {
	adminFlags

	force bool
}

func (f *activateFlags) add(cmd *cobra.Command) *output {
	cmd.Flags().BoolVar(&f.force, "force", false, "switch even if no recent query is answered")
	return f.adminFlags.add(cmd)
}

// request returns what the sidecar is asked to put a version in service.
func (f *activateFlags) request(version string) *likenessv1.ActivateVersionRequest {
	return &likenessv1.ActivateVersionRequest{Route: f.route, Version: version, Force: f.force}
}

func newModelActivateCommand(a *app) *cobra.Command {
	f := &activateFlags{}
	cmd := &cobra.Command{
		Use:   "activate --route ROUTE VERSION",
		Short: "Put a version of a route in service on a running sidecar",
		Long: `The sidecar reads its configuration again, checks routes.ROUTE.versions.VERSION, tries
the version with recent queries, and switches in one step. If that fails, the previous
version stays in service. With state_dir the choice survives a restart
(docs/how-to/roll-out-and-back.md).

Build the version's table and companion first: likeness index --route ROUTE --version
VERSION.
` + adminNote,
		Example: `  likeness model activate --route products v2
  likeness model activate --route products v2 --address 10.0.0.7:7600 --token-file admin.token --tls-ca ca.pem`,
		Args: cobra.ExactArgs(1),
	}
	out := f.add(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return ask(a, cmd, &f.adminFlags, *out, func(ctx context.Context, c likenessv1.AdminServiceClient, o ...grpc.CallOption) (*likenessv1.ActivateVersionResponse, error) {
			return c.ActivateVersion(ctx, f.request(args[0]), o...)
		}, func(w io.Writer, r *likenessv1.ActivateVersionResponse) error {
			return printActivation(w, f.route, r.GetActivation())
		})
	}
	return cmd
}

func newModelRollbackCommand(a *app) *cobra.Command {
	f := &adminFlags{}
	cmd := &cobra.Command{
		Use:   "rollback --route ROUTE",
		Short: "Put the version that was served before back in service",
		Long: `Switches as activate does. A second rollback undoes the first.
` + adminNote,
		Example: "  likeness model rollback --route products",
		Args:    cobra.NoArgs,
	}
	out := f.add(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return ask(a, cmd, f, *out, func(ctx context.Context, c likenessv1.AdminServiceClient, o ...grpc.CallOption) (*likenessv1.RollBackResponse, error) {
			return c.RollBack(ctx, &likenessv1.RollBackRequest{Route: f.route}, o...)
		}, func(w io.Writer, r *likenessv1.RollBackResponse) error {
			return printActivation(w, f.route, r.GetActivation())
		})
	}
	return cmd
}

func printActivation(w io.Writer, route string, v *likenessv1.Activation) error {
	kind := "made"
	if v.GetRecent() {
		kind = "recent"
	}
	_, _ = fmt.Fprintf(w, "route %s serves version %s (model %s, %s), %s before; it took %v\n", route, v.GetVersion().GetName(),
		v.GetVersion().GetModel(), v.GetVersion().GetModelVersion(), orNone(v.GetPrevious()), v.GetTook().AsDuration().Round(time.Millisecond))
	_, err := fmt.Fprintf(w, "tried with %d %s queries, %d of them failed\n", v.GetQueries(), kind, v.GetFailed())
	if v.GetAlias() != "" {
		_, err = fmt.Fprintf(w, "alias %s names %s\n", v.GetAlias(), v.GetVersion().GetCompanion())
	}
	if !v.GetRemembered() {
		_, err = fmt.Fprintln(w, "a restart serves what the configuration says: it has no state_dir")
	}
	return err
}

func newModelListCommand(a *app) *cobra.Command {
	f := &adminFlags{}
	cmd := &cobra.Command{
		Use:     "list --route ROUTE",
		Short:   "List the versions of a route of a running sidecar",
		Long:    "Lists the versions in the sidecar's configuration, and marks the one in service.\n" + adminNote,
		Example: "  likeness model list --route products",
		Args:    cobra.NoArgs,
	}
	out := f.add(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return ask(a, cmd, f, *out, func(ctx context.Context, c likenessv1.AdminServiceClient, o ...grpc.CallOption) (*likenessv1.ListVersionsResponse, error) {
			return c.ListVersions(ctx, &likenessv1.ListVersionsRequest{Route: f.route}, o...)
		}, printVersions)
	}
	return cmd
}

func printVersions(w io.Writer, r *likenessv1.ListVersionsResponse) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "version\t\tactivated\tmodel\tdigest\ttable\tcompanion")
	for _, v := range r.GetVersions() {
		state, when := "", ""
		switch {
		case v.GetActive():
			state = "active"
		case v.GetPrevious():
			state = "previous"
		}
		if v.GetActivated() != nil {
			when = v.GetActivated().AsTime().Format(time.RFC3339)
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", orNone(v.GetName()), state, orNone(when), v.GetModel(),
			orNone(v.GetModelVersion()), orNone(v.GetTable()), orNone(v.GetCompanion()))
	}
	return t.Flush()
}

// gcFlags are the flags of `likeness model gc`.
type gcFlags struct {
	adminFlags

	remove bool
}

func (f *gcFlags) add(cmd *cobra.Command) *output {
	cmd.Flags().BoolVar(&f.remove, "remove", false, "delete what is listed")
	return f.adminFlags.add(cmd)
}

// request returns what the sidecar is asked to list, or to delete with --remove.
func (f *gcFlags) request() *likenessv1.CollectVersionsRequest {
	return &likenessv1.CollectVersionsRequest{Route: f.route, Remove: f.remove}
}

func newModelGCCommand(a *app) *cobra.Command {
	f := &gcFlags{}
	cmd := &cobra.Command{
		Use:   "gc --route ROUTE",
		Short: "Remove tables and companions of versions that are no longer kept",
		Long: `Lists the tables and companions of versions that were served before the last
routes.ROUTE.keep_versions; --remove deletes them. It keeps those of the active and the
previous version, of versions that were not served yet, and any that a route names.
` + adminNote,
		Example: `  likeness model gc --route products
  likeness model gc --route products --remove`,
		Args: cobra.NoArgs,
	}
	out := f.add(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return ask(a, cmd, &f.adminFlags, *out, func(ctx context.Context, c likenessv1.AdminServiceClient, o ...grpc.CallOption) (*likenessv1.CollectVersionsResponse, error) {
			return c.CollectVersions(ctx, f.request(), o...)
		}, printGarbage)
	}
	return cmd
}

func printGarbage(w io.Writer, r *likenessv1.CollectVersionsResponse) error {
	if len(r.GetGarbage()) == 0 {
		_, err := fmt.Fprintln(w, "nothing to remove")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	for _, g := range r.GetGarbage() {
		word := "would remove"
		if g.GetRemoved() {
			word = "removed"
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\tof version %s\t%d bytes\n", word, g.GetKind(), g.GetName(), g.GetVersion(), g.GetBytes())
	}
	return t.Flush()
}
