package plugin

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
)

// TLS names the files for mutual TLS: the plugin's certificate and key, and the certificate
// authority of hosts that may connect.
type TLS struct{ CertFile, KeyFile, ClientCAFile string }

// listening describes how a plugin serves at an address.
type listening struct {
	address string
	tls     TLS
}

// Listen makes a plugin serve at an address instead of the handshake:
// unix:///path/of/a.sock in a folder that only its owner can enter (created if missing), or
// host:port with mutual TLS. The plugin then also ends on SIGINT or SIGTERM. An empty
// address changes nothing.
func Listen(address string, t TLS) Option {
	return func(s *serving) { s.listen = &listening{address, t} }
}

// ListenFlags adds -listen, -tls-cert, -tls-key and -tls-client-ca to a program's flags. It
// returns the Listen option for the values that the flags have when the plugin serves.
func ListenFlags(flags *flag.FlagSet) Option {
	l := &listening{}
	flags.StringVar(&l.address, "listen", "", "serve at this address instead of being started by likeness: unix:///path/of/a.sock or host:port")
	flags.StringVar(&l.tls.CertFile, "tls-cert", "", "file of the certificate, at host:port")
	flags.StringVar(&l.tls.KeyFile, "tls-key", "", "file of its key")
	flags.StringVar(&l.tls.ClientCAFile, "tls-client-ca", "", "file of the authority of likeness's certificate")
	return func(s *serving) { s.listen = l }
}

func (l *listening) serve(ctx context.Context, s *serving, name string, services []Service) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	listener, options, err := l.open(ctx)
	if err != nil {
		return fmt.Errorf("%s at %s: %w", name, l.address, err)
	}
	server := s.server(options)
	for _, service := range services {
		service.Register(server)
	}
	state := health.NewServer()
	state.SetServingStatus(goplugin.GRPCServiceName, grpc_health_v1.HealthCheckResponse_SERVING)
	grpc_health_v1.RegisterHealthServer(server, state)
	reflection.Register(server)
	defer context.AfterFunc(ctx, server.GracefulStop)()
	s.log.Info("serving", "what", name, "address", l.address)
	if err := server.Serve(listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("%s at %s: %w", name, l.address, err)
	}
	return nil
}

func (l *listening) open(ctx context.Context) (net.Listener, []grpc.ServerOption, error) {
	var config net.ListenConfig
	if path, ok := strings.CutPrefix(l.address, "unix://"); ok {
		if err := ensurePrivateDir(filepath.Dir(path)); err != nil {
			return nil, nil, err
		}
		if err := removeStale(ctx, path); err != nil {
			return nil, nil, err
		}
		listener, err := config.Listen(ctx, "unix", path)
		return listener, nil, err
	}
	t, err := l.tls.config()
	if err != nil {
		return nil, nil, err
	}
	listener, err := config.Listen(ctx, "tcp", l.address)
	return listener, []grpc.ServerOption{grpc.Creds(credentials.NewTLS(t))}, err
}

// ensurePrivateDir creates a folder that only its owner can enter, or checks that an
// existing one is private.
func ensurePrivateDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return fmt.Errorf("the folder %s has the mode %#o and others could connect; use one of mode 0700", dir, mode)
	}
	return nil
}

// removeStale removes a socket that no process serves any more.
func removeStale(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode()&fs.ModeSocket == 0 {
		return fmt.Errorf("%s is there and not a socket; remove it or choose another path", path)
	}
	var dialer net.Dialer
	if conn, err := dialer.DialContext(ctx, "unix", path); err == nil {
		_ = conn.Close()
		return fmt.Errorf("%s is served by another process; end it or choose another path", path)
	}
	return os.Remove(path)
}

func (t TLS) config() (*tls.Config, error) {
	if t.CertFile == "" || t.KeyFile == "" || t.ClientCAFile == "" {
		return nil, errors.New("an address that others can reach needs mutual TLS: give certificate, key and client authority, or a unix:// address")
	}
	pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
	if err != nil {
		return nil, err
	}
	pem, err := os.ReadFile(t.ClientCAFile)
	if err != nil {
		return nil, err
	}
	c := &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: x509.NewCertPool(),
	}
	if !c.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate", t.ClientCAFile)
	}
	return c, nil
}
