// Package uncompressed requests gRPC answers without compression.
//
// grpc-go offers servers every compressor that is registered in the process, and Qdrant
// compresses whenever it may. With a database nearby, compression costs both sides more
// than it saves.
package uncompressed

import (
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/experimental"
)

// Answers is the call option for uncompressed answers. experimental.AcceptCompressors
// without a name should have this effect, but restricts nothing (grpc-go 1.85). With the
// name of a compressor that no server knows, it works.
func Answers() grpc.CallOption { return experimental.AcceptCompressors(unknown) }

// unknown is registered during initialisation, as RegisterCompressor requires.
var unknown = register(none{})

func register(c encoding.Compressor) string {
	encoding.RegisterCompressor(c)
	return c.Name()
}

// none is a compressor without effect. It is never used.
type none struct{}

func (none) Name() string { return "likeness-none" }

func (none) Compress(w io.Writer) (io.WriteCloser, error) { return closer{w}, nil }

func (none) Decompress(r io.Reader) (io.Reader, error) { return r, nil }

type closer struct{ io.Writer }

func (closer) Close() error { return nil }
