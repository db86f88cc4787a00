package server

import (
	"log/slog"
	"net/http"
	"net/netip"
	"path"
	"slices"
	"strings"
)

// Guard checks requests before they reach the handler of a listener for operators.
type Guard struct {
	// Certificates demands a verified client certificate.
	Certificates bool
	// Open lists the paths that need neither certificate nor token: health probes have none.
	Open []string

	tokens *watched[*tokens] // nil if no token is needed
}

// NewGuard returns a Guard with the tokens of a file, which is read again when it changes. With ""
// it needs no tokens. It returns ErrTokens.
func NewGuard(log *slog.Logger, tokensFile string) (*Guard, error) {
	w, err := (&services{log: log}).watchTokens(tokensFile)
	return &Guard{tokens: w}, err
}

// Before answers 401 to a request without a required certificate or token, and 403 if the token's
// caller is not an admin of all routes. It passes other requests to next. If neither a certificate
// nor a token is required, callers on other machines may only read, and may not read profiles: they
// get 403.
func (g *Guard) Before(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		open := slices.Contains(g.Open, r.URL.Path)
		if !open && g.Certificates && (r.TLS == nil || len(r.TLS.VerifiedChains) == 0) {
			http.Error(w, "a client certificate is required", http.StatusUnauthorized)
			return
		}
		if !open && g.tokens != nil {
			caller, err := g.tokens.get().caller(r.Header.Values("Authorization"))
			if err != nil {
				w.Header().Set("WWW-Authenticate", "Bearer")
				http.Error(w, "send the header authorization: Bearer with a token of listen.admin_auth.tokens_file", http.StatusUnauthorized)
				return
			}
			if !caller.Admin || len(caller.Routes) > 0 {
				http.Error(w, "the admin port takes a caller with admin: true and without routes", http.StatusForbidden)
				return
			}
		}
		if !g.Certificates && g.tokens == nil && !readsStatus(r) && !isLocal(r) {
			http.Error(w, "only callers on this machine may do that: set listen.admin_auth.tokens_file, or listen.admin_tls.client_ca_file", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// readsStatus reports whether a request changes nothing and reads no profile. Profiles can contain
// queries and keys.
func readsStatus(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && !strings.HasPrefix(path.Clean("/"+r.URL.Path), "/debug")
}

// isLocal reports whether a request comes from this machine.
func isLocal(r *http.Request) bool {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && from.Addr().IsLoopback()
}
