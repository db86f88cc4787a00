package routing

import (
	"context"
	"time"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/search"
)

// Asked holds the searches of one call.
type Asked struct {
	Searches []Search
	Timeout  time.Duration // the request's own timeout; 0 if it has none
}

// Exchange is one call of a client on a routed collection, in the protocol of its interface. A is
// an answer in that protocol. Methods other than Read are called concurrently, and also after the
// call has ended.
type Exchange[A any] interface {
	// Locate finds the searches of a call in its bytes, as far as rewriting needs them: the vector
	// and its field, the page, the threshold. It returns the Pass of a call that has other searches
	// than plain nearest-neighbour ones.
	Locate(ctx context.Context) (Asked, error)
	// Rewrite sends the call with the vectors and thresholds of its searches replaced by those in
	// all, which has one element for each search. It returns the database's answer with the scores
	// mapped, and the rows of every search. It returns ErrDenied with the database's own answer, a
	// Pass for a call that the database does not accept, or Degraded.
	Rewrite(ctx context.Context, all []Replacement) (A, [][]search.Hit, error)
	// Read returns the searches of the call, or the Pass with the reason why the call is forwarded
	// unchanged.
	Read(ctx context.Context) (Asked, error)
	// Confirm asks the database for the hits with the caller's rights, and builds the answer from
	// the hits that it returns. It does not ask for hits that the database has Shown already. It
	// names the collection by the target's own name, so that hits of one collection are not looked
	// up in another. It returns the errors of Ranked.Page, or Degraded.
	Confirm(ctx context.Context, all []Ranked) (A, error)
	// Original sends the call unchanged. plain asks for an answer that IDs can read.
	Original(ctx context.Context, plain bool) A
	// Access returns the access that an answer to the unchanged call shows.
	Access(answer A) Access
	// IDs returns the ids of an answer of the database, one list for every search. ok is false for
	// an error, and for an answer of another form.
	IDs(answer A) (lists [][]rerank.ID, ok bool)
}

// Outcome is the result of a call.
type Outcome[A any] struct {
	// Answered reports that Answer is the client's answer, rescored or the database's own.
	// Otherwise the call is forwarded unchanged, or fails if Refused is not empty.
	Answered bool
	Answer   A
	Refused  string
	// Status is the outcome for the client. It is empty for a caller whom the database has not
	// accepted, who must not learn about the route.
	Status string
}
