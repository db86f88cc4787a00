package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/likenessdb/likeness/sidecar/bench"
)

const benchRerankLong = `Sends one rerank call after the other to a running sidecar. Reports the time of a call,
what embedding and scoring take of it, and what is beyond: HTTP, JSON, admission and the
connection. The documents are items of the route's collection.`

// benchRerankFlags are the flags of bench rerank.
type benchRerankFlags struct {
	documents      int
	ids, tokenFile string
	run            bench.Rerank
}

func newBenchRerankCommand(a *app) *cobra.Command {
	f := &benchRerankFlags{}
	cmd := &cobra.Command{
		Use:   "rerank URL",
		Short: "Measure what a rerank call costs beyond scoring",
		Long:  benchRerankLong,
		Example: `  likeness bench rerank http://127.0.0.1:7602 --route products --query "warm socks"
  likeness bench rerank http://127.0.0.1:7602 --route products --query "warm socks" --ids ids.txt --output json`,
		Args: cobra.ExactArgs(1),
	}
	f.flags(cmd)
	out := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		f.run.URL = args[0]
		report, err := f.measure(cmd.Context(), a.stderr)
		if err != nil {
			return err
		}
		return a.print(*out, report, func(w io.Writer) error { return printReranked(w, report) })
	}
	return cmd
}

// flags adds the flags to cmd.
func (f *benchRerankFlags) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVarP(&f.run.Route, "route", "r", "", "route to ask, the model of the call")
	flags.StringVar(&f.run.Query, "query", "", "text of the query")
	flags.IntVar(&f.documents, "documents", 1000, "documents of a call: the ids 0, 1, …, or the first of --ids")
	flags.StringVar(&f.ids, "ids", "", "file with an id a line")
	flags.IntVar(&f.run.Calls, "calls", 400, "calls that are measured")
	flags.StringVar(&f.tokenFile, "token-file", "", "file with the bearer token")
	for _, name := range []string{"route", "query"} {
		_ = cmd.MarkFlagRequired(name)
	}
}

func (f *benchRerankFlags) measure(ctx context.Context, warnings io.Writer) (bench.Reranked, error) {
	if f.documents < 1 || f.run.Calls < 1 {
		return bench.Reranked{}, usagef("--documents and --calls start at 1")
	}
	var err error
	if f.run.Token, err = readToken(f.tokenFile); err != nil {
		return bench.Reranked{}, err
	}
	if f.run.Token != "" {
		warnPlainToken(warnings, f.run.URL)
	}
	if f.run.Documents, err = f.readDocuments(); err != nil {
		return bench.Reranked{}, err
	}
	client := &http.Client{Transport: http.DefaultTransport}
	defer client.CloseIdleConnections()
	return f.run.Run(ctx, client)
}

// readDocuments returns the documents of a call as JSON.
func (f *benchRerankFlags) readDocuments() (documents []json.RawMessage, err error) {
	if f.ids == "" {
		for i := range f.documents {
			documents = append(documents, strconv.AppendInt(nil, int64(i), 10))
		}
		return documents, nil
	}
	file, err := os.Open(f.ids)
	if err != nil {
		return nil, fmt.Errorf("--ids: %w", err)
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); len(documents) < f.documents && lines.Scan(); {
		id := bytes.TrimSpace(lines.Bytes())
		if _, err := strconv.ParseUint(string(id), 10, 64); err == nil {
			documents = append(documents, json.RawMessage(bytes.Clone(id)))
		} else if len(id) > 0 {
			text, _ := json.Marshal(map[string]string{"id": string(id)})
			documents = append(documents, text)
		}
	}
	if len(documents) == 0 {
		return nil, usagef("--ids: %s holds no id", f.ids)
	}
	return documents, nil
}

func printReranked(w io.Writer, r bench.Reranked) error {
	_, _ = fmt.Fprintf(w, "milliseconds of %d calls with %d documents", r.Calls, r.Documents)
	if r.Missing > 0 {
		_, _ = fmt.Fprintf(w, ", of which %d are no items of the collection", r.Missing)
	}
	_, _ = fmt.Fprint(w, "\n\n")
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintf(t, "\tp50\tp99\t\ncall\t%.2f\t%.2f\t\nembed and score\t%.2f\t%.2f\t\nbeyond\t%.2f\t%.2f\t\n",
		r.Whole.P50, r.Whole.P99, r.Scoring.P50, r.Scoring.P99, r.Beyond.P50, r.Beyond.P99)
	return t.Flush()
}
