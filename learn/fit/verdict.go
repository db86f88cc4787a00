package fit

import "github.com/likenessdb/likeness/learn/verdict"

// Verdict says which of the similarities that a fit compared to take.
type Verdict struct {
	Answer verdict.Answer `json:"answer"`
	Choose string         `json:"choose"`
	// Margin is how much of the measure a simpler similarity may lose and still be as good as
	// the best.
	Margin float64 `json:"margin"`
	// Queries is how many held-out queries judged, QueriesNeeded about how many would
	// settle what is open: 0 if nothing is open or there is no estimate.
	Queries       int      `json:"queries"`
	QueriesNeeded int      `json:"queries_needed,omitempty"`
	Text          []string `json:"text"`
}

// NewVerdict makes the verdict of a decision by a number of queries. choose names the
// similarity to take.
func NewVerdict(d verdict.Decision, queries int, choose string) Verdict {
	return Verdict{Answer: d.Answer, Choose: choose, Margin: d.Margin, Queries: queries, QueriesNeeded: d.QueriesNeeded, Text: d.Text}
}
