package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/likenessdb/likeness/sidecar/trial"
)

// adminPorts asks the admin ports of sidecars, by the URLs that --admin lists.
type adminPorts struct {
	client *http.Client
	token  string
}

// adminPorts returns what asks the admin ports at some URLs.
func (f *credentialFlags) adminPorts(urls []string) (*adminPorts, error) {
	secure, err := f.tlsConfig()
	if err != nil {
		return nil, err
	}
	token, err := readToken(f.tokenFile)
	if err != nil {
		return nil, err
	}
	if token != "" {
		warnPlainToken(f.stderr(), urls...)
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: secure, DisableKeepAlives: true} // hours lie between two requests
	return &adminPorts{client: &http.Client{Timeout: time.Minute, Transport: transport}, token: token}, nil
}

// experiments asks a sidecar how its experiments stand.
func (p *adminPorts) experiments(ctx context.Context, admin string) (all []trial.Status, err error) {
	text, err := p.ask(ctx, admin, http.MethodGet, "/experiments", http.StatusOK)
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	return all, err
}

// ask sends a request to an admin port, and returns the body of its answer. Another status than want is an
// error.
func (p *adminPorts) ask(ctx context.Context, admin, method, path string, want int) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(admin, "/")+path, nil)
	if err != nil {
		return nil, usagef("--admin: %w", err)
	}
	if p.token != "" {
		request.Header.Set("Authorization", "Bearer "+p.token)
	}
	answer, err := p.client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("--admin: %w", err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 16<<20))
	if err == nil && answer.StatusCode != want {
		err = fmt.Errorf("--admin %s: %s: %s", admin, answer.Status, shorten(strings.TrimSpace(string(text))))
	}
	return text, err
}
