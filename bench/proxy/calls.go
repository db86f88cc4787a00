package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/likenessdb/likeness/examples/banking77"
)

const limit = 10

// client is a user's client: one gRPC connection, and a REST connection for each concurrent
// call.
type client struct {
	conn        *grpc.ClientConn
	health      qdrant.QdrantClient
	points      qdrant.PointsClient
	collections qdrant.CollectionsClient
	url         string
	transport   *http.Transport
}

func newClient(conn *grpc.ClientConn, url string, callers int) *client {
	return &client{
		conn: conn, health: qdrant.NewQdrantClient(conn), points: qdrant.NewPointsClient(conn), collections: qdrant.NewCollectionsClient(conn),
		// Qdrant closes connections that are idle for five seconds.
		url: url, transport: &http.Transport{MaxIdleConnsPerHost: callers, DisableCompression: true, IdleConnTimeout: 3 * time.Second},
	}
}

func (c *client) close() error {
	c.transport.CloseIdleConnections()
	return c.conn.Close()
}

// call makes the n-th call of its kind.
type call func(ctx context.Context, n int) error

func (c *client) checkHealth(ctx context.Context, _ int) error {
	_, err := c.health.HealthCheck(ctx, &qdrant.HealthCheckRequest{})
	return err
}

// search requests the neighbours of the n-th question. want is the required prefix of the
// answer's status, if the answer has one.
func (c *client) search(task *banking77.Task, name, want string) call {
	return func(ctx context.Context, n int) error {
		var trailer metadata.MD
		answer, err := c.points.Search(ctx, &qdrant.SearchPoints{
			CollectionName: name, Vector: task.Vector(n % len(task.Queries)), Limit: limit,
		}, grpc.Trailer(&trailer))
		if err != nil {
			return err
		}
		if rows, status := len(answer.GetResult()), strings.Join(trailer.Get("likeness-status"), ""); rows != limit || !strings.HasPrefix(status, want) {
			return fmt.Errorf("question %d: %d rows, status %q", n, rows, status)
		}
		return nil
	}
}

// restBodies encodes the searches in advance, because the encoding is the same work for all
// ways and would blur the differences.
func restBodies(task *banking77.Task) (bodies [][]byte, err error) {
	for i := range task.Queries {
		body, err := json.Marshal(map[string]any{"vector": task.Vector(i), "limit": limit})
		if err != nil {
			return nil, err
		}
		bodies = append(bodies, body)
	}
	return bodies, nil
}

// searchREST is search over REST. It reads the answer without decoding it.
func (c *client) searchREST(bodies [][]byte, name string) call {
	url := c.url + "/collections/" + name + "/points/search"
	return func(ctx context.Context, n int) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(bodies[n%len(bodies)]))
		if err != nil {
			return err
		}
		r.Header.Set("Content-Type", "application/json")
		answer, err := c.transport.RoundTrip(r)
		if err != nil {
			return err
		}
		text, err := io.ReadAll(answer.Body)
		if err := errors.Join(err, answer.Body.Close()); err != nil {
			return err
		}
		if answer.StatusCode != http.StatusOK {
			return fmt.Errorf("question %d: %s: %s", n, answer.Status, text)
		}
		return nil
	}
}

const (
	wayDirect  = "direct"
	wayProxy   = "likeness proxy"
	wayPerCall = "likeness proxy --per-call"
	wayServe   = "likeness serve, passed"
	wayRewrite = "likeness serve, rewritten"
	wayRescore = "likeness serve, rescored"
)

// alone returns the comparisons with one call at a time.
func (b *bench) alone() []comparison {
	return []comparison{
		{name: "gRPC HealthCheck", bar: 0.20, ways: []way{{wayDirect, b.direct.checkHealth}, {wayProxy, b.proxied.checkHealth}, {wayPerCall, b.perCall.checkHealth}}},
		{name: "gRPC Search", bar: 0.20, ways: b.searches()},
		{name: "REST search", bar: 0.25, ways: b.searchesREST()},
		{name: "gRPC Search beside a route", ways: []way{
			{wayDirect, b.direct.search(b.task, collection, "")},
			{wayServe, b.served.search(b.task, collection, "")},
			{wayRewrite, b.served.search(b.task, rewritten, "rewritten")},
			{wayRescore, b.served.search(b.task, routed, "rescored")},
		}},
		{name: "REST search beside a route", ways: b.besideRouteREST()},
	}
}

// loaded returns the comparisons with many concurrent calls.
func (b *bench) loaded() []comparison {
	return []comparison{
		{name: "gRPC Search", bar: 0.65, ways: b.searches()},
		{name: "REST search", bar: 0.65, ways: b.searchesREST()},
		{name: "gRPC Search beside a route", ways: []way{
			{wayDirect, b.direct.search(b.task, collection, "")},
			{wayServe, b.served.search(b.task, collection, "")},
			{wayRewrite, b.served.search(b.task, rewritten, "rewritten")},
		}},
		{name: "REST search beside a route", ways: b.besideRouteREST()},
	}
}

func (b *bench) besideRouteREST() []way {
	return []way{
		{wayDirect, b.direct.searchREST(b.bodies, collection)},
		{wayServe, b.served.searchREST(b.bodies, collection)},
		{wayRewrite, b.served.searchREST(b.bodies, rewritten)},
	}
}

func (b *bench) searches() []way {
	return []way{
		{wayDirect, b.direct.search(b.task, collection, "")},
		{wayProxy, b.proxied.search(b.task, collection, "")},
		{wayPerCall, b.perCall.search(b.task, collection, "")},
	}
}

func (b *bench) searchesREST() []way {
	return []way{
		{wayDirect, b.direct.searchREST(b.bodies, collection)},
		{wayProxy, b.proxied.searchREST(b.bodies, collection)},
		{wayPerCall, b.perCall.searchREST(b.bodies, collection)},
	}
}
