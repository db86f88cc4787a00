package main

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/likenessdb/likeness/learn/trial"
	"github.com/likenessdb/likeness/learn/verdict"
)

func printTrial(w io.Writer, r *trial.Report) error {
	if err := printLook(w, r); err != nil {
		return err
	}
	if r.Learned == nil {
		_, err := fmt.Fprintf(w, "\n%s\n\nwrote %s\n", r.Missing, filepath.Join(r.Folder, trial.ReportFile))
		return err
	}
	_, _ = fmt.Fprintf(w, "\nLearned a bilinear form: %s.\n\n", r.Learned.From)
	for _, line := range r.Learned.Judgment.Verdict.Text {
		_, _ = fmt.Fprintln(w, line)
	}
	for _, line := range r.Learned.Judgment.Verdict.Warnings {
		_, _ = fmt.Fprintln(w, "But:", line)
	}
	printExamples(w, r.Served)
	serve := "serve it:"
	if r.Learned.Judgment.Verdict.Answer != verdict.Yes {
		serve = "to serve it all the same:"
	}
	_, err := fmt.Fprintf(w, "\nwrote %s\n%s\n  likeness serve --config %s\n%s\n",
		filepath.Join(r.Folder, trial.ReportFile), serve, filepath.Join(r.Folder, trial.ConfigFile), whomToAsk(r))
	return err
}

// whomToAsk says where a client gets the answers that were judged.
func whomToAsk(r *trial.Report) string {
	if r.Served.Proxy != "" {
		return fmt.Sprintf("and give one client %s in place of the database's address", r.Served.Proxy)
	}
	return fmt.Sprintf("and ask its API, %s: the database's own clients expect distances of this %s field, and get no learned order", r.Served.REST, r.Look.Vector.Metric)
}

func printLook(w io.Writer, r *trial.Report) error {
	l := &r.Look
	_, _ = fmt.Fprintf(w, "%s, collection %q\n", l.Server, l.Collection)
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	for _, line := range r.Facts() {
		_, _ = fmt.Fprintf(t, "  %s\t%s\n", line.Name, line.Text)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, _ = fmt.Fprint(w, "\nWhat could serve here, and how exact an answer could be:\n")
	for _, s := range l.Similarities {
		_, _ = fmt.Fprintf(w, "  %s: %s.\n    %s: %s.\n", s.Name, s.How, s.Certificate, s.Why)
	}
	return nil
}

// shownExampleRows is the number of rows of an example that the text shows; the report
// has more.
const shownExampleRows = 3

func printExamples(w io.Writer, s *trial.Served) {
	if len(s.Examples) == 0 {
		_, _ = fmt.Fprintln(w, "\nNo query was found with another row among the first five.")
		return
	}
	_, _ = fmt.Fprintln(w, "\nQueries with another row among the first five, before and after; + marks the rows that are right:")
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	for _, e := range s.Examples {
		_, _ = fmt.Fprintf(t, "\n%s\t\n", oneLine(e.Query, 120))
		for i := range min(shownExampleRows, max(len(e.Before), len(e.After))) {
			_, _ = fmt.Fprintf(t, "  %s\t%s\n", exampleCell(e.Before, i), exampleCell(e.After, i))
		}
	}
	_ = t.Flush()
}

func exampleCell(rows []trial.Row, i int) string {
	if i >= len(rows) {
		return ""
	}
	mark := " "
	if rows[i].Right {
		mark = "+"
	}
	return mark + " " + oneLine(rows[i].Name(), 60)
}

// oneLine cuts a text to one line of so many letters.
func oneLine(text string, most int) string {
	runes := []rune(strings.Join(strings.Fields(text), " "))
	if len(runes) <= most {
		return string(runes)
	}
	return string(runes[:most-1]) + "…"
}
