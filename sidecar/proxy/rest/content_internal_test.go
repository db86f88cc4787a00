package rest

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"testing"
)

// FuzzMessages: wherever this package can read a message, net/http finds the same end.
func FuzzMessages(f *testing.F) {
	for _, s := range []string{
		"GET / HTTP/1.1\r\nHost: h\r\n\r\nPOST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabcHEAD / HTTP/1.0\n\n",
		"PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nA: b\r\n\r\nGET / HTTP/1.1\r\n\r\n",
		"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 9\r\n\r\n0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxHTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nb\r\n0123456789a\r\n0\r\n\r\nHTTP/1.0 200 OK\r\n\r\nto the end",
	} {
		f.Add([]byte(s), s[0] == 'H')
	}
	f.Fuzz(func(t *testing.T, sent []byte, answers bool) {
		ends := messageEnds(sent, answers)
		for i, want := range netHTTPEnds(sent, answers) {
			if i < len(ends) && ends[i] != want {
				t.Fatalf("messages end at %v, by net/http %d at %d", ends, i, want)
			}
		}
	})
}

// messageEnds returns the ends of the messages that can be read.
func messageEnds(b []byte, answers bool) (ends []int) {
	source := bytes.NewReader(b)
	in := bufio.NewReader(source)
	for {
		raw, err := readLines(in, nil)
		if err != nil {
			return ends
		}
		var body *content
		if answers {
			a, err := parseAnswer(raw)
			if err != nil {
				return ends
			}
			body = newContent(in, &a.head)
			if !a.hasBody(http.MethodGet) {
				body.left, body.chunks = 0, nil
			}
		} else {
			r, err := parseRequest(raw)
			if err != nil {
				return ends
			}
			body = newContent(in, &r.head)
			if !r.hasBody() {
				body.left = 0
			}
		}
		if _, err := io.Copy(io.Discard, body); err != nil {
			return ends
		}
		ends = append(ends, len(b)-source.Len()-in.Buffered())
	}
}

// netHTTPEnds is messageEnds with net/http.
func netHTTPEnds(b []byte, answers bool) (ends []int) {
	source := bytes.NewReader(b)
	in := bufio.NewReader(source)
	for {
		var body io.ReadCloser
		if answers {
			r, err := http.ReadResponse(in, nil)
			if err != nil {
				return ends
			}
			body = r.Body
		} else {
			r, err := http.ReadRequest(in)
			if err != nil {
				return ends
			}
			body = r.Body
		}
		_, err := io.Copy(io.Discard, body)
		_ = body.Close()
		if err != nil {
			return ends
		}
		ends = append(ends, len(b)-source.Len()-in.Buffered())
	}
}
