package rawgrpc

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2/hpack"

	"google.golang.org/grpc/codes"
)

func TestStatusTexts(t *testing.T) {
	for text, want := range map[string]string{
		"":                "",
		"no such name":    "no such name",
		"no such name:  ": "no such name:%20%20", // Node drops a field that ends in a space
		"50 % – naïve\nÜ": "50 %25 %E2%80%93 na%C3%AFve%0A%C3%9C",
		"\x00~\x7f":       "%00~%7F",
	} {
		if got := escape(text); got != want || unescape(got) != text {
			t.Errorf("%q is sent as %q and read as %q, want %q", text, got, unescape(got), want)
		}
	}
	for text, want := range map[string]string{"%": "%", "%4": "%4", "%zz%41": "%zzA", "%ff": "\uFFFD"} {
		if got := unescape(text); got != want {
			t.Errorf("%q is read as %q, want %q", text, got, want)
		}
	}
}

// TestMetadataOfACall: fields that describe one connection or one body are not sent with other calls.
func TestMetadataOfACall(t *testing.T) {
	var fields []hpack.HeaderField
	for _, name := range []string{":path", "te", "content-length", "connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade", "api-key"} {
		fields = append(fields, hpack.HeaderField{Name: name, Value: "3"})
	}
	if md := metadataOf(fields); len(md) != 1 || len(md.Get("api-key")) != 1 {
		t.Errorf("%v, want the key alone", md)
	}
}

// TestEncodingOfACall: a call that names two encodings has none that is known.
func TestEncodingOfACall(t *testing.T) {
	h := held{fields: []hpack.HeaderField{{Name: encodingField, Value: "gzip"}}}
	if got := h.RecvCompress(); got != "gzip" {
		t.Errorf("%q, want gzip", got)
	}
	h.fields = append(h.fields, hpack.HeaderField{Name: encodingField, Value: "zstd"})
	if got := h.RecvCompress(); got != "" {
		t.Errorf("two encodings: %q", got)
	}
}

func TestTimeouts(t *testing.T) {
	for v, want := range map[string]time.Duration{"1n": 1, "20u": 20 * time.Microsecond, "99999999H": 1<<63 - 1, "5S": 5 * time.Second, "2M": 2 * time.Minute} {
		if got, err := parseTimeout(v); got != want || err != nil {
			t.Errorf("%q is %v, %v, want %v", v, got, err, want)
		}
	}
	for _, v := range []string{"", "S", "1", "1x", "-1S", "123456789S", " 1S"} {
		if got, err := parseTimeout(v); err == nil {
			t.Errorf("%q is %v", v, got)
		}
	}
	for left, want := range map[time.Duration]string{-1: "1n", 1: "1n", 99_999_999: "99999999n", 100_000_999: "100000u", time.Hour: "3600000m", 1<<63 - 1: "2562047H"} {
		if got := formatTimeout(left); got != want {
			t.Errorf("%v is sent as %q, want %q", left, got, want)
		}
	}
}

// TestTheDatabaseGetsWhatIsLeft: the database gets the remaining timeout of a call that was held.
func TestTheDatabaseGetsWhatIsLeft(t *testing.T) {
	arrived := time.Now()
	for _, c := range []struct {
		sent string
		held time.Duration
		want string
	}{{"10S", 4 * time.Second, "6S"}, {"10S", time.Millisecond, "10S"}, {"2500m", time.Second, "1500m"}, {"1S", 2 * time.Second, "1n"}} {
		h := held{arrived: arrived, fields: []hpack.HeaderField{{Name: ":path", Value: "/x"}, {Name: timeoutField, Value: c.sent}}}
		fields := h.fieldsOnward(arrived.Add(c.held))
		got, err := parseTimeout(value(fields, timeoutField))
		want, _ := parseTimeout(c.want)
		if err != nil || got != want || value(fields, ":path") != "/x" {
			t.Errorf("%s, held for %s: goes on as %v, want %s", c.sent, c.held, fields, c.want)
		}
	}
	h := held{arrived: arrived, fields: []hpack.HeaderField{{Name: ":path", Value: "/x"}}}
	if fields := h.fieldsOnward(arrived.Add(time.Hour)); len(fields) != 1 {
		t.Errorf("a call without a timeout goes on as %v", fields)
	}
}

// TestStatusesOfHTTP: an answer of a balancer in front of the database is an error that clients retry where that helps.
func TestStatusesOfHTTP(t *testing.T) {
	for code, want := range map[string]codes.Code{
		"400": codes.Internal, "401": codes.Unauthenticated, "403": codes.PermissionDenied, "404": codes.Unimplemented,
		"429": codes.Unavailable, "502": codes.Unavailable, "503": codes.Unavailable, "504": codes.Unavailable, "500": codes.Unknown,
	} {
		if s := statusOfHTTP(code); s.Code() != want || !strings.Contains(s.Message(), code) {
			t.Errorf("HTTP status %s: %v, want %s", code, s, want)
		}
	}
}
