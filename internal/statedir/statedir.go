// Package statedir defines the layout of a sidecar's state folder: files of a route are in
// routes/ROUTE, its events in events/ROUTE, files of a collection in stores/STORE/COLLECTION.
package statedir

import (
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"path/filepath"
	"strings"
)

// Route returns the folder of a route.
func Route(dir, route string) string { return filepath.Join(dir, "routes", escape(route)) }

// Events returns the folder of a route's events.
func Events(dir, route string) string { return filepath.Join(dir, "events", escape(route)) }

// Store returns the folder of a store's collections.
func Store(dir, store string) string { return filepath.Join(dir, "stores", escape(store)) }

// Collection returns the folder of a collection within its store's folder.
func Collection(store, collection string) string { return filepath.Join(store, escape(collection)) }

// Replica returns the folder of a sidecar within a folder that several share.
func Replica(dir, replica string) string { return filepath.Join(dir, escape(replica)) }

// maxPart limits the length of a path element. File systems allow 255 bytes, and a file
// that is written in one step temporarily has a longer name.
const maxPart = 200

// escape converts any name to a single path element. Different names give different
// elements, and none leaves the folder. A long name ends in its digest.
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
