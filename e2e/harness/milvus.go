package harness

import "regexp"

// MilvusRules lists the differences that two direct runs against Milvus have.
func MilvusRules() []Rule {
	return []Rule{
		{Why: "the channel of a collection", Text: regexp.MustCompile(`by-dev-rootcoord-dml_\d+(_\d+v\d+)?`)},
		{Why: "the moment of a call as a hybrid timestamp, which ids are made of", Text: regexp.MustCompile(`\b4[67]\d{16}\b`)},
		{Why: "the same as the time of day", Keys: []string{"created_utc_timestamp", "created_utc_timestamps"}},
		{Why: "the number of a query's plan, in the text of an error", Text: regexp.MustCompile(`plan node id: \d+`)},
		{Why: "the port of the connection, in the text of an error", Text: regexp.MustCompile(`127\.0\.0\.1:\d+`)},
		{Why: "the order in which the Go client lists fields, in the text of an error", Text: regexp.MustCompile(`extra output fields \[[^]]*\]`)},
		{Why: "which side noticed first that a deadline had passed", Text: regexp.MustCompile(`^(Deadline Exceeded|Stream removed \(RST_STREAM .*|context deadline exceeded)$`)},
	}
}
