package wire

import "strings"

// AnsweredHTTP1 reports whether the message of a failed connection says that the server
// answered in HTTP/1.1, as the REST port of a database does.
func AnsweredHTTP1(message string) bool {
	return strings.Contains(message, "looked like an HTTP/1.1 header")
}
