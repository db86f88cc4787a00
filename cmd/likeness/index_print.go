package main

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/likenessdb/likeness/learn/index"
)

func printBuilt(w io.Writer, b built) error {
	if a := b.Asked; a != nil && b.Table == nil && b.Companion == nil {
		_, err := fmt.Fprintln(w, estimateText(a.Estimate))
		return err
	} else if a != nil {
		_, _ = fmt.Fprintf(w, "ranker %s, version %s: asked of %d items, %d scores were kept in %s\n", a.Ranker, a.Version, a.Asked, a.Kept, a.Cache)
	}
	if t := b.Table; t != nil && t.Kept {
		_, _ = fmt.Fprintf(w, "table %s: %d items, of an earlier run; verified: checksums\n", t.Path, t.Items)
	} else if t != nil {
		_, _ = fmt.Fprintf(w, "table %s: %d items in %s; %s\n", t.Path, t.Items, countLine(t.Result), verified(t.Verified, "checksums"))
	}
	if c := b.Companion; c != nil {
		printCompanion(w, c)
	}
	if b.Drift == nil {
		return nil
	}
	return printDrift(w, *b.Drift)
}

func printCompanion(w io.Writer, c *builtCompanion) {
	_, _ = fmt.Fprintf(w, "companion %s: fields %s, %s", c.Name, strings.Join(c.Fields, ", "), countLine(c.Result))
	if c.Verified != (index.Verified{}) {
		_, _ = fmt.Fprintf(w, "; %s", verified(c.Verified, fmt.Sprintf("%d rows read back", c.Verified.Compared)))
	}
	_, _ = fmt.Fprintln(w)
	if c.Files == "" {
		return
	}
	_, _ = fmt.Fprintf(w, "\nadd it to the embedded store's collections:\n\n      %s:\n        fields:\n", c.Name)
	for _, field := range c.Fields {
		_, _ = fmt.Fprintf(w, "          %s: {file: %s}\n", field, filepath.Join(c.Files, field+".npy"))
	}
	if c.ids != "" {
		_, _ = fmt.Fprintf(w, "        ids: %s\n", c.ids)
	}
	if c.owner != "" {
		_, _ = fmt.Fprintf(w, "        owner: %s\n        owners: %s\n", c.owner, c.owners)
	}
	_, _ = fmt.Fprintf(w, "        payload: %s\n", filepath.Join(c.Files, "payload.jsonl"))
}

// verified describes the checks of a finished table or companion, called what.
func verified(v index.Verified, what string) string {
	if v.Rows > 0 {
		what += fmt.Sprintf(", %d rows", v.Rows)
	}
	if v.Counted {
		what += ", none of the collection is missing"
	}
	return "verified: " + what
}

func countLine(r index.Result) string {
	text := fmt.Sprintf("%d rows", r.Rows)
	if r.Resumed > 0 {
		text += fmt.Sprintf(", after %d of an earlier run", r.Resumed)
	}
	if r.NotFinite > 0 {
		text += fmt.Sprintf("; %d have features that are not finite and rank last, the first is %s", r.NotFinite, r.FirstNotFinite)
	}
	if r.Missing > 0 {
		text += fmt.Sprintf("; %d rows of the collection have no such vector and were left out, the first is %s", r.Missing, r.FirstMissing)
	}
	return text
}
