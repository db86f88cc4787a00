package adapters

import "context"

type callerKey struct{}

// AsCaller returns a context that makes the adapters of Qdrant and Milvus omit the
// store's own credentials. The context already carries the caller's credentials as
// outgoing gRPC metadata.
func AsCaller(ctx context.Context) context.Context {
	return context.WithValue(ctx, callerKey{}, true)
}

// IsAsCaller reports whether the context comes from AsCaller.
func IsAsCaller(ctx context.Context) bool {
	as, _ := ctx.Value(callerKey{}).(bool)
	return as
}
