//go:build !amd64 || noasm

package kernel

func accelerated() []*Set { return nil }
