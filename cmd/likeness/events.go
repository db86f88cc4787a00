package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/likenessdb/likeness/learn/export"
)

func newEventsCommand(a *app) *cobra.Command {
	return newGroup("events", "What answers showed, and what people chose", newEventsExportCommand(a))
}

const eventsExportLong = `Joins the answers that sidecars kept (events of a route) with the feedback on them, into
the log that fit and eval read: one row for each item that an answer showed, with query,
item, weight (0: shown, not chosen), time, position from 1, arm, answer, user, score and
version. --queries writes the queries beside it: id, vector and text.

DIR is the state_dir of a sidecar; several are merged. They are only read, and sidecars may
be running. An event that was sent twice counts once. Memory: some hundred bytes for each
answer and each event.`

// eventsExportFlags are the flags of events export.
type eventsExportFlags struct {
	route, from, to, out, queries string
	weights                       map[string]string
}

func newEventsExportCommand(a *app) *cobra.Command {
	f := &eventsExportFlags{}
	cmd := &cobra.Command{
		Use:   "export DIR...",
		Short: "Write the log that fits learn from",
		Long:  eventsExportLong,
		Example: `  likeness events export --route products --out log.parquet --queries queries.parquet /var/lib/likeness
  likeness events export --route products --from 2026-01-01 --to 2026-02-01 --weight purchase=5 --out log.parquet node-1 node-2`,
		Args: cobra.MinimumNArgs(1),
	}
	f.flags(cmd)
	out := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, dirs []string) error {
		o, err := f.options(dirs)
		if err != nil {
			return usageError{err}
		}
		report, err := export.Run(cmd.Context(), o)
		if err != nil {
			return err
		}
		return a.print(*out, report, func(w io.Writer) error { return printExport(w, o, report) })
	}
	return cmd
}

// flags adds the flags to cmd.
func (f *eventsExportFlags) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.route, "route", "", "the route whose events are exported")
	cmd.Flags().StringVar(&f.from, "from", "", "first time of an answer: 2026-01-31, or RFC 3339")
	cmd.Flags().StringVar(&f.to, "to", "", "time from which on answers are left out")
	cmd.Flags().StringVar(&f.out, "out", "", "the log, a Parquet file")
	cmd.Flags().StringVar(&f.queries, "queries", "", "the queries' vectors and texts, a Parquet file")
	cmd.Flags().StringToStringVar(&f.weights, "weight", nil, "weights of kinds of feedback, such as click=1,purchase=5; others count as they were sent")
	_ = cmd.MarkFlagRequired("route")
	_ = cmd.MarkFlagRequired("out")
}

// options reads the flags.
func (f *eventsExportFlags) options(dirs []string) (o export.Options, err error) {
	o = export.Options{StateDirs: dirs, Route: f.route, Log: f.out, Queries: f.queries, Weights: map[string]float64{}}
	if o.From, err = parseMoment(f.from); err != nil {
		return o, fmt.Errorf("--from: %w", err)
	}
	if o.To, err = parseMoment(f.to); err != nil {
		return o, fmt.Errorf("--to: %w", err)
	}
	for kind, text := range f.weights {
		var w float64
		if _, err := fmt.Sscan(text, &w); err != nil || !(w >= 0 && w <= 1e9) {
			return o, fmt.Errorf("--weight %s=%s: give a number from 0 to 1e9", kind, text)
		}
		o.Weights[kind] = w
	}
	return o, nil
}

// parseMoment reads a date or a time. "" is the zero time.
func parseMoment(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if day, err := time.Parse(time.DateOnly, text); err == nil {
		return day, nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, fmt.Errorf("%q is no time; write 2026-01-31, or 2026-01-31T12:00:00Z", text)
	}
	return t, nil
}

func printExport(w io.Writer, o export.Options, r export.Report) error {
	_, err := fmt.Fprintf(w, "%d answers to %d queries: %d items shown, %d of them chosen (%s)\n", r.Answers, r.Queries, r.Rows, r.Chosen, o.Log)
	for _, left := range []struct {
		n    int64
		what string
	}{
		{r.Repeated, "events were sent twice, and count once"},
		{r.Unmatched, "events are of answers that the folders do not have, or of another time"},
		{r.NotShown, "events name an item that the answer did not show"},
		{r.WithoutQuery, "answers were kept without their query: set events.keep to have vector or text"},
		{r.Damaged, "places of the files are damaged, and were left out"},
	} {
		if err == nil && left.n > 0 {
			_, err = fmt.Fprintf(w, "%d %s\n", left.n, left.what)
		}
	}
	return err
}
