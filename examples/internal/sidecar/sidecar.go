// Package sidecar runs the likeness binary for the examples.
package sidecar

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// Serve runs `likeness serve` while f runs.
func Serve(ctx context.Context, binary, config string, stderr io.Writer, f func(*grpc.ClientConn) error) (err error) {
	ready := filepath.Join(filepath.Dir(config), "ready.json")
	cmd := exec.CommandContext(ctx, binary, "serve", "--config", config, "--ready-file", ready)
	cmd.Stderr = stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	address, err := awaitReady(ctx, ready, ended)
	if err != nil {
		return err
	}
	defer func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		err = errors.Join(err, <-ended)
	}()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	return f(conn)
}

// awaitReady waits until the sidecar has written where it listens, which it does
// when it answers searches.
func awaitReady(ctx context.Context, path string, ended chan error) (address string, err error) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		text, err := os.ReadFile(path)
		if err == nil {
			var at struct {
				GRPC string `json:"grpc"`
			}
			return at.GRPC, json.Unmarshal(text, &at)
		}
		select {
		case err := <-ended:
			ended <- err
			return "", fmt.Errorf("the sidecar ended before it was ready: %w", err)
		case <-ctx.Done():
			return "", ctx.Err()
		case <-tick.C:
		}
	}
}
