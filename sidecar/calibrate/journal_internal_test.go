package calibrate

import (
	"bytes"
	"testing"
)

// FuzzJournal: the entries of a journal are read up to the first damaged line, whatever it holds.
func FuzzJournal(f *testing.F) {
	f.Add([]byte(`{"calibration":"x"}` + "\n" + `{"query":1,"answers":[{"depth":5,"recall":1}]}` + "\n" + `{"query":2,"sca`))
	f.Add([]byte(`{"calibration":"y"}` + "\n"))
	f.Add([]byte("\n{"))
	f.Fuzz(func(t *testing.T, content []byte) {
		j := newJournal()
		valid := j.replay(content, "x")
		if valid < 0 || valid > len(content) || valid > 0 && content[valid-1] != '\n' {
			t.Fatalf("%d of %q is valid", valid, content)
		}
		again := newJournal()
		if got := again.replay(bytes.Clone(content[:valid]), "x"); got != valid {
			t.Fatalf("%d of the valid %q is valid", got, content[:valid])
		}
	})
}
