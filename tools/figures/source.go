package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"math"
	"path"
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// fileNumbers reads the numbers at places of committed files, each place once.
type fileNumbers struct {
	repository fs.FS
	kept       map[string][]string
}

var number = regexp.MustCompile(`\d[\d,]*(?:\.\d+)?(?:e-?\d+)?|\.\d+`)

// at returns the numbers at FILE or FILE#PLACE, as the file writes them.
func (f *fileNumbers) at(place string) ([]string, error) {
	if numbers, ok := f.kept[place]; ok {
		return numbers, nil
	}
	file, inside, _ := strings.Cut(place, "#")
	text, err := fs.ReadFile(f.repository, file)
	if err != nil {
		return nil, err
	}
	part := string(text)
	switch {
	case inside == "":
	case path.Ext(file) == ".json":
		part, err = jsonAt(text, inside)
	case path.Ext(file) == ".md":
		part, err = sectionAt(part, inside)
	default:
		err = fmt.Errorf("only JSON and Markdown have places")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", place, err)
	}
	f.kept[place] = number.FindAllString(part, -1)
	return f.kept[place], nil
}

// jsonAt returns the JSON at a place such as systems/Qdrant, gRPC/ways/0.
func jsonAt(text []byte, place string) (string, error) {
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		return "", err
	}
	for step := range strings.SplitSeq(place, "/") {
		next, ok := element(value, step)
		if !ok {
			return "", fmt.Errorf("there is no %q", step)
		}
		value = next
	}
	part, err := json.Marshal(value)
	return string(part), err
}

// element returns the value of a key, or the element of an array with this number or that holds this text.
func element(value any, step string) (any, bool) {
	switch v := value.(type) {
	case map[string]any:
		next, ok := v[step]
		return next, ok
	case []any:
		if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(v) {
			return v[i], true
		}
		for _, e := range v {
			if holds(e, step) {
				return e, true
			}
		}
	}
	return nil, false
}

// holds reports whether a field of an object, or an element of an array, is this text.
func holds(value any, text string) bool {
	switch v := value.(type) {
	case map[string]any:
		for _, field := range v {
			if field == text {
				return true
			}
		}
	case []any:
		for _, field := range v {
			if field == text {
				return true
			}
		}
	}
	return false
}

// sectionAt returns the section of a Markdown page whose heading has this anchor.
func sectionAt(text, anchor string) (string, error) {
	level, lines := 0, []string{}
	for line := range strings.SplitSeq(text, "\n") {
		if m := heading.FindStringSubmatch(line); m != nil {
			if level > 0 && len(m[1]) <= level {
				break
			}
			if anchorOf(line[len(m[0]):]) == anchor {
				level = len(m[1])
			}
		}
		if level > 0 {
			lines = append(lines, line)
		}
	}
	if level == 0 {
		return "", fmt.Errorf("there is no heading #%s", anchor)
	}
	return strings.Join(lines, "\n"), nil
}

// anchorOf makes the anchor of a heading as GitHub does.
func anchorOf(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
}

// equals reports whether a figure is a number, rounded to the figure's digits. A percentage is also
// the share of one.
func equals(figure, of string) bool {
	percent := strings.HasSuffix(figure, "%")
	figure, _, _ = strings.Cut(strings.TrimSuffix(figure, "%"), " ")
	_, fraction, _ := strings.Cut(figure, ".")
	f, n := parseNumber(figure), parseNumber(of)
	tolerance := 0.5000001 * math.Pow10(-len(fraction))
	return math.Abs(f-n) <= tolerance || percent && math.Abs(f-100*n) <= tolerance
}

// parseNumber parses what the expression number matches.
func parseNumber(text string) float64 {
	n, err := strconv.ParseFloat(strings.ReplaceAll(text, ",", ""), 64)
	if err != nil {
		return math.NaN() // equals nothing
	}
	return n
}
