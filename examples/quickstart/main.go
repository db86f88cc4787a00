// Command quickstart shows likeness at work on real data. It starts a vector
// store with two collections, fits a learned companion to one of two learned
// similarities, builds what they need beside the collections, starts the sidecar, asks it real questions over gRPC, and prints how its
// answers compare with plain cosine.
//
//	go run ./examples/quickstart            # over the embedded store
//	STORE=qdrant go run ./examples/quickstart
//	FULL=1 go run ./examples/quickstart     # all 3,080 questions, not every sixth
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/likenessdb/likeness/examples/banking77"
)

// settings say what to run.
type settings struct {
	binary string // likeness
	store  string // embedded, qdrant or milvus
	data   string // directory of the data
	models string // directory of the models
	every  int    // ask every nth question
	// questions is the Mixture-of-Logits of the questions with a learned companion; empty fits one.
	questions string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	s, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	start := time.Now()
	intents, err := banking77.Intents(s.data)
	if err != nil {
		return err
	}
	defer intents.Close()
	questions, err := banking77.Questions(s.data)
	if err != nil {
		return err
	}
	defer questions.Close()
	return withSidecar(ctx, s, stderr, func(c *client) error {
		_, _ = fmt.Fprintf(stdout, "Real questions to a bank (BANKING77), asked of the sidecar over gRPC.\nStore: %s. Asked: all %d test questions of the intents, %s of the questions.\n",
			c.storeName, len(intents.Queries), ordinal(s.every))
		if err := showIntents(ctx, c, intents, stdout); err != nil {
			return err
		}
		if err := showQuestions(ctx, c, questions, s.every, stdout); err != nil {
			return err
		}
		_, err := fmt.Fprintf(stdout, "\nAll of this took %.0f s.\n", time.Since(start).Seconds())
		return err
	})
}

func parse(args []string) (settings, error) {
	s := settings{}
	flags := flag.NewFlagSet("quickstart", flag.ContinueOnError)
	flags.StringVar(&s.binary, "binary", filepath.Join("bin", "likeness"), "the likeness binary, as make build leaves it")
	flags.StringVar(&s.store, "store", cmp.Or(os.Getenv("STORE"), "embedded"), "embedded, qdrant or milvus")
	flags.StringVar(&s.data, "data", filepath.Join("examples", "data", "banking77"), "directory of the data")
	flags.StringVar(&s.models, "models", filepath.Join("examples", "models"), "directory of the models")
	flags.StringVar(&s.questions, "questions-mol", "", "the model of the questions with a learned companion; empty fits the companion")
	flags.IntVar(&s.every, "every", 6, "ask every nth question")
	full := flags.Bool("full", os.Getenv("FULL") != "" && os.Getenv("FULL") != "0", "ask every question")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	if *full {
		s.every = 1
	}
	if s.store != "embedded" && s.store != "qdrant" && s.store != "milvus" {
		return s, fmt.Errorf("the store %q is none of embedded, qdrant and milvus", s.store)
	}
	if s.every < 1 {
		return s, fmt.Errorf("-every is %d, want 1 at least", s.every)
	}
	var failed [4]error
	s.binary, failed[0] = filepath.Abs(s.binary)
	s.data, failed[1] = filepath.Abs(s.data)
	s.models, failed[2] = filepath.Abs(s.models)
	if s.questions != "" {
		s.questions, failed[3] = filepath.Abs(s.questions)
	}
	if _, err := os.Stat(s.binary); err != nil {
		return s, fmt.Errorf("%w; build it with `make build`", err)
	}
	return s, errors.Join(failed[:]...)
}

func ordinal(every int) string {
	if every == 1 {
		return "every one"
	}
	return fmt.Sprintf("every %dth", every)
}
