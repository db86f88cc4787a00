package chaos_test

import (
	_ "embed"
	"encoding/binary"
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

//go:embed testdata/clock.go.txt
var clockSource []byte

// clockOverlay prepares a build whose time.Now can be set from outside. A Go program asks the
// kernel for the time without the C library, so nothing can intercept it. It returns "" if package
// time differs from the version known here.
func clockOverlay(t *testing.T, folder string) string {
	t.Helper()
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	must(t, err)
	source := filepath.Join(strings.TrimSpace(string(root)), "src", "time")
	text, err := os.ReadFile(filepath.Join(source, "time.go"))
	const now = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	if err != nil || !strings.Contains(string(text), now) {
		t.Logf("a clock that jumps is not tried: package time of %s is not as expected (%v)", runtime.Version(), err)
		return ""
	}
	replaced := filepath.Join(folder, "time.go")
	must(t, os.WriteFile(replaced, []byte(strings.Replace(string(text), now, now+"\tsec += jumped()\n", 1)), 0o600))
	added := filepath.Join(folder, "clock.go")
	must(t, os.WriteFile(added, clockSource, 0o600))
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {
		filepath.Join(source, "time.go"): replaced, filepath.Join(source, "chaos_clock.go"): added}})
	must(t, err)
	file := filepath.Join(folder, "overlay.json")
	must(t, os.WriteFile(file, overlay, 0o600))
	return file
}

// set changes the offset of a sidecar's clock.
func (s *sidecar) set(by time.Duration) error {
	f, err := os.OpenFile(s.clock, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(int64(by/time.Second))), 0)
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}

// clockFault changes a sidecar's clock, and changes it back.
func (w *world) clockFault(t *testing.T, s *sidecar) fault {
	t.Helper()
	return fault{name: "clock jump", target: "clock of " + s.name, lanes: of(s), begin: func() func() {
		jumps := []time.Duration{time.Minute, -time.Minute, time.Hour, -time.Hour, 240 * time.Hour, -240 * time.Hour}
		by := jumps[rand.IntN(len(jumps))]
		jump := func(by time.Duration) {
			w.ledger.inject("clock jump")
			if err := s.set(by); err != nil {
				t.Error(err)
			}
		}
		jump(by)
		return func() { jump(0) }
	}}
}
