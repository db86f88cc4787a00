package serve_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestAdminAndRESTRefuseOtherSites calls every path of the admin port and of the API as pages of
// other sites could: by a name that was pointed at the listener, and from another origin. Probes
// and scrapes by address, and by an allowed name, are answered.
func TestAdminAndRESTRefuseOtherSites(t *testing.T) {
	s := start(t, strings.Replace(base, "listen: {", `listen: {rest: "127.0.0.1:0", allowed_hosts: [likeness.monitoring.svc], `, 1), true)
	_, admin, _ := strings.Cut(s.at.Admin, ":")
	_, rest, _ := strings.Cut(s.at.REST, ":")
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	ask := func(t *testing.T, at, method, path, host string, header map[string]string) int {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+at+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		for name, value := range header {
			r.Header.Set(name, value)
		}
		answer, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		_, _ = io.Copy(io.Discard, answer.Body)
		return answer.StatusCode
	}
	paths := []string{"GET /v1/routes"}
	for _, path := range append(adminPaths(), "GET /livez", "GET /readyz", "GET /healthz") {
		if !strings.HasSuffix(path, "/profile") && !strings.HasSuffix(path, "/trace") { // these take long
			paths = append(paths, path)
		}
	}
	refused := map[string]struct {
		host   string
		header map[string]string
	}{
		"a name that points here":             {host: "rebound.example"},
		"the same with our port":              {host: "rebound.example:" + admin, header: map[string]string{"Origin": "http://rebound.example:" + admin, "Sec-Fetch-Site": "same-origin"}},
		"a name that begins as an address":    {host: "127.0.0.1.rebound.example:" + admin},
		"a name that begins as an allowed":    {host: "likeness.monitoring.svc.rebound.example"},
		"a name that ends as localhost":       {host: "rebound.localhost.example"},
		"an image of another site's page":     {host: "127.0.0.1:" + admin, header: map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}},
		"a script of another site's page":     {host: "127.0.0.1:" + admin, header: map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors", "Origin": "https://other.example"}},
		"a page of another port of this site": {host: "127.0.0.1:" + admin, header: map[string]string{"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"}},
	}
	allowed := map[string]struct {
		host   string
		header map[string]string
	}{
		"an address":                {host: "127.0.0.1:" + admin},
		"a pod's address":           {host: "10.1.2.3:7601"},
		"an address of IPv6":        {host: "[fd00::1]:7601"},
		"an address without a port": {host: "10.1.2.3"},
		"localhost":                 {host: "localhost:" + admin},
		"an allowed name":           {host: "likeness.monitoring.svc:7601"},
		"the same in capitals":      {host: "Likeness.Monitoring.SVC:7601"},
		"its absolute form":         {host: "likeness.monitoring.svc.:7601"},
	}
	for _, line := range paths {
		method, path, _ := strings.Cut(line, " ")
		at := "127.0.0.1:" + admin
		if strings.HasPrefix(path, "/v1/") {
			at = "127.0.0.1:" + rest
		}
		for name, c := range refused {
			if code := ask(t, at, method, path, c.host, c.header); code != http.StatusForbidden {
				t.Errorf("%s by %s: %d, want 403", line, name, code)
			}
		}
		for name, c := range allowed {
			if code := ask(t, at, method, path, c.host, c.header); code == http.StatusForbidden {
				t.Errorf("%s by %s: 403", line, name)
			}
		}
	}
	for _, at := range []string{"127.0.0.1:" + admin, "127.0.0.1:" + rest} {
		if code := ask(t, at, "POST", "/", "127.0.0.1:"+admin, map[string]string{"Origin": "https://other.example"}); code != http.StatusForbidden {
			t.Errorf("a form of another site's page: %d", code)
		}
	}
	link := map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
	if code := ask(t, "127.0.0.1:"+admin, "GET", "/", "127.0.0.1:"+admin, link); code != http.StatusOK {
		t.Errorf("a link to the page: %d", code)
	}
	s.stop()
	if err := s.wait(); err != nil {
		t.Error(err)
	}
}
