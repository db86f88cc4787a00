// Package rawgrpc forwards gRPC calls as the bytes they are: it decodes no
// message, so a service, a method or a field that nobody here knows crosses it
// unchanged.
package rawgrpc

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"

	"github.com/likenessdb/likeness/sidecar/gate"
)

// frame is one message as it came, in the transport's own buffers. Whoever
// received it frees it once; sending it takes references of its own.
type frame struct{ data mem.BufferSlice }

func (f *frame) free() {
	f.data.Free()
	f.data = nil
}

// holdBytes counts the bytes of the message in a gate until the transport has written the
// message, or given it up, and frees its buffers.
func (f *frame) holdBytes(g *gate.Gate) {
	if grant := g.Hold(int64(f.data.Len())); grant != nil {
		nothing := make([]byte, 0, pooled)
		f.data = append(f.data, mem.NewBuffer(&nothing, gives{grant}))
	}
}

// pooled is the capacity of a buffer that mem tells its pool of.
const pooled = 2 << 10

// gives is the pool of a buffer without content, which gives a grant back when the last
// who had the message has freed it.
type gives struct{ grant *gate.Grant }

var _ mem.BufferPool = gives{}

// Get implements mem.BufferPool; nobody asks.
func (gives) Get(length int) *[]byte {
	b := make([]byte, length)
	return &b
}

// Put implements mem.BufferPool.
func (g gives) Put(*[]byte) { g.grant.Release() }

// bytes copies the message.
func (f *frame) bytes() []byte {
	b := make([]byte, f.data.Len())
	f.data.CopyTo(b)
	return b
}

// codec moves frames between the transport and a call without a copy. Its name
// is empty so that the content type is plain application/grpc, as clients send it.
type codec struct{}

var _ encoding.CodecV2 = codec{}

func (codec) Marshal(v any) (mem.BufferSlice, error) {
	f, ok := v.(*frame)
	if !ok {
		return nil, fmt.Errorf("a raw call sends frames, not %T", v)
	}
	f.data.Ref()
	return f.data, nil
}

func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	f, ok := v.(*frame)
	if !ok {
		return fmt.Errorf("a raw call receives frames, not %T", v)
	}
	data.Ref()
	f.data = data
	return nil
}

func (codec) Name() string { return "" }
