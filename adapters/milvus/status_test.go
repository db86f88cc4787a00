package milvus

import (
	"context"
	"errors"
	"testing"

	"github.com/milvus-io/milvus-proto/go-api/v2/commonpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/likenessdb/likeness/adapters"
)

// The refusals are as Milvus 2.3.5 and milvus-lite 2.5.1 word them, and Milvus
// 2.4 where it differs.
func TestStatusError(t *testing.T) {
	for _, c := range []struct {
		code   int32
		old    commonpb.ErrorCode //nolint:staticcheck // servers before 2.4 fill the old code only
		reason string
		want   error
	}{
		{0, 0, "", nil},
		{100, 4, "collection not found[database=default][collection=nope]", adapters.ErrNotFound},
		{0, 4, "can't find collection: nope", adapters.ErrNotFound},
		{65535, 1, "partition name nopart not found", adapters.ErrNotFound},
		{65535, 1, "topk [16385] is invalid, top k should be in range [1, 16384], but got 16385", adapters.ErrLimit},
		{65535, 1, "nq [16386] is invalid, nq (number of search vector per search request) should be in range [1, 16384], but got 16386", adapters.ErrLimit},
		{65535, 1, "invalid max query result window, (offset+limit) should be in range [1, 16384], but got 16385", adapters.ErrLimit},
		{65535, 1, "multiple vector fields is not supported, fields name: v, w", adapters.ErrLimit},
		{1100, 1, "maximum vector field's number should be limited to 4", adapters.ErrLimit},
		{65535, 1, "failed to create query plan: failed to get field schema by name: fieldName(zz) not found", adapters.ErrField},
		{65535, 1, "failed to create query plan: field (n) to search is not of vector data type", adapters.ErrField},
		{1100, 0, "fieldName(zz) not found: invalid parameter", adapters.ErrField},
		{65535, 1, "failed to create query plan: cannot parse expression: n >>> 3, error: line 1:4", adapters.ErrFilter},
		{1100, 0, "Invalid expr: n >>> 3: invalid parameter", adapters.ErrFilter},
		{6, 6, "unexpected token '>' at column 7\n  size >>> 3\n        ^", adapters.ErrFilter},
		{2000, 0, " => vector dimension mismatch, expected vector size(byte) 32, actual 16.", adapters.ErrDimension},
		{1, 1, "matmul: Input operand 1 has a mismatch in its core dimension 0, with gufunc signature (n?,k),(k,m?)->(n?,m?) (size 4 is different from 3)", adapters.ErrDimension}, // of milvus-lite 3.2.2
		{1, 1, "service not ready", adapters.ErrUnavailable},
		{1100, 0, "fail to search: metric type not match: invalid [expected=IP][actual=L2]: invalid parameter", adapters.ErrMetric},
		{101, 1, "failed to search: collection not loaded[collection=470616038152015741]", adapters.ErrUnavailable},
		{700, 0, "No index found in field [v]: index not found", errNoIndex},
		{1600, 1, "alias not found[database=default][alias=al2]", errNoAlias},
		{8, 49, "rate limit exceeded", adapters.ErrUnavailable},
		{1400, 1, "auth check failure", adapters.ErrRefused},
		{1401, 1, "privilege not permitted", adapters.ErrRefused},
		{10, 1, "service unimplemented", adapters.ErrUnsupported},
		{65535, 1, "create duplicate collection with different parameters, collection: tIP", adapters.ErrStore},
	} {
		err := statusError(&commonpb.Status{Code: c.code, ErrorCode: c.old, Reason: c.reason})
		if !errors.Is(err, c.want) {
			t.Errorf("%d %q: %v, want %v", c.code, c.reason, err, c.want)
		}
		wraps := 0
		for _, sentinel := range sentinels {
			if errors.Is(err, sentinel) {
				wraps++
			}
		}
		if c.want != nil && wraps != 1 {
			t.Errorf("%q wraps %d sentinels, want one: %v", c.reason, wraps, err)
		}
	}
}

func TestToldLimit(t *testing.T) {
	for reason, want := range map[string]adapters.LimitError{
		"topk [2000] is invalid, top k should be in range [1, 1024], but got 2000":         {Limit: limitDepth, Value: 2000, Max: 1024},
		"maximum vector field's number should be limited to 10":                            {Limit: limitVectorFields, Value: 11, Max: 10},
		"topk [9] is invalid, top k should be in range [1, 99999999999999999999], but got": {Limit: limitDepth, Value: DefaultMaxDepth + 1, Max: DefaultMaxDepth},
	} {
		var got *adapters.LimitError
		if err := statusError(&commonpb.Status{Code: 65535, Reason: reason}); !errors.As(err, &got) {
			t.Errorf("%s: %v", reason, err)
			continue
		}
		if got.Limit != want.Limit || got.Value != want.Value || got.Max != want.Max || got.Remedy == "" {
			t.Errorf("%s: %+v, want %+v", reason, got, want)
		}
	}
}

func TestCallError(t *testing.T) {
	s := &server{options: Options{Address: "db:19530"}.withDefaults()}
	for _, c := range []struct {
		code codes.Code
		text string
		want error
	}{
		{codes.Unavailable, "connection refused", adapters.ErrUnavailable},
		{codes.Unauthenticated, "auth check failure", adapters.ErrRefused},
		{codes.PermissionDenied, "", adapters.ErrRefused},
		{codes.Unimplemented, "", adapters.ErrUnsupported},
		{codes.ResourceExhausted, "grpc: received message larger than max (70000000 vs. 67108864)", adapters.ErrLimit},
		{codes.ResourceExhausted, "rate", adapters.ErrUnavailable},
		{codes.DeadlineExceeded, "", context.DeadlineExceeded},
		{codes.Canceled, "", context.Canceled},
		{codes.Internal, "panic", adapters.ErrStore},
	} {
		if err := s.callError(t.Context(), status.Error(c.code, c.text)); !errors.Is(err, c.want) {
			t.Errorf("%v %q: %v, want %v", c.code, c.text, err, c.want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.callError(ctx, status.Error(codes.Unavailable, "")); !errors.Is(err, context.Canceled) {
		t.Errorf("after a cancel: %v", err)
	}
}
