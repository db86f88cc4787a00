package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/likenessdb/likeness/plugin"
	"github.com/likenessdb/likeness/plugin/device"
	"github.com/likenessdb/likeness/plugin/device/cpu"
	"github.com/likenessdb/likeness/plugin/device/devicetest"
	"github.com/likenessdb/likeness/plugin/plugintest"
	"github.com/likenessdb/likeness/rerank/kernel"
	"github.com/likenessdb/likeness/sidecar/buildinfo"
	"github.com/likenessdb/likeness/sidecar/config"
)

// pluginDevice holds the arguments of `likeness plugin device`.
type pluginDevice struct {
	memory, kernel, listen string
	tls                    plugin.TLS
}

func newPluginDeviceCommand(_ *app) *cobra.Command {
	var d pluginDevice
	cmd := &cobra.Command{
		Use:   "device",
		Short: "Score the tables of other sidecars in this process",
		Long: `Keeps the tables of sidecars and scores them on the cores of this machine. A sidecar
starts it as a plugin, or reaches it by its address, and loads tables into it
(docs/how-to/gpu.md).`,
		Example: `  likeness plugin device --listen unix:///run/likeness-device/device.sock
  likeness plugin device --listen 10.0.0.7:9443 --memory 48GiB --tls-cert device.pem --tls-key device.key --tls-client-ca ca.pem`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return d.run(cmd.Context()) },
	}
	d.flags(cmd)
	return cmd
}

// flags adds the flags to cmd.
func (d *pluginDevice) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&d.memory, "memory", "0", "memory of models and tables, as 48GiB; 0 is no limit")
	f.StringVar(&d.kernel, "kernel", "auto", "the loops that score: auto, go, avx2, avx512 or neon")
	f.StringVar(&d.listen, "listen", "", "serve at unix:///folder/socket or host:port, not the starting host")
	f.StringVar(&d.tls.CertFile, "tls-cert", "", "file of the certificate, at host:port")
	f.StringVar(&d.tls.KeyFile, "tls-key", "", "file of its key")
	f.StringVar(&d.tls.ClientCAFile, "tls-client-ca", "", "file of the authority of the sidecars' certificates")
}

func (d *pluginDevice) run(ctx context.Context) error {
	memory, err := config.ParseBytes(d.memory)
	if err != nil {
		return usageError{fmt.Errorf("--memory: %w", err)}
	}
	name := d.kernel
	if name == "auto" {
		name = ""
	}
	kernels, err := kernel.Named(name)
	if err != nil {
		return usageError{fmt.Errorf("--kernel: %w", err)}
	}
	scorer := cpu.New(cpu.Options{Kernels: kernels, Memory: int64(memory), Version: buildinfo.Read(stamp()).Version})
	return device.Serve(ctx, scorer, device.Limits{}, plugin.Listen(d.listen, d.tls))
}

// checkDevice runs the conformance kit of devices. It returns false if the plugin
// serves no device.
func checkDevice(ctx context.Context, conn grpc.ClientConnInterface, o plugintest.Options, told func(plugintest.Result)) (*pluginReport, bool) {
	d, err := device.NewClient(conn).Describe(ctx)
	if err != nil {
		return nil, false
	}
	return &pluginReport{
		Name: d.Name, Version: d.Version,
		Cases: devicetest.Check(ctx, conn, devicetest.Options{Timeout: o.Timeout}, told),
	}, true
}
