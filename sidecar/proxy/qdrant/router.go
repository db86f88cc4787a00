// Package qdrant answers searches of Qdrant's clients by a learned similarity,
// where a route covers them, says of every other one why it passes, and recognises
// their writes.
package qdrant

import "github.com/likenessdb/likeness/sidecar/proxy/routing"

// Router answers searches of Qdrant's clients. It is safe for concurrent use.
type Router struct{ *routing.Router }

// New returns a router for Qdrant's searches.
func New(r *routing.Router) *Router { return &Router{r} }
