//go:build !unix

package journal_test

const childRole = "LIKENESS_JOURNAL_ROLE"

func child(string) int { return 1 }
