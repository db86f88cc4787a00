package adaptertest

import "strings"

// QdrantFilters returns the predicates as Qdrant's JSON, which the embedded store also
// accepts.
func QdrantFilters() map[Predicate]string {
	return map[Predicate]string{
		ColourRed:      `{"must": [{"key": "colour", "match": {"value": "red"}}]}`,
		ColourNotRed:   `{"must_not": {"key": "colour", "match": {"value": "red"}}}`,
		ColourAny:      `{"must": [{"key": "colour", "match": {"any": ["red", "green"]}}]}`,
		SizeAtLeast50:  `{"must": [{"key": "size", "range": {"gte": 50}}]}`,
		SizeBetween:    `{"must": [{"key": "size", "range": {"gte": 20, "lt": 40}}, {"should": [{"key": "colour", "match": {"value": "blue"}}]}]}`,
		BigNumber:      `{"must": [{"key": "big", "match": {"value": 9007199254740993}}]}`,
		HasID:          `{"must": [{"has_id": [3, 7]}]}`,
		MatchesNothing: `{"must": [{"key": "size", "range": {"lt": 0}}]}`,
	}
}

// BadQdrantFilters returns filters that both stores must refuse.
func BadQdrantFilters() []string {
	return []string{
		`{`, `[]`, `null`, `colour = "red"`, `{"must": []} x`,
		`{"most": []}`,
		`{"must": [{"key": "colour", "match": {"vale": "red"}}]}`,
		`{"must": [{"key": "colour"}]}`,
		`{"must": [{"key": "colour", "match": {"value": 1.5}}]}`,
		`{"must": [{"key": "colour", "match": {"any": ["red", 1]}}]}`,
		`{"must": [{"key": "size", "range": {"gte": "large"}}]}`,
		`{"must": [], "must": []}`,
		`{"must": [{"has_id": [1.5]}]}`,
		strings.Repeat(`{"must": [`, 200) + strings.Repeat(`]}`, 200),
		"{\"must\": [{\"key\": \"\xff\", \"match\": {\"value\": 1}}]}",
	}
}
