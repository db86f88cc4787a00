package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"google.golang.org/grpc"

	"github.com/likenessdb/likeness/examples/banking77"
	"github.com/likenessdb/likeness/examples/internal/sidecar"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
)

// asked is how many of the later questions the sidecar is asked: every nth.
const asked = 10

// configure adds the model and a route of it to the configuration.
func (w *walk) configure(context.Context) error {
	text, err := os.ReadFile(w.config())
	if err != nil {
		return err
	}
	added := strings.Replace(string(text), "models:\n", "models:\n  topics: {path: topics.safetensors}\n", 1) + fittedText[w.kind]
	return os.WriteFile(w.config(), []byte(added), 0o600)
}

// serve starts the sidecar and asks both routes the same questions.
func (w *walk) serve(ctx context.Context) error {
	w.title("Serve")
	_, _ = fmt.Fprintf(w.stdout, "$ likeness serve --config likeness.yaml\n\n")
	task, err := banking77.Intents(w.data)
	if err != nil {
		return err
	}
	defer task.Close()
	return sidecar.Serve(ctx, w.binary, w.config(), w.stderr, func(conn *grpc.ClientConn) error {
		for _, route := range []string{"before", "after"} {
			if err := w.ask(ctx, likenessv1.NewSearchServiceClient(conn), task, route); err != nil {
				return err
			}
		}
		_, err := fmt.Fprintf(w.stdout, "\nTo undo it, send searches to the route before: nothing was written to the store.\n")
		return err
	})
}

// ask prints how often the right topic came first.
func (w *walk) ask(ctx context.Context, c likenessv1.SearchServiceClient, task *banking77.Task, route string) error {
	n, right, exact := 0, 0, 0
	for q := 0; q < len(task.Queries); q += asked {
		answer, err := c.Search(ctx, &likenessv1.SearchRequest{Route: route, K: 1, Query: &likenessv1.Query{Vector: task.Vector(q)}})
		if err != nil {
			return fmt.Errorf("route %s: %w", route, err)
		}
		n++
		if len(answer.GetHits()) > 0 && answer.GetHits()[0].GetId().GetText() == task.Items[task.Relevant[q][0]].Name {
			right++
		}
		if answer.GetCertificate().GetStatus() == likenessv1.CertificateStatus_CERTIFICATE_STATUS_EXACT {
			exact++
		}
	}
	_, err := fmt.Fprintf(w.stdout, "route %-7s the right topic first for %3d of %d questions, %d answers proved exact\n", route, right, n, exact)
	return err
}
