//go:build !unix

package relevance_test

const childRole = "LIKENESS_RELEVANCE_ROLE"

func child(string) int { return 1 }
