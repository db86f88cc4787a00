package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/likenessdb/likeness/adapters/adaptertest"
)

// column is one version of a store.
type column struct{ store, version string }

func (c column) title() string {
	if c.version == "" || c.version == "-" {
		return c.store
	}
	return c.store + " " + c.version
}

// table holds the outcomes by case and column.
type table struct {
	outcomes     map[string]map[column]adaptertest.Outcome
	columns      map[column]bool
	capabilities map[string]string // capability of each case
}

func newTable() *table {
	return &table{outcomes: map[string]map[column]adaptertest.Outcome{}, columns: map[column]bool{}, capabilities: map[string]string{}}
}

// severity ranks outcomes. If a case ran twice on one store, the table shows the worse
// outcome, so a failure hides all others.
var severity = []string{adaptertest.NotRun, adaptertest.Passed, adaptertest.Refused, adaptertest.Failed}

func (t *table) read(r io.Reader) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		if strings.TrimSpace(lines.Text()) == "" {
			continue
		}
		var o adaptertest.Outcome
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		if !slices.Contains(severity, o.Outcome) || o.Case == "" || o.Store == "" {
			return fmt.Errorf("line %d is no outcome of a case on a store: %s", n, lines.Text())
		}
		t.add(o)
	}
	return lines.Err()
}

func (t *table) add(o adaptertest.Outcome) {
	c := column{o.Store, o.Version}
	t.columns[c] = true
	t.capabilities[o.Case] = o.Capability
	if t.outcomes[o.Case] == nil {
		t.outcomes[o.Case] = map[column]adaptertest.Outcome{}
	}
	before, twice := t.outcomes[o.Case][c]
	if !twice || worse(o, before) {
		t.outcomes[o.Case][c] = o
	}
}

func worse(a, b adaptertest.Outcome) bool {
	if d := slices.Index(severity, a.Outcome) - slices.Index(severity, b.Outcome); d != 0 {
		return d > 0
	}
	return a.Detail < b.Detail
}

const head = `# Compatibility

Every store adapter passes one conformance kit (` + "`adapters/adaptertest`" + `), run against the real servers.
This page is made from its outcomes by ` + "`make compatibility`" + `; do not edit it.

✓ passed; **refused**: the store lacks the capability and says so with a typed error, which the kit checked;
**not run**: the case does not apply or is off, for the reason in the notes; ✗ failed.

`

// page renders a table of the cases that a store did not pass and a list of those that
// every store passed, both in the kit's order.
func (t *table) page() (string, error) {
	if len(t.columns) == 0 {
		return "", errors.New("there are no outcomes; run the kit with " + adaptertest.RecordTo + " set")
	}
	columns := t.sortedColumns()
	var b strings.Builder
	b.WriteString(head)
	common, others := t.split(columns)
	b.WriteString("| case | capability |")
	for _, c := range columns {
		b.WriteString(" " + c.title() + " |")
	}
	b.WriteString("\n|---|---|" + strings.Repeat("---|", len(columns)) + "\n")
	var notes []string
	for _, name := range others {
		fmt.Fprintf(&b, "| %s | %s |", escape(name), escape(t.capabilities[name]))
		for _, c := range columns {
			var cell string
			cell, notes = t.cell(name, c, notes)
			b.WriteString(" " + cell + " |")
		}
		b.WriteString("\n")
	}
	if len(notes) > 0 {
		b.WriteString("\n## Notes\n\n")
	}
	for i, n := range notes {
		fmt.Fprintf(&b, "%d. %s\n", i+1, n)
	}
	b.WriteString(t.passedByAll(common, columns))
	return b.String(), nil
}

// split returns the cases that passed in every column, and the others.
func (t *table) split(columns []column) (common, others []string) {
	for _, name := range t.sortedCases() {
		if slices.ContainsFunc(columns, func(c column) bool { return t.outcomes[name][c].Outcome != adaptertest.Passed }) {
			others = append(others, name)
		} else {
			common = append(common, name)
		}
	}
	return common, others
}

// passedByAll counts cases by their capability.
func (t *table) passedByAll(cases []string, columns []column) string {
	if len(cases) == 0 {
		return ""
	}
	var capabilities []string
	counts := map[string]int{}
	for _, name := range cases {
		capability := t.capabilities[name]
		if counts[capability] == 0 {
			capabilities = append(capabilities, capability)
		}
		counts[capability]++
	}
	for i, capability := range capabilities {
		if n := counts[capability]; n > 1 {
			capabilities[i] = fmt.Sprintf("%s (%d cases)", capability, n)
		}
	}
	titles := make([]string, len(columns))
	for i, c := range columns {
		titles[i] = c.title()
	}
	return fmt.Sprintf("\n## Passed by all\n\nEach of %s passed all other cases: %s.\n", strings.Join(titles, ", "), strings.Join(capabilities, ", "))
}

// cell renders one outcome. Its detail becomes a footnote, which cells with the same
// detail share.
func (t *table) cell(name string, c column, notes []string) (string, []string) {
	o, ran := t.outcomes[name][c]
	var text string
	switch {
	case !ran:
		text = "absent"
	case o.Outcome == adaptertest.Passed:
		text = "✓"
	case o.Outcome == adaptertest.Failed:
		text = "✗"
	default:
		text = o.Outcome
	}
	if o.Detail == "" || o.Outcome == adaptertest.Passed {
		return text, notes
	}
	at := slices.Index(notes, o.Detail)
	if at < 0 {
		notes, at = append(notes, o.Detail), len(notes)
	}
	return fmt.Sprintf("%s (%d)", text, at+1), notes
}

func (t *table) sortedColumns() []column {
	var out []column
	for c := range t.columns {
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b column) int {
		if d := strings.Compare(strings.ToLower(a.store), strings.ToLower(b.store)); d != 0 {
			return d
		}
		return strings.Compare(a.version, b.version)
	})
	return out
}

func (t *table) sortedCases() []string {
	order := adaptertest.CaseNames()
	var out []string
	for name := range t.outcomes {
		out = append(out, name)
	}
	place := func(name string) int {
		if i := slices.Index(order, name); i >= 0 {
			return i
		}
		return len(order)
	}
	slices.SortFunc(out, func(a, b string) int {
		if d := place(a) - place(b); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	return out
}

func escape(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
