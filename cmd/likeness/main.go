// Command likeness turns a query into the dot-product searches that a vector
// database can do, scores the candidates with a learned similarity, and says in
// every answer how far it can be from the exact one.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(exitCode(err))
}

// run executes one command line. It prints an error that it returns to stderr.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr}
	root := newRootCommand(a)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return nil
	}
	if !a.running {
		err = usageError{err} // cobra refused the command line before any command ran
	}
	if ctx.Err() != nil && (errors.Is(err, context.Canceled) || status.Code(err) == codes.Canceled) {
		err = errors.Join(errInterrupted, err)
	}
	_, _ = fmt.Fprintln(stderr, "likeness:", err)
	if errors.As(err, new(usageError)) {
		_, _ = fmt.Fprintln(stderr, "See '"+cmd.CommandPath()+" --help'.")
	}
	return err
}
