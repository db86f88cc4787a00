// Command plugin_host is a Go program that has likeness inside: it starts the sidecar
// as a plugin, searches, kills it and searches again, and shows what a host of another
// release is told.
//
//	go run ./examples/plugin_host
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/likenessdb/likeness/examples/banking77"
	"github.com/likenessdb/likeness/plugin/host"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "plugin_host:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("plugin_host", flag.ContinueOnError)
	dir := flags.String("examples", "examples", "the folder of the examples")
	binary := flags.String("binary", "", "the likeness binary; empty: it is built")
	if err := flags.Parse(args); err != nil {
		return err
	}
	command, remove, err := likeness(ctx, *binary)
	if err != nil {
		return err
	}
	defer remove()
	options := host.Options{
		Command: command, Config: filepath.Join(*dir, "plugin_host", "likeness.yaml"), Stderr: stderr,
		Logger: slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelError})),
	}
	task, err := banking77.Questions(filepath.Join(*dir, "data", "banking77"))
	if err != nil {
		return err
	}
	defer task.Close()
	start := time.Now()
	sidecar, err := host.Start(ctx, options)
	if err != nil {
		return err
	}
	defer sidecar.Close()
	state := sidecar.State()
	fmt.Fprintf(stdout, "likeness runs as process %d and speaks protocol version %d; it answered searches after %.2f s.\n",
		state.PID, state.Protocol, time.Since(start).Seconds())
	if err := search(ctx, sidecar, task, stdout); err != nil {
		return err
	}
	if err := kill(ctx, sidecar, task, stdout); err != nil {
		return err
	}
	options.Protocol, options.Stderr = host.ProtocolVersion+2, nil
	_, err = host.Start(ctx, options)
	if !errors.Is(err, host.ErrVersion) {
		return fmt.Errorf("a host two protocol versions ahead was not refused: %w", err)
	}
	fmt.Fprintf(stdout, "\nA host two protocol versions ahead is told:\n  %v\n", err)
	return nil
}

// likeness is the binary: the one given, or one that is built and removed again.
func likeness(ctx context.Context, given string) (path string, remove func(), err error) {
	if given != "" {
		path, err = filepath.Abs(given)
		return path, func() {}, err
	}
	dir, err := os.MkdirTemp("", "likeness-host-")
	if err != nil {
		return "", nil, err
	}
	remove = func() { _ = os.RemoveAll(dir) }
	path = filepath.Join(dir, "likeness")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", path, "github.com/likenessdb/likeness/cmd/likeness").CombinedOutput(); err != nil {
		remove()
		return "", nil, fmt.Errorf("building likeness: %w\n%s", err, out)
	}
	return path, remove, nil
}

// search asks one question and prints what means the same.
func search(ctx context.Context, sidecar *host.Sidecar, task *banking77.Task, w io.Writer) error {
	const question = 1234
	answer, err := sidecar.Search(ctx, &likenessv1.SearchRequest{
		Route: "questions", Query: &likenessv1.Query{Vector: task.Vector(question)}, K: 3,
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "\n  %q\n", task.Queries[question].Text)
	for _, hit := range answer.GetHits() {
		fmt.Fprintf(w, "  %.4f  %s\n", hit.GetScore(), task.Items[hit.GetId().GetNumber()].Text)
	}
	fmt.Fprintf(w, "  %s\n", answer.GetCertificate().GetStatus())
	return nil
}

// kill kills the sidecar and searches while it starts again.
func kill(ctx context.Context, sidecar *host.Sidecar, task *banking77.Task, w io.Writer) error {
	before := sidecar.State()
	process, err := os.FindProcess(before.PID)
	if err != nil {
		return err
	}
	start := time.Now()
	if err := process.Kill(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	fmt.Fprintf(w, "\nProcess %d was killed (SIGKILL). The next search waits for the one after it:\n", before.PID)
	if err := search(ctx, sidecar, task, w); err != nil {
		return err
	}
	after := sidecar.State()
	if after.PID == before.PID {
		return fmt.Errorf("process %d was killed and still answers", before.PID)
	}
	fmt.Fprintf(w, "  answered by process %d, %.2f s after the kill\n", after.PID, time.Since(start).Seconds())
	return nil
}
