// Package journal keeps what clients are about to write to a routed collection,
// so that what was derived from it follows after a crash too.
package journal

import "github.com/likenessdb/likeness/rerank"

// Kind is what a write does. A follower reads the rows again whatever it was:
// the kind only says what may have changed.
type Kind string

// The kinds of a write.
const (
	Upsert     Kind = "upsert"     // rows with vectors and payload
	Vectors    Kind = "vectors"    // vectors of rows that are there
	Payload    Kind = "payload"    // payload of rows that are there
	Delete     Kind = "delete"     // rows
	Collection Kind = "collection" // the collection itself: dropped, made, recovered, renamed by an alias
)

// Write is a client's write to a collection, before it is forwarded. It names
// what it touches as far as that is known without asking the database.
type Write struct {
	// Collection is the one whose rows change, never an alias.
	Collection string `json:"collection"`
	Kind       Kind   `json:"kind"`
	// IDs are the rows that it touches; with All they are not known.
	IDs []rerank.ID `json:"ids,omitempty"`
	// Filter, in the store's language, chose the rows, where it did.
	Filter string `json:"filter,omitempty"`
	// All: any row may have changed.
	All bool `json:"all,omitempty"`
	// Waited: the database answers once the write is applied, as Qdrant does when
	// asked with wait; otherwise a read behind the answer may not show it yet.
	Waited bool `json:"waited,omitempty"`
}
