package harness

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Rule leaves out of an outcome what differs between two direct runs.
type Rule struct {
	// Why says what varies, for the table in the reference.
	Why string
	// Keys are those of objects, at any depth, whose values are left out.
	Keys []string
	// Text matches what is left out of strings, and of numbers as they are written.
	Text *regexp.Regexp
}

// QdrantRules are what two direct runs against Qdrant differ in. The order of an
// object's keys never counts.
func QdrantRules() []Rule {
	return []Rule{
		{Why: "how long the server took, and what it used", Keys: []string{"time", "usage"}},
		{Why: "the same, in the text of an error", Text: regexp.MustCompile(`"time":\s*[0-9.eE+-]+`)},
		{Why: "a snapshot's moment, size and checksum", Keys: []string{"creation_time", "creationTime", "checksum", "size_bytes"}},
		{Why: "a snapshot's name, which has its moment and the peer", Text: regexp.MustCompile(`(-\d{10,})?-\d{4}-\d\d-\d\d-\d\d-\d\d-\d\d(-\d+)?\.snapshot`)},
		{Why: "the port of the connection, in the text of an error", Text: regexp.MustCompile(`127\.0\.0\.1:\d+`)},
	}
}

// Difference is a step with two outcomes.
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

// canonical is an outcome as text, with sorted keys and every digit of a number.
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
		for key := range v {
			if slices.ContainsFunc(rules, func(r Rule) bool { return slices.Contains(r.Keys, key) }) {
				v[key] = "*"
			} else {
				v[key] = apply(v[key], rules)
			}
		}
	case []any:
		for i := range v {
			v[i] = apply(v[i], rules)
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
