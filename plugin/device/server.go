package device

import (
	"context"
	"fmt"
	"math"

	"google.golang.org/grpc"

	pluginv1 "github.com/likenessdb/likeness/proto/gen/likeness/plugin/v1"
)

// Limits limits the requests that a server accepts on behalf of its Device.
type Limits struct {
	// Sizes in bytes of a model file, of a table's rows and of a patch. 0 means 1 GiB, 256
	// GiB and 1 GiB. Before memory is allocated for a request, its declared size is
	// compared with these limits and with the device's free memory.
	ModelBytes, TableBytes, PatchBytes int64
}

func (l *Limits) fill() {
	for _, d := range []struct {
		value   *int64
		without int64
	}{{&l.ModelBytes, 1 << 30}, {&l.TableBytes, 256 << 30}, {&l.PatchBytes, 1 << 30}} {
		if *d.value == 0 {
			*d.value = d.without
		}
	}
}

// Register serves a device on a gRPC server.
func Register(s grpc.ServiceRegistrar, d Device, l Limits) {
	l.fill()
	pluginv1.RegisterSimilarityScorerServiceServer(s, &server{device: d, limits: l})
}

// server translates messages and enforces the limits. The device does the rest.
type server struct {
	pluginv1.UnimplementedSimilarityScorerServiceServer
	device Device
	limits Limits
}

func (s *server) DescribeSimilarityScorer(ctx context.Context, _ *pluginv1.DescribeSimilarityScorerRequest) (*pluginv1.DescribeSimilarityScorerResponse, error) {
	d, err := s.device.Describe(ctx)
	if err != nil {
		return nil, statusOf(err)
	}
	kinds := make([]string, len(d.Kinds))
	for i, k := range d.Kinds {
		kinds[i] = string(k)
	}
	return &pluginv1.DescribeSimilarityScorerResponse{
		Name: d.Name, Version: d.Version, Kinds: kinds, MemoryBytes: d.Memory, FreeBytes: d.Free,
		MaxK: int32(min(d.MaxK, math.MaxInt32)), Models: messages(d.Models), Tables: messages(d.Tables),
	}, nil
}

func (s *server) Unload(ctx context.Context, r *pluginv1.UnloadRequest) (*pluginv1.UnloadResponse, error) {
	err := s.device.Unload(ctx, versionsOf(r.GetModels()), versionsOf(r.GetTables()))
	return &pluginv1.UnloadResponse{}, statusOf(err)
}

func (s *server) Rescore(ctx context.Context, r *pluginv1.RescoreRequest) (*pluginv1.RescoreResponse, error) {
	if len(r.GetRows())%4 != 0 {
		return nil, statusOf(fmt.Errorf("%w: rows: %d bytes are no row numbers of 4 bytes each", ErrRequest, len(r.GetRows())))
	}
	a := Ask{versionOf(r.GetModel()), versionOf(r.GetTable()), queryOf(r.GetQuery()), int(r.GetK())}
	b, err := s.device.Rescore(ctx, a, numbersOf[uint32](r.GetRows()))
	if err != nil {
		return nil, statusOf(err)
	}
	return &pluginv1.RescoreResponse{Best: b.message()}, nil
}

func (s *server) Scan(ctx context.Context, r *pluginv1.ScanRequest) (*pluginv1.ScanResponse, error) {
	a := Ask{versionOf(r.GetModel()), versionOf(r.GetTable()), queryOf(r.GetQuery()), int(r.GetK())}
	b, err := s.device.Scan(ctx, a, r.GetBitmap())
	if err != nil {
		return nil, statusOf(err)
	}
	return &pluginv1.ScanResponse{Best: b.message()}, nil
}
