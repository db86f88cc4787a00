// Package shown compares the output that a page shows with the output of the command.
package shown

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// fraction matches a number with digits after its point.
var fraction = regexp.MustCompile(`\d+\.\d+`)

// tolerance is how far a number that a page shows may be off: kernels of other processors round
// otherwise. Numbers above 1 are percentages.
const (
	tolerance        = 0.003
	percentTolerance = 1
)

// Find finds the shown text in what was printed, and returns what was printed after it. Fractions
// may differ a little, all else has to be equal.
func Find(printed, shown string) (rest string, err error) {
	var pattern strings.Builder
	for i, text := range fraction.Split(shown, -1) {
		if i > 0 {
			pattern.WriteString(`(\d+\.\d+)`)
		}
		pattern.WriteString(regexp.QuoteMeta(text))
	}
	expression, err := regexp.Compile(pattern.String())
	if err != nil {
		return "", err
	}
	at := expression.FindStringSubmatchIndex(printed)
	if at == nil {
		return "", fmt.Errorf("printed was\n%s\nwithout\n%s", printed, shown)
	}
	for i, want := range fraction.FindAllString(shown, -1) {
		have := printed[at[2+2*i]:at[3+2*i]]
		if !near(have, want) {
			return "", fmt.Errorf("printed was\n%s\nwith %s where the page has %s", printed[at[0]:at[1]], have, want)
		}
	}
	return printed[at[1]:], nil
}

// near reports whether two numbers differ by the tolerance, or by one in the last digit shown.
func near(have, want string) bool {
	h, err := strconv.ParseFloat(have, 64)
	w, err2 := strconv.ParseFloat(want, 64)
	if err != nil || err2 != nil {
		return false
	}
	_, digits, _ := strings.Cut(want, ".")
	most := max(tolerance, 1.01*math.Pow10(-len(digits)))
	if w > 1 {
		most = percentTolerance
	}
	return math.Abs(h-w) <= most
}
