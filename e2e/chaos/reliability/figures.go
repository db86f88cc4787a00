package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// figure is a result that a test reached, in words.
type figure struct {
	Row     int    `json:"row"`
	Test    string `json:"test"` // package folder and test name
	Figure  string `json:"figure"`
	Date    string `json:"date"`
	Machine string `json:"machine"`
}

// figures are in the order in which they were first found.
type figures []figure

func readFigures(file string) (figures, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var f figures
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return f, nil
}

func (f figures) write(file string) error {
	text, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// merge replaces the figures of those tests for which found has new ones.
func (f *figures) merge(found []figure, rows []row) error {
	kept := figures{}
	for _, old := range *f {
		if !has(found, old) {
			kept = append(kept, old)
		}
	}
	for _, n := range found {
		if n.Row < 1 || n.Row > len(rows) {
			return fmt.Errorf("%s logs a figure of row %d: rows.yaml has 1 to %d", n.Test, n.Row, len(rows))
		}
		n.Date, n.Machine = time.Now().UTC().Format(time.DateOnly), machine()
		kept = append(kept, n)
	}
	*f = kept
	return nil
}

func has(found []figure, old figure) bool {
	for _, n := range found {
		if n.Row == old.Row && n.Test == old.Test {
			return true
		}
	}
	return false
}

func machine() string {
	return fmt.Sprintf("%d cores, %s/%s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH)
}

var (
	logged  = regexp.MustCompile(`reliability row=(\d+) figure=(.+)$`)
	running = regexp.MustCompile(`^=== (?:RUN|NAME|CONT) +(\S+)`)
	passed  = regexp.MustCompile(`^--- (PASS|FAIL|SKIP): (\S+)`)
	ended   = regexp.MustCompile(`^(?:ok|FAIL)\s+github\.com/likenessdb/likeness/(\S+)`)
)

// parseLog reads the output of `go test -v`. A figure counts only if its outermost test
// passed.
func parseLog(r io.Reader) ([]figure, error) {
	var found, pending []figure // pending: figures of the package that is running
	good, test := map[string]bool{}, ""
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if m := running.FindStringSubmatch(line); m != nil {
			test, _, _ = strings.Cut(m[1], "/")
		}
		if m := passed.FindStringSubmatch(line); m != nil {
			good[m[2]] = m[1] == "PASS"
		}
		if m := logged.FindStringSubmatch(line); m != nil {
			n, err := strconv.Atoi(m[1])
			if err != nil {
				return nil, fmt.Errorf("%q: %w", line, err)
			}
			pending = append(pending, figure{Row: n, Test: test, Figure: strings.TrimSpace(m[2])})
		}
		if m := ended.FindStringSubmatch(line); m != nil {
			for _, f := range pending {
				if good[f.Test] {
					f.Test = m[1] + "." + f.Test
					found = append(found, f)
				}
			}
			pending, good = nil, map[string]bool{}
		}
	}
	return found, lines.Err()
}
