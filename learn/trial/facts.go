package trial

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Fact is a line about a collection, for people.
type Fact struct{ Name, Text string }

// Name is the row's title, or its id if it has none.
func (r Row) Name() string {
	if r.Title == "" {
		return r.ID.String()
	}
	return r.Title
}

// shownFields is the number of payload fields that a line lists.
const shownFields = 12

// Facts lists what was found and measured.
func (r *Report) Facts() []Fact {
	l := &r.Look
	facts := []Fact{{"rows", l.rowsText()}, {"vector", l.vectorText()}}
	if len(l.Vectors) > 1 {
		facts = append(facts, Fact{"others", l.othersText()})
	}
	facts = append(facts, Fact{"index", l.indexText()}, Fact{"payload", l.payloadText()}, Fact{"database", r.Database.text()})
	if s := r.Served; s != nil {
		facts = append(facts, Fact{"likeness", fmt.Sprintf("p50 %.1f ms, p95 %.1f ms for the first %d rows by the learned similarity, in this process; certificates: %s", s.P50, s.P95, r.Database.K, s.certificatesText())})
	}
	return facts
}

func (l *Look) rowsText() string {
	text := fmt.Sprint(l.Rows)
	if int64(l.Read+l.WithoutVector) < l.Rows {
		text += fmt.Sprintf(", of which %s were read; --rows reads more", l.readText())
	}
	if l.WithoutVector > 0 {
		text += fmt.Sprintf("; %d have no such vector and were left out", l.WithoutVector)
	}
	return text
}

func (l *Look) readText() string {
	logged, others := "", l.Read-l.Logged
	if l.Logged > 0 {
		logged = fmt.Sprintf("%d that the log names", l.Logged)
	}
	switch {
	case others == 0:
		return logged
	case logged != "":
		logged += " and "
	}
	if l.Random {
		return fmt.Sprintf("%s%d from random places", logged, others)
	}
	return fmt.Sprintf("%sthe first %d by id (this collection cannot be read at random places)", logged, others)
}

func (l *Look) vectorText() string {
	text := l.Vector.String() + ", " + l.Vector.Norms
	if l.Vector.Quantized != "" {
		return text + ", quantised: " + l.Vector.Quantized
	}
	return text + ", not quantised"
}

func (l *Look) othersText() string {
	var all []string
	for _, v := range l.Vectors {
		if v.Name != l.Vector.Name {
			all = append(all, v.String())
		}
	}
	return strings.Join(all, "; ")
}

func (l *Look) indexText() string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(l.Index)) {
		all = append(all, strings.TrimPrefix(key, ".")+": "+l.Index[key])
	}
	return strings.Join(all, "; ")
}

func (l *Look) payloadText() string {
	if len(l.Fields) == 0 {
		return "none"
	}
	var all []string
	for _, f := range l.Fields[:min(len(l.Fields), shownFields)] {
		text := fmt.Sprintf("%s (%s", f.Name, f.Type)
		if f.Name == l.Title {
			text += ", shown in examples"
		}
		all = append(all, text+")")
	}
	if more := len(l.Fields) - shownFields; more > 0 {
		all = append(all, fmt.Sprintf("%d more", more))
	}
	return strings.Join(all, ", ")
}

func (d Database) text() string {
	if d.Queries == 0 {
		return "not measured: " + d.NotMeasured
	}
	text := fmt.Sprintf("p50 %.1f ms, p95 %.1f ms for the first %d rows", d.P50, d.P95, d.K)
	if d.NotMeasured != "" {
		return text + "; the recall of its index was not measured: " + d.NotMeasured
	}
	return text + fmt.Sprintf("; its index finds %.2f %% of them, compared with %s for %d stored vectors", 100*d.Recall, d.Exact, d.Queries)
}

func (s *Served) certificatesText() string {
	var all []string
	for _, status := range slices.Sorted(maps.Keys(s.Certificates)) {
		all = append(all, fmt.Sprintf("%d %s", s.Certificates[status], status))
	}
	return strings.Join(all, ", ")
}
