package search

import (
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

// searchAlias answers a request on a route whose collection is an alias. All calls name
// the collection that the alias stood for last, and the alias is read beside them. If
// it stands for another collection now, the search is begun again on that one.
func (e *Engine) searchAlias(ctx context.Context, version *route.Version, r Request) (Answer, error) {
	c := version.Current()
	r.Collection = version.AliasTarget()
	for try := 1; ; try++ {
		read := make(chan string, 1)
		go func() {
			ctx, cancel := context.WithTimeout(ctx, aliasTimeout)
			defer cancel()
			read <- c.ReadAlias(ctx)
		}()
		answer, err := e.searchCollection(ctx, version, r)
		target := <-read
		switch {
		case target == r.Collection:
			return answer, err
		case target == "" || try == aliasTries:
			if err == nil {
				answer.Certificate = certify.Unproved(answer.Certificate)
			}
			return answer, err
		}
		version.SetAliasTarget(target)
		r.Collection = target
	}
}
