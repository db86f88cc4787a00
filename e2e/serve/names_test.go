package serve_test

import (
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/rerank/model"
)

// hostile returns names that would lead out of a folder, or share one, if they were used as paths.
func hostile(outside string) []string {
	return []string{
		"..", ".", "../outside", "../../../../etc/passwd", "/etc/passwd", outside, "things/../outside", "v1/../../outside",
		`..\outside`, `\\host\share`, "C:\\outside", "%2e%2e/outside", "%2e%2e%2foutside", "%252e%252e%252foutside", "..%2foutside",
		"..%00", "v1\x00", "v1\n", "..\u2215outside", "\uff0e\uff0e\uff0foutside", "\u2024\u2024/outside", "..\u00a0/outside", "V1", "v1.", "v1 ", " v1", "v1/", "./v1", "CON", "NUL", "~root",
		strings.Repeat("../", 80) + "outside", strings.Repeat("v", 5000), "file:///etc/passwd", "v1?x=1", "v1#x", "v1;x",
	}
}

// tree is all that lies in a folder, with sizes.
func tree(t *testing.T, dir string) (all []string) {
	t.Helper()
	must2(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		all = append(all, fmt.Sprint(path, " ", info.Size()))
		return err
	}))
	return all
}

// TestNamesAreNoPaths: names of routes, versions and models from outside are only looked up. Over
// gRPC and as JSON over HTTP, a hostile name is not found or not valid, and no file is opened,
// created or removed.
func TestNamesAreNoPaths(t *testing.T) {
	dir := t.TempDir()
	inside, outside := filepath.Join(dir, "state"), filepath.Join(dir, "outside")
	must2(t, os.Mkdir(outside, 0o700))
	must2(t, model.Write(filepath.Join(outside, "model.safetensors"), testModel(t)))
	s := start(t, strings.Replace(withREST(""), "placement: stored,", "placement: stored, active: v1, versions: {v1: {model: plain}, v2: {model: plain}},", 1)+
		fmt.Sprintf("state_dir: %q\n", inside), true)
	before := tree(t, dir)
	search, admin, catalog := likenessv1.NewSearchServiceClient(s.conn), likenessv1.NewAdminServiceClient(s.conn), likenessv1.NewCatalogServiceClient(s.conn)
	ctx, q := t.Context(), &likenessv1.Query{Vector: []float32{1, 2}}
	for _, name := range hostile(outside) {
		for what, call := range map[string]func() error{
			"search": func() error {
				_, err := search.Search(ctx, &likenessv1.SearchRequest{Route: name, Query: q, K: 1})
				return err
			},
			"explain": func() error {
				_, err := search.Explain(ctx, &likenessv1.ExplainRequest{Route: name, Query: q})
				return err
			},
			"score": func() error {
				_, err := search.Score(ctx, &likenessv1.ScoreRequest{Route: name, Query: q})
				return err
			},
			"route": func() error { _, err := catalog.GetRoute(ctx, &likenessv1.GetRouteRequest{Name: name}); return err },
			"model": func() error { _, err := catalog.GetModel(ctx, &likenessv1.GetModelRequest{Name: name}); return err },
			"versions": func() error {
				_, err := admin.ListVersions(ctx, &likenessv1.ListVersionsRequest{Route: name})
				return err
			},
			"activate route": func() error {
				_, err := admin.ActivateVersion(ctx, &likenessv1.ActivateVersionRequest{Route: name, Version: "v1"})
				return err
			},
			"activate version": func() error {
				_, err := admin.ActivateVersion(ctx, &likenessv1.ActivateVersionRequest{Route: "things", Version: name, Force: true})
				return err
			},
			"roll back": func() error {
				_, err := admin.RollBack(ctx, &likenessv1.RollBackRequest{Route: name})
				return err
			},
			"collect": func() error {
				_, err := admin.CollectVersions(ctx, &likenessv1.CollectVersionsRequest{Route: name})
				return err
			},
			"reconcile": func() error { _, err := admin.Reconcile(ctx, &likenessv1.ReconcileRequest{Route: name}); return err },
		} {
			if err := call(); !slices.Contains([]codes.Code{codes.NotFound, codes.InvalidArgument}, status.Code(err)) || err == nil {
				t.Errorf("%s of %.40q: %v", what, name, err)
			}
		}
		hostileREST(t, s.at.REST, name)
	}
	if after := tree(t, dir); !slices.Equal(before, after) {
		t.Errorf("there were\n%v\nnow\n%v", before, after)
	}
	s.stop()
	must2(t, s.wait())
}

// hostileREST asks by paths as they stand, which no client makes cleaner, and by escaped ones.
func hostileREST(t *testing.T, address, name string) {
	t.Helper()
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, Transport: &http.Transport{DisableKeepAlives: true}}
	for _, part := range []string{url.PathEscape(name), strings.ReplaceAll(url.PathEscape(name), ".", "%2e"), name} {
		if strings.ContainsAny(part, "\x00\n ?#") { // is no path
			continue
		}
		for _, tc := range []struct{ method, path string }{
			{http.MethodPost, "/v1/routes/" + part + ":search"},
			{http.MethodGet, "/v1/routes/" + part},
			{http.MethodGet, "/v1/models/" + part},
			{http.MethodGet, "/v1/routes/" + part + "/versions"},
			{http.MethodPost, "/v1/routes/things/versions/" + part + ":activate"},
			{http.MethodPost, "/v1/routes/" + part + ":collectVersions"},
		} {
			r, err := http.NewRequestWithContext(t.Context(), tc.method, "http://"+address, strings.NewReader(`{"k":1,"query":{"vector":[1,2]}}`))
			must2(t, err)
			r.URL.Opaque = "//" + address + tc.path
			r.Header.Set("Content-Type", "application/json")
			answer, err := client.Do(r)
			if err != nil {
				continue // net/http sends no such request
			}
			b, err := io.ReadAll(answer.Body)
			must2(t, err)
			answer.Body.Close()
			if answer.StatusCode < 300 || answer.StatusCode >= 500 {
				t.Errorf("%s %.100s: %s: %s", tc.method, tc.path, answer.Status, b)
			}
		}
	}
}
