// Command go-client asks a sidecar one question: it reads a query vector as a
// JSON array from stdin and prints the answer.
//
//	echo '[0.1, 0.2, …]' | go run ./examples/go-client -route products -k 5
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/likenessdb/likeness/client"
)

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "go-client:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdin io.Reader, stdout io.Writer) error {
	flags := flag.NewFlagSet("go-client", flag.ContinueOnError)
	address := flags.String("address", "127.0.0.1:7600", "addresses of the sidecars, separated by commas")
	route := flags.String("route", "", "route to search")
	k := flags.Int("k", 10, "how many items")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var vector []float32
	if err := json.NewDecoder(stdin).Decode(&vector); err != nil {
		return fmt.Errorf("reading the query vector: %w", err)
	}
	c, err := client.Dial(*address, client.Options{})
	if err != nil {
		return err
	}
	defer c.Close()
	answer, err := c.Search(ctx, client.Search{Route: *route, K: *k, Query: client.Query{Vector: vector}, Payload: true})
	if err != nil {
		return err
	}
	if d := answer.Degraded; d != nil {
		_, _ = fmt.Fprintln(stdout, "degraded:", d.Reason, d.Detail)
	}
	for _, hit := range answer.Hits {
		_, _ = fmt.Fprintln(stdout, hit.ID, hit.Score, string(hit.Payload))
	}
	_, err = fmt.Fprintln(stdout, answer.Certificate.Status, answer.Certificate.Candidates, "candidates")
	return err
}
