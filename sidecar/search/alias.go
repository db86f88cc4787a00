package search

import (
	"cmp"
	"context"
	"time"

	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search/certify"
)

const (
	// aliasTimeout bounds how long an answer waits for the name that its alias stands for.
	aliasTimeout = time.Second
	// aliasTries is the number of times that a search is begun because its alias was switched.
	aliasTries = 3
)

// searchAlias answers a request on a route whose collection is an alias. The alias is read
// before the search and after it, and all calls of the search name the collection that the
// alias stood for before. If it stands for another one afterwards, the search is begun again
// on that one. A single reading would not do: a collection that the alias stood for
// formerly, or will later, can hold other rows meanwhile.
func (e *Engine) searchAlias(ctx context.Context, version *route.Version, r Request) (Answer, error) {
	before := readAlias(ctx, version)
	for try := 1; ; try++ {
		r.Collection = cmp.Or(before, version.AliasTarget())
		answer, err := e.searchCollection(ctx, version, r)
		after := readAlias(ctx, version)
		switch {
		case before == after && after != "":
			return answer, err
		case after == "" || try == aliasTries:
			if err == nil {
				answer.Certificate = certify.Unproved(answer.Certificate)
			}
			return answer, err
		}
		before = after
	}
}

// readAlias asks the store what the alias of a route stands for, and notes it. It returns ""
// if that cannot be told.
func readAlias(ctx context.Context, version *route.Version) string {
	ctx, cancel := context.WithTimeout(ctx, aliasTimeout)
	defer cancel()
	target := version.Current().ReadAlias(ctx)
	if target != "" {
		version.SetAliasTarget(target)
	}
	return target
}
