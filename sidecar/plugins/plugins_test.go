package plugins_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/likenessdb/likeness/plugin"
	"github.com/likenessdb/likeness/sidecar/plugins"
	"github.com/likenessdb/likeness/sidecar/plugins/faulty"
)

func TestAPluginAnswersUntilClose(t *testing.T) {
	log := &logged{}
	o := options(t, "-say", strings.Repeat("much ado ", 1000), "-version", "7")
	o.Logger = log.logger()
	p := start(t, o)
	ready(t, p)
	answers(t, p)
	s := p.State()
	if s.Status != plugins.Ready || s.PID == 0 || s.Version != "7" || s.Restarts != 0 {
		t.Errorf("%+v", s)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if s := p.State(); s.Status != plugins.Stopped || s.PID != 0 {
		t.Errorf("%+v", s)
	}
	_, err := score(t.Context(), p, items(1))
	unavailable(t, err, `plugin "ranker" is stopped`)
	unavailable(t, p.Ready(t.Context()), "stopped")
	for _, want := range []string{"plugin=ranker", "stream=stderr", "much ado much", "bytes more)", "plugin ready"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no %q in the log", want)
		}
	}
	for line := range strings.Lines(log.String()) {
		if len(line) > 4500 {
			t.Errorf("a line of %d bytes in the log", len(line))
		}
	}
}

func TestNothingOfTheHostsEnvironment(t *testing.T) {
	t.Setenv("HOST_SECRET", "x")
	o := options(t, "-env")
	o.Env = []string{"GIVEN=1"}
	p := start(t, o)
	ready(t, p)
	d, err := p.Scorer().Describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(d.Name, "HOST_SECRET") || strings.Contains(d.Name, "PATH") || !strings.Contains(d.Name, "GIVEN") {
		t.Errorf("the plugin sees %s", d.Name)
	}
}

func TestMessagesAreBounded(t *testing.T) {
	o := options(t)
	o.MaxMessageBytes = 64 << 10
	p := start(t, o)
	ready(t, p)
	large := items(1)
	large[0].Payload = []byte(`"` + strings.Repeat("x", 100<<10) + `"`)
	_, err := score(t.Context(), p, large)
	if !errors.Is(err, plugin.ErrTooLarge) || !strings.Contains(err.Error(), "max_message_bytes, which is 65536") {
		t.Errorf("%v", err)
	}
	answers(t, p)

	o = options(t, "-pad", "100000")
	o.MaxMessageBytes = 64 << 10
	s := until(t, start(t, o), "an end", ended(plugins.Failed))
	if !strings.Contains(s.LastError, "larger than max") {
		t.Errorf("%q", s.LastError)
	}
}

func TestACallForTheStateOfAStream(t *testing.T) {
	p := start(t, options(t))
	ready(t, p)
	watch, err := grpc_health_v1.NewHealthClient(p.Conn()).Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: "plugin"})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := watch.Recv(); err != nil || r.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Fatalf("%v, %v", r, err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = watch.Recv()
	unavailable(t, err, "cut off")
	_, err = grpc_health_v1.NewHealthClient(p.Conn()).Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	unavailable(t, err, "stopped")
}

func TestOnesThatDoNotStart(t *testing.T) {
	for name, c := range map[string]struct {
		args  []string
		path  string
		after time.Duration // start_timeout
		say   string
	}{
		"it says why":      {args: []string{"-fault", faulty.NoStart}, say: "it ended before it was ready: exit status 1; its last words: no model here"},
		"slow":             {args: []string{"-fault", faulty.SlowStart, "-delay", "1h", "-say", "loading"}, after: 5 * time.Second, say: "not ready within start_timeout, which is 5s: context deadline exceeded; its last words: loading"},
		"no such file":     {path: "no-such-file", say: "no such file"},
		"not executable":   {path: "plugins_test.go", say: "it has to be executable"},
		"no plugin at all": {path: "/bin/sh", args: []string{"-c", "echo its own words; sleep 1000"}, say: "its own words"},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t, c.args...)
			if c.path != "" {
				o.Path, o.Args = c.path, c.args
			}
			if c.after > 0 {
				o.StartTimeout = c.after
			}
			o.QuarantineAfter, o.Quarantine = 1, time.Hour
			p := start(t, o)
			unavailable(t, p.Ready(t.Context()), `plugin "ranker" is quarantined`, c.say)
			if s := p.State(); s.Ends[plugins.Failed] != 1 || s.PID != 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}

func TestCloseDoesNotWaitForAStart(t *testing.T) {
	o := options(t, "-fault", faulty.SlowStart, "-delay", "1h")
	o.StartTimeout = time.Hour
	p := start(t, o)
	unavailable(t, inTime(t, p.Ready), "starting")
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// inTime calls f with a deadline that is soon.
func inTime(t *testing.T, f func(ctx context.Context) error) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	err := f(ctx)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	return err
}

func TestOptionsThatContradictThemselves(t *testing.T) {
	good := plugins.Options{Name: "ranker", Path: "x"}
	for name, change := range map[string]func(o *plugins.Options){
		"no name":       func(o *plugins.Options) { o.Name = "" },
		"neither":       func(o *plugins.Options) { o.Path = "" },
		"both":          func(o *plugins.Options) { o.Address = "unix:///a/b" },
		"sha256":        func(o *plugins.Options) { o.SHA256 = "abc" },
		"env":           func(o *plugins.Options) { o.Env = []string{"A"} },
		"negative":      func(o *plugins.Options) { o.Memory = -1 },
		"no socket":     func(o *plugins.Options) { o.Path, o.Address = "", "unix://a/b" },
		"no port":       func(o *plugins.Options) { o.Path, o.Address = "", "host" },
		"plain TCP":     func(o *plugins.Options) { o.Path, o.Address = "", "127.0.0.1:1" },
		"sum of nobody": func(o *plugins.Options) { o.Path, o.Address, o.Manifest = "", "unix:///a/b", "m" },
	} {
		t.Run(name, func(t *testing.T) {
			o := good
			change(&o)
			p, err := plugins.Start(t.Context(), o)
			if !errors.Is(err, plugins.ErrOptions) {
				t.Errorf("%v, %v", p, err)
			}
		})
	}
}

func TestOneThatEndsAllTheTimeIsLeftAloneForAWhile(t *testing.T) {
	log := &logged{}
	flag := t.TempDir() + "/well"
	o := options(t, "-fault", faulty.NoStart, "-until", flag)
	o.QuarantineAfter, o.Quarantine, o.Logger = 2, 300*time.Millisecond, log.logger()
	p := start(t, o)
	until(t, p, "quarantined", func(s plugins.State) bool { return s.Status == plugins.Quarantined })
	_, err := score(t.Context(), p, items(1))
	unavailable(t, err, "quarantined", "no model here")
	if err := os.WriteFile(flag, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	answers(t, p)
	if s := p.State(); s.Ends[plugins.Failed] < 2 || s.Restarts < 2 {
		t.Errorf("%+v", s)
	}
	if !strings.Contains(log.String(), "plugin quarantined") {
		t.Errorf("the log does not say it: %s", log.String())
	}
}
