package harness

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// Exchange is one call as its bytes on a wire tell it.
type Exchange struct {
	// Call is the method and the raw path with its query.
	Call string
	// Cut says that it did not run to its end: cancelled, or the connection broke.
	Cut bool
	// Body is the request's first message.
	Body []byte
	// Metadata are the request's headers, by lower-case name, none left out.
	Metadata map[string][]string
	// Request and Answer have a line for each header, message and trailer, those
	// that are exempt left out.
	Request, Answer []string
}

// Method is the path of a call of gRPC, or the method and path of a request of REST
// without its query.
func (e Exchange) Method() string {
	path, _, _ := strings.Cut(e.Call, "?")
	return path
}

// Text is all of the exchange, to compare and to show.
func (e Exchange) Text() string {
	return e.Call + "\n> " + strings.Join(e.Request, "\n> ") + "\n< " + strings.Join(e.Answer, "\n< ")
}

// CompareExchanges returns what crossed only one of two taps; the order of calls
// and how they were spread over connections does not count. Calls that were cut
// on either side are not compared, since what of them had crossed is chance.
func CompareExchanges(client, database []Exchange) []Difference {
	left, cut := map[string]int{}, map[string]int{}
	for _, e := range database {
		if e.Cut {
			cut[e.Call]++
		} else {
			left[e.Text()]++
		}
	}
	var all []Difference
	var unmatched []Exchange
	for _, e := range client {
		switch text := e.Text(); {
		case e.Cut && cut[e.Call] > 0:
			cut[e.Call]--
		case e.Cut:
			cut[e.Call]-- // the database's side may have been whole
		case left[text] > 0:
			left[text]--
		default:
			unmatched = append(unmatched, e)
		}
	}
	for _, e := range unmatched {
		if cut[e.Call] > 0 {
			cut[e.Call]--
			continue
		}
		all = append(all, Difference{e.Call, e.Text(), closest(left, e)})
	}
	for text, n := range left {
		for range n {
			call, _, _ := strings.Cut(text, "\n")
			if cut[call] < 0 {
				cut[call]++
				continue
			}
			all = append(all, Difference{call, "(not at the client's side)", text})
		}
	}
	slices.SortFunc(all, func(a, b Difference) int { return strings.Compare(a.Step+a.Got, b.Step+b.Got) })
	return all
}

// closest removes from left the exchange of the same call that has the longest common
// prefix with e, and returns its text.
func closest(left map[string]int, e Exchange) string {
	best, length := "", -1
	for text, n := range left {
		if call, _, _ := strings.Cut(text, "\n"); n > 0 && call == e.Call {
			if same := commonPrefix(text, e.Text()); same > length || same == length && text < best {
				best, length = text, same
			}
		}
	}
	if best == "" {
		return "(not at the database's side)"
	}
	left[best]--
	return best
}

func commonPrefix(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// Requests counts the different requests among exchanges: method, path, query
// and body.
func Requests(all []Exchange) int {
	seen := map[string]bool{}
	for _, e := range all {
		seen[e.Call+"\n"+strings.Join(slices.DeleteFunc(slices.Clone(e.Request), func(line string) bool { return !strings.HasPrefix(line, "body ") }), "\n")] = true
	}
	return len(seen)
}

// body is a message's line: its length and sum say that all of it is the same,
// its beginning says what it is.
func body(b []byte) string {
	return fmt.Sprintf("body %d bytes, sha256 %x, %.120q", len(b), sha256.Sum256(b), bytes.TrimSpace(b[:min(len(b), 120)]))
}

// unescaped is a gRPC message without its percent-encoding, which servers apply
// to more or fewer characters.
func unescaped(value string) string {
	text, err := url.PathUnescape(value)
	if err != nil {
		return value
	}
	return text
}

// headers are lines in order of name, lower case, the exempt left out.
func headers(exempt []string, each func(yield func(name, value string))) []string {
	var lines []string
	each(func(name, value string) {
		name = strings.ToLower(name)
		switch {
		case slices.Contains(exempt, name):
		case name == "grpc-timeout":
			lines = append(lines, "header grpc-timeout: set") // it runs down on the way
		case name == "grpc-message":
			if value != "" { // without one there is no header, or an empty one
				lines = append(lines, "header "+name+": "+strings.TrimSpace(unescaped(value)))
			}
		case name == "content-type":
			// application/grpc+proto says the same of the same messages.
			lines = append(lines, "header "+name+": "+strings.Replace(value, "application/grpc+proto", "application/grpc", 1))
		case name == "access-control-allow-methods":
			parts := strings.Split(value, ",") // Qdrant's order is random
			slices.Sort(parts)
			lines = append(lines, "header "+name+": "+strings.Join(parts, ","))
		default:
			lines = append(lines, "header "+name+": "+value)
		}
	})
	slices.Sort(lines)
	return lines
}
