// Package statedir says where in a sidecar's state folder things lie: what is of
// a route in routes/ROUTE, what is of a collection in stores/STORE/COLLECTION.
package statedir

import (
	"crypto/sha256"
	"encoding/hex"
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

// maxPart is how long a part of a path gets: file systems take 255 bytes, and a file
// that is written in one step has a longer name for a moment.
const maxPart = 200

// escape makes a name of any kind one part of a path: no two names share one, and
// none leaves the folder. A long name ends in its digest.
func escape(name string) string {
	switch name {
	case "":
		return "%"
	case ".", "..":
		return strings.ReplaceAll(name, ".", "%2E")
	}
	part := url.PathEscape(name)
	if len(part) > maxPart {
		digest := sha256.Sum256([]byte(name))
		part = part[:maxPart-2-2*len(digest)] + "%~" + hex.EncodeToString(digest[:])
	}
	return part
}
