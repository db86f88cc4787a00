// Command pairs writes the pairs of the two BANKING77 tasks as CSV files that
// `likeness eval` reads: intents.csv and questions.csv.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/likenessdb/likeness/examples/banking77"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "pairs:", err)
		os.Exit(1)
	}
}

func run() error {
	data := flag.String("data", "examples/data/banking77", "directory of the data")
	out := flag.String("out", ".", "directory to write to")
	flag.Parse()
	for _, read := range []func(string) (*banking77.Task, error){banking77.Intents, banking77.Questions} {
		t, err := read(*data)
		if err != nil {
			return err
		}
		if err := errors.Join(write(filepath.Join(*out, t.Name+".csv"), t), t.Close()); err != nil {
			return err
		}
	}
	return nil
}

func write(path string, t *banking77.Task) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return t.WritePairs(f)
}
