package harness

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// Exchange is one call, decoded from the bytes of a connection.
type Exchange struct {
	// Call is the method, and the raw path with its query.
	Call string
	// Cut reports that the call did not end: it was cancelled, or the connection broke.
	Cut bool
	// Body is the request's first message.
	Body []byte
	// Metadata maps the lower-case names of all request headers to their values.
	Metadata map[string][]string
	// Request and Answer have a line for each header, message and trailer, except exempt ones.
	Request, Answer []string
}

// Method returns the path of a gRPC call, or the method and path of a REST request without its
// query.
func (e Exchange) Method() string {
	path, _, _ := strings.Cut(e.Call, "?")
	return path
}

// Text returns the whole exchange as text, for comparisons and messages.
func (e Exchange) Text() string {
	return e.Call + "\n> " + strings.Join(e.Request, "\n> ") + "\n< " + strings.Join(e.Answer, "\n< ")
}

// CompareExchanges returns the exchanges that only one of two taps recorded. The order of calls and
// their distribution over connections do not count. Calls that were cut on either side are not
// compared, since the bytes before the cut are random.
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
			cut[e.Call]-- // the call may be complete on the database's side
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

// Requests counts the distinct requests among exchanges: method, path, query and body.
func Requests(all []Exchange) int {
	seen := map[string]bool{}
	for _, e := range all {
		seen[e.Call+"\n"+strings.Join(slices.DeleteFunc(slices.Clone(e.Request), func(line string) bool { return !strings.HasPrefix(line, "body ") }), "\n")] = true
	}
	return len(seen)
}

// body returns the line of a message: length and checksum to compare it, and its beginning to
// recognise it.
func body(b []byte) string {
	return fmt.Sprintf("body %d bytes, sha256 %x, %.120q", len(b), sha256.Sum256(b), bytes.TrimSpace(b[:min(len(b), 120)]))
}

// unescaped returns the message of a gRPC status without percent-encoding, which servers apply to
// different sets of characters.
func unescaped(value string) string {
	text, err := url.PathUnescape(value)
	if err != nil {
		return value
	}
	return text
}

// headers returns lines for the headers that are not exempt, in lower case and sorted by name.
func headers(exempt []string, each func(yield func(name, value string))) []string {
	var lines []string
	each(func(name, value string) {
		name = strings.ToLower(name)
		switch {
		case slices.Contains(exempt, name):
		case name == "grpc-timeout":
			lines = append(lines, "header grpc-timeout: set") // it decreases on the way
		case name == "grpc-message":
			if value != "" { // an absent header equals an empty one
				lines = append(lines, "header "+name+": "+strings.TrimSpace(unescaped(value)))
			}
		case name == "content-type":
			// application/grpc+proto means the same as application/grpc for these messages.
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
