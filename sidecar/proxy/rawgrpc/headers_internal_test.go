package rawgrpc

import (
	"testing"
	"time"
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
