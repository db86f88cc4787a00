package main

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	console "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/npy"
	"github.com/likenessdb/likeness/sidecar/serve"
)

// browser returns the path of Chromium. If it is missing, the test is skipped, but fails in CI.
func browser(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv("CI") == "true" {
		t.Fatal("Chromium is missing: apt-get install chromium")
	}
	t.Skip("Chromium is missing: the admin page is not tried in a browser")
	return ""
}

// paged is a configuration with a secret in every place that can have one, and with a name that
// would break a page which does not escape it.
const paged = `
log: {level: debug, slow: 1ns}
listen: {auth: {tokens_file: tokens.yaml}}
stores:
  files: {kind: embedded, collections: {"<img src=x onerror=alert(1)>": {vectors: things.npy}}}
  gone: {kind: qdrant, address: "127.0.0.1:1", api_key_file: key}
models: {plain: {path: plain.safetensors}}
rankers: {far: {http: {url: "http://127.0.0.1:1/canary-path/rerank?key=canary-url", dialect: tei, token_file: key, fields: [text]}}}
routes:
  things: {store: files, collection: "<img src=x onerror=alert(1)>", model: plain, placement: stored, exact_search: true}
  lost: {store: gone, collection: c, model: plain, placement: stored, ranker: far}
proxy: {store: gone, listen_rest: "127.0.0.1:0", rest_url: "http://127.0.0.1:2"}
`

// startPaged runs `likeness serve` until the test ends.
func startPaged(t *testing.T) (at serve.Addresses, token string) {
	t.Helper()
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	m, err := model.New(model.Parameters{Kind: rerank.KindDot, Name: "plain", Config: []byte(`{"dim":2,"normalise":false}`)})
	if err == nil {
		err = model.Write(path("plain.safetensors"), m)
	}
	if err == nil {
		err = npy.Write(path("things.npy"), rerank.Matrix{Rows: 3, Cols: 2, Data: []float32{1, 0, 0, 1, 1, 1}})
	}
	for name, text := range map[string]string{
		"likeness.yaml": paged, "key": "canary-key\n", "tokens.yaml": "- {name: me, token: canary-token}\n", "token": "canary-token\n",
	} {
		if err == nil {
			err = os.WriteFile(path(name), []byte(text), 0o600)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	announced, ended := &announcements{ready: make(chan struct{})}, make(chan error, 1)
	go func() {
		ended <- run(ctx, []string{"serve", "-c", path("likeness.yaml"), "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0",
			"--ready-file", path("ready.json")}, strings.NewReader(""), io.Discard, announced)
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-announced.ready:
	case err := <-ended:
		ended <- nil
		t.Fatal(err)
	}
	return readReadyFile(t, path("ready.json")), path("token")
}

// watched collects what a page must not do: requests to other hosts, exceptions, and console
// messages.
type watched struct {
	mu    sync.Mutex
	host  string
	wrong []string
}

func (w *watched) listen(event any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		if u, err := url.Parse(e.Request.URL); err != nil || u.Host != w.host {
			w.wrong = append(w.wrong, "asked "+e.Request.URL)
		}
	case *runtime.EventExceptionThrown:
		w.wrong = append(w.wrong, e.ExceptionDetails.Error())
	case *runtime.EventConsoleAPICalled:
		w.wrong = append(w.wrong, "console: "+e.Type.String())
	case *console.EventEntryAdded:
		w.wrong = append(w.wrong, e.Entry.Text)
	}
}

// TestPage opens the admin page of a running sidecar in Chromium. Routes and numbers appear as
// searches are answered, without a reload and without JavaScript, in light and dark, and the page
// can be used by keyboard. It sends no request to other servers and shows no secret.
// LIKENESS_SCREENSHOT=FILE stores screenshots.
func TestPage(t *testing.T) {
	chromium := browser(t)
	at, token := startPaged(t)
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium), chromedp.NoSandbox,
		chromedp.UserDataDir(t.TempDir()), chromedp.Flag("disable-dev-shm-usage", true), chromedp.WindowSize(1100, 900))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	ctx, cancel = chromedp.NewExecAllocator(ctx, options...)
	defer cancel()
	ctx, cancel = chromedp.NewContext(ctx)
	defer cancel()
	seen := &watched{host: at.Admin}
	chromedp.ListenTarget(ctx, seen.listen)
	var title, counted, cell, html, focus, light, dark string
	rescored := `[data-route=things] [data-count=rescored]`
	do := func(what string, actions ...chromedp.Action) {
		t.Helper()
		if err := chromedp.Run(ctx, actions...); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	background := func(to *string) chromedp.Action {
		return chromedp.Evaluate(`getComputedStyle(document.body).backgroundColor`, to)
	}
	do("open", network.Enable(), console.Enable(), chromedp.Navigate("http://"+at.Admin+"/"), chromedp.WaitVisible(rescored),
		chromedp.Title(&title), chromedp.Text(rescored, &counted), chromedp.Text(`[data-route=things] dd`, &cell))
	if title != "likeness: ready" || counted != "0" || cell != "<img src=x onerror=alert(1)> in files" {
		t.Errorf("title %q, %q rescored, collection %q", title, counted, cell)
	}
	for range 3 {
		if r := execute(t, "[1, 2]", "query", "-a", at.GRPC, "-r", "things", "-k", "2", "--token-file", token); r.code != 0 {
			t.Fatal(r)
		}
	}
	do("refresh", chromedp.Poll(`document.querySelector("`+rescored+`").textContent === "3"`, nil, chromedp.WithPollingInterval(100*time.Millisecond)),
		chromedp.WaitVisible(`[data-route=things] meter`), chromedp.WaitVisible(`tr[data-store=gone] .bad`), chromedp.WaitVisible(`tr[data-store=files] .good`),
		chromedp.WaitVisible(`tr[data-ranker=far]`))
	do("keyboard", chromedp.KeyEvent("\t"), chromedp.Evaluate(`document.activeElement.textContent`, &focus),
		chromedp.Focus("#pause"), chromedp.KeyEvent("\r"), chromedp.WaitVisible(`#pause[aria-pressed=true]`))
	if focus != "Skip to the routes" {
		t.Errorf("the first thing that Tab reaches is %q", focus)
	}
	do("switch", chromedp.Click("#pause"), chromedp.Click(`[data-route=lost] button[data-post="/proxy/off"]`), chromedp.WaitVisible(`[data-route=lost] button[data-post="/proxy/on"]`),
		chromedp.WaitVisible(`[data-route=lost] h3 .warn`), chromedp.Click(`[data-route=lost] button[data-post="/proxy/on"]`),
		chromedp.WaitVisible(`[data-route=lost] button[data-post="/proxy/off"]`))
	scheme := func(value string) chromedp.Action {
		return emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: value}}) //nolint:misspell // its name
	}
	do("colours", scheme("light"), background(&light), scheme("dark"), background(&dark))
	if light == dark {
		t.Errorf("light and dark are %s", light)
	}
	if file := os.Getenv("LIKENESS_SCREENSHOT"); file != "" {
		var image []byte
		do("screenshot", scheme("light"), chromedp.Evaluate(`document.querySelector("[data-route=things]").scrollIntoView()`, nil),
			chromedp.CaptureScreenshot(&image))
		if err := os.WriteFile(file, image, 0o600); err != nil {
			t.Error(err)
		}
	}
	do("without JavaScript", emulation.SetScriptExecutionDisabled(true), chromedp.Reload(), chromedp.WaitVisible(`[data-route=things] meter`),
		chromedp.OuterHTML("html", &html))
	seen.mu.Lock()
	for _, wrong := range seen.wrong {
		t.Error(wrong)
	}
	seen.mu.Unlock()
	if strings.Contains(html, "canary") || strings.Contains(html, "<img") {
		t.Errorf("the page shows a secret, or took a name for its own:\n%s", html)
	}
	do("close", chromedp.ActionFunc(chromedp.Cancel))
	checkTwin(t, at.Admin)
}

// checkTwin checks the methods, status codes and content of the admin port's paths.
func checkTwin(t *testing.T, admin string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, c := range []struct {
		method, path, want string
		code               int
	}{
		{http.MethodGet, "/status.json", `"rescored": 3`, http.StatusOK},
		{http.MethodGet, "/", `<article class="route"`, http.StatusOK},
		{http.MethodPost, "/", "", http.StatusMethodNotAllowed},
		{http.MethodPost, "/status.json", "", http.StatusMethodNotAllowed},
		{http.MethodGet, "/nowhere", "", http.StatusNotFound},
	} {
		r, err := http.NewRequestWithContext(t.Context(), c.method, "http://"+admin+c.path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err != nil || answer.StatusCode != c.code || !strings.Contains(string(body), c.want) || strings.Contains(string(body), "canary") {
			t.Errorf("%s %s: %d %v\n%s", c.method, c.path, answer.StatusCode, err, body)
		}
		if policy := answer.Header.Get("Content-Security-Policy"); c.code == http.StatusOK && !strings.HasPrefix(policy, "default-src 'none'") {
			t.Errorf("%s: policy %q", c.path, policy)
		}
	}
}
