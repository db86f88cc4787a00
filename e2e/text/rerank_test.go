package text_test

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestRerank: the three methods, every kind of document, and what is wrong with a request.
func TestRerank(t *testing.T) {
	w := start(t)
	const query = `"query": "my card has not arrived yet"`
	for name, tc := range map[string]struct {
		path, body string
		status     int
		want       []string
		head       map[string]string
	}{
		"ids": {
			path: "/v2/rerank", body: `{"model": "topics", ` + query + `, "documents": [43, "0", {"id": 11}], "top_n": 2}`, status: 200,
			want: []string{`"results":[{"index":1,"relevance_score":0.`, `"meta":{"api_version":{"version":"2"}}`},
			head: map[string]string{"Likeness-Certificate": "exact", "Likeness-Missing": ""},
		},
		"objects and escapes": {
			path: "/v2/rerank", body: `{"model": "topics", ` + query + `, "top_n": null, "documents": [{"title": {"id": 5}, "id": 0}, {"text": "c\u0061rd arrival"}, {"text": 7, "id": 99999}]}`, status: 200,
			want: []string{`"results":[{"index":1,"relevance_score":0.`, `{"index":0,`}, head: map[string]string{"Likeness-Missing": "1"},
		},
		"texts of version 1": {
			path: "/v1/rerank", body: `{"model": "topics", ` + query + `, "documents": ["exchange rate", {"text": "card arrival"}], "return_documents": true}`, status: 200,
			want: []string{`"results":[{"index":1,"relevance_score":0.`, `"document":{"text": "card arrival"}},{"index":0,`, `"document":{"text":"exchange rate"}}`, `{"version":"1"}`},
		},
		"ids beside texts": {
			path: "/v2/rerank", body: `{"model": "topics", ` + query + `, "documents": ["exchange rate", 0, "card arrival", 99999]}`, status: 200,
			want: []string{`"results":[{"index":`, `{"index":0,"relevance_score":`}, head: map[string]string{"Likeness-Missing": "1"},
		},
		"TEI": {
			path: "/v1/routes/topics/rerank", body: `{` + query + `, "texts": ["exchange rate", "card arrival"], "return_text": true, "truncate": true}`, status: 200,
			want: []string{`[{"index":1,"score":0.`, `"text":"card arrival"},{"index":0,`},
		},
		"strings as ids": {
			path: "/v1/rerank?documents=ids", body: `{"model": "topics", ` + query + `, "documents": ["550e8400-e29b-41d4-a716-446655440000"]}`, status: 400,
			want: []string{`"message":"request not valid: documents: none of the 1 is an item`},
		},
		"strings as numeric ids": {
			path: "/v1/rerank?documents=ids", body: `{"model": "topics", ` + query + `, "documents": ["0", {"id": "5"}]}`, status: 200,
			want: []string{`{"index":0,"relevance_score":`, `{"index":1,"relevance_score":`}, head: map[string]string{"Likeness-Missing": ""},
		},
		"no route":                {path: "/v2/rerank", body: `{"model": "none", ` + query + `, "documents": [1]}`, status: 404, want: []string{`"message":"route not found`}},
		"no model":                {path: "/v2/rerank", body: `{` + query + `, "documents": [1]}`, status: 400, want: []string{`there are 4 routes; give the name of one as model`}},
		"no model of TEI":         {path: "/rerank", body: `{` + query + `, "texts": ["a"]}`, status: 400, want: []string{`"error":"request not valid: model: it is empty`, `"error_type":"Validation"`}},
		"no embedder":             {path: "/v2/rerank", body: `{"model": "ids", ` + query + `, "documents": [1]}`, status: 400, want: []string{"has no embedder"}},
		"an embedder gone":        {path: "/v2/rerank", body: `{"model": "gone", ` + query + `, "documents": [1]}`, status: 503, want: []string{"embedder is unavailable"}},
		"no JSON":                 {path: "/v2/rerank", body: `{`, status: 400, want: []string{`"reason":"MESSAGE_INVALID"`}},
		"a text too many":         {path: "/v2/rerank", body: `{"model": "topics", ` + query + `, "documents": [` + strings.Repeat("1,", 16384) + `1]}`, status: 400, want: []string{"documents: there are more than 16384"}},
		"documents of a word":     {path: "/v2/rerank", body: `{"model": "topics", ` + query + `, "documents": "a"}`, status: 400, want: []string{"documents: they are no list"}},
		"a query of another kind": {path: "/v2/rerank", body: `{"model": "topics", "query": 1, "documents": [1]}`, status: 400, want: []string{`"reason":"MESSAGE_INVALID"`, "query: json"}},
		"a list":                  {path: "/v2/rerank", body: `[1]`, status: 400, want: []string{"the JSON is no object"}},
		"not UTF-8":               {path: "/v2/rerank", body: "{\"model\": \"topics\", " + query + ", \"documents\": [\"\xff\"]}", status: 400, want: []string{"is not UTF-8"}},
		"no query":                {path: "/v2/rerank", body: `{"model": "topics", "documents": [1]}`, status: 400, want: []string{"query: it is empty"}},
		"no documents":            {path: "/v2/rerank", body: `{"model": "topics", ` + query + `, "documents": []}`, status: 400, want: []string{"there are 0; give 1 to 16384"}},
		"an empty document":       {path: "/v2/rerank", body: `{"model": "topics", ` + query + `, "documents": ["a", " "]}`, status: 400, want: []string{"documents[1]: its text is empty"}},
		"a list of lists":         {path: "/v2/rerank", body: `{"model": "topics", ` + query + `, "documents": [[1]]}`, status: 400, want: []string{"documents[0]: [1] is no id and no text"}},
		"an object of nobody":     {path: "/v2/rerank", body: `{"model": "topics", ` + query + `, "documents": [{"title": "x"}]}`, status: 400, want: []string{"has no id and no text"}},
		"a fraction":              {path: "/v2/rerank", body: `{"model": "topics", ` + query + `, "documents": [1.5]}`, status: 400, want: []string{"is no id and no text"}},
		"a negative top_n":        {path: "/v2/rerank", body: `{"model": "topics", ` + query + `, "documents": [1], "top_n": -1}`, status: 400, want: []string{"top_n: -1 must not be negative"}},
		"another method":          {path: "/v2/rerank?x=GET", body: ``, status: 400, want: []string{"MESSAGE_INVALID"}},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+w.at.REST+tc.path, strings.NewReader(tc.body))
		must(t, err)
		answer, body := do(t, r)
		if answer.StatusCode != tc.status || !json.Valid([]byte(body)) {
			t.Errorf("%s: %s, want %d: %s", name, answer.Status, tc.status, body)
		}
		for _, want := range tc.want {
			if !strings.Contains(body, want) {
				t.Errorf("%s: want %s in %s", name, want, body)
			}
		}
		for head, want := range tc.head {
			if got := answer.Header.Get(head); got != want {
				t.Errorf("%s: header %s is %q, want %q", name, head, got, want)
			}
		}
		if timing := answer.Header.Get("Server-Timing"); (answer.StatusCode == http.StatusOK) != strings.HasPrefix(timing, "embed;dur=") {
			t.Errorf("%s: header Server-Timing is %q", name, timing)
		}
		if model := answer.Header.Get("Likeness-Model"); (answer.StatusCode == http.StatusOK) != strings.HasPrefix(model, "plain@") {
			t.Errorf("%s: header Likeness-Model is %q", name, model)
		}
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+w.at.Admin+"/metrics", http.NoBody)
	must(t, err)
	if _, body := do(t, r); !strings.Contains(body, `likeness_rpc_calls_total{code="OK",method="likeness.v1.SearchService/Score"}`) || !strings.Contains(body, `likeness_embedder_calls_total{embedder="gone",outcome="unavailable"}`) {
		t.Error("the metrics lack the calls")
	}
}

// TestRerankClients: the clients that applications have, unmodified, get a real answer.
func TestRerankClients(t *testing.T) {
	atLength(t, "it installs the clients of three frameworks")
	program := python(t, "clients/requirements.txt")
	w := start(t)
	cmd := exec.CommandContext(t.Context(), program, "-W", "ignore", "clients/rerank.py", "http://"+w.at.REST, "topics")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	must(t, err)
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	for _, line := range lines {
		var got struct {
			Client string
			First  any
			Scores []float64
			Error  string
		}
		must(t, json.Unmarshal([]byte(line), &got))
		switch {
		case strings.HasSuffix(got.Client, "error"):
			if !strings.Contains(got.Error, "route not found") {
				t.Errorf("%s shows %q", got.Client, got.Error)
			}
		case got.First != "card arrival" && got.First != "0" || len(got.Scores) != 2 || !(got.Scores[0] > got.Scores[1]):
			t.Errorf("%s: %s", got.Client, line)
		}
	}
	if len(lines) != 9 {
		t.Errorf("%d answers: %s", len(lines), out)
	}
}
