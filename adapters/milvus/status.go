package milvus

import (
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/milvus-io/milvus-proto/go-api/v2/commonpb"

	"github.com/likenessdb/likeness/adapters"
)

// errNoAlias means that the alias to alter does not exist yet.
var errNoAlias = fmt.Errorf("%w: alias not found", adapters.ErrStore)

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

// notReady is the code of a server that cannot answer yet, and of every error that milvus-lite 3 does not
// expect, such as a vector of another dimension.
const notReady = 1

var otherDimension = regexp.MustCompile(`dimension mismatch|dimension \d+ |the dim \(|vector dimension|mismatch in its core dimension`)

// byCode maps Milvus's error codes (pkg/util/merr), where they are more precise than
// the text.
var byCode = map[int32]error{
	notReady: adapters.ErrUnavailable, 2: adapters.ErrUnavailable, 3: adapters.ErrUnavailable, 4: adapters.ErrUnavailable,
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
	{otherDimension, adapters.ErrDimension},
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
	if err := byCode[code]; err != nil && (code != notReady || !otherDimension.MatchString(reason)) {
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
