// Package qdrant answers searches of Qdrant's clients by a learned similarity,
// where a route covers them, says of every other one why it passes, and recognises
// their writes.
//
// A call is a gRPC call (grpc.go), a restCall a REST request (rest.go); both are a
// routing.Exchange. message.go and json.go read their searches, rewrite.go and
// rewrite_rest.go replace vectors in the bytes of a request, stages.go and prefetch.go
// read queries with prefetches, and write.go, write_rest.go and touched.go find out
// which rows a write changes.
package qdrant

import "github.com/likenessdb/likeness/sidecar/proxy/routing"

// Router answers searches of Qdrant's clients. It is safe for concurrent use.
type Router struct{ *routing.Router }

// New returns a router for Qdrant's searches.
func New(r *routing.Router) *Router { return &Router{r} }
