package wiring

import (
	"bytes"
	"crypto/tls"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/likenessdb/likeness/internal/authority"
	"github.com/likenessdb/likeness/sidecar/config"
)

// TestClientCertificates: every handshake presents the certificate that the files hold now, and
// the last one while they cannot be read.
func TestClientCertificates(t *testing.T) {
	dir := t.TempDir()
	ca, err := authority.New("ours")
	if err != nil {
		t.Fatal(err)
	}
	issue := func(serial int64) (certificate []byte, s config.StoreTLS) {
		pair, err := ca.Issue(serial, "likeness", time.Now().Add(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		read, err := pair.TLS()
		if err != nil {
			t.Fatal(err)
		}
		s = config.StoreTLS{Enabled: true, CAFile: filepath.Join(dir, "ca.pem"), ServerName: "other.example"}
		if s.CertFile, s.KeyFile, err = pair.Write(dir, "client"); err != nil {
			t.Fatal(err)
		}
		return read.Certificate[0], s
	}
	first, s := issue(1)
	if err := authority.Write(s.CAFile, ca.PEM()); err != nil {
		t.Fatal(err)
	}
	secure, err := StoreTLS(s)
	if err != nil || secure.ServerName != "other.example" || secure.MinVersion != tls.VersionTLS12 || !secure.RootCAs.Equal(authority.Pool(ca)) {
		t.Fatalf("%+v, %v", secure, err)
	}
	presents := func(want []byte, when string) {
		t.Helper()
		got, err := secure.GetClientCertificate(nil)
		if err != nil || len(got.Certificate) == 0 || !bytes.Equal(got.Certificate[0], want) {
			t.Errorf("%s: another certificate is presented, or none; %v", when, err)
		}
	}
	presents(first, "at first")
	second, _ := issue(2)
	presents(second, "renewed")
	if err := os.WriteFile(s.KeyFile, []byte("half of it"), 0o600); err != nil {
		t.Fatal(err)
	}
	presents(second, "in the middle of a renewal")
	third, _ := issue(3)
	presents(third, "after it")
}

// TestTLSFilesThatCannotBeUsed: they are errors of the configuration that name the key.
func TestTLSFilesThatCannotBeUsed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]config.StoreTLS{
		"no authorities":     {Enabled: true, CAFile: file},
		"missing":            {Enabled: true, CAFile: file + " gone"},
		"no certificate":     {Enabled: true, CertFile: file, KeyFile: file},
		"TLS is not enabled": {CAFile: file, CertFile: file, KeyFile: file},
	} {
		if secure, err := StoreTLS(s); secure != nil || errors.Is(err, config.ErrConfig) != s.Enabled {
			t.Errorf("%s: %v, %v", name, secure, err)
		}
	}
	if secure, err := StoreTLS(config.StoreTLS{Enabled: true}); err != nil || secure == nil || secure.RootCAs != nil || secure.GetClientCertificate != nil {
		t.Errorf("without files: %+v, %v", secure, err)
	}
}
