package scorerpython

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/likenessdb/likeness/plugin"
	"github.com/likenessdb/likeness/plugin/plugintest"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/plugins"
)

var question = plugin.Query{Text: "where is my new card"}

func texts(of ...string) []plugin.Item {
	items := make([]plugin.Item, len(of))
	for i, text := range of {
		payload, _ := json.Marshal(map[string]string{"text": text}) // a text can be marshalled
		items[i] = plugin.Item{ID: rerank.UintID(uint64(i)), Payload: payload}
	}
	return items
}

func questions() []plugin.Item {
	return texts("Where is the card I ordered?", "Why was my transfer declined?", "my new card has not come", "What is my PIN?")
}

// TestScorers runs the conformance kit over the two examples.
func TestScorers(t *testing.T) {
	python := interpreter(t)
	for name, args := range map[string][]string{"template": {"scorer.py"}, "ranker": {"ranker.py", "--model", trained(t)}} {
		t.Run(name, func(t *testing.T) {
			plugintest.RunCommand(t, plugintest.Command{
				Path: python, Args: args, Env: []string{"PYTHONDONTWRITEBYTECODE=1"}, Stderr: os.Stderr, StartTimeout: time.Minute,
			}, plugintest.Options{Query: &question, Items: questions()})
		})
	}
}

// trained is the file of a small ranker.
func trained(t testing.TB) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ranker.json")
	cmd := exec.CommandContext(t.Context(), interpreter(t), "train.py", "--out", file, "--queries", "100", "--rounds", "20", "--test", "50")
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Logf("%s", out)
	return file
}

// TestHosted has the sidecar keep the template: from a manifest, and at an address.
func TestHosted(t *testing.T) {
	python, folder := interpreter(t), t.TempDir()
	certificate, pool := certificates(t, folder)
	socket := filepath.Join(folder, "private", "scorer.sock")
	port := freePort(t)
	for name, o := range map[string]plugins.Options{
		"started":       {Path: python, Args: []string{"scorer.py"}, Manifest: manifest(t), Env: []string{"PYTHONDONTWRITEBYTECODE=1"}},
		"at a socket":   {Address: "unix://" + socket},
		"at an address": {Address: port, TLS: &tls.Config{Certificates: certificate, RootCAs: pool, ServerName: "localhost"}},
	} {
		t.Run(name, func(t *testing.T) {
			if o.Address != "" {
				listen := []string{"--listen", o.Address}
				if o.TLS != nil {
					pem := filepath.Join(folder, "cert.pem")
					listen = append(listen, "--tls", pem, filepath.Join(folder, "key.pem"), pem)
				}
				defer listening(t, listen...)()
			}
			kept(t, o)
			if o.TLS != nil {
				refused(t, port, &tls.Config{Certificates: stranger(t), RootCAs: pool, ServerName: "localhost"})
				refused(t, port, &tls.Config{RootCAs: pool, ServerName: "localhost"})
			}
		})
	}
}

// kept has a plugin answer through the sidecar's supervisor.
func kept(t *testing.T, o plugins.Options) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	o.Name, o.StartTimeout, o.HealthTimeout = "python", time.Minute, 10*time.Second
	p, err := plugins.Start(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	scores, err := p.Scorer().Score(ctx, question, questions())
	if err != nil || len(scores) != 4 || scores[2] <= scores[3] {
		t.Errorf("%v, %v", scores, err)
	}
}

// refused sees that the server ends a connection for its certificate.
func refused(t *testing.T, address string, c *tls.Config) {
	t.Helper()
	conn, err := (&tls.Dialer{Config: c}).DialContext(t.Context(), "tcp", address)
	if err == nil {
		_, err = conn.Read(make([]byte, 1)) // with TLS 1.3 the client learns late; whoever is let in reads SETTINGS
		defer conn.Close()
	}
	if err == nil {
		t.Error("a stranger is let in")
	}
}

// manifest writes the output of `sha256sum *.py likeness_plugin/*.py` beside the scorers while the
// test runs.
func manifest(t *testing.T) string {
	t.Helper()
	var lines bytes.Buffer
	for _, pattern := range []string{"*.py", "likeness_plugin/*.py"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatal(pattern, err)
		}
		for _, file := range files {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&lines, "%x  %s\n", sha256.Sum256(b), file)
		}
	}
	f, err := os.CreateTemp(".", "manifest-*.sha256")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(f.Name()) })
	if _, err := f.Write(lines.Bytes()); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return f.Name()
}

// listening runs the template at an address until stop, which sees that SIGTERM ends it.
func listening(t *testing.T, args ...string) (stop func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), interpreter(t), append([]string{"scorer.py"}, args...)...)
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("after SIGTERM: %v", err)
		}
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// certificates makes one for both sides, in cert.pem and key.pem.
func certificates(t *testing.T, folder string) ([]tls.Certificate, *x509.CertPool) {
	t.Helper()
	certificate, key := selfSigned(t)
	for name, b := range map[string][]byte{"cert.pem": certificate, "key.pem": key} {
		if err := os.WriteFile(filepath.Join(folder, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(certificate)
	return []tls.Certificate{pair}, pool
}

func stranger(t *testing.T) []tls.Certificate {
	t.Helper()
	certificate, key := selfSigned(t)
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	return []tls.Certificate{pair}
}

func selfSigned(t *testing.T) (certificate, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), DNSNames: []string{"localhost"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})
}
