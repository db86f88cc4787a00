package serve

import (
	"crypto/tls"
	"fmt"
	"net"

	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/server"
)

// guardAdmin secures the admin listener as the configuration says; nil stays nil.
func (s *sidecar) guardAdmin(l config.Listen, listener net.Listener) (net.Listener, error) {
	if listener == nil {
		return nil, nil //nolint:nilnil // there is no admin port
	}
	guard, err := server.NewGuard(s.options.Logger, l.AdminAuth.TokensFile)
	if err != nil {
		return listener, fmt.Errorf("listen.admin_auth: %w", err)
	}
	if l.AdminAuth.TokensFile != "" {
		s.metrics.WatchFiles("admin_tokens", guard.TokensFile)
	}
	guard.Certificates = l.AdminTLS.ClientCAFile != ""
	guard.Open = []string{"/livez", "/readyz", "/healthz"}
	s.admin.Guard(guard.Before)
	if l.AdminTLS.CertFile == "" {
		return listener, nil
	}
	files := s.watchedTLS(l.AdminTLS, "admin")
	files.Optional = true // the guard asks for it, but for probes
	secure, err := files.Listener(s.options.Logger, "http/1.1")
	if err != nil {
		return listener, fmt.Errorf("listen.admin_tls: %w", err)
	}
	return tls.NewListener(listener, secure), nil
}
