package rawgrpc

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// The header fields of gRPC over HTTP/2.
const (
	timeoutField  = "grpc-timeout"
	encodingField = "grpc-encoding"
	statusField   = "grpc-status"
	messageField  = "grpc-message"
	detailsField  = "grpc-status-details-bin"
)

// value returns the first value of a field, or "" without one.
func value(fields []hpack.HeaderField, name string) string {
	for _, f := range fields {
		if f.Name == name {
			return f.Value
		}
	}
	return ""
}

// setValue replaces the value of a field in fields.
func setValue(fields []hpack.HeaderField, name, value string) {
	for i := range fields {
		if fields[i].Name == name {
			fields[i].Value = value
		}
	}
}

// metadataOf returns the metadata of a header list, without the fields that belong to gRPC or to
// one connection, and without the length of the body: in another call the database takes them for errors
// of the connection (RFC 9113, sections 8.1.1 and 8.2.2), and closes it after some, with the calls of other clients.
func metadataOf(fields []hpack.HeaderField) metadata.MD {
	md := make(metadata.MD, len(fields))
	for _, f := range fields {
		if strings.HasPrefix(f.Name, ":") {
			continue
		}
		switch f.Name {
		case "content-type", "user-agent", "te", timeoutField, "grpc-accept-encoding", encodingField, statusField, messageField, detailsField,
			"content-length", "connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade":
			continue
		}
		v := f.Value
		if strings.HasSuffix(f.Name, "-bin") {
			decoded, err := decodeBinary(v)
			if err != nil {
				continue
			}
			v = string(decoded)
		}
		md[f.Name] = append(md[f.Name], v)
	}
	return md
}

// appendMetadata appends metadata to a header list.
func appendMetadata(fields []hpack.HeaderField, md metadata.MD) []hpack.HeaderField {
	for name, values := range md {
		for _, v := range values {
			if strings.HasSuffix(name, "-bin") {
				v = base64.RawStdEncoding.EncodeToString([]byte(v))
			}
			fields = append(fields, hpack.HeaderField{Name: name, Value: v})
		}
	}
	return fields
}

// decodeBinary decodes the value of a binary field, padded or not.
func decodeBinary(v string) ([]byte, error) {
	return base64.RawStdEncoding.DecodeString(strings.TrimRight(v, "="))
}

// statusFields returns the trailer fields that carry a call's status.
func statusFields(s *status.Status) []hpack.HeaderField {
	fields := []hpack.HeaderField{{Name: statusField, Value: strconv.Itoa(int(s.Code()))}}
	if s.Message() != "" {
		fields = append(fields, hpack.HeaderField{Name: messageField, Value: escape(s.Message())})
	}
	if len(s.Proto().GetDetails()) > 0 {
		if b, err := proto.Marshal(s.Proto()); err == nil {
			fields = append(fields, hpack.HeaderField{Name: detailsField, Value: base64.RawStdEncoding.EncodeToString(b)})
		}
	}
	return fields
}

// statusOf reads the status of a call from its trailers.
func statusOf(trailers []hpack.HeaderField) *status.Status {
	code, err := strconv.ParseUint(value(trailers, statusField), 10, 32)
	if err != nil {
		return status.New(codes.Internal, "likeness: the database's answer has no grpc-status")
	}
	s := status.New(codes.Code(code), unescape(value(trailers, messageField)))
	if details := value(trailers, detailsField); details != "" {
		p := s.Proto()
		if b, err := decodeBinary(details); err == nil && proto.Unmarshal(b, p) == nil && codes.Code(p.GetCode()) == s.Code() {
			return status.FromProto(p)
		}
	}
	return s
}

// statusOfHTTP returns the status of an answer that is not gRPC, derived from its HTTP status.
func statusOfHTTP(code string) *status.Status {
	known := map[string]codes.Code{
		"400": codes.Internal, "401": codes.Unauthenticated, "403": codes.PermissionDenied, "404": codes.Unimplemented,
		"429": codes.Unavailable, "502": codes.Unavailable, "503": codes.Unavailable, "504": codes.Unavailable,
	}
	c, ok := known[code]
	if !ok {
		c = codes.Unknown
	}
	return status.New(c, fmt.Sprintf("likeness: the database answered with HTTP status %q", code))
}

// escape percent-encodes the text of a status. Unlike gRPC it also encodes a trailing space: HTTP/2
// permits no value that ends in a space, and Node drops such a field.
func escape(text string) string {
	var b strings.Builder
	for i := range len(text) {
		c := text[i]
		if c < ' ' || c > '~' || c == '%' || c == ' ' && strings.Trim(text[i:], " ") == "" {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// unescape decodes percent-encoded text of escape or of a database.
func unescape(text string) string {
	if !strings.Contains(text, "%") {
		return text
	}
	var b []byte
	for i := 0; i < len(text); i++ {
		if text[i] == '%' && i+2 < len(text) {
			if c, err := strconv.ParseUint(text[i+1:i+3], 16, 8); err == nil {
				b = append(b, byte(c))
				i += 2
				continue
			}
		}
		b = append(b, text[i])
	}
	if !utf8.Valid(b) {
		return strings.ToValidUTF8(string(b), "\uFFFD")
	}
	return string(b)
}

// timeoutUnits lists the units of grpc-timeout, the finest first.
var timeoutUnits = []struct {
	name byte
	unit time.Duration
}{{'n', time.Nanosecond}, {'u', time.Microsecond}, {'m', time.Millisecond}, {'S', time.Second}, {'M', time.Minute}, {'H', time.Hour}}

// errTimeout says that a grpc-timeout is malformed.
var errTimeout = errors.New("grpc-timeout is not readable")

// parseTimeout parses a grpc-timeout: at most eight digits and a unit.
func parseTimeout(v string) (time.Duration, error) {
	if len(v) < 2 || len(v) > 9 {
		return 0, errTimeout
	}
	n, err := strconv.ParseUint(v[:len(v)-1], 10, 32)
	for _, u := range timeoutUnits {
		if u.name == v[len(v)-1] && err == nil {
			if n > uint64(1<<63-1)/uint64(u.unit) {
				return 1<<63 - 1, nil
			}
			return time.Duration(n) * u.unit, nil
		}
	}
	return 0, errTimeout
}

// formatTimeout formats a grpc-timeout, rounded down so that it never exceeds the remaining time.
func formatTimeout(left time.Duration) string {
	left = max(left, 1)
	for _, u := range timeoutUnits {
		if n := left / u.unit; n < 1e8 {
			return strconv.FormatInt(int64(n), 10) + string(u.name)
		}
	}
	return "99999999H"
}

// callContext returns the context of a call that arrived at the given time: with its deadline, and
// its metadata as both incoming and outgoing.
func callContext(fields []hpack.HeaderField, arrived time.Time) (context.Context, context.CancelFunc) {
	md := metadataOf(fields)
	ctx := metadata.NewOutgoingContext(metadata.NewIncomingContext(context.Background(), md), md)
	if timeout, err := parseTimeout(value(fields, timeoutField)); err == nil {
		return context.WithDeadline(ctx, arrived.Add(timeout))
	}
	return context.WithCancel(ctx)
}

// shortenTimeout subtracts the time for which a call was held from its timeout, if it has one.
func shortenTimeout(fields []hpack.HeaderField, held time.Duration) {
	if timeout, err := parseTimeout(value(fields, timeoutField)); err == nil && held > time.Millisecond {
		setValue(fields, timeoutField, formatTimeout(timeout-held))
	}
}

// answerHeaders returns the fields that begin an answer.
func answerHeaders(md metadata.MD) []hpack.HeaderField {
	return appendMetadata([]hpack.HeaderField{{Name: ":status", Value: "200"}, {Name: "content-type", Value: "application/grpc"}}, md)
}

// isTrailer reports whether a header list ends an answer. An answer without a message has only one
// list.
func isTrailer(fields []hpack.HeaderField) bool {
	return slices.ContainsFunc(fields, func(f hpack.HeaderField) bool { return f.Name == statusField })
}
