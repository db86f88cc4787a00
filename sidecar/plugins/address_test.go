//go:build unix

package plugins_test

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/likenessdb/likeness/internal/authority"
	"github.com/likenessdb/likeness/sidecar/plugins"
)

func at(t *testing.T, address string, secure *tls.Config) plugins.Options {
	t.Helper()
	o := options(t)
	o.Path, o.Args, o.Address, o.TLS = "", nil, address, secure
	return o
}

func TestASocketInAFolderOfOurs(t *testing.T) {
	folder := filepath.Join(options(t).TempDir, "s")
	address := "unix://" + folder + "/a"
	kill := serveAt(t, "-listen", address)
	t.Cleanup(func() { os.RemoveAll(folder) })
	p := start(t, at(t, address, nil))
	answers(t, p)
	kill()
	until(t, p, "lost", ended(plugins.Crashed))
	_, err := score(t.Context(), p, items(1))
	unavailable(t, err)
	_ = serveAt(t, "-listen", address, "-version", "2")
	answers(t, p)
	if s := until(t, p, "the second", func(s plugins.State) bool { return s.Version == "2" }); s.PID != 0 || s.Address != address || s.Status != plugins.Ready {
		t.Errorf("%+v", s)
	}

	if err := os.Chmod(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	s := until(t, start(t, at(t, address, nil)), "refused", ended(plugins.Failed))
	if want := "has mode 0755: chmod 0700 it"; !contains(s.LastError, want) {
		t.Errorf("%q does not say %q", s.LastError, want)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(folder, link); err != nil {
		t.Fatal(err)
	}
	s = until(t, start(t, at(t, "unix://"+link+"/a", nil)), "refused", ended(plugins.Failed))
	if !contains(s.LastError, "is no folder") {
		t.Errorf("%q", s.LastError)
	}
}

func TestCertificatesOnBothSides(t *testing.T) {
	good, other := newAuthority(t), newAuthority(t)
	address := freePort(t)
	_ = serveAt(t, "-listen", address, "-tls-cert", good.file("plugin.pem"), "-tls-key", good.file("plugin.key"), "-tls-client-ca", good.file("ca.pem"))

	p := start(t, at(t, address, good.client(good)))
	answers(t, p)
	for name, c := range map[string]struct {
		secure *tls.Config
		say    string
	}{
		"its authority is another": {good.client(other), "certificate signed by unknown authority"},
		"ours is another":          {other.client(good), "start: "}, // the plugin says it, or hangs up first
	} {
		t.Run(name, func(t *testing.T) {
			s := until(t, start(t, at(t, address, c.secure)), "refused", ended(plugins.Failed))
			if !contains(s.LastError, c.say) {
				t.Errorf("%q does not say %q", s.LastError, c.say)
			}
		})
	}
}

// certifier has signed a certificate of 127.0.0.1 for each side, in files.
type certifier struct {
	t      *testing.T
	folder string
	pool   *x509.CertPool
}

func newAuthority(t *testing.T) certifier {
	t.Helper()
	ca, err := authority.New("authority")
	must(t, err)
	a := certifier{t, t.TempDir(), authority.Pool(ca)}
	must(t, authority.Write(a.file("ca.pem"), ca.PEM()))
	for i, side := range []string{"plugin", "host"} {
		pair, err := ca.Issue(int64(i+2), "", time.Now().Add(time.Hour))
		must(t, err)
		_, _, err = pair.Write(a.folder, side)
		must(t, err)
	}
	return a
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (a certifier) file(name string) string { return filepath.Join(a.folder, name) }

// client is a host of this authority that trusts plugins of another.
func (a certifier) client(of certifier) *tls.Config {
	a.t.Helper()
	pair, err := tls.LoadX509KeyPair(a.file("host.pem"), a.file("host.key"))
	if err != nil {
		a.t.Fatal(err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: of.pool, Certificates: []tls.Certificate{pair}}
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
