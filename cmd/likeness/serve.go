package main

import (
	"context"
	"encoding/json"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/likenessdb/likeness/internal/sdnotify"
	"github.com/likenessdb/likeness/sidecar/buildinfo"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/serve"
	"github.com/likenessdb/likeness/sidecar/telemetry"
)

func newServeCommand(a *app) *cobra.Command {
	var readyFile string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the routes of a configuration over gRPC, and as JSON over HTTP",
		Long: `At SIGTERM it reports NOT_SERVING, finishes the calls in flight, and cuts them after
shutdown.grace. SIGHUP, or POST /reload on the admin port, puts into force what can change
("live" in docs/reference/config.md), and logs what cannot. It starts without a store
that is down, and tries its routes again. Port 0 takes a free one; see --ready-file.`,
		Example: `  likeness serve --config likeness.yaml
  likeness serve --config likeness.yaml --listen 127.0.0.1:0 --admin 127.0.0.1:0 --ready-file /run/likeness.json`,
		Args: cobra.NoArgs,
	}
	src := addConfigFlags(cmd)
	addServeSettings(cmd)
	cmd.Flags().StringVar(&readyFile, "ready-file", "", "write the addresses here, as JSON, when calls are answered")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		src.Set = append(src.Set, givenSettings(cmd)...)
		return a.serve(cmd, src.Source, readyFile)
	}
	return cmd
}

// serveSettings lists the flags that set a key of the configuration.
func serveSettings() []struct{ flag, key, usage string } {
	return []struct{ flag, key, usage string }{
		{"listen", "listen.grpc", "address of the gRPC API"},
		{"rest", "listen.rest", "address of the same API as JSON over HTTP"},
		{"admin", "listen.admin", "address of metrics and health"},
		{"log-level", "log.level", "debug, info, warn or error"},
	}
}

// addServeSettings adds the flags of serveSettings to cmd.
func addServeSettings(cmd *cobra.Command) {
	for _, s := range serveSettings() {
		cmd.Flags().String(s.flag, "", s.usage+" ("+s.key+")")
	}
}

// givenSettings returns KEY=VALUE for each flag of serveSettings that the command line has.
func givenSettings(cmd *cobra.Command) (settings []string) {
	for _, s := range serveSettings() {
		if given := cmd.Flags().Lookup(s.flag); given.Changed {
			settings = append(settings, s.key+"="+given.Value.String())
		}
	}
	return settings
}

func (a *app) serve(cmd *cobra.Command, src config.Source, readyFile string) error {
	c, options, err := a.loadServe(src)
	if err != nil {
		return err
	}
	defer limitMemory(options.Logger, int64(c.Limits.Memory))()
	defer collectAtFloor()()
	if readyFile != "" {
		defer os.Remove(readyFile)
		options.Ready = func(at serve.Addresses) {
			if err := writeReadyFile(readyFile, at); err != nil {
				options.Logger.Error("ready file not written", "error", err)
			}
		}
	}
	hangUp := make(chan os.Signal, 1)
	signal.Notify(hangUp, syscall.SIGHUP)
	defer signal.Stop(hangUp)
	options.Reloads = hangUp
	tell := func(state string) {
		if err := sdnotify.Send(os.Getenv("NOTIFY_SOCKET"), state); err != nil {
			options.Logger.Warn("systemd not notified", "error", err)
		}
	}
	options.Listening = func(serve.Addresses) { tell(sdnotify.Ready) }
	defer context.AfterFunc(cmd.Context(), func() { tell(sdnotify.Stopping) })()
	return serve.Run(cmd.Context(), c, options)
}

// loadServe reads a configuration, and makes what running it needs beside.
func (a *app) loadServe(src config.Source) (*config.Config, serve.Options, error) {
	c, err := config.Load(src)
	if err != nil {
		return nil, serve.Options{}, err
	}
	log, err := telemetry.NewLogger(a.stderr, c.Log.Level, c.Log.Format)
	return c, serve.Options{
		Logger: log, Build: buildinfo.Read(stamp()), Reload: func() (*config.Config, error) { return config.Load(src) }, SpareThread: true,
	}, err
}

// writeReadyFile writes in one step, so that a reader sees all of it or nothing.
func writeReadyFile(path string, at any) error {
	b, err := json.Marshal(at)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".tmp", append(b, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}
