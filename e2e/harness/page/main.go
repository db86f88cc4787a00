// Command page writes docs/reference/proxy.md from the harness's records:
// lines of JSON on the standard input. The page holds no times and does not
// depend on the order of the lines.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/likenessdb/likeness/e2e/harness"
)

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "page:", err)
		os.Exit(1)
	}
}

func run(stdin io.Reader, stdout io.Writer) error {
	results, err := read(stdin)
	if err != nil {
		return err
	}
	_, err = io.WriteString(stdout, page(results))
	return err
}

// read returns the last recorded result for each client and server.
func read(r io.Reader) ([]harness.Result, error) {
	last := map[[3]string]harness.Result{}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 16<<20)
	for n := 1; lines.Scan(); n++ {
		var one harness.Result
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil || one.Client == "" || one.Server == "" {
			return nil, fmt.Errorf("line %d is no result: %w", n, cmp.Or(err, errors.New("it names no client or no server")))
		}
		last[[3]string{one.Server, one.Version, one.Client}] = one
	}
	if len(last) == 0 {
		return nil, errors.New("there are no results; run the harness with " + harness.RecordTo + " set")
	}
	var all []harness.Result
	for _, one := range last {
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b harness.Result) int {
		return cmp.Or(strings.Compare(b.Server, a.Server), strings.Compare(a.Version, b.Version), strings.Compare(b.Client, a.Client))
	})
	return all, lines.Err()
}

const head = `# What crosses the proxy, as tested

One scenario of calls runs through each official client three times, each time on a fresh real server: directly, directly
again, and through the proxy. What the client saw of every call, result or error with its type, text and status, is
compared. Two taps, before and behind the proxy, keep every byte of the third run, and the two records are compared too.
This page is made from the results by ` + "`make compatibility`" + `; do not edit it.

*Requests* are the different ones (method, path, query, body) that came to the proxy. *Differences* are the steps that the
client saw otherwise than directly, the calls that were not the same bytes on both sides of the proxy, and the steps in
which two direct runs differ; none is permitted.

| server | client | steps | requests | differences |
|---|---|---|---|---|
`

const tail = `
A client whose steps are numbered in the record makes the requests that the Python client made, with its own methods.

## Left out of the comparison of outcomes

The order of an object's keys never counts (the server's changes from answer to answer). What else two direct runs
differ in is left out, and one thing that Qdrant's gRPC client on Node sees otherwise through the proxy, the last of
Qdrant's:

%s
## Left out of the comparison of bytes

- REST: hop-by-hop headers (` + "`Connection`, `Keep-Alive`, `Transfer-Encoding`, `TE`, `Trailer`, `Upgrade`" + `), ` + "`Content-Length`" + `
  (bodies are compared whole), ` + "`Host`" + ` (the database's own), ` + "`Expect`, `Date`" + `, the case and order of header names, and the
  order of the methods in ` + "`Access-Control-Allow-Methods`" + `, which the server draws.
- gRPC: ` + "`user-agent`, `te`, `:scheme`, `:authority`, `grpc-encoding`, `grpc-accept-encoding`" + ` and how messages are compressed
  (they are compared decompressed); the value of ` + "`grpc-timeout`" + `, which runs down; ` + "`application/grpc+proto`" + ` for
  ` + "`application/grpc`" + `; how ` + "`grpc-message`" + ` is escaped, an empty one, and a space at its end, which clients on Node do not get
  (they would drop the whole text).
- Calls that were cancelled or whose connection broke: what had crossed by then is chance. Their outcomes are compared.
`

// replayed matches the names of steps that repeat another client's requests.
var replayed = regexp.MustCompile(`^\d{4} `)

func page(all []harness.Result) string {
	var b strings.Builder
	b.WriteString(head)
	steps, pairs := map[string]map[string]bool{}, map[string]int{}
	for _, r := range all {
		fmt.Fprintf(&b, "| %s %s | %s | %d | %d | %d |\n", r.Server, r.Version, r.Client, len(r.Steps), r.Requests, r.Differences+r.Bytes+r.Direct)
		if steps[r.Server] == nil {
			steps[r.Server] = map[string]bool{}
		}
		for _, s := range r.Steps {
			if !replayed.MatchString(s) {
				steps[r.Server][s] = true
			}
		}
		pairs[r.Server] += len(r.Steps)
	}
	b.WriteString("\n| server | different steps | steps times clients times versions |\n|---|---|---|\n")
	for i, r := range all {
		if i == 0 || all[i-1].Server != r.Server {
			fmt.Fprintf(&b, "| %s | %d | %d |\n", r.Server, len(steps[r.Server]), pairs[r.Server])
		}
	}
	fmt.Fprintf(&b, tail, rules())
	return b.String()
}

func rules() string {
	var b strings.Builder
	write := func(server string, all []harness.Rule) {
		for _, r := range all {
			fmt.Fprintf(&b, "- %s: %s", server, r.Why)
			if len(r.Keys) > 0 {
				fmt.Fprintf(&b, " (`%s`)", strings.Join(r.Keys, "`, `"))
			}
			b.WriteString("\n")
		}
	}
	write("Qdrant", append(harness.QdrantRules(), harness.NodeRule()))
	write("Milvus", harness.MilvusRules())
	return b.String()
}
