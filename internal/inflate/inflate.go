// Package inflate decompresses messages of gRPC calls: no more than a limit of each,
// and no more of them at a time than there are processors. A kilobyte can become a
// megabyte, and a hundred of those at once more memory than there is.
package inflate

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

// Decompressor is that of gzip. It is safe for concurrent use.
type Decompressor struct {
	most    int
	setting string
	turns   *semaphore.Weighted
	// tooLarge is what a message becomes that is larger: told by its address.
	tooLarge []byte
}

var _ grpc.Decompressor = (*Decompressor)(nil) //nolint:staticcheck // the one in its place is the process's, and has no limit of its own

// New returns one for messages of at most so many bytes, unpacked, which is a setting's value.
func New(most int, setting string) *Decompressor {
	return &Decompressor{most: most, setting: setting, turns: semaphore.NewWeighted(int64(runtime.GOMAXPROCS(0))), tooLarge: make([]byte, 1)}
}

// Option gives it to a server. gRPC's own limit of a message must not be smaller.
func (d *Decompressor) Option() grpc.ServerOption {
	return grpc.RPCDecompressor(d) //nolint:staticcheck // as above
}

// Do implements grpc.Decompressor. What is too large becomes a message that TooLarge
// knows: gRPC has no words for the setting.
func (d *Decompressor) Do(r io.Reader) ([]byte, error) {
	// What is compressed is here already, so that a turn ends by itself.
	if err := d.turns.Acquire(context.Background(), 1); err != nil {
		return nil, err
	}
	defer d.turns.Release(1)
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
func (d *Decompressor) Type() string { return "gzip" }

// TooLarge reports whether a message was larger than the limit. A nil one says no.
func (d *Decompressor) TooLarge(message mem.BufferSlice) bool {
	if d == nil || len(message) != 1 {
		return false
	}
	b := message[0].ReadOnlyData()
	return len(b) == 1 && &b[0] == &d.tooLarge[0]
}

// Problem says what is wrong with it: value, limit and remedy.
func (d *Decompressor) Problem() string {
	return fmt.Sprintf("the request has more than %d bytes when it is unpacked, which is %s; send less at a time, or raise it", d.most, d.setting)
}
