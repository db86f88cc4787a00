package adapters

import "context"

type callerKey struct{}

// AsCaller returns a context in which a store is called without credentials of
// its own: those of the caller are in the context already, as outgoing metadata
// of gRPC. The adapters of Qdrant and Milvus heed it.
func AsCaller(ctx context.Context) context.Context {
	return context.WithValue(ctx, callerKey{}, true)
}

// IsAsCaller reports whether AsCaller made the context.
func IsAsCaller(ctx context.Context) bool {
	as, _ := ctx.Value(callerKey{}).(bool)
	return as
}
