// Command compatibility writes docs/reference/compatibility.md from the outcomes of
// the conformance kit. It reads lines of JSON from the given files or standard input.
// The page contains no times, and does not depend on the order of the lines.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "compatibility:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, files []string, stdin io.Reader, stdout io.Writer) error {
	t := newTable()
	if len(files) == 0 {
		if err := t.read(stdin); err != nil {
			return fmt.Errorf("standard input: %w", err)
		}
	}
	for _, name := range files {
		if err := ctx.Err(); err != nil {
			return err
		}
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		err = t.read(f)
		f.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	page, err := t.page()
	if err != nil {
		return err
	}
	_, err = io.WriteString(stdout, page)
	return err
}
