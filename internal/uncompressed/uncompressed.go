// Package uncompressed asks gRPC servers for answers that are not compressed.
//
// grpc-go tells a server every compressor that anything in the process has
// registered, and Qdrant compresses whenever it may: on the short way to a
// database beside it that costs both sides more than the bytes are worth.
package uncompressed

import (
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/experimental"
)

// Answers is for the calls whose answers are to come as they are.
// experimental.AcceptCompressors without a name should do that, and restricts
// nothing (grpc-go 1.85): with the name of a compressor that no server knows, it
// does.
func Answers() grpc.CallOption { return experimental.AcceptCompressors(unknown) }

// unknown is registered while the program starts, as RegisterCompressor wants.
var unknown = register(none{})

func register(c encoding.Compressor) string {
	encoding.RegisterCompressor(c)
	return c.Name()
}

// none compresses nothing. Nobody is expected to use it.
type none struct{}

func (none) Name() string { return "likeness-none" }

func (none) Compress(w io.Writer) (io.WriteCloser, error) { return closer{w}, nil }

func (none) Decompress(r io.Reader) (io.Reader, error) { return r, nil }

type closer struct{ io.Writer }

func (closer) Close() error { return nil }
