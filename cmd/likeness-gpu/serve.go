//go:build cuda

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/likenessdb/likeness/gpu"
	"github.com/likenessdb/likeness/gpu/cuda"
	"github.com/likenessdb/likeness/plugin"
	"github.com/likenessdb/likeness/plugin/device"
	"github.com/likenessdb/likeness/sidecar/config"
)

// machineFlags say which device is used, and how.
type machineFlags struct {
	device                  int
	memory, reserve, scores string
	gather                  time.Duration
	maxK, queue, measured   int
}

func (f *machineFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.IntVar(&f.device, "device", 0, "number of the device, as nvidia-smi counts with CUDA_DEVICE_ORDER=PCI_BUS_ID")
	flags.StringVar(&f.memory, "memory", "0", "what models and tables may take together, as 48GiB; 0 is what is free without --reserve")
	flags.StringVar(&f.reserve, "reserve", "0", "what is left of the device's memory for launches; 0 is a sixteenth of what is free, 512MiB at most")
	flags.StringVar(&f.scores, "scores", "256MiB", "memory for the scores of one launch; larger tables are scanned piece by piece")
	flags.DurationVar(&f.gather, "gather", 200*time.Microsecond, "the longest that a query waits for others to be launched with; it waits for none at low load")
	flags.IntVar(&f.maxK, "max-k", 4096, "the most rows of one answer")
	flags.IntVar(&f.queue, "queue", 1024, "the most queries that wait")
	flags.IntVar(&f.measured, "measured", 0, "answer by an error of rounding that was measured on at least so many pairs where no bound closes; 0: score in float32 then")
}

// sizes are the flags that are bytes.
func (f *machineFlags) sizes() (map[string]int64, error) {
	sizes := map[string]int64{}
	for name, text := range map[string]string{"memory": f.memory, "reserve": f.reserve, "scores": f.scores} {
		n, err := config.ParseBytes(text)
		if err != nil {
			return nil, fmt.Errorf("--%s: %w", name, err)
		}
		sizes[name] = int64(n)
	}
	return sizes, nil
}

// machine opens the device on the caller's thread. clock: every launch is measured.
func (f *machineFlags) machine(clock bool) (*cuda.Machine, error) {
	sizes, err := f.sizes()
	if err != nil {
		return nil, err
	}
	return cuda.Open(cuda.Options{Device: f.device, Scores: sizes["scores"], Clock: clock})
}

// open starts a device.
func (f *machineFlags) open(logger *slog.Logger) (*gpu.Device, error) {
	sizes, err := f.sizes()
	if err != nil {
		return nil, err
	}
	gather := f.gather
	if gather == 0 {
		gather = -1
	}
	return gpu.New(func() (gpu.Machine, error) {
		m, err := f.machine(false)
		if err != nil {
			return nil, err
		}
		return m, nil
	}, gpu.Options{
		Memory: sizes["memory"], Reserve: sizes["reserve"], MaxK: f.maxK, Gather: gather, Queue: f.queue, Measured: f.measured,
		Version: build().Version, Logger: logger,
	})
}

func newServe(stderr io.Writer) *cobra.Command {
	var (
		machine machineFlags
		listen  string
		tls     plugin.TLS
	)
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve a device to the sidecar that starts this, or at an address",
		Long: `serve is what a sidecar starts as a plugin. With --listen it serves sidecars of
other machines. It ends when the device is lost: whoever started it starts it
again, and the sidecar scores for itself meanwhile.`,
		Example: `  plugins: {gpu: {path: /usr/local/bin/likeness-gpu, args: [serve]}}   # likeness.yaml
  likeness-gpu serve --listen unix:///run/likeness-gpu/device.sock --memory 60GiB`,
		Args: cobra.NoArgs,
	}
	machine.add(cmd)
	f := cmd.Flags()
	f.StringVar(&listen, "listen", "", "serve at unix:///folder/socket or host:port instead of to the host that started it")
	f.StringVar(&tls.CertFile, "tls-cert", "", "file of the certificate, at host:port")
	f.StringVar(&tls.KeyFile, "tls-key", "", "file of its key")
	f.StringVar(&tls.ClientCAFile, "tls-client-ca", "", "file of the authority of the sidecars' certificates")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		d, err := machine.open(slog.New(slog.NewJSONHandler(stderr, nil)))
		if err != nil {
			return err
		}
		err = serveUntilLost(cmd.Context(), d, plugin.Listen(listen, tls))
		return errors.Join(err, d.Close())
	}
	return cmd
}

// serveUntilLost serves until the host ends, ctx is done, or the device is lost.
func serveUntilLost(ctx context.Context, d *gpu.Device, options ...plugin.Option) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	served := make(chan error, 1)
	go func() { served <- device.Serve(ctx, d, device.Limits{}, options...) }()
	select {
	case err := <-served:
		return err
	case <-d.Lost():
		cancel()
		return errors.Join(d.Err(), <-served)
	}
}
