//go:build !unix

package events_test

const childDir = "LIKENESS_EVENTS_DIR"

func child(string) int { return 1 }
