package harness

import (
	"encoding/json"
	"fmt"
	"os"
)

// RecordTo is the environment variable with the file to which Record appends results as lines of
// JSON; `make compatibility` sets it.
const RecordTo = "LIKENESS_PROXY_CONFORMANCE"

// Result compares the runs of one client's scenario on one server.
type Result struct {
	Client   string   `json:"client"`
	Server   string   `json:"server"`
	Version  string   `json:"version"`
	Steps    []string `json:"steps"`    // names
	Requests int      `json:"requests"` // distinct requests that reached the proxy
	// Differences counts steps whose outcomes differ between a direct run and one through the
	// proxy. Bytes counts calls that differ between the two sides of the proxy. Direct counts steps
	// that differ between two direct runs.
	Differences int `json:"differences"`
	Bytes       int `json:"bytes"`
	Direct      int `json:"direct"`
}

// Record appends a result to the file that RecordTo names, if it is set.
func Record(r Result) error {
	path := os.Getenv(RecordTo)
	if path == "" {
		return nil
	}
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("record the result (%s): %w", RecordTo, err)
	}
	if _, err = f.Write(append(line, '\n')); err != nil {
		f.Close()
		return fmt.Errorf("record the result (%s): %w", RecordTo, err)
	}
	return f.Close()
}
