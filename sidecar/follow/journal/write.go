// Package journal keeps on disk the writes that clients are about to send to a collection,
// until the data derived from the collection shows them. After a crash the next process
// finds there the writes that it has to follow.
package journal

import "github.com/likenessdb/likeness/rerank"

// Kind says what a write may change. A follower reads the rows of every kind of write.
type Kind string

// The kinds of a write.
const (
	Upsert     Kind = "upsert"     // adds or replaces rows
	Vectors    Kind = "vectors"    // changes vectors of existing rows
	Payload    Kind = "payload"    // changes the payload of existing rows
	Delete     Kind = "delete"     // removes rows
	Collection Kind = "collection" // drops, makes, recovers or renames the collection
	// Doubt stands for a write whose rows are not known before the database has answered.
	// If the database did not refuse it, it follows as a write of another kind, and the doubt
	// ends after that.
	Doubt Kind = "doubt"
)

// Write describes a client's write to a collection. It names the rows that the write
// touches as far as they are known without asking the database.
type Write struct {
	// Collection is the name of the collection whose rows change, never an alias.
	Collection string `json:"collection"`
	Kind       Kind   `json:"kind"`
	// IDs holds the rows that the write touches. If All is set, it need not be complete.
	IDs []rerank.ID `json:"ids,omitempty"`
	// Filter, in the store's language, selects the rows that the write touches; "" if the write has
	// none.
	Filter string `json:"filter,omitempty"`
	// All: the write may touch any row.
	All bool `json:"all,omitempty"`
	// Waited: the database answers after it has applied the write, as Qdrant does with
	// wait=true. Otherwise a read after the answer may not show the write yet.
	Waited bool `json:"waited,omitempty"`
}
