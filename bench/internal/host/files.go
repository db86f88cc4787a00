package host

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Files says what a benchmark runs, on which data, and where its results go.
type Files struct {
	Binary, Data, Models, Out string
}

// AddTo adds the flags. Their defaults are for the root of the source tree.
func (f *Files) AddTo(flags *flag.FlagSet) {
	flags.StringVar(&f.Binary, "binary", filepath.Join("bin", "likeness"), "the likeness binary, as make build leaves it")
	flags.StringVar(&f.Data, "data", filepath.Join("examples", "data", "banking77"), "directory of the data")
	flags.StringVar(&f.Models, "models", filepath.Join("examples", "models"), "directory of the models")
	flags.StringVar(&f.Out, "out", filepath.Join("docs", "benchmarks"), "directory of the results")
}

// Find makes the paths of inputs absolute, checks that the binary exists, and makes the directory of
// the results: a benchmark of minutes must not fail when it writes them.
func (f *Files) Find() error {
	if _, err := os.Stat(f.Binary); err != nil {
		return fmt.Errorf("%w; build it with `make build`", err)
	}
	for _, path := range []*string{&f.Binary, &f.Data, &f.Models} {
		absolute, err := filepath.Abs(*path)
		if err != nil {
			return err
		}
		*path = absolute
	}
	return os.MkdirAll(f.Out, 0o750)
}

// Write writes the figures as NAME.json and prints the name of the file.
func (f *Files) Write(stdout io.Writer, name string, figures any) error {
	text, err := json.MarshalIndent(figures, "", "  ")
	if err != nil {
		return err
	}
	path := filepath.Join(f.Out, name+".json")
	if err := os.WriteFile(path, append(text, '\n'), 0o600); err != nil {
		return err
	}
	_, err = fmt.Fprintln(stdout, "wrote", path)
	return err
}

// Publish prints a page, and writes it and its figures as NAME.md and NAME.json.
func (f *Files) Publish(stdout io.Writer, name string, page []byte, figures any) error {
	if _, err := stdout.Write(page); err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(f.Out, name+".md"), page, 0o600), f.Write(io.Discard, name, figures))
}
