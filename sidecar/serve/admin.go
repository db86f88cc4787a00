package serve

import (
	"fmt"

	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/server"
)

// guardAdmin sets up the protection of the admin port that the configuration demands, and reads the
// certificate of its listener.
func (s *sidecar) guardAdmin(l config.Listen) error {
	guard, err := server.NewGuard(s.options.Logger, l.AdminAuth.TokensFile)
	if err != nil {
		return fmt.Errorf("listen.admin_auth: %w", err)
	}
	if l.AdminAuth.TokensFile != "" {
		s.metrics.WatchFiles("admin_tokens", guard.TokensFile)
	}
	guard.Certificates = l.AdminTLS.ClientCAFile != ""
	guard.Open = []string{"/livez", "/readyz", "/healthz"}
	s.admin.Guard(guard.Before)
	unguarded := l.AdminAuth.TokensFile == "" && !guard.Certificates
	s.admin.Guard(server.NewBrowsers(unguarded, hostNames(l, l.Admin)...).Before) // runs before the guard
	if l.AdminTLS.CertFile == "" {
		return nil
	}
	files := s.watchedTLS(l.AdminTLS, "admin")
	files.Optional = true // the guard demands a certificate, except from health probes
	if s.adminTLS, err = files.Listener(s.options.Logger, "http/1.1"); err != nil {
		return fmt.Errorf("listen.admin_tls: %w", err)
	}
	return nil
}
