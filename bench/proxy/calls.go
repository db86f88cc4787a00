package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/milvus-io/milvus-proto/go-api/v2/commonpb"
	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/likenessdb/likeness/sidecar/proxy/wire"
)

const limit = 10

// client makes searches of a collection at one address. An answer needs limit rows and a
// status that begins with the given text.
type client func(collection, status string) call

// errDegraded says that the answer is the database's own, because likeness had no time.
var errDegraded = errors.New("the answer is degraded")

// check returns errDegraded, or an error for an answer of another form.
func check(n, rows int, status, want string) error {
	if want != "" && strings.HasPrefix(status, "degraded; ") {
		return errDegraded
	}
	if rows != limit || !strings.HasPrefix(status, want) {
		return fmt.Errorf("question %d: %d rows, status %q, want %d and %q", n, rows, status, limit, want)
	}
	return nil
}

func statusOf(trailer metadata.MD) string { return strings.Join(trailer.Get("likeness-status"), "") }

func qdrantGRPC(conn *grpc.ClientConn, vectors [][]float32) client {
	points := qdrant.NewPointsClient(conn)
	return func(collection, status string) call {
		return func(ctx context.Context, n int) error {
			var trailer metadata.MD
			answer, err := points.Search(ctx, &qdrant.SearchPoints{
				CollectionName: collection, Vector: vectors[n%len(vectors)], Limit: limit,
			}, grpc.Trailer(&trailer))
			if err != nil {
				return err
			}
			return check(n, len(answer.GetResult()), statusOf(trailer), status)
		}
	}
}

// restBodies encodes the searches in advance, because the encoding is the same work for all
// ways and would blur the differences.
func restBodies(vectors [][]float32) (bodies [][]byte, err error) {
	for _, v := range vectors {
		body, err := json.Marshal(map[string]any{"vector": v, "limit": limit})
		if err != nil {
			return nil, err
		}
		bodies = append(bodies, body)
	}
	return bodies, nil
}

func newTransport(connections int) *http.Transport {
	// Qdrant closes connections that are idle for five seconds.
	return &http.Transport{MaxIdleConnsPerHost: connections, DisableCompression: true, IdleConnTimeout: 3 * time.Second}
}

// qdrantREST reads answers without decoding them.
func qdrantREST(transport *http.Transport, url string, bodies [][]byte) client {
	return func(collection, status string) call {
		url := url + "/collections/" + collection + "/points/search"
		return func(ctx context.Context, n int) error {
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(bodies[n%len(bodies)]))
			if err != nil {
				return err
			}
			r.Header.Set("Content-Type", "application/json")
			answer, err := transport.RoundTrip(r)
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
			return check(n, bytes.Count(text, []byte(`"score":`)), answer.Header.Get("Likeness-Status"), status)
		}
	}
}

// milvusGroups encodes the vectors of the searches in advance, each as a PlaceholderGroup
// of one PlaceholderValue: its tag, its type, which is FloatVector, and the vector.
func milvusGroups(vectors [][]float32) (groups [][]byte, err error) {
	for _, v := range vectors {
		group, err := wire.AppendMessage(nil, 1, 4*len(v), func(out []byte) ([]byte, error) {
			return wire.AppendPacked(append(out, "\x0a\x02$0\x10\x65"...), 3, v), nil
		})
		if err != nil {
			return nil, err
		}
		groups = append(groups, group)
	}
	return groups, nil
}

func milvusGRPC(conn *grpc.ClientConn, groups [][]byte) client {
	service := milvuspb.NewMilvusServiceClient(conn)
	var params []*commonpb.KeyValuePair
	for _, p := range [][2]string{
		{"anns_field", field}, {"topk", strconv.Itoa(limit)}, {"metric_type", "COSINE"}, {"params", "{}"}, {"round_decimal", "-1"},
	} {
		params = append(params, &commonpb.KeyValuePair{Key: p[0], Value: p[1]})
	}
	return func(collection, status string) call {
		return func(ctx context.Context, n int) error {
			var trailer metadata.MD
			answer, err := service.Search(ctx, &milvuspb.SearchRequest{
				CollectionName: collection, DslType: commonpb.DslType_BoolExprV1, PlaceholderGroup: groups[n%len(groups)], Nq: 1,
				SearchParams: params, UseDefaultConsistency: true,
			}, grpc.Trailer(&trailer))
			if err == nil && answer.GetStatus().GetCode() != 0 {
				err = fmt.Errorf("question %d: %s", n, answer.GetStatus().GetReason())
			}
			if err != nil {
				return err
			}
			return check(n, len(answer.GetResults().GetScores()), statusOf(trailer), status)
		}
	}
}
