package plugins

import (
	"context"
	"crypto/tls"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/likenessdb/likeness/plugin"
)

// TestEndsOfAPlugin: after its first end a plugin is started again at once, after further ones
// after pauses. After the last end that is allowed within a minute it is in quarantine, and then
// counting starts anew.
func TestEndsOfAPlugin(t *testing.T) {
	now := time.Unix(0, 0)
	f := newFlaps(Options{QuarantineAfter: 3, Quarantine: time.Hour})
	for i, c := range []struct {
		after       time.Duration // the end before
		paused      bool
		quarantined bool
	}{
		{0, false, false}, {time.Second, true, false}, {time.Second, false, true},
		{time.Hour, false, false}, {time.Second, true, false},
		{2 * time.Minute, false, false}, // the others were long ago
		{time.Second, true, false}, {59 * time.Second, false, true},
		{time.Hour, false, false}, {30 * time.Second, true, false}, {31 * time.Second, true, false},
	} {
		now = now.Add(c.after)
		wait, quarantined := f.end(now)
		if quarantined != c.quarantined || !quarantined && (wait > 0) != c.paused || quarantined && wait != time.Hour {
			t.Errorf("end %d: wait %s, quarantined %t; want %+v", i, wait, quarantined, c)
		}
	}
	served := newFlaps(Options{Address: "unix:///a/b", QuarantineAfter: 1, Quarantine: time.Hour})
	for range 50 {
		if wait, quarantined := served.end(now); quarantined || wait > time.Second {
			t.Fatalf("one that another party runs: wait %s, quarantined %t", wait, quarantined)
		}
	}
	rested := newFlaps(Options{QuarantineAfter: 100, Quarantine: time.Hour})
	for range 20 {
		rested.end(now)
	}
	rested.end(now.Add(time.Hour))
	if wait, _ := rested.end(now.Add(time.Hour)); wait > 200*time.Millisecond {
		t.Errorf("after an hour the pauses are as long as before: %s", wait)
	}
}

func TestDefaultsOfAPlugin(t *testing.T) {
	o := Options{}.withDefaults()
	if o.StartTimeout != 10*time.Second || o.HealthInterval != 200*time.Millisecond || o.HealthTimeout != 500*time.Millisecond ||
		o.MaxMessageBytes != plugin.MaxMessageBytes || o.QuarantineAfter != 5 || o.Quarantine != time.Minute || o.TempDir != os.TempDir() {
		t.Errorf("%+v", o)
	}
}

// TestFoldersThatOthersReach: a socket must lie in a folder that nobody else may enter.
func TestFoldersThatOthersReach(t *testing.T) {
	folder := t.TempDir()
	for mode, private := range map[os.FileMode]bool{0o700: true, 0o710: false, 0o750: false, 0o701: false, 0o777: false} {
		if err := os.Chmod(folder, mode); err != nil {
			t.Fatal(err)
		}
		if err := checkPrivate(folder); (err == nil) != private || err != nil && !errors.Is(err, errNotPrivate) {
			t.Errorf("mode %o: %v", mode, err)
		}
	}
	if err := checkPrivate(os.Args[0]); !errors.Is(err, errNotPrivate) {
		t.Errorf("a file: %v", err)
	}
}

// TestErrorsOfACall: an error names the plugin's end if that ended the call, and not if the caller
// did.
func TestErrorsOfACall(t *testing.T) {
	p := &Plugin{options: Options{Name: "p", MaxMessageBytes: 7}, changed: make(chan struct{})}
	here, gone := &session{}, &session{}
	p.live.Store(here)
	nobody, left := func() error { return nil }, func() error { return context.Canceled }
	for name, c := range map[string]struct {
		s      *session
		caller func() error
		err    error
		cut    bool   // it is plugin.ErrUnavailable
		say    string // and part of its text
	}{
		"the connection ended":    {here, nobody, status.Error(codes.Unavailable, "EOF"), true, "the call was cut off: EOF"},
		"the session ended":       {gone, nobody, status.Error(codes.Canceled, "closing"), true, "the call was cut off"},
		"cancelled by the plugin": {here, nobody, status.Error(codes.Canceled, "no"), false, "no"},
		"the caller left":         {gone, left, status.Error(codes.Canceled, "context canceled"), false, "context canceled"},
		"too late for the caller": {gone, left, status.Error(codes.Unavailable, "EOF"), false, "EOF"},
		"too large":               {here, nobody, status.Error(codes.ResourceExhausted, "received message larger than max"), false, "raise its max_message_bytes, which is 7"},
		"another error":           {here, nobody, status.Error(codes.Internal, "a fault"), false, "a fault"},
		"none of gRPC's":          {here, nobody, errors.New("odd"), false, "odd"},
	} {
		err := p.translateError(c.s, c.caller, c.err)
		if errors.Is(err, plugin.ErrUnavailable) != c.cut || !strings.Contains(err.Error(), c.say) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := here.answers.Load(); n != 0 {
		t.Errorf("%d errors are signs of life", n)
	}
	if err := p.translateError(here, nobody, nil); err != nil || here.answers.Load() != 1 {
		t.Errorf("an answer is no sign of life: %v", err)
	}
}

// TestStatesAreCopies: the reader of a state does not share its counters.
func TestStatesAreCopies(t *testing.T) {
	p := &Plugin{changed: make(chan struct{}), state: State{PID: 7, Resident: 9, Ends: map[Reason]int64{}}}
	before := p.State()
	changed := p.changed
	p.recordEnd(Hung, errors.New("no answer"))
	after := p.State()
	if len(before.Ends) != 0 || after.Ends[Hung] != 1 || after.Status != Unhealthy || after.LastError != "hung: no answer" || after.PID != 0 || after.Resident != 0 {
		t.Errorf("before %+v, after %+v", before, after)
	}
	select {
	case <-changed:
	default:
		t.Error("nobody is told")
	}
	if got := Reasons(); !slices.Equal(got, []Reason{Crashed, Hung, Memory, Checksum, Failed}) {
		t.Errorf("reasons %v", got)
	}
}

// TestHealthOfAPlugin: a plugin that answers is alive, even if it has no health check.
func TestHealthOfAPlugin(t *testing.T) {
	for name, c := range map[string]struct {
		status grpc_health_v1.HealthCheckResponse_ServingStatus
		err    error
		other  bool // another call is answered meanwhile
		want   Reason
	}{
		"serving":             {grpc_health_v1.HealthCheckResponse_SERVING, nil, false, ""},
		"not serving":         {grpc_health_v1.HealthCheckResponse_NOT_SERVING, nil, false, Hung},
		"no such service":     {0, status.Error(codes.Unimplemented, ""), false, ""},
		"no such name":        {0, status.Error(codes.NotFound, ""), false, ""},
		"no answer":           {0, status.Error(codes.DeadlineExceeded, ""), false, Hung},
		"busy with a call":    {0, status.Error(codes.DeadlineExceeded, ""), true, ""},
		"the connection ends": {0, status.Error(codes.Unavailable, ""), false, Crashed},
	} {
		s := &session{}
		conn, err := grpc.NewClient("passthrough:///x", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithUnaryInterceptor(
			func(_ context.Context, _ string, _, reply any, _ *grpc.ClientConn, _ grpc.UnaryInvoker, _ ...grpc.CallOption) error {
				if c.other {
					s.answers.Add(1)
				}
				reply.(*grpc_health_v1.HealthCheckResponse).Status = c.status
				return c.err
			}))
		if err != nil {
			t.Fatal(err)
		}
		s.conn = conn
		reason, err := (&Plugin{options: Options{HealthTimeout: time.Minute}}).probe(t.Context(), s)
		if reason != c.want || (err != nil) != (c.want != "") {
			t.Errorf("%s: %q, %v; want %q", name, reason, err, c.want)
		}
		_ = conn.Close()
	}
}

// TestAddressesOfOtherMachines: addresses of other machines need certificates on both sides.
func TestAddressesOfOtherMachines(t *testing.T) {
	ours := &tls.Config{Certificates: make([]tls.Certificate, 1)}
	for name, c := range map[string]struct {
		address string
		tls     *tls.Config
		ok      bool
	}{
		"a socket":            {"unix:///a/b", nil, true},
		"with certificates":   {"host:1", ours, true},
		"one by one":          {"host:1", &tls.Config{GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return nil, nil }}, true}, //nolint:nilnil // nothing connects
		"without TLS":         {"host:1", nil, false},
		"without one of ours": {"host:1", &tls.Config{}, false},
		"no port":             {"host", ours, false},
	} {
		if _, err := (Options{Address: c.address, TLS: c.tls}).target(); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSweep: a folder without a lock holder is removed once it is old enough to have been locked.
func TestSweep(t *testing.T) {
	parent := t.TempDir()
	fresh, old := filepath.Join(parent, scratchPrefix+"fresh"), filepath.Join(parent, scratchPrefix+"old")
	for folder, age := range map[string]time.Duration{fresh: 0, old: 2 * scratchAge} {
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		lock := filepath.Join(folder, scratchLock)
		if err := os.WriteFile(lock, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		then := time.Now().Add(-age)
		if err := os.Chtimes(lock, then, then); err != nil {
			t.Fatal(err)
		}
	}
	sweep(parent)
	if _, err := os.Stat(fresh); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(old); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a folder that nobody holds: %v", err)
	}
}
