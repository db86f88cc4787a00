package device

import (
	"context"
	"fmt"

	"google.golang.org/grpc"

	"github.com/likenessdb/likeness/plugin"
)

// Serve serves a device to the host that started this process, or at an address
// (plugin.Listen), until the host ends or ctx is done. It must be called only once per
// process. It returns plugin.ErrNotHosted if the process was not started as a plugin.
func Serve(ctx context.Context, d Device, l Limits, options ...plugin.Option) error {
	description, err := d.Describe(ctx)
	if err != nil {
		return fmt.Errorf("the device cannot be described: %w", err)
	}
	return plugin.ServeServices(ctx, fmt.Sprintf("the device %q, version %s", description.Name, description.Version), []plugin.Service{{
		Name:     plugin.SimilaritySet,
		Register: func(r grpc.ServiceRegistrar) { Register(r, d, l) },
	}}, options...)
}
