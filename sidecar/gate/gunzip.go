package gate

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"runtime"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
)

// maxGzipRatio bounds how many bytes one byte of gzip becomes (RFC 1951: 258 bytes for two bits).
const maxGzipRatio = 1032

// Gunzip decompresses gRPC messages, each up to a limit, and only as many at a time as there are
// processors: a kilobyte can become a megabyte, and a hundred of those at once could exceed the
// memory. It is safe for concurrent use.
type Gunzip struct {
	most       int
	setting    string
	processors *semaphore.Weighted
	// tooLarge stands for any message beyond the limit. Its address identifies it.
	tooLarge []byte
}

var _ grpc.Decompressor = (*Gunzip)(nil) //nolint:staticcheck // what replaced the interface is global, and has no limit of its own

// NewGunzip returns a decompressor of messages of at most so many bytes, which is the value
// of a setting.
func NewGunzip(most int, setting string) *Gunzip {
	return &Gunzip{most: most, setting: setting, processors: semaphore.NewWeighted(int64(runtime.GOMAXPROCS(0))), tooLarge: make([]byte, 1)}
}

// Option returns the option of a server that uses the decompressor. gRPC's own limit of a
// message must not be smaller.
func (d *Gunzip) Option() grpc.ServerOption {
	return grpc.RPCDecompressor(d) //nolint:staticcheck // as above
}

// Do implements grpc.Decompressor. A message beyond the limit becomes a message for which
// IsTooLarge returns true: gRPC has no error that could name the setting.
func (d *Gunzip) Do(r io.Reader) ([]byte, error) {
	// No context is needed: the other messages' bytes are here already, so their work ends by
	// itself.
	if err := d.processors.Acquire(context.Background(), 1); err != nil {
		return nil, err
	}
	defer d.processors.Release(1)
	z, err := gzip.NewReader(r)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if _, err := out.ReadFrom(io.LimitReader(z, int64(d.most)+1)); err != nil {
		return nil, err
	}
	if out.Len() > d.most {
		return d.tooLarge, nil
	}
	return out.Bytes(), nil
}

// Type implements grpc.Decompressor.
func (d *Gunzip) Type() string { return "gzip" }

// IsTooLarge reports whether Do made this message from one beyond the limit. It returns false on a
// nil Gunzip.
func (d *Gunzip) IsTooLarge(message mem.BufferSlice) bool {
	if d == nil || len(message) != 1 {
		return false
	}
	b := message[0].ReadOnlyData()
	return len(b) == 1 && &b[0] == &d.tooLarge[0]
}

// Problem returns the text of the error of a message beyond the limit.
func (d *Gunzip) Problem() string {
	return fmt.Sprintf("the request has more than %d bytes when it is unpacked, which is %s; send less at a time, or raise it", d.most, d.setting)
}
