//go:build unix

package plugins_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

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
	_ = serveAt(t, "-listen", address, "-tls-cert", good.file("plugin.crt"), "-tls-key", good.file("plugin.key"), "-tls-client-ca", good.file("ca.crt"))

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

// authority signs a certificate for each side of 127.0.0.1.
type authority struct {
	t      *testing.T
	folder string
	pool   *x509.CertPool
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	a := authority{t, t.TempDir(), x509.NewCertPool()}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	key := a.key()
	ca := a.sign(template, template, key, key, "ca")
	a.pool.AddCert(ca)
	for _, side := range []string{"plugin", "host"} {
		own := a.key()
		a.sign(&x509.Certificate{
			SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: side}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
			NotBefore: template.NotBefore, NotAfter: template.NotAfter, KeyUsage: x509.KeyUsageDigitalSignature,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		}, ca, own, key, side)
	}
	return a
}

func (a authority) key() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	return key
}

// sign writes name.crt and name.key.
func (a authority) sign(template, parent *x509.Certificate, own, by *ecdsa.PrivateKey, name string) *x509.Certificate {
	a.t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, own.Public(), by)
	if err != nil {
		a.t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(own)
	if err != nil {
		a.t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{".crt": {Type: "CERTIFICATE", Bytes: der}, ".key": {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(a.file(name+file), pem.EncodeToMemory(block), 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return c
}

func (a authority) file(name string) string { return filepath.Join(a.folder, name) }

// client is a host of this authority that trusts plugins of another.
func (a authority) client(of authority) *tls.Config {
	a.t.Helper()
	pair, err := tls.LoadX509KeyPair(a.file("host.crt"), a.file("host.key"))
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
