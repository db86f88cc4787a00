package search

import (
	"cmp"
	"context"
	"time"

	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search/certify"
)

const (
	// aliasTimeout bounds how long an answer waits until the store says what its alias stands for.
	aliasTimeout = time.Second
	// aliasTries is how often a search begins at most, because its alias was switched meanwhile.
	aliasTries = 3
)

// searchAlias answers a request on a route whose collection is an alias. It asks what the alias
// stands for before the search and after it. The search names the collection that the alias stood
// for before. If the alias stands for another one afterwards, the search begins again on that one.
// Asking once would not do: the collection that the alias stood for earlier or will stand for later
// can hold other rows.
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

// readAlias asks the store what the alias of a route stands for, and notes the answer. It returns
// "" if the store does not tell.
func readAlias(ctx context.Context, version *route.Version) string {
	ctx, cancel := context.WithTimeout(ctx, aliasTimeout)
	defer cancel()
	target := version.Current().ReadAlias(ctx)
	if target != "" {
		version.SetAliasTarget(target)
	}
	return target
}
