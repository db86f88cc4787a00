package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/likenessdb/likeness/plugin"
	"github.com/likenessdb/likeness/plugin/host"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/serve"
	"github.com/likenessdb/likeness/sidecar/server"
)

func newPluginServeCommand(a *app) *cobra.Command {
	var (
		adminAddress, logLevel string
		protocol               int
	)
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the routes of a configuration to the Go program that started this",
		Long: `Package plugin/host starts it: a sidecar for one Go program, over go-plugin with mutual
TLS, that ends with the program. listen.grpc, listen.tls and listen.auth do not apply,
and there is an admin port only with --admin. See docs/how-to/call-it.md.`,
		Example: `  likeness plugin serve --config likeness.yaml`,
		Args:    cobra.NoArgs,
	}
	src := addConfigFlags(cmd)
	cmd.Flags().StringVar(&adminAddress, "admin", "", "address of metrics and health (listen.admin)")
	cmd.Flags().StringVar(&logLevel, "log-level", "", "debug, info, warn or error (log.level)")
	cmd.Flags().IntVar(&protocol, "protocol", host.ProtocolVersion, "newest protocol version, to see two releases meet")
	_ = cmd.Flags().MarkHidden("protocol")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if !plugin.Hosted(host.Handshake()) {
			return fmt.Errorf("%w: a Go program starts `likeness plugin serve` with package plugin/host, see docs/how-to/call-it.md; "+
				"`likeness serve` listens on a port", plugin.ErrNotHosted)
		}
		src.Set = append(src.Set, "listen.admin="+adminAddress)
		if cmd.Flags().Changed("log-level") {
			src.Set = append(src.Set, "log.level="+logLevel)
		}
		return a.servePlugin(cmd.Context(), src.Source, protocol)
	}
	return cmd
}

func (a *app) servePlugin(ctx context.Context, src config.Source, protocol int) error {
	c, options, err := a.loadServe(src)
	if err != nil {
		return err
	}
	defer limitMemory(options.Logger, int64(c.Limits.Memory))()
	defer collectAtFloor()()
	options.Answer = func(s *server.Server) error {
		// When ctx ends, the server drains; until it has, calls keep their context.
		return plugin.ServeServices(context.WithoutCancel(ctx), "likeness "+options.Build.Version,
			[]plugin.Service{{Name: host.Set, Register: registered}},
			plugin.Agreed(host.Handshake()), plugin.Protocol(protocol), plugin.Server(s.Hosted))
	}
	return serve.Run(ctx, c, options)
}

// registered does nothing, because the server registers its services itself.
func registered(grpc.ServiceRegistrar) {}
