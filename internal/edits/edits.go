// Package edits counts how many edits turn one word into another, so that an error can suggest
// the name that was meant.
package edits

import (
	"cmp"
	"slices"
	"strings"
)

// Distance returns the least number of elements to insert, remove or replace that turns a into b,
// their Levenshtein distance. It takes time in proportion to the product of the lengths.
func Distance[T comparable](a, b []T) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range a {
		previous := row[0]
		row[0] = i + 1
		for j := range b {
			replaced := previous
			if a[i] != b[j] {
				replaced++
			}
			previous = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// Nearest returns the names that are most like a word, whatever their case: the nearest first, and at
// most as many as most says. Long names are compared by their beginnings.
func Nearest(word string, names []string, most int) []string {
	type scored struct {
		name     string
		distance int
	}
	asked, sorted := beginning(word), make([]scored, len(names))
	for i, name := range names {
		sorted[i] = scored{name, Distance(asked, beginning(name))}
	}
	slices.SortStableFunc(sorted, func(a, b scored) int { return cmp.Compare(a.distance, b.distance) })
	nearest := make([]string, min(len(names), most))
	for i := range nearest {
		nearest[i] = sorted[i].name
	}
	return nearest
}

// Close returns the name that a word was probably meant to be: the one that takes the fewest edits, at most half
// as many as the word has bytes. To a name that begins with the word it is one edit. Close returns "" if no name is close.
func Close(word string, names []string) (closest string) {
	distance := len(word)/2 + 1
	for _, name := range names {
		d := Distance([]byte(word), []byte(name))
		if strings.HasPrefix(name, word) {
			d = 1
		}
		if d < distance {
			closest, distance = name, d
		}
	}
	return closest
}

// beginning returns the letters of a name that Nearest compares.
func beginning(name string) []rune {
	letters := []rune(strings.ToLower(name[:min(len(name), 1024)]))
	return letters[:min(len(letters), 256)]
}
