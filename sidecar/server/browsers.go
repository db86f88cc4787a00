package server

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
)

// Browsers keeps pages of other sites away from an HTTP listener. A browser on a machine that can
// reach the listener could otherwise send requests for such a page. The zero value is not valid;
// use NewBrowsers.
type Browsers struct {
	crossOrigin *http.CrossOriginProtection
	checkHost   bool
	names       []string
}

// NewBrowsers makes a check of the Origin and Sec-Fetch-Site headers. With checkHost it also
// requires the Host header to be an address, localhost, or one of the names. A listener that asks
// for no credentials needs that: it trusts everybody who reaches it, and the owner of any other
// name can make the name point at the listener (DNS rebinding).
func NewBrowsers(checkHost bool, names ...string) *Browsers {
	lower := make([]string, len(names))
	for i, name := range names {
		lower[i] = strings.ToLower(name)
	}
	return &Browsers{crossOrigin: http.NewCrossOriginProtection(), checkHost: checkHost, names: lower}
}

// Check returns ErrForeign for a request that another site's page may have made.
func (b *Browsers) Check(r *http.Request) error {
	if b.crossOrigin.Check(r) != nil || embedded(r) {
		return fmt.Errorf("%w: send the request from a program, not from a page in a browser", ErrForeign)
	}
	if b.checkHost && !b.allowed(r.Host) {
		return fmt.Errorf("%w: without credentials the Host must be an address or localhost; add the name to listen.allowed_hosts, or give the listener a tokens file", ErrForeign)
	}
	return nil
}

// embedded reports whether another site's page loads r as a part of itself, such as an image.
// Opening a link is allowed: the page with the link sees nothing of the answer.
func embedded(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return (site == "cross-site" || site == "same-site") && r.Header.Get("Sec-Fetch-Mode") != "navigate"
}

// allowed reports whether the Host header can be trusted. An address can, because nobody can make
// it point elsewhere.
func (b *Browsers) allowed(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return host == "localhost" || net.ParseIP(strings.Trim(host, "[]")) != nil || slices.Contains(b.names, host)
}

// Before answers 403 to the requests that Check refuses, and passes the others to next.
func (b *Browsers) Before(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := b.Check(r); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
