package qdrant

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
)

// jsonValues are values of every JSON type, and numbers that some types of Qdrant refuse.
var jsonValues = []string{
	"null", "true", "false", `"false"`, `"x"`, `""`, "0", "-0", "1", "-1", "0.5", "1.5", "-1.5", "2.0", "1e2", "1e39", "1e400", "4294967296", "18446744073709551616",
	"[]", "[1]", "[1,2,3,4]", `["x"]`, `[null]`, `{}`, `{"x":1}`, `{"include":["x"]}`, `{"include":"x"}`, `{"exclude":["x"]}`, `{"exclude":[1]}`, `{"include":null}`,
	`{"include":["x"],"exclude":["y"]}`,
}

// requestsWith returns search requests in which one field has a value.
func requestsWith(path, value string) (bodies map[string]string) {
	bodies = map[string]string{}
	for kind, fields := range map[string]map[string]string{
		"search": {"vector": "[1,2,3,4]", "limit": "3"},
		"query":  {"query": "[1,2,3,4]", "limit": "3"},
	} {
		names := strings.Split(path, ".")
		if _, ok := fields[names[0]]; !ok && (names[0] == "vector" || names[0] == "query") {
			continue
		}
		if kind == "search" && names[0] == "using" {
			continue
		}
		nested := value
		for i := len(names) - 1; i > 0; i-- {
			switch {
			case names[0] == "vector" && names[i] == "name":
				nested = fmt.Sprintf(`{"name":%s,"vector":[1,2,3,4]}`, nested)
			case names[0] == "vector":
				nested = fmt.Sprintf(`{"name":"","vector":%s}`, nested)
			default:
				nested = fmt.Sprintf(`{%q:%s}`, names[i], nested)
			}
		}
		fields[names[0]] = nested
		var parts []string
		for name, v := range fields {
			parts = append(parts, fmt.Sprintf("%q:%s", name, v))
		}
		bodies[kind] = "{" + strings.Join(parts, ",") + "}"
	}
	return bodies
}

// TestRefusedByQdrant: a search that Qdrant refuses is never read as one that a route may answer,
// for a table of every field with values of every type, and for repeated fields. Prefetches are
// left out, because Qdrant itself answers them.
func TestRefusedByQdrant(t *testing.T) {
	paths := []string{
		"limit", "offset", "score_threshold", "with_payload", "with_vector", "filter", "shard_key", "lookup_from", "using",
		"params", "params.hnsw_ef", "params.exact", "params.indexed_only", "params.quantization", "params.quantization.ignore",
		"params.quantization.rescore", "params.quantization.oversampling", "params.acorn", "params.acorn.enable", "params.acorn.max_selectivity",
		"vector", "vector.vector", "vector.name", "query", "query.nearest", "unknown",
	}
	for _, version := range []string{servers.QdrantOldest, servers.QdrantNewest} {
		url := servers.QdrantForTest(t, version, servers.Options{}).REST
		send(t, http.MethodPut, url+"/collections/c", `{"vectors":{"size":4,"distance":"Dot"}}`)
		send(t, http.MethodPut, url+"/collections/c/points?wait=true", `{"points":[{"id":1,"vector":[1,2,3,4]}]}`)
		refused, answered := 0, 0
		check := func(kind, body string) {
			if strings.Contains(body, `"with_vector":["x"]`) {
				return // well typed, and refused again in the search that confirms the answer
			}
			status := send(t, http.MethodPost, url+"/collections/c/points/"+kind, body)
			q := searches[kind]
			_, all, err := q.split([]byte(body))
			if err == nil {
				_, err = q.read(context.Background(), all[0])
			}
			switch {
			case status != http.StatusOK && err == nil:
				t.Errorf("Qdrant %s answers %s %s with %d, and a route would answer it", version, kind, body, status)
			case status != http.StatusOK:
				refused++
			case err == nil:
				answered++
			}
		}
		for _, path := range paths {
			for _, value := range jsonValues {
				name, dim := path == "using" || path == "vector.name", path == "vector" || path == "vector.vector" || strings.HasPrefix(path, "query")
				if path == "filter" && value[0] == '{' || name && value[0] == '"' || dim && value == "[1]" {
					continue // the search that confirms the answer has the filter; routes know the names and dimensions of vectors
				}
				for kind, body := range requestsWith(path, value) {
					check(kind, body)
				}
			}
			for kind, body := range requestsWith(path, "1") {
				first, _, _ := strings.Cut(path, ".")
				check(kind, fmt.Sprintf(`{%q:1,%s`, first, body[1:]))
			}
		}
		if t.Logf("Qdrant %s: %d requests refused, %d answered by routes", version, refused, answered); refused < 300 || answered < 50 {
			t.Errorf("Qdrant %s: %d requests refused, %d answered by routes", version, refused, answered)
		}
	}
}

func send(t *testing.T, method, url, body string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := new(http.Client).Do(r)
	if err != nil { // a request at which Qdrant panics ends the connection
		t.Logf("%s: %v", body, err)
		return 0
	}
	defer func() { _ = answer.Body.Close() }()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode
}
