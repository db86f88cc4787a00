package cost

import (
	"bytes"
	"fmt"
	"strings"
)

// Family makes an input of about the given length. All inputs of a family are hard to read for the
// same reason.
type Family func(length int) []byte

// Constant returns a part function for Repeated that always returns the same text.
func Constant(part string) func(int) string { return func(int) string { return part } }

// JSON returns families of JSON values. Each name says why the family is hard to decode.
func JSON() map[string]Family {
	key := func(i int) string { return fmt.Sprintf(`"k%d":0`, i) }
	return map[string]Family{
		"many keys":      Repeated("{", key, "}"),
		"equal keys":     Repeated("{", Constant(`"limit":1`), "}"),
		"one long key":   func(n int) []byte { return fmt.Appendf(nil, `{"%s":1}`, strings.Repeat("k", n)) },
		"escaped key":    func(n int) []byte { return fmt.Appendf(nil, `{"%s":1}`, strings.Repeat(`\u0041`, n/6)) },
		"quotes":         func(n int) []byte { return fmt.Appendf(nil, `"%s"`, strings.Repeat(`\"`, n/2)) },
		"backslashes":    func(n int) []byte { return fmt.Appendf(nil, `"%s"`, strings.Repeat(`\\`, n/2)) },
		"long number":    func(n int) []byte { return bytes.Repeat([]byte{'1'}, n) },
		"long fraction":  func(n int) []byte { return append([]byte("0."), bytes.Repeat([]byte{'1'}, n)...) },
		"numbers":        Repeated("[", Constant("0"), "]"),
		"empty objects":  Repeated("[", Constant("{}"), "]"),
		"empty arrays":   Repeated("[", Constant("[]"), "]"),
		"empty texts":    Repeated("[", Constant(`""`), "]"),
		"small objects":  Repeated("[", Constant(`{"limit":1}`), "]"),
		"white space":    func(n int) []byte { return append(bytes.Repeat([]byte{' '}, n), "1"...) },
		"deep arrays":    Nested("[", "", "]"),
		"deep objects":   Nested(`{"a":`, "1", "}"),
		"not ended":      func(n int) []byte { return bytes.Repeat([]byte("["), n) },
		"not ended text": func(n int) []byte { return append([]byte{'"'}, bytes.Repeat([]byte{'x'}, n)...) },
	}
}

// Nested makes a value with as many levels as its length and Go's JSON decoder allow. White space
// fills the rest.
func Nested(open, inner, end string) Family {
	return func(length int) []byte {
		levels := min(length/(len(open)+len(end)), 9000)
		text := strings.Repeat(open, levels) + inner + strings.Repeat(end, levels)
		return append([]byte(text), bytes.Repeat([]byte{' '}, max(0, length-len(text)))...)
	}
}
