package serve_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
)

// TestNothingIsExactOnceAFieldHasChanged: a collection that others make again with vectors that are
// compared otherwise, or rounded, is noticed within seconds, without an error of any search.
func TestNothingIsExactOnceAFieldHasChanged(t *testing.T) {
	db := servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{APIKey: key})
	e := &exactness{t: t, db: db, client: &http.Client{Transport: &http.Transport{}}}
	t.Cleanup(e.client.CloseIdleConnections)
	changed := map[string]string{
		"euclid": `{"vectors":{"size":4,"distance":"Euclid"}}`,
		"cosine": `{"vectors":{"size":4,"distance":"Cosine"}}`,
		"uint8":  `{"vectors":{"size":4,"distance":"Dot","datatype":"uint8"}}`,
	}
	makeCollection := func(name, settings string) {
		e.send(db.REST, http.MethodPut, name, settings)
		e.send(db.REST, http.MethodPut, name+"/points?wait=true", `{"points":[{"id":1,"vector":[1.4,1.4,0.4,3]},{"id":2,"vector":[2,1.5,0.4,2.3]},{"id":3,"vector":[100,70,50,200]}]}`)
	}
	var routes []string
	for name := range changed {
		makeCollection(name, emptyCollection)
		routes = append(routes, fmt.Sprintf(`%s: {store: main, collection: %[1]s, model: w}`, name))
	}
	at := startSidecar(t, fmt.Sprintf(`
stores: {main: {kind: qdrant, address: %q, api_key_env: QDRANT_KEY}}
routes: {%s}
proxy: {store: main, listen_grpc: "127.0.0.1:0", listen_rest: "127.0.0.1:0", rest_url: %q}
`, db.Address, strings.Join(routes, ", "), db.REST))
	isExact := func(name string) bool {
		code, state, body := post(t, "http://"+at.Proxy.REST, name+"/points/search", `{"vector":[1,-2,0.5,3],"limit":2,"params":{"exact":true}}`, key)
		if code != http.StatusOK {
			t.Errorf("%s: %d %s", name, code, body)
		}
		return strings.Contains(state, "certificate=exact")
	}
	for name := range changed {
		if isExact(name); !isExact(name) { // the first search shows that the caller may search
			t.Errorf("%s: no answer is exact", name)
		}
	}
	for name, settings := range changed {
		e.send(db.REST, http.MethodDelete, name, "")
		makeCollection(name, settings)
	}
	for name := range changed {
		soon(t, name+": answers that are not exact", func(context.Context) error {
			if isExact(name) {
				return fmt.Errorf("collection %q: exact", name)
			}
			return nil
		})
	}
}
