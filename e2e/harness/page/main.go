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
	"math"
	"os"
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

No official client sees a difference between a call through the proxy and a direct one. One scenario of calls runs through each client directly and
through the proxy, on fresh real servers. What the client saw of every call is compared (result or error with its type, text and status), and so is every byte before and
behind the proxy. A step is a call with its result. ` + "`make compatibility`" + ` makes this page.

| client | servers | steps | differences |
|---|---|---|---|
`

const tail = `
Left out are what two direct runs differ in as well, such as times (` + "`QdrantRules` and `MilvusRules` of [package harness](../../e2e/harness)" + ` list
them), a space at the end of an error, which gRPC clients on Node do not get, hop-by-hop headers, lengths, how bodies are cut and compressed, the value of ` + "`grpc-timeout`" + `, and what had crossed of a call that was cancelled.
`

func page(all []harness.Result) string {
	var clients []string
	byClient := map[string][]harness.Result{}
	for _, r := range all {
		if byClient[r.Client] == nil {
			clients = append(clients, r.Client)
		}
		byClient[r.Client] = append(byClient[r.Client], r)
	}
	var b strings.Builder
	b.WriteString(head)
	for _, client := range clients {
		var servers []string
		least, most, differences := math.MaxInt, 0, 0
		for _, r := range byClient[client] {
			servers = append(servers, r.Server+" "+r.Version)
			least, most, differences = min(least, len(r.Steps)), max(most, len(r.Steps)), differences+r.Differences+r.Bytes+r.Direct
		}
		steps := fmt.Sprint(least)
		if most > least {
			steps = fmt.Sprintf("%d to %d", least, most)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %d |\n", client, strings.Join(servers, ", "), steps, differences)
	}
	return b.String() + tail
}
