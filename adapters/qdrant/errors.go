package qdrant

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/internal/wire"
)

// translate converts an error of gRPC or Qdrant to a sentinel error of package
// adapters. Only this file knows the wording of Qdrant's errors.
func (s *Store) translate(ctx context.Context, err error, what, collection string) error {
	st := status.Convert(err)
	where := fmt.Sprintf("qdrant at %s, %s", s.options.Address, what)
	if collection != "" {
		where += fmt.Sprintf(" of collection %q", collection)
	}
	if wire.AnsweredHTTP1(st.Message()) {
		return fmt.Errorf("%s: %w: the server speaks HTTP/1.1 there, as Qdrant's REST port does; give its gRPC port, 6334 by default", where, adapters.ErrUnavailable)
	}
	if _, dialled, ok := strings.Cut(st.Message(), "Error while dialing: "); ok && st.Code() == codes.Unavailable { //nolint:misspell // the library's word
		return fmt.Errorf("%s: %w: nothing answers there (%s); start the server, or give the address of its gRPC port, 6334 by default",
			where, adapters.ErrUnavailable, strings.TrimSuffix(dialled, `"`))
	}
	if cause := sentinelOf(ctx, st, s.options.Limits.MaxMessageBytes); cause != nil {
		return fmt.Errorf("%s: %w: %s", where, cause, st.Message())
	}
	return fmt.Errorf("%s: %w: %s: %s", where, adapters.ErrStore, st.Code(), st.Message())
}

// sentinelOf returns the matching sentinel error, or nil for ErrStore. maxMessageBytes is this side's limit.
func sentinelOf(ctx context.Context, st *status.Status, maxMessageBytes int) error {
	switch st.Code() {
	case codes.Canceled, codes.DeadlineExceeded:
		return contextError(ctx, st.Code())
	case codes.NotFound:
		return adapters.ErrNotFound
	case codes.Unauthenticated, codes.PermissionDenied:
		return refusalError(st.Message())
	case codes.Unavailable:
		return adapters.ErrUnavailable
	case codes.Unimplemented:
		return adapters.ErrUnsupported
	case codes.ResourceExhausted, codes.OutOfRange:
		return limitError(st.Message(), maxMessageBytes)
	case codes.InvalidArgument:
		return invalidError(st.Message())
	case codes.Internal:
		if strings.Contains(st.Message(), "imeout") {
			return adapters.ErrUnavailable
		}
	}
	return nil
}

func contextError(ctx context.Context, code codes.Code) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case code == codes.DeadlineExceeded:
		return context.DeadlineExceeded
	default:
		return adapters.ErrUnavailable // cancelled by the server
	}
}

// messageLimit names the limit on the size of requests and answers.
const messageLimit = "max_message_bytes"

// numbers finds the value and the limit in a message about a size.
var numbers = regexp.MustCompile(`[0-9]+`)

// limitError converts a message about a size limit, of this side or the server, or
// about a rate limit of strict mode. maxMessageBytes is this side's limit.
func limitError(message string, maxMessageBytes int) error {
	if !strings.Contains(message, "message") {
		return adapters.ErrUnavailable
	}
	e := &adapters.LimitError{Limit: messageLimit, Max: int64(maxMessageBytes),
		Remedy: "ask for fewer rows or raise max_message_bytes of the store"}
	if found := numbers.FindAllString(message, 2); len(found) == 2 {
		e.Value, _ = strconv.ParseInt(found[0], 10, 64)
		e.Max, _ = strconv.ParseInt(found[1], 10, 64)
	}
	return e
}

// refusalError distinguishes a limit of strict mode from missing permissions.
func refusalError(message string) error {
	if e := strictLimit(message); e != nil {
		return e
	}
	return adapters.ErrRefused
}

// invalidError converts the message of an invalid request; it returns nil for ErrStore.
func invalidError(message string) error {
	switch {
	case strings.Contains(message, "Vector dimension error"):
		return adapters.ErrDimension
	case strings.Contains(message, "Not existing vector name"):
		return adapters.ErrField
	case strings.Contains(message, "Unable to parse UUID"):
		return adapters.ErrID
	case strings.Contains(message, "Index required"), strings.Contains(message, "ilter"):
		return adapters.ErrFilter
	}
	return strictLimit(message)
}

// strictMessage matches a limit of strict mode: `Limit exceeded 100 > 10 for "limit"`.
var strictMessage = regexp.MustCompile(`Limit exceeded ([0-9]+) > ([0-9]+) for "([^"]+)"`)

// strictLimit converts a message about a limit of strict mode; it returns nil for any other.
func strictLimit(message string) error {
	m := strictMessage.FindStringSubmatch(message)
	if m == nil {
		return nil
	}
	e := &adapters.LimitError{Limit: "strict mode's " + m[3], Remedy: "ask for less, or raise the limit in the collection's strict_mode_config"}
	e.Value, _ = strconv.ParseInt(m[1], 10, 64)
	e.Max, _ = strconv.ParseInt(m[2], 10, 64)
	return e
}
