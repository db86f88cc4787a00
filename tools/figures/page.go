package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// block is a paragraph, list, table or fenced output with its figures and their sources.
type block struct {
	line    int // of its first line, from 1
	figures []string
	sources []source
}

// source is the command that makes figures, and the places in committed files that hold them.
type source struct {
	command string
	places  []string // FILE or FILE#PLACE
}

func (s source) String() string { return strings.Join(append([]string{s.command}, s.places...), " | ") }

func joinSources(all []source) string {
	texts := make([]string, len(all))
	for i, s := range all {
		texts[i] = strings.Join(s.places, " | ")
	}
	return strings.Join(texts, " | ")
}

var (
	marker  = regexp.MustCompile(`^<!-- figures: (.*) -->$`)
	heading = regexp.MustCompile(`^(#{1,6}) `)

	comments   = regexp.MustCompile(`<!--.*?-->`)
	code       = regexp.MustCompile("`[^`]*`")
	linkTarget = regexp.MustCompile(`\]\([^)]*\)`)
	action     = regexp.MustCompile(`\{\{.*?\}\}`) // of a template
	version    = regexp.MustCompile(`\d+\.\d+\.\d[\w.]*`)

	// Each has the figure in its second group, and in the first the lower end of a range such as 4 to 15 ms.
	measured = regexp.MustCompile(figureStart + `(\d[\d,]*(?:\.\d+)?(?: ?%| (?:ms|µs|us|s)\b)|\d+\.\d+ times\b|0?\.\d\d+\b)`)
	printed  = regexp.MustCompile(figureStart + `(\d[\d,]*(?:\.\d+)?(?: ?%| (?:ms|µs|us|s)\b)|\d*\.\d\d+\b)`)
)

const figureStart = `(?:^|[^\w.,/:])[+−±-]?(?:(\d[\d.]*) to )?`

// parse returns the blocks of a page that have figures or a source.
func parse(text string) ([]block, error) {
	var (
		blocks  []block
		section []source // of the section, whose heading has sectionLevel
		level   int
		next    []source // of the block or heading to come
		lines   = strings.Split(text, "\n")
	)
	for i := 0; i < len(lines); {
		line := strings.TrimSpace(lines[i])
		if m := marker.FindStringSubmatch(line); m != nil {
			s, err := parseSource(m[1])
			if err != nil {
				return nil, fmt.Errorf("%d: %w", i+1, err)
			}
			next = append(next, s)
			i++
			continue
		}
		if line == "" {
			i++
			continue
		}
		if m := heading.FindStringSubmatch(line); m != nil {
			if len(next) > 0 || len(m[1]) <= level {
				section, level = next, len(m[1])
			}
			next = nil
			i++
			continue
		}
		end, find := blockEnd(lines, i)
		b := block{line: i + 1, sources: next}
		if find != nil {
			for _, l := range lines[i:end] {
				b.figures = append(b.figures, figuresOf(l, find)...)
			}
		}
		if len(next) == 0 && len(b.figures) > 0 {
			b.sources = section
		}
		if len(b.figures) > 0 || len(next) > 0 {
			blocks = append(blocks, b)
		}
		next, i = nil, end
	}
	if len(next) > 0 {
		return nil, fmt.Errorf("%d: nothing follows the source of figures", len(lines))
	}
	return blocks, nil
}

func parseSource(text string) (source, error) {
	parts := strings.Split(text, " | ")
	if strings.TrimSpace(parts[0]) == "" || slices.Contains(parts, "") {
		return source{}, fmt.Errorf("%q: want COMMAND, or COMMAND | FILE#PLACE", text)
	}
	return source{parts[0], parts[1:]}, nil
}

// blockEnd returns the line after the block that begins at lines[start], and the expression that
// finds its figures; nil in fenced code, where numbers are input.
func blockEnd(lines []string, start int) (int, *regexp.Regexp) {
	end := start + 1
	language, isFence := strings.CutPrefix(strings.TrimSpace(lines[start]), "```")
	for end < len(lines) {
		line := strings.TrimSpace(lines[end])
		if isFence && line == "```" {
			end++
			break
		}
		if !isFence && (line == "" || strings.HasPrefix(line, "```") || marker.MatchString(line) || heading.MatchString(line)) {
			break
		}
		end++
	}
	switch {
	case !isFence:
		return end, measured
	case language == "" || language == "text":
		return end, printed
	}
	return end, nil
}

// figuresOf returns the figures of a line as it writes them, without signs. 95 % is the level of an
// interval.
func figuresOf(line string, find *regexp.Regexp) []string {
	if find == measured {
		for _, not := range []*regexp.Regexp{comments, code, action, version} {
			line = not.ReplaceAllString(line, "")
		}
		line = linkTarget.ReplaceAllString(line, "]")
	}
	var figures []string
	for _, m := range find.FindAllStringSubmatch(line, -1) {
		if m[1] != "" {
			figures = append(figures, m[1])
		}
		if m[2] != "95 %" {
			figures = append(figures, m[2])
		}
	}
	return figures
}
