package harness

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
)

// exemptREST lists the headers that belong to a hop and not to the call: chunking of bodies, and
// reuse of connections. Host is replaced by the database's own.
var exemptREST = []string{"connection", "keep-alive", "transfer-encoding", "content-length", "host", "expect", "date", "te", "trailer", "upgrade", "proxy-connection"}

// unreachable begins the proxy's own answer if the database gives none. A client that waits sees it
// in its step; here it only remains for clients that left.
const unreachable = "likeness: the database at"

// restExchanges reads the requests and answers of one HTTP/1.1 connection. A
// request that was not answered is cut.
func restExchanges(up, down []byte) ([]Exchange, error) {
	requests, answers := bufio.NewReader(bytes.NewReader(up)), bufio.NewReader(bytes.NewReader(down))
	var all []Exchange
	for {
		r, err := http.ReadRequest(requests)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		sent, err := io.ReadAll(r.Body)
		e := Exchange{Call: r.Method + " " + r.RequestURI, Cut: err != nil, Body: sent, Request: append(lines(r.Header), body(sent)), Metadata: map[string][]string{}}
		for name, values := range r.Header {
			e.Metadata[strings.ToLower(name)] = values
		}
		if e.Answer, err = answer(answers, r); err != nil {
			e.Cut = true
		}
		all = append(all, e)
		if e.Cut {
			return all, nil
		}
		own := slices.ContainsFunc(e.Answer, func(line string) bool { return strings.Contains(line, unreachable) })
		all[len(all)-1].Cut = own && e.Answer[0] == "status 502"
	}
}

// answer reads the answer to a request, after the informational answers.
func answer(in *bufio.Reader, r *http.Request) ([]string, error) {
	for {
		a, err := http.ReadResponse(in, r)
		if err != nil {
			return nil, err
		}
		b, err := io.ReadAll(a.Body)
		a.Body.Close()
		if err != nil {
			return nil, err
		}
		if a.StatusCode >= http.StatusOK || a.StatusCode == http.StatusSwitchingProtocols {
			out := append([]string{"status " + strconv.Itoa(a.StatusCode)}, lines(a.Header)...)
			return append(append(out, body(b)), lines(a.Trailer)...), nil
		}
	}
}

func lines(h map[string][]string) []string {
	return headers(exemptREST, func(yield func(name, value string)) {
		for name, values := range textproto.MIMEHeader(h) {
			for _, v := range values {
				yield(name, v)
			}
		}
	})
}
