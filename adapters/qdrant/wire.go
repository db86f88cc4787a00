package qdrant

import (
	"math"
	"slices"
	"sync"

	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/likenessdb/likeness/adapters/internal/wire"
	"github.com/likenessdb/likeness/rerank"
)

// The generated messages need three allocations for each point, most of a search's
// cost on this side. Answers with many points are therefore decoded from the wire into
// reused memory.

// reply is the answer to Points.QueryBatch or Points.Get. It keeps only the parts of
// the points that a list needs. A malformed message is an error, as it is to protobuf.
// Unknown fields are skipped.
type reply struct {
	// These say how to decode: which message, vector fields and payload field.
	batch   bool
	vectors []*field
	owner   string
	payload bool // keep each point's whole payload

	points []wirePoint
	ends   []int  // ends[i] is the end of list i in points
	spans  []span // where each vector lies in floats
	floats []float32
	text   []byte
	texts  string // all text as one string, after decoding
	rows   []rerank.Scored
}

// wirePoint is one point. A text id or owner is a part of reply.texts.
type wirePoint struct {
	id, owner wireValue
	score     float32
	vectors   int // index of the point's first vector in reply.spans
	content   map[string]*qdrant.Value
	version   uint64
	hasKey    bool // it has a shard key
}

type span = wire.Span

// wireValue is a number or a text.
type wireValue struct {
	kind   valueKind
	number uint64
	text   span
}

type valueKind uint8

const (
	noValue valueKind = iota
	unsigned
	signed
	text
)

var replies = sync.Pool{New: func() any { return new(reply) }}

// newReply takes a reply from the pool. release returns it.
func newReply(batch bool, owner string, vectors []*field) *reply {
	r := replies.Get().(*reply)
	r.batch, r.owner, r.vectors, r.payload = batch, owner, vectors, false
	return r
}

func (r *reply) release() {
	if r.payload {
		clear(r.points) // their contents are not kept
	}
	replies.Put(r)
}

// list returns the points of list i.
func (r *reply) list(i int) []wirePoint {
	from := 0
	if i > 0 {
		from = r.ends[i-1]
	}
	return r.points[from:r.ends[i]]
}

// idOf converts a value of this reply to an id. Without an id it returns number 0, as
// protobuf does.
func (r *reply) idOf(v wireValue) rerank.ID {
	switch v.kind {
	case text:
		return rerank.TextID(r.texts[v.text.From:v.text.To])
	case signed:
		return rerank.IntID(int64(v.number))
	default:
		return rerank.UintID(v.number)
	}
}

// copyVector copies a point's vector of field i to dst. A missing vector becomes NaNs,
// so that the point ranks last and is counted wherever it is scored.
func (r *reply) copyVector(dst []float32, p wirePoint, i int) {
	at := r.spans[p.vectors+i]
	if copy(dst, r.floats[at.From:at.To]) == len(dst) {
		return
	}
	for i := range dst {
		dst[i] = float32(math.NaN())
	}
}

// ReadWire implements wire.Message.
func (r *reply) ReadWire(b []byte) (err error) {
	r.points, r.ends, r.spans, r.floats, r.text = r.points[:0], r.ends[:0], r.spans[:0], r.floats[:0], r.text[:0]
	for f := wire.Walk(b, &err); f.Next(); {
		switch {
		case !f.Is(1, protowire.BytesType):
		case !r.batch:
			r.readPoint(f.Bytes, &err)
		default:
			for f := wire.Walk(f.Bytes, &err); f.Next(); {
				if f.Is(1, protowire.BytesType) {
					r.readPoint(f.Bytes, &err)
				}
			}
			r.ends = append(r.ends, len(r.points))
		}
	}
	r.texts = string(r.text)
	return err
}

func (r *reply) readPoint(b []byte, err *error) {
	p := wirePoint{vectors: len(r.spans)}
	for range r.vectors {
		r.spans = append(r.spans, span{})
	}
	vectors := protowire.Number(4) // field number in RetrievedPoint
	if r.batch {
		vectors = 6 // field number in ScoredPoint
	}
	for f := wire.Walk(b, err); f.Next(); {
		switch {
		case f.Is(1, protowire.BytesType):
			r.readID(&p.id, f.Bytes, err)
		case f.Is(2, protowire.BytesType) && (r.owner != "" || r.payload):
			if r.owner != "" {
				r.readPayload(&p.owner, f.Bytes, err)
			}
			if r.payload {
				p.readContent(f.Bytes, err)
			}
		case f.Is(3, protowire.Fixed32Type) && r.batch:
			p.score = math.Float32frombits(uint32(f.Bits))
		case f.Is(5, protowire.VarintType) && r.batch:
			p.version = f.Bits
		case f.Is(7, protowire.BytesType) && r.batch:
			p.hasKey = true
		case f.Is(vectors, protowire.BytesType) && len(r.vectors) > 0:
			r.readVectors(r.spans[p.vectors:], f.Bytes, err)
		}
	}
	r.points = append(r.points, p)
}

// readID decodes a qdrant.PointId.
func (r *reply) readID(v *wireValue, b []byte, err *error) {
	for f := wire.Walk(b, err); f.Next(); {
		switch {
		case f.Is(1, protowire.VarintType):
			*v = wireValue{kind: unsigned, number: f.Bits}
		case f.Is(2, protowire.BytesType):
			r.readText(v, f.Bytes, err)
		}
	}
}

func (r *reply) readText(v *wireValue, b []byte, err *error) {
	var at span
	r.text, at = wire.AppendText(r.text, b, err)
	*v = wireValue{kind: text, text: at}
}

// readPayload decodes an entry of the payload if it is the owner.
func (r *reply) readPayload(v *wireValue, b []byte, err *error) {
	name, content := mapEntry(b, err)
	if string(name) != r.owner {
		return
	}
	*v = wireValue{}
	for f := wire.Walk(content, err); f.Next(); {
		switch {
		case f.Is(3, protowire.VarintType):
			*v = wireValue{kind: signed, number: f.Bits}
		case f.Is(4, protowire.BytesType):
			r.readText(v, f.Bytes, err)
		case f.Number <= 7: // a value that is neither integer nor text
			*v = wireValue{}
		}
	}
}

// readContent keeps an entry of the payload.
func (p *wirePoint) readContent(b []byte, err *error) {
	name, content := mapEntry(b, err)
	v := &qdrant.Value{}
	if e := proto.Unmarshal(content, v); e != nil && *err == nil {
		*err = e
	}
	if p.content == nil {
		p.content = map[string]*qdrant.Value{}
	}
	p.content[string(name)] = v
}

// readVectors reads a qdrant.VectorsOutput: the named vectors, or the unnamed one.
func (r *reply) readVectors(at []span, b []byte, err *error) {
	for f := wire.Walk(b, err); f.Next(); {
		switch {
		case f.Is(1, protowire.BytesType):
			r.readVector(at, "", f.Bytes, err)
		case f.Is(2, protowire.BytesType):
			for f := wire.Walk(f.Bytes, err); f.Next(); {
				if f.Is(1, protowire.BytesType) {
					name, content := mapEntry(f.Bytes, err)
					r.readVector(at, string(name), content, err)
				}
			}
		}
	}
}

// mapEntry returns the key and the value of a map entry.
func mapEntry(b []byte, err *error) (key, content []byte) {
	for f := wire.Walk(b, err); f.Next(); {
		switch {
		case f.Is(1, protowire.BytesType):
			key = f.Bytes
		case f.Is(2, protowire.BytesType):
			content = f.Bytes
		}
	}
	return key, content
}

// readVector decodes a qdrant.VectorOutput: the dense vector or, from servers before
// 1.16, the deprecated field.
func (r *reply) readVector(at []span, name string, b []byte, err *error) {
	i := slices.IndexFunc(r.vectors, func(f *field) bool { return f.Name == name })
	if i < 0 {
		return
	}
	var dense, old span
	old.From = len(r.floats)
	for f := wire.Walk(b, err); f.Next(); {
		if f.Number == 1 {
			r.floats = wire.AppendFloats(r.floats, f.Field, err)
		}
	}
	old.To, dense.From = len(r.floats), len(r.floats)
	for f := wire.Walk(b, err); f.Next(); {
		if !f.Is(101, protowire.BytesType) {
			continue
		}
		for f := wire.Walk(f.Bytes, err); f.Next(); {
			if f.Number == 1 {
				r.floats = wire.AppendFloats(r.floats, f.Field, err)
			}
		}
	}
	at[i] = old
	if dense.To = len(r.floats); dense.To > dense.From {
		at[i] = dense
	}
}
