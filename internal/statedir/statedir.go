// Package statedir says where in a sidecar's state folder things lie: what is of
// a route in routes/ROUTE, what is of a collection in stores/STORE/COLLECTION.
package statedir

import (
	"net/url"
	"path/filepath"
	"strings"
)

// Route is the folder of a route.
func Route(dir, route string) string { return filepath.Join(dir, "routes", escape(route)) }

// Store is the folder of a store's collections.
func Store(dir, store string) string { return filepath.Join(dir, "stores", escape(store)) }

// Collection is the folder of a collection in that of its store.
func Collection(store, collection string) string { return filepath.Join(store, escape(collection)) }

// escape makes a name of any kind one part of a path: no two names share one, and
// none leaves the folder.
func escape(name string) string {
	if name == "." || name == ".." {
		return strings.ReplaceAll(name, ".", "%2E")
	}
	return url.PathEscape(name)
}
