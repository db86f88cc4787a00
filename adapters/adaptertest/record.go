package adaptertest

import (
	"encoding/json"
	"os"
	"testing"
)

// RecordTo names the environment variable with the path of the file to which Run
// appends every Outcome as a line of JSON.
const RecordTo = "LIKENESS_COMPATIBILITY"

// Outcome is the result of a case on a store.
type Outcome struct {
	Store      string `json:"store"`
	Version    string `json:"version"`
	Case       string `json:"case"`
	Capability string `json:"capability"`
	Outcome    string `json:"outcome"` // one of the constants below
	// Detail is the text of a refusal, or the reason why a case did not run.
	Detail string `json:"detail,omitempty"`
}

// Outcomes of a case.
const (
	Passed  = "pass"
	Refused = "refused"
	Failed  = "fail"
	NotRun  = "not run"
)

// appendOutcome appends an outcome with a single write, so that test processes running at the
// same time can share the file.
func appendOutcome(t *testing.T, o Outcome) {
	t.Helper()
	path := os.Getenv(RecordTo)
	if path == "" {
		return
	}
	line, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatalf("record the outcome (%s): %v", RecordTo, err)
	}
	defer f.Close()
	if _, err := f.Write(append(line, '\n')); err != nil {
		t.Fatalf("record the outcome (%s): %v", RecordTo, err)
	}
}
