package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/likenessdb/likeness/internal/loglimit"
	"github.com/likenessdb/likeness/sidecar/gate"
	"github.com/likenessdb/likeness/sidecar/proxy"
	"github.com/likenessdb/likeness/sidecar/proxy/rest"
	"github.com/likenessdb/likeness/sidecar/telemetry"
)

// proxyFlags are the flags of `likeness proxy`.
type proxyFlags struct {
	options             proxy.Options
	logLevel, readyFile string
	threads             int
}

func newProxyCommand(a *app) *cobra.Command {
	f := &proxyFlags{}
	cmd := &cobra.Command{
		Use:   "proxy",
		Short: "Stand in front of Qdrant or Milvus and forward everything",
		Long: `Forwards the calls of a database's clients unchanged, and rescores nothing. It needs no
configuration and no model. When it ends, calls in flight are cut after --grace. See
docs/proxy.md.`,
		Example: `  likeness proxy --qdrant-rest http://127.0.0.1:6333 --qdrant-grpc 127.0.0.1:6334 --listen-rest 127.0.0.1:7633 --listen-grpc 127.0.0.1:7634
  likeness proxy --milvus 127.0.0.1:19530 --listen-grpc 127.0.0.1:7653`,
		Args: cobra.NoArgs,
	}
	f.add(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return a.proxy(cmd, f) }
	return cmd
}

func (f *proxyFlags) add(cmd *cobra.Command) {
	flags, o := cmd.Flags(), &f.options
	flags.StringVar(&o.REST.Upstream, "qdrant-rest", "", "URL of Qdrant's REST API, http://host:port")
	flags.StringVar(&o.GRPC.Upstream, "qdrant-grpc", "", "host:port of Qdrant's gRPC API")
	flags.StringVar(&o.GRPC.Upstream, "milvus", "", "host:port of Milvus's gRPC API")
	flags.StringVar(&o.REST.Listen, "listen-rest", "", "where REST clients connect, host:port")
	flags.StringVar(&o.GRPC.Listen, "listen-grpc", "", "where gRPC clients connect, host:port")
	flags.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
	flags.StringVar(&f.readyFile, "ready-file", "", "write the addresses here, as JSON, when calls are answered")
	flags.DurationVar(&o.Grace, "grace", 30*time.Second, "how long calls in flight may take at the end")
	flags.IntVar(&f.threads, "threads", 0, "forwarding threads; 0 is one for four processors")
	cmd.MarkFlagsMutuallyExclusive("milvus", "qdrant-grpc")
	cmd.MarkFlagsMutuallyExclusive("milvus", "qdrant-rest")
}

func (a *app) proxy(cmd *cobra.Command, f *proxyFlags) error {
	if f.threads < 0 {
		return usageError{fmt.Errorf("--threads is %d; give a number of threads, or 0 for one for every four processors", f.threads)}
	}
	// The database spends four times as long on a search as this process, so a quarter of the
	// threads suffices. With one thread, no call waits for another thread to wake up, which is a
	// quarter of a call's delay (docs/benchmarks/speed.md).
	threads := cmp.Or(f.threads, max(1, runtime.GOMAXPROCS(0)/4))
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(threads))
	log, err := telemetry.NewLogger(a.stderr, f.logLevel, "auto")
	if err != nil {
		return usageError{err}
	}
	f.options.Logger = loglimit.Logger(log, gate.CallerOf)
	p, err := proxy.Listen(cmd.Context(), f.options)
	if errors.Is(err, proxy.ErrOptions) || errors.Is(err, rest.ErrURL) {
		return usageError{err}
	}
	if err != nil {
		return err
	}
	at := p.Addresses()
	log.Info("proxy listening", "grpc", at.GRPC, "rest", at.REST)
	if f.readyFile != "" {
		defer os.Remove(f.readyFile)
		if err := writeReadyFile(f.readyFile, at); err != nil {
			return errors.Join(err, p.Close())
		}
	}
	return p.Run(cmd.Context())
}
