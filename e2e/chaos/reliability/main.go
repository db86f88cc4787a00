// Command reliability writes docs/reference/reliability.md: what likeness promises under
// faults (rows.yaml), the tests that verify it, and the figures that they reached.
//
//	go run ./e2e/chaos/reliability -figures docs/benchmarks/reliability.json -mutants docs/benchmarks/mutants.json -samples docs/benchmarks/mutants-sample.json >docs/reference/reliability.md
//	go test -v ./... | go run ./e2e/chaos/reliability -collect -figures docs/benchmarks/reliability.json
//
//	go test -json ./... | go run ./e2e/chaos/reliability -shown
//
// The second form reads the output of `go test -v` and keeps the figures of the tests
// that passed. The third form reads the output of `go test -json` and fails where a test
// that rows.yaml names did not pass.
package main

import (
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
)

//go:embed rows.yaml
var table []byte

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "reliability:", err)
		os.Exit(1)
	}
}

func run(args []string, stdin io.Reader, stdout io.Writer) error {
	flags := flag.NewFlagSet("reliability", flag.ContinueOnError)
	file := flags.String("figures", "", "the figures that were reached, JSON")
	mutants := flags.String("mutants", "", "what came of the planted defects (make mutants), JSON")
	samples := flags.String("samples", "", "how many random defects the tests noticed (make mutants-sample), JSON")
	shown := flags.Bool("shown", false, "read the output of `go test -json` and fail where a test of rows.yaml did not pass")
	collect := flags.Bool("collect", false, "read the output of `go test -v` and put its figures into that file")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *file == "" && !*shown || flags.NArg() > 0 {
		return errors.New("usage: reliability [-collect] -figures FILE [-mutants FILE] [-samples FILE], or reliability -shown")
	}
	rows, err := parseRows(table)
	if err != nil {
		return err
	}
	if *shown {
		return checkShown(rows, stdin)
	}
	figures, err := readFigures(*file)
	if err != nil {
		return err
	}
	if !*collect {
		lists, err := readList[planted](*mutants)
		if err != nil {
			return err
		}
		drawn, err := readList[sample](*samples)
		if err != nil {
			return err
		}
		_, err = io.WriteString(stdout, page(rows, figures)+plantedSection(lists)+samplesSection(drawn))
		return err
	}
	found, err := parseLog(stdin)
	if err != nil {
		return err
	}
	if err := figures.merge(found, rows); err != nil {
		return err
	}
	return figures.write(*file)
}

// checkShown returns an error that names the promises without a test that passed.
func checkShown(rows []row, testOutput io.Reader) error {
	passed, err := passedTests(testOutput)
	if err != nil {
		return err
	}
	if missing := unshown(rows, passed); len(missing) > 0 {
		return fmt.Errorf("docs/reference/reliability.md promises what no test of this run shows:\n%s", strings.Join(missing, "\n"))
	}
	return nil
}
