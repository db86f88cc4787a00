package milvus

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/milvus-io/milvus-proto/go-api/v2/commonpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/internal/wire"
)

// errNoAlias means that the alias to alter does not exist yet.
var errNoAlias = fmt.Errorf("%w: alias not found", adapters.ErrStore)

// intercept wraps every call of the connection, including the SDK's. It limits the
// calls in flight and the size of requests, and is the only place that converts
// Milvus's refusals to errors.
func (s *Store) intercept(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	call := path.Base(method)
	if m, ok := req.(proto.Message); ok {
		if size := proto.Size(m); size > s.options.Limits.MaxMessageBytes {
			return fmt.Errorf("milvus %s: %w", call, s.messageLimit(int64(size)))
		}
	}
	if err := s.slots.Acquire(ctx, 1); err != nil {
		return fmt.Errorf("milvus %s: %w", call, err)
	}
	defer s.slots.Release(1)
	if err := invoke(ctx, method, req, reply, cc, opts...); err != nil {
		return fmt.Errorf("milvus %s: %w", call, s.callError(ctx, err))
	}
	if err := statusError(replyStatus(reply)); err != nil {
		s.lowerLimit(err)
		return fmt.Errorf("milvus %s: %w", call, err)
	}
	return nil
}

// lowerLimit lowers a limit to the value that the server has told.
func (s *Store) lowerLimit(err error) {
	var told *adapters.LimitError
	if !errors.As(err, &told) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	known := map[string]*int{
		limitDepth: &s.loweredLimits.MaxDepth, limitProbes: &s.loweredLimits.MaxProbes, limitVectorFields: &s.loweredLimits.MaxVectorFields,
	}[told.Limit]
	if known != nil && told.Max > 0 && told.Max < int64(*known) {
		*known = int(told.Max)
	}
}

func (s *Store) messageLimit(size int64) error {
	return &adapters.LimitError{
		Limit: limitMessage, Value: size, Max: int64(s.options.Limits.MaxMessageBytes),
		Remedy: "ask for fewer rows or vectors at a time, or raise the limit here and on the server (proxy.grpc.serverMaxRecvSize)",
	}
}

var tooLarge = regexp.MustCompile(`larger than max \((\d+) vs\.? \d+\)`)

// callError converts the error of a call without a reply.
func (s *Store) callError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	st := status.Convert(err)
	switch st.Code() {
	case codes.Canceled:
		return context.Canceled
	case codes.DeadlineExceeded:
		return context.DeadlineExceeded
	case codes.Unavailable:
		if wire.AnsweredHTTP1(st.Message()) {
			return fmt.Errorf("%w: the server at %s speaks HTTP/1.1, and not gRPC; give Milvus's gRPC port, 19530 by default", adapters.ErrUnavailable, s.options.Address)
		}
		return fmt.Errorf("%w: %s at %s", adapters.ErrUnavailable, st.Message(), s.options.Address)
	case codes.Unauthenticated, codes.PermissionDenied:
		return fmt.Errorf("%w: %s; check user, password or API key", adapters.ErrRefused, st.Message())
	case codes.Unimplemented:
		return fmt.Errorf("%w: this server has no such call", adapters.ErrUnsupported)
	case codes.ResourceExhausted:
		if m := tooLarge.FindStringSubmatch(st.Message()); m != nil {
			return s.messageLimit(parseNumber(m[1]))
		}
		return fmt.Errorf("%w: %s", adapters.ErrUnavailable, st.Message())
	default:
		return fmt.Errorf("%w: %s: %s", adapters.ErrStore, st.Code(), st.Message())
	}
}

func replyStatus(reply any) *commonpb.Status {
	switch r := reply.(type) {
	case *commonpb.Status:
		return r
	case interface{ GetStatus() *commonpb.Status }:
		return r.GetStatus()
	default:
		return nil
	}
}

// byCode maps Milvus's error codes (pkg/util/merr), where they are more precise than
// the text.
var byCode = map[int32]error{
	1: adapters.ErrUnavailable, 2: adapters.ErrUnavailable, 3: adapters.ErrUnavailable, 4: adapters.ErrUnavailable,
	7: adapters.ErrUnavailable, 8: adapters.ErrUnavailable, 9: adapters.ErrUnavailable, 10: adapters.ErrUnsupported,
	100: adapters.ErrNotFound, 200: adapters.ErrNotFound, 800: adapters.ErrNotFound,
	101: adapters.ErrUnavailable, 103: adapters.ErrUnavailable, 201: adapters.ErrUnavailable, 202: adapters.ErrUnavailable,
	401: adapters.ErrUnavailable, 501: adapters.ErrUnavailable, 503: adapters.ErrUnavailable,
	601: adapters.ErrUnavailable, 602: adapters.ErrUnavailable, 700: errNoIndex,
	901: adapters.ErrUnavailable, 902: adapters.ErrUnavailable, 903: adapters.ErrUnavailable, 905: adapters.ErrUnavailable,
	1400: adapters.ErrRefused, 1401: adapters.ErrRefused, 1600: errNoAlias,
	1700: adapters.ErrField, 1800: adapters.ErrRefused, 10000: context.Canceled, 10001: adapters.ErrUnavailable,
}

// Names of the limits.
const (
	limitDepth        = "max_depth"
	limitProbes       = "max_probes"
	limitMessage      = "max_message_bytes"
	limitVectorFields = "max_vector_fields"
	fewerFields       = "store fewer vector fields in a collection"
)

// errNoIndex means that a vector field has no index yet and cannot be searched.
var errNoIndex = fmt.Errorf("%w: no index", adapters.ErrUnavailable)

// byText recognises the other errors by their text, because Milvus 2.3 sends code
// 65535 and milvus-lite 1100 or 2000 for all of them. The first match counts.
var byText = []struct {
	pattern *regexp.Regexp
	err     error
}{
	{regexp.MustCompile(`top ?k \[\d+\]|\(offset\+limit\)|limit should be in range`), limitOf(limitDepth, DefaultMaxDepth, "ask for fewer rows of a probe")},
	{regexp.MustCompile(`nq \[\d+\]`), limitOf(limitProbes, DefaultMaxProbes, "send fewer probes in a request")},
	{regexp.MustCompile(`multiple vector fields is not supported`), &adapters.LimitError{Limit: limitVectorFields, Value: 2, Max: 1, Remedy: fewerFields}},
	{regexp.MustCompile(`maximum vector field's number should be limited to`), limitOf(limitVectorFields, DefaultMaxVectorFields, fewerFields)},
	{regexp.MustCompile(`message larger than max|maxOutputSize`), limitOf(limitMessage, DefaultMaxMessageBytes, "ask for fewer rows or vectors at a time")},
	{regexp.MustCompile(`metric type not match`), adapters.ErrMetric},
	{regexp.MustCompile(`dimension mismatch|dimension \d+ |the dim \(|vector dimension`), adapters.ErrDimension},
	{regexp.MustCompile(`fieldName\(.*\) not found|not of vector data type|field .* not exist|failed to get field schema`), adapters.ErrField},
	{regexp.MustCompile(`cannot parse expression|[Ii]nvalid expr|failed to create query plan|failed to create expr|expr type check| at column \d+\n`), adapters.ErrFilter},
	{regexp.MustCompile(`[Pp]artition.* not found|can't find collection|collection not found`), adapters.ErrNotFound},
	{regexp.MustCompile(`not loaded`), adapters.ErrUnavailable},
	{regexp.MustCompile(`alias not found|alias does not exist`), errNoAlias},
	{regexp.MustCompile(`not authenticated|auth check failure|permission deny|PrivilegeNot`), adapters.ErrRefused},
}

// These patterns find the numbers in refusals such as "topk [16385] is invalid, top k
// should be in range [1, 16384]" and "maximum vector field's number should be limited
// to 4".
var (
	toldRange = regexp.MustCompile(`should be in range \[\d+, ?(\d+)\],? but got (\d+)`)
	toldMost  = regexp.MustCompile(`should be limited to (\d+)`)
)

// toldLimit copies the numbers in the server's reason to a limit's error.
func toldLimit(err error, reason string) error {
	var limit *adapters.LimitError
	if !errors.As(err, &limit) {
		return err
	}
	known := *limit
	if m := toldRange.FindStringSubmatch(reason); m != nil {
		known.Max, known.Value = parseNumber(m[1]), parseNumber(m[2])
	} else if m := toldMost.FindStringSubmatch(reason); m != nil {
		known.Max, known.Value = parseNumber(m[1]), parseNumber(m[1])+1
	}
	return &known
}

// parseNumber parses the digits that a pattern has found.
func parseNumber(digits string) int64 {
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return math.MaxInt64 // too many digits
	}
	return n
}

func limitOf(name string, limit int64, remedy string) error {
	return &adapters.LimitError{Limit: name, Value: limit + 1, Max: limit, Remedy: remedy}
}

// statusError converts the status of a reply, with its old error_code and its new
// code.
func statusError(st *commonpb.Status) error {
	//nolint:staticcheck // servers before 2.4 fill the old code only
	code, old := st.GetCode(), st.GetErrorCode()
	if code == 0 && old == commonpb.ErrorCode_Success {
		return nil
	}
	reason := strings.TrimSpace(st.GetReason())
	if err := byCode[code]; err != nil {
		return fmt.Errorf("%w: %s%s", err, reason, remedy(err))
	}
	for _, t := range byText {
		if t.pattern.MatchString(reason) {
			return fmt.Errorf("%w: %s", toldLimit(t.err, reason), reason)
		}
	}
	if err := byOldCode[old]; err != nil {
		return fmt.Errorf("%w: %s", err, reason)
	}
	return fmt.Errorf("%w: %s (code %d, error_code %s)", adapters.ErrStore, reason, code, old)
}

var byOldCode = map[commonpb.ErrorCode]error{ //nolint:staticcheck // servers before 2.4 fill the old code only
	commonpb.ErrorCode_CollectionNotExists:    adapters.ErrNotFound,
	commonpb.ErrorCode_CollectionNameNotFound: adapters.ErrNotFound,
	commonpb.ErrorCode_PermissionDenied:       adapters.ErrRefused,
	commonpb.ErrorCode_RateLimit:              adapters.ErrUnavailable,
	commonpb.ErrorCode_IndexNotExist:          errNoIndex,
}

func remedy(err error) string {
	switch {
	case errors.Is(err, errNoIndex):
		return "; create an index and load the collection"
	case errors.Is(err, adapters.ErrUnavailable):
		return "; load the collection, or retry when the server is ready"
	default:
		return ""
	}
}
