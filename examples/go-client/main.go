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

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
)

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "go-client:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdin io.Reader, stdout io.Writer) error {
	flags := flag.NewFlagSet("go-client", flag.ContinueOnError)
	address := flags.String("address", "127.0.0.1:7600", "address of the sidecar")
	route := flags.String("route", "", "route to search")
	k := flags.Int("k", 10, "how many items")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var vector []float32
	if err := json.NewDecoder(stdin).Decode(&vector); err != nil {
		return fmt.Errorf("reading the query vector: %w", err)
	}
	conn, err := grpc.NewClient(*address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	answer, err := likenessv1.NewSearchServiceClient(conn).Search(ctx, &likenessv1.SearchRequest{
		Route: *route, K: int32(*k), Query: &likenessv1.Query{Vector: vector}, Payload: &likenessv1.PayloadSelector{},
	})
	if err != nil {
		return err
	}
	if d := answer.GetDegraded(); d != nil {
		_, _ = fmt.Fprintln(stdout, "degraded:", d.GetReason(), d.GetDetail())
	}
	for _, hit := range answer.GetHits() {
		_, _ = fmt.Fprintln(stdout, hit.GetId(), hit.GetScore(), hit.GetPayloadJson())
	}
	_, err = fmt.Fprintln(stdout, answer.GetCertificate().GetStatus(), answer.GetCertificate().GetCandidates(), "candidates")
	return err
}
