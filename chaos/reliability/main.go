// Command reliability writes docs/reference/reliability.md: what likeness promises
// under faults (rows.yaml), the tests that hold it, and the figures that they reached.
//
//	go run ./chaos/reliability -figures docs/benchmarks/reliability.json >docs/reference/reliability.md
//	go test -v ./... | go run ./chaos/reliability -collect -figures docs/benchmarks/reliability.json
//
// The second form reads the output of `go test -v` and keeps the figures of the tests
// that passed.
package main

import (
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
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
	collect := flags.Bool("collect", false, "read the output of `go test -v` and put its figures into that file")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *file == "" || flags.NArg() > 0 {
		return errors.New("usage: reliability [-collect] -figures FILE")
	}
	rows, err := parseRows(table)
	if err != nil {
		return err
	}
	figures, err := readFigures(*file)
	if err != nil {
		return err
	}
	if !*collect {
		_, err := io.WriteString(stdout, page(rows, figures))
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
