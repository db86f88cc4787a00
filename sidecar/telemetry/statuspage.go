package telemetry

import (
	"bytes"
	"cmp"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

//go:embed page
var pageFiles embed.FS

// pagePolicy lets the page load its own files from this server, and nothing else.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Handler serves the page at /, its files below /page/, and the same status as JSON at
// /status.json. It answers GET and HEAD. The server has to answer 405 to other methods.
func (b *StatusBoard) Handler() (http.Handler, error) {
	page, err := template.New("page.html").Funcs(pageWords).ParseFS(pageFiles, "page/page.html")
	if err != nil {
		return nil, fmt.Errorf("status page: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		var out bytes.Buffer
		if err := page.Execute(&out, b.Status(r.Context())); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		answerPage(w, "text/html; charset=utf-8", out.Bytes())
	})
	mux.HandleFunc("GET /status.json", func(w http.ResponseWriter, r *http.Request) {
		out, err := json.MarshalIndent(b.Status(r.Context()), "", "  ")
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		answerPage(w, "application/json", append(out, '\n'))
	})
	for path, kind := range map[string]string{"page.css": "text/css; charset=utf-8", "page.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml"} {
		content, err := pageFiles.ReadFile("page/" + path)
		if err != nil {
			return nil, fmt.Errorf("status page: %w", err)
		}
		mux.HandleFunc("GET /page/"+path, func(w http.ResponseWriter, _ *http.Request) { answerPage(w, kind, content) })
	}
	return mux, nil
}

func answerPage(w http.ResponseWriter, kind string, content []byte) {
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("Content-Security-Policy", pagePolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	_, _ = w.Write(content)
}

// pageWords has the functions with which the page formats numbers.
var pageWords = template.FuncMap{
	"ms":      func(seconds float64) string { return fmt.Sprintf("%.3g ms", 1000*seconds) },
	"bytes":   byteText,
	"time":    timeText,
	"ago":     func(t, now time.Time) string { return now.Sub(t).Round(time.Second).String() },
	"short":   func(digest string) string { return digest[:min(12, len(digest))] },
	"share":   func(x float64) string { return fmt.Sprintf("%.4g", x) },
	"reasons": reasonText,
	"total": func(all []StageTimes) float64 {
		i := slices.IndexFunc(all, func(s StageTimes) bool { return s.Stage == "total" })
		if i < 0 {
			return 0
		}
		return all[i].P95
	},
}

// reasonText writes counts by reason as their sum and its parts, the largest first.
func reasonText(by map[string]int64) string {
	sum, reasons := int64(0), slices.Collect(maps.Keys(by))
	slices.SortFunc(reasons, func(a, b string) int { return cmp.Or(cmp.Compare(by[b], by[a]), cmp.Compare(a, b)) })
	var parts []string
	for _, reason := range reasons {
		sum += by[reason]
		parts = append(parts, fmt.Sprintf("%s %d", reason, by[reason]))
	}
	if sum == 0 {
		return "0"
	}
	return fmt.Sprintf("%d: %s", sum, strings.Join(parts, ", "))
}

func timeText(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.UTC().Format("2006-01-02 15:04:05 UTC")
}

func byteText(n any) string {
	var x float64
	switch n := n.(type) {
	case uint64:
		x = float64(n)
	case int64:
		x = float64(n)
	}
	for _, unit := range []string{"B", "KiB", "MiB"} {
		if x < 1024 {
			return fmt.Sprintf("%.4g %s", x, unit)
		}
		x /= 1024
	}
	return fmt.Sprintf("%.4g GiB", x)
}
