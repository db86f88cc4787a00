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
	"regexp"
	"strings"
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
	stdout, stderr = forPeople(stdout), forPeople(stderr)
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr}
	root := newRootCommand(a)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return nil
	}
	if !a.running {
		err = usageError{flagGroupError(err)} // cobra refused the command line before any command ran
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

// flagGroupError rewords cobra's errors about flags that need or exclude each other, and returns others as they are.
func flagGroupError(err error) error {
	for pattern, sentence := range map[string]string{
		`^if any flags in the group \[(.*)\] are set they must all be set; missing \[(.*)\]$`:           "%s go together; give %s too",
		`^at least one of the flags in the group \[(.*)\] is required$`:                                 "give one of %s",
		`^if any flags in the group \[(.*)\] are set none of the others can be; \[(.*)\] were all set$`: "of %s one is enough; leave out all but one of %s",
	} {
		found := regexp.MustCompile(pattern).FindStringSubmatch(err.Error())
		if found == nil {
			continue
		}
		var flags []any
		for _, names := range found[1:] {
			flags = append(flags, "--"+strings.Join(strings.Fields(names), ", --"))
		}
		return fmt.Errorf(sentence, flags...)
	}
	return err
}
