package harness

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Rule ignores a part of an outcome that differs between two direct runs.
type Rule struct {
	// Why names the part that varies, for the table in the reference.
	Why string
	// Keys names object keys, at any depth, whose values are ignored.
	Keys []string
	// Beside, if not empty, is a key that the object must have too.
	Beside string
	// Text matches the ignored parts of strings, and of numbers as they are written.
	Text *regexp.Regexp
	// Lists names the keys of lists whose order is random.
	Lists []string
	// Ties: points with equal scores come in random order.
	Ties bool
}

// QdrantRules lists the differences that two direct runs against Qdrant have. The order of
// an object's keys never counts.
func QdrantRules() []Rule {
	return []Rule{
		{Why: "how long the server took, and what it used", Keys: []string{"time", "usage"}},
		{Why: "the same, in the text of an error", Text: regexp.MustCompile(`"time":\s*[0-9.eE+-]+(\s*\.\.\.|\}+)?`)},
		{Why: "a snapshot's moment and checksum", Keys: []string{"creation_time", "creationTime", "checksum"}},
		{Why: "a snapshot's size, beside its moment", Keys: []string{"size"}, Beside: "creation_time"},
		{Why: "the same in gRPC's JSON", Keys: []string{"size"}, Beside: "creationTime"},
		{Why: "a full snapshot's size, which has no moment", Keys: []string{"size"}, Beside: "checksum"},
		{Why: "a snapshot's name, which has its moment and the peer", Text: regexp.MustCompile(`(-\d{10,})?-\d{4}-\d\d-\d\d-\d\d-\d\d-\d\d(-\d+)?\.snapshot`)},
		{Why: "the number of the peer, which it draws when it starts", Keys: []string{"peer_id", "peerId"}},
		{Why: "the server's own folder, and its number of a task, in the text of an error", Text: regexp.MustCompile(`/\S*likeness-qdrant-\d+|task \d+ panicked`)},
		{Why: "the order of collections and aliases in a list", Lists: []string{"collections", "aliases"}},
		{Why: "the order of points whose scores are equal", Ties: true},
	}
}

// NodeRule ignores the one difference that gRPC clients on Node see through the proxy: HTTP/2
// permits no field that ends in a space, as some of Qdrant's error texts do, and only the database
// can escape it.
func NodeRule() Rule {
	return Rule{Why: "gRPC on Node: a space at the end of an error's text", Text: regexp.MustCompile(` *$`)}
}

// Difference is a step with two different outcomes.
type Difference struct {
	Step      string
	Got, Want string
}

func (d Difference) String() string {
	at := 0
	for at < len(d.Got) && at < len(d.Want) && d.Got[at] == d.Want[at] {
		at++
	}
	from := max(0, at-80)
	cut := func(s string) string { return s[min(from, len(s)):min(len(s), at+200)] }
	return fmt.Sprintf("%s: at byte %d\n got …%s\nwant …%s", d.Step, at, cut(d.Got), cut(d.Want))
}

// Compare returns the steps whose outcomes differ under the rules, and those
// that one of the runs lacks.
func Compare(got, want []Step, rules []Rule) []Difference {
	const absent = "(no such step)"
	outcomes := map[string]string{}
	for _, s := range got {
		outcomes[s.Name] = canonical(s, rules)
	}
	var all []Difference
	for _, s := range want {
		w := canonical(s, rules)
		g, ok := outcomes[s.Name]
		if !ok {
			g = absent
		}
		if g != w {
			all = append(all, Difference{s.Name, g, w})
		}
		delete(outcomes, s.Name)
	}
	for _, s := range got {
		if g, left := outcomes[s.Name]; left {
			all = append(all, Difference{s.Name, g, absent})
		}
	}
	return all
}

// canonical returns an outcome as text, with sorted keys and all digits of numbers.
func canonical(s Step, rules []Rule) string {
	raw := s.Result
	if s.Error != nil {
		raw, _ = json.Marshal(s.Error) // three strings
	}
	in := json.NewDecoder(bytes.NewReader(raw))
	in.UseNumber()
	var v any
	if err := in.Decode(&v); err != nil {
		return string(raw)
	}
	var out strings.Builder
	encode := json.NewEncoder(&out)
	encode.SetEscapeHTML(false)
	if err := encode.Encode(apply(v, rules)); err != nil {
		return err.Error()
	}
	kind := "result "
	if s.Error != nil {
		kind = "error "
	}
	return kind + strings.TrimSpace(out.String())
}

func apply(v any, rules []Rule) any {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			v[key] = applyTo(v, key, value, rules)
		}
	case []any:
		for i := range v {
			v[i] = apply(v[i], rules)
		}
		if slices.ContainsFunc(rules, func(r Rule) bool { return r.Ties }) {
			slices.SortStableFunc(v, byTie)
		}
	case json.Number:
		if masked := apply(v.String(), rules); masked != v.String() {
			return masked
		}
	case string:
		for _, r := range rules {
			if r.Text != nil {
				v = r.Text.ReplaceAllString(v, "*")
			}
		}
		return v
	}
	return v
}

// applyTo is apply for the value of a key in an object.
func applyTo(object map[string]any, key string, value any, rules []Rule) any {
	value = apply(value, rules)
	for _, r := range rules {
		if _, beside := object[r.Beside]; slices.Contains(r.Keys, key) && (beside || r.Beside == "") {
			return "*"
		}
		if list, ok := value.([]any); ok && slices.Contains(r.Lists, key) {
			slices.SortFunc(list, func(a, b any) int { return strings.Compare(text(a), text(b)) })
		}
	}
	return value
}

// isScored reports whether a point comes from a search: it has a score, or a version if the client
// leaves out a score of 0. Points that are read by their ids have neither.
func isScored(p map[string]any) bool { return p["score"] != nil || p["version"] != nil }

// byTie orders points with equal scores by their other fields. Other points stay in place.
func byTie(a, b any) int {
	p, isPoint := a.(map[string]any)
	q, too := b.(map[string]any)
	if !isPoint || !too || !isScored(p) || !isScored(q) || p["score"] != q["score"] {
		return 0
	}
	return strings.Compare(text(a), text(b))
}

func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}
