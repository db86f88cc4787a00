package plugins

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

const unixScheme = "unix://"

// target returns the address in the form that gRPC expects.
func (o Options) target() (string, error) {
	if path, ok := strings.CutPrefix(o.Address, unixScheme); ok {
		if !filepath.IsAbs(path) {
			return "", fmt.Errorf("%s is not unix:///folder/socket", o.Address)
		}
		return o.Address, nil
	}
	if host, port, err := net.SplitHostPort(o.Address); err != nil || host == "" || port == "" {
		return "", fmt.Errorf("%s is neither unix:///folder/socket nor host:port", o.Address)
	}
	if o.TLS == nil || len(o.TLS.Certificates) == 0 && o.TLS.GetClientCertificate == nil {
		return "", fmt.Errorf("%s takes certificates on both sides: give tls with ca_file, cert_file and key_file", o.Address)
	}
	return "dns:///" + o.Address, nil
}

// connect connects to a plugin that another party runs.
func (p *Plugin) connect(context.Context) (*session, error) {
	target, err := p.options.target()
	if err != nil {
		return nil, err
	}
	if path, ok := strings.CutPrefix(target, unixScheme); ok {
		if err := checkPrivate(filepath.Dir(path)); err != nil {
			return nil, err
		}
	}
	secure := insecure.NewCredentials() // sufficient for a socket that nobody else can reach
	if p.options.TLS != nil {
		secure = credentials.NewTLS(p.options.TLS.Clone())
	}
	c, err := grpc.NewClient(target, append(p.options.dialOptions(), grpc.WithTransportCredentials(secure))...)
	if err != nil {
		return nil, err
	}
	return &session{conn: c, end: c.Close}, nil
}

// errNotPrivate: other users could replace the plugin's socket by their own.
var errNotPrivate = errors.New("folder of the socket is not private")

// checkPrivate returns an error unless only the current user can access the folder.
func checkPrivate(folder string) error {
	info, err := os.Lstat(folder)
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%w: %s is no folder", errNotPrivate, folder)
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("%w: %s has mode %04o: chmod 0700 it", errNotPrivate, folder, info.Mode().Perm())
	case !isOurs(info):
		return fmt.Errorf("%w: %s belongs to another user than this process's", errNotPrivate, folder)
	default:
		return nil
	}
}
