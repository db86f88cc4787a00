package harness_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"net"
	"reflect"
	"slices"
	"strconv"

	qdrantapi "github.com/qdrant/go-client/qdrant"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/likenessdb/likeness/e2e/harness"
)

// goClient makes the given requests, and some of its own, with the official Go client.
func goClient(requests []grpcRequest) harness.Client {
	return harness.Client{Name: "Go go-client 1.18.3, gRPC", Run: func(ctx context.Context, at harness.Address) ([]harness.Step, error) {
		c, err := connectGo(at, qdrantKey)
		if err != nil {
			return nil, err
		}
		defer c.Close()
		g := &goScenario{ctx: ctx, c: c}
		for _, r := range requests {
			g.replay(r)
		}
		g.own(at)
		return g.steps, nil
	}}
}

func connectGo(at harness.Address, key string) (*qdrantapi.Client, error) {
	host, port, err := net.SplitHostPort(at.GRPC)
	if err != nil {
		return nil, err
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		return nil, err
	}
	return qdrantapi.NewClient(&qdrantapi.Config{Host: host, Port: number, APIKey: key, SkipCompatibilityCheck: true})
}

type goScenario struct {
	ctx   context.Context
	c     *qdrantapi.Client
	steps []harness.Step
}

// replay makes a request with the client's stub of that method.
func (g *goScenario) replay(r grpcRequest) {
	stubs := map[string]any{
		"Points": g.c.GetPointsClient(), "Collections": g.c.GetCollectionsClient(),
		"Snapshots": g.c.GetSnapshotsClient(), "Qdrant": g.c.GetQdrantClient(),
	}
	if stubs[r.Service] == nil {
		return
	}
	method := reflect.ValueOf(stubs[r.Service]).MethodByName(r.Method)
	if !method.IsValid() {
		return
	}
	g.step(r.Step, func() (any, error) {
		request := reflect.New(method.Type().In(1).Elem())
		if err := protojson.Unmarshal(r.Request, request.Interface().(proto.Message)); err != nil {
			return nil, err
		}
		out := method.Call([]reflect.Value{reflect.ValueOf(g.ctx), request})
		err, _ := out[1].Interface().(error)
		return out[0].Interface(), err
	})
}

// step records an outcome.
func (g *goScenario) step(name string, call func() (any, error)) {
	s := harness.Step{Name: name}
	result, err := call()
	if err != nil {
		s.Error = &harness.Failure{Type: fmt.Sprintf("%T", err), Message: err.Error(), Code: status.Code(err).String()}
	} else if s.Result, err = plain(result); err != nil {
		s.Error = &harness.Failure{Type: "plain", Message: err.Error()}
	}
	g.steps = append(g.steps, s)
}

func plain(v any) (json.RawMessage, error) {
	if m, ok := v.(proto.Message); ok {
		return protojson.MarshalOptions{EmitUnpopulated: true}.Marshal(m)
	}
	if raw, ok := v.(json.RawMessage); ok {
		return raw, nil
	}
	list := reflect.ValueOf(v)
	if list.Kind() != reflect.Slice {
		return json.Marshal(v)
	}
	all := []json.RawMessage{}
	for i := range list.Len() {
		b, err := plain(list.Index(i).Interface())
		if err != nil {
			return nil, err
		}
		all = append(all, b)
	}
	return json.Marshal(all)
}

// own makes steps with the client's own helpers, and those that need code: many concurrent calls,
// cancellation, deadlines.
func (g *goScenario) own(at harness.Address) {
	const name = "go"
	ctx, c, wait := g.ctx, g.c, true
	vector := []float32{0.3, -1, 0.5, 2}
	query := &qdrantapi.QueryPoints{CollectionName: name, Query: qdrantapi.NewQueryDense(vector), WithPayload: qdrantapi.NewWithPayload(true)}
	var points []*qdrantapi.PointStruct
	for i := range 20 {
		points = append(points, &qdrantapi.PointStruct{Id: qdrantapi.NewIDNum(math.MaxUint64 - uint64(i)), Vectors: qdrantapi.NewVectors(float32(i), 1, 2, 3), Payload: qdrantapi.NewValueMap(map[string]any{"n": i, "x": nil, "l": []any{1.5, true, "ü"}})})
	}
	nothing := func(err error) (any, error) { return "done", err }
	for _, s := range []struct {
		name string
		call func() (any, error)
	}{
		{"health", func() (any, error) { return c.HealthCheck(ctx) }},
		{"create", func() (any, error) {
			return nothing(c.CreateCollection(ctx, &qdrantapi.CreateCollection{CollectionName: name, VectorsConfig: qdrantapi.NewVectorsConfig(&qdrantapi.VectorParams{Size: 4, Distance: qdrantapi.Distance_Dot})}))
		}},
		{"exists", func() (any, error) { return c.CollectionExists(ctx, name) }},
		{"exists not", func() (any, error) { return c.CollectionExists(ctx, "nobody") }},
		{"upsert", func() (any, error) {
			return c.Upsert(ctx, &qdrantapi.UpsertPoints{CollectionName: name, Wait: &wait, Points: points})
		}},
		{"query", func() (any, error) { return c.Query(ctx, query) }},
		{"query batch", func() (any, error) {
			return c.QueryBatch(ctx, &qdrantapi.QueryBatchPoints{CollectionName: name, QueryPoints: []*qdrantapi.QueryPoints{query, query}})
		}},
		{"scroll", func() (any, error) {
			return c.Scroll(ctx, &qdrantapi.ScrollPoints{CollectionName: name, Limit: qdrantapi.PtrOf(uint32(3))})
		}},
		{"count", func() (any, error) { return c.Count(ctx, &qdrantapi.CountPoints{CollectionName: name}) }},
		{"get", func() (any, error) {
			return c.Get(ctx, &qdrantapi.GetPoints{CollectionName: name, Ids: []*qdrantapi.PointId{points[3].GetId()}})
		}},
		{"wrong dimensions", func() (any, error) {
			return c.Query(ctx, &qdrantapi.QueryPoints{CollectionName: name, Query: qdrantapi.NewQueryDense(vector[:2])})
		}},
		{"create alias", func() (any, error) { return nothing(c.CreateAlias(ctx, "goes", name)) }},
		{"rename alias", func() (any, error) { return nothing(c.RenameAlias(ctx, "goes", "gone")) }},
		{"aliases", func() (any, error) { return c.ListCollectionAliases(ctx, name) }},
		{"delete alias", func() (any, error) { return nothing(c.DeleteAlias(ctx, "gone")) }},
		{"shard keys", func() (any, error) { return c.ListShardKeys(ctx, name) }},
		{"snapshots", func() (any, error) { return c.ListSnapshots(ctx, name) }},
		{"delete a missing snapshot", func() (any, error) { return nothing(c.DeleteSnapshot(ctx, name, "nobody.snapshot")) }},
		{"full snapshots", func() (any, error) { return c.ListFullSnapshots(ctx) }},
		{"at once", func() (any, error) { return g.atOnce(query) }},
		{"cancelled", func() (any, error) { return g.cancelled(query) }},
		{"after that", func() (any, error) { return c.Query(ctx, query) }},
		{"wrong key", func() (any, error) {
			other, err := connectGo(at, "wrong")
			if err != nil {
				return nil, err
			}
			defer other.Close()
			return other.Query(ctx, query)
		}},
		{"delete", func() (any, error) { return nothing(c.DeleteCollection(ctx, name)) }},
		{"deleted", func() (any, error) { return c.Count(ctx, &qdrantapi.CountPoints{CollectionName: name}) }},
	} {
		g.step("go: "+s.name, s.call)
	}
}

// atOnce makes many concurrent calls, which must have equal answers.
func (g *goScenario) atOnce(query *qdrantapi.QueryPoints) (any, error) {
	found := make([]string, 200)
	var group errgroup.Group
	group.SetLimit(32)
	for i := range found {
		group.Go(func() error {
			hits, err := g.c.Query(g.ctx, query)
			for _, h := range hits {
				found[i] += fmt.Sprint(h.GetId().GetNum(), h.GetScore(), " ")
			}
			return err
		})
	}
	err := group.Wait()
	return slices.Compact(found), err
}

// cancelled cancels calls while they run. Each ends as cancelled, or had succeeded.
func (g *goScenario) cancelled(query *qdrantapi.QueryPoints) (any, error) {
	var group errgroup.Group
	for range 40 {
		group.Go(func() error {
			ctx, cancel := context.WithCancel(g.ctx)
			ended := make(chan error, 1)
			go func() {
				_, err := g.c.Query(ctx, query)
				ended <- err
			}()
			cancel()
			if err := <-ended; err != nil && status.Code(err) != codes.Canceled {
				return err
			}
			return nil
		})
	}
	return "every one", group.Wait()
}

// quiet keeps the client's warnings about keys without TLS out of the tests' output.
func quiet() { slog.SetDefault(slog.New(slog.DiscardHandler)) } //nolint:forbidigo // that client's own logger is the default one
