package plugins

import (
	"os/exec"
	"slices"
	"testing"
	"time"
)

// TestHowAPluginIsStarted: it sees the handshake's variables, the limit of messages and its own environment, and nothing
// of the host's. Its sockets lie in the folder of its session, and the host waits for it longer than a start may take.
func TestHowAPluginIsStarted(t *testing.T) {
	t.Setenv("LIKENESS_TEST_SECRET", "canary")
	p := &Plugin{options: Options{Name: "p", MaxMessageBytes: 12345, StartTimeout: time.Second, Env: []string{"OWN=1"}}.withDefaults()}
	proc, folder := &process{cmd: &exec.Cmd{}}, &scratch{path: "here"}
	c := p.clientConfig(proc, folder)
	if _, err := c.RunnerFunc(nil, &exec.Cmd{Env: []string{"COOKIE=2"}}, ""); err != nil {
		t.Fatal(err)
	}
	if want := []string{"COOKIE=2", "LIKENESS_PLUGIN_MAX_MESSAGE_BYTES=12345", "OWN=1"}; !slices.Equal(proc.cmd.Env, want) {
		t.Errorf("it sees %q, want %q", proc.cmd.Env, want)
	}
	if !c.AutoMTLS || !c.SkipHostEnv || c.StartTimeout != time.Second+goneWithin || c.UnixSocketConfig.TempDir != "here" {
		t.Errorf("%+v", c)
	}
}
