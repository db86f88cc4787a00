// Package harness holds the proxy to its promise with the databases' official
// clients: one scenario of calls runs directly and through the proxy, and what
// the client saw of each call is compared; two taps show that the bytes on both
// sides of the proxy were the same.
//
// To add a client, write a script that runs its scenario against an address and
// prints a Step a line (clients/steps.py, clients/steps.cjs do that), pin what it
// needs beside it, and add it to the list of its database's test:
//
//	python, err := harness.Python(ctx, cache, "clients/milvus/requirements.txt")
//	client := harness.Script("Python pymilvus 2.6.17", python, "clients/milvus/scenario.py", "--address", "{grpc}")
//
// The scripts are ordinary programs: run one by hand to see its steps.
package harness

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// Step is one call as the client saw it. Exactly one of Result and Error is set.
type Step struct {
	// Name describes the call and is unique in a scenario.
	Name   string          `json:"step"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  *Failure        `json:"error,omitempty"`
}

// Failure is an error as a client's program sees it.
type Failure struct {
	Type    string `json:"type"`
	Message string `json:"message"`
	// Code is the HTTP or gRPC status, if the error has one.
	Code string `json:"code,omitempty"`
}

// Address is the address of a database, or of the proxy in front of it.
type Address struct {
	GRPC string // host:port
	REST string // base URL; empty if the database has no REST API
}

// Client is an official client with a scenario.
type Client struct {
	// Name has the client's version and protocol: "Python qdrant-client 1.17.1, REST".
	Name string
	// Run runs the scenario to its end. A failed call is a step; an error means that the scenario
	// itself could not continue.
	Run func(ctx context.Context, at Address) ([]Step, error)
}

// Script returns a client whose scenario is a program that prints its steps as lines of JSON. In
// args, {grpc}, {host}, {port} and {rest} stand for parts of the address.
func Script(name string, program *Program, args ...string) Client {
	return Client{name, func(ctx context.Context, at Address) ([]Step, error) {
		host, port, _ := strings.Cut(at.GRPC, ":")
		in := strings.NewReplacer("{grpc}", at.GRPC, "{host}", host, "{port}", port, "{rest}", at.REST)
		cmd := exec.CommandContext(ctx, program.Path, program.Args...) //nolint:gosec // the caller's own scripts
		for _, a := range args {
			cmd.Args = append(cmd.Args, in.Replace(a))
		}
		cmd.Env = append(os.Environ(), program.Env...)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("%s: %w; it wrote:\n%s", name, err, tail(stderr.String()))
		}
		steps, err := readSteps(bytes.NewReader(out))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		return steps, nil
	}}
}

func tail(s string) string { return s[max(0, len(s)-4000):] }

// readSteps reads one step per line. A repeated name is an error.
func readSteps(r io.Reader) ([]Step, error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 256<<20)
	seen := map[string]bool{}
	var steps []Step
	for lines.Scan() {
		var s Step
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			return nil, fmt.Errorf("line %d is no step: %w: %.200s", len(steps)+1, err, lines.Text())
		}
		if s.Name == "" || seen[s.Name] || (s.Error == nil) == (s.Result == nil) {
			return nil, fmt.Errorf("step %q has no name, comes twice, or has not one outcome: %.200s", s.Name, lines.Text())
		}
		seen[s.Name] = true
		steps = append(steps, s)
	}
	return steps, lines.Err()
}
