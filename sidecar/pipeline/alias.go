package pipeline

import (
	"context"
	"errors"
	"time"

	"github.com/likenessdb/likeness/adapters"
)

const (
	// targetWithin bounds how long an answer waits for what its alias stands for.
	targetWithin = time.Second
	// targetTries is how often a search is begun again because its alias was switched.
	targetTries = 3
)

// ownName asks the store what it calls the route's collection itself. It is empty where
// the store does not tell, and the route's name is then taken at its word.
func (o *opened) ownName(ctx context.Context) (string, error) {
	identifier, ok := o.Store.(adapters.Identifier)
	if !ok {
		return "", nil
	}
	identity, err := identifier.Identify(ctx, o.Collection)
	if errors.Is(err, adapters.ErrRefused) || errors.Is(err, adapters.ErrUnsupported) {
		return "", nil
	}
	return identity.Collection, err
}

// aliased reports whether the route names its collection by an alias, which can be
// switched to another collection while a search goes on.
func (o *opened) aliased() bool { return o.target != "" && o.target != o.Collection }

// on returns the route with all its calls to the collection; empty is the route's own.
func (o *opened) on(collection string) *opened {
	if collection == "" || collection == o.Collection {
		return o
	}
	other := *o
	other.Collection = collection
	// A follower, where there is one, knows better whether the table shows the collection.
	other.switched = o.target != "" && collection != o.target && o.Freshness == nil
	return &other
}

// searchAlias answers a request of a route whose collection is an alias. All calls name
// the collection that the alias stood for last, and the alias is read beside them. Where
// it stands for another collection now, the search is begun again on that one.
func (p *Pipeline) searchAlias(ctx context.Context, l *lane, o *opened, r Request) (Answer, error) {
	r.Collection = o.target
	if last := l.target.Load(); last != nil {
		r.Collection = *last
	}
	for try := 1; ; try++ {
		read := make(chan string, 1)
		go func() {
			ctx, cancel := context.WithTimeout(ctx, targetWithin)
			defer cancel()
			target, err := o.ownName(ctx)
			if err != nil {
				target = ""
			}
			read <- target
		}()
		answer, err := p.searchCollection(ctx, l, r)
		target := <-read
		switch {
		case target == r.Collection:
			return answer, err
		case target == "" || try == targetTries:
			if err == nil {
				answer.Certificate = unproved(answer.Certificate)
			}
			return answer, err
		}
		l.target.Store(&target)
		r.Collection = target
	}
}
