package routing

import "context"

// Accept remembers the credential of ctx as one that the database lets search a collection.
func (r *Router) Accept(ctx context.Context, collection string) {
	r.accepted.remember(r.accepted.of(ctx, toSearch, collection))
}
