package qdrant

import (
	"encoding/binary"
	"errors"
	"io"
	"math"
	"slices"
	"sync"
	"unicode/utf8"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/likenessdb/likeness/rerank"
)

// The generated messages take three allocations a point, which is most of what a
// search costs this side. Answers with many points are therefore read off the
// wire, into memory that is used again.

// codec reads replies off the wire, and leaves every other message to protobuf.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(proto.Name)} }

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	r, ok := v.(*reply)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	b := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer b.Free()
	return r.read(b.ReadOnlyData())
}

// reply is the answer to Points.QueryBatch or Points.Get: points, of which it
// keeps what a list needs. A malformed message is an error, as it is to protobuf;
// fields that this version does not know are passed over.
type reply struct {
	// What to read: the message, the vector and the payload field.
	batch   bool
	vectors []*field
	owner   string

	points []wirePoint
	ends   []int  // ends[i] is the end of list i in points
	spans  []span // of the vectors of every point, in floats
	floats []float32
	text   []byte
	texts  string // text, once read
	rows   []rerank.Scored
}

// wirePoint is one row; an id or owner that is text is a part of reply.texts.
type wirePoint struct {
	id, owner wireValue
	score     float32
	vectors   int // of the first in reply.spans
}

type span struct{ from, to int }

// wireValue is a number or a text of the wire.
type wireValue struct {
	kind   valueKind
	number uint64
	text   span
}

// errText: protobuf refuses text that is not UTF-8, and so do we.
var errText = errors.New("text of the message is not valid UTF-8")

type valueKind uint8

const (
	noValue valueKind = iota
	unsigned
	signed
	text
)

var replies = sync.Pool{New: func() any { return new(reply) }}

// newReply takes a reply out of the pool; release gives it back.
func newReply(batch bool, owner string, vectors []*field) *reply {
	r := replies.Get().(*reply)
	r.batch, r.owner, r.vectors = batch, owner, vectors
	return r
}

func (r *reply) release() { replies.Put(r) }

// list is the points of list i.
func (r *reply) list(i int) []wirePoint {
	from := 0
	if i > 0 {
		from = r.ends[i-1]
	}
	return r.points[from:r.ends[i]]
}

// idOf is the id that a value of this reply names; number 0 where it is none, as
// protobuf has it.
func (r *reply) idOf(v wireValue) rerank.ID {
	switch v.kind {
	case text:
		return rerank.TextID(r.texts[v.text.from:v.text.to])
	case signed:
		return rerank.IntID(int64(v.number))
	default:
		return rerank.UintID(v.number)
	}
}

// copyVector copies a point's vector of field i to dst; a point without it gets
// NaNs, so that it ranks last and is counted wherever it is scored.
func (r *reply) copyVector(dst []float32, p wirePoint, i int) {
	at := r.spans[p.vectors+i]
	if copy(dst, r.floats[at.from:at.to]) == len(dst) {
		return
	}
	for i := range dst {
		dst[i] = float32(math.NaN())
	}
}

func (r *reply) read(b []byte) (err error) {
	r.points, r.ends, r.spans, r.floats, r.text = r.points[:0], r.ends[:0], r.spans[:0], r.floats[:0], r.text[:0]
	for f := walk(b, &err); f.next(); {
		switch {
		case !f.is(1, protowire.BytesType):
		case !r.batch:
			r.readPoint(f.bytes, &err)
		default:
			for f := walk(f.bytes, &err); f.next(); {
				if f.is(1, protowire.BytesType) {
					r.readPoint(f.bytes, &err)
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
	vectors := protowire.Number(4) // of RetrievedPoint
	if r.batch {
		vectors = 6 // of ScoredPoint
	}
	for f := walk(b, err); f.next(); {
		switch {
		case f.is(1, protowire.BytesType):
			r.readID(&p.id, f.bytes, err)
		case f.is(2, protowire.BytesType) && r.owner != "":
			r.readPayload(&p.owner, f.bytes, err)
		case f.is(3, protowire.Fixed32Type) && r.batch:
			p.score = math.Float32frombits(uint32(f.bits))
		case f.is(vectors, protowire.BytesType) && len(r.vectors) > 0:
			r.readVectors(r.spans[p.vectors:], f.bytes, err)
		}
	}
	r.points = append(r.points, p)
}

// readID reads a qdrant.PointId.
func (r *reply) readID(v *wireValue, b []byte, err *error) {
	for f := walk(b, err); f.next(); {
		switch {
		case f.is(1, protowire.VarintType):
			*v = wireValue{kind: unsigned, number: f.bits}
		case f.is(2, protowire.BytesType):
			r.readText(v, f.bytes, err)
		}
	}
}

func (r *reply) readText(v *wireValue, b []byte, err *error) {
	if !utf8.Valid(b) {
		*err = errText
		return
	}
	from := len(r.text)
	r.text = append(r.text, b...)
	*v = wireValue{kind: text, text: span{from, len(r.text)}}
}

// readPayload reads an entry of the payload, if it is the owner's.
func (r *reply) readPayload(v *wireValue, b []byte, err *error) {
	name, content := entry(b, err)
	if string(name) != r.owner {
		return
	}
	*v = wireValue{}
	for f := walk(content, err); f.next(); {
		switch {
		case f.is(3, protowire.VarintType):
			*v = wireValue{kind: signed, number: f.bits}
		case f.is(4, protowire.BytesType):
			r.readText(v, f.bytes, err)
		case f.number <= 7: // a value of another kind
			*v = wireValue{}
		}
	}
}

// readVectors reads a qdrant.VectorsOutput: the named vectors, or the unnamed one.
func (r *reply) readVectors(at []span, b []byte, err *error) {
	for f := walk(b, err); f.next(); {
		switch {
		case f.is(1, protowire.BytesType):
			r.readVector(at, "", f.bytes, err)
		case f.is(2, protowire.BytesType):
			for f := walk(f.bytes, err); f.next(); {
				if f.is(1, protowire.BytesType) {
					name, content := entry(f.bytes, err)
					r.readVector(at, string(name), content, err)
				}
			}
		}
	}
}

// entry is the key and the value of an entry of a map.
func entry(b []byte, err *error) (key, content []byte) {
	for f := walk(b, err); f.next(); {
		switch {
		case f.is(1, protowire.BytesType):
			key = f.bytes
		case f.is(2, protowire.BytesType):
			content = f.bytes
		}
	}
	return key, content
}

// readVector reads a qdrant.VectorOutput: the dense vector, or, from servers
// before 1.16, the deprecated field.
func (r *reply) readVector(at []span, name string, b []byte, err *error) {
	i := slices.IndexFunc(r.vectors, func(f *field) bool { return f.Name == name })
	if i < 0 {
		return
	}
	var dense, old span
	old.from = len(r.floats)
	for f := walk(b, err); f.next(); {
		if f.number == 1 {
			r.readFloats(f.wireField, err)
		}
	}
	old.to, dense.from = len(r.floats), len(r.floats)
	for f := walk(b, err); f.next(); {
		if !f.is(101, protowire.BytesType) {
			continue
		}
		for f := walk(f.bytes, err); f.next(); {
			if f.number == 1 {
				r.readFloats(f.wireField, err)
			}
		}
	}
	at[i] = old
	if dense.to = len(r.floats); dense.to > dense.from {
		at[i] = dense
	}
}

// readFloats appends a repeated float, packed or not.
func (r *reply) readFloats(f wireField, err *error) {
	switch f.kind {
	case protowire.Fixed32Type:
		r.floats = append(r.floats, math.Float32frombits(uint32(f.bits)))
	case protowire.BytesType:
		if len(f.bytes)%4 != 0 {
			*err = io.ErrUnexpectedEOF
			return
		}
		for b := f.bytes; len(b) > 0; b = b[4:] {
			r.floats = append(r.floats, math.Float32frombits(binary.LittleEndian.Uint32(b)))
		}
	}
}

// wireField is a field of a message: bytes, or the bits of a number.
type wireField struct {
	number protowire.Number
	kind   protowire.Type
	bytes  []byte
	bits   uint64
}

func (f wireField) is(number protowire.Number, kind protowire.Type) bool {
	return f.number == number && f.kind == kind
}

// walker goes over the fields of a message, in their order. A malformed one ends
// the walk and sets err; once err is set there are none.
type walker struct {
	wireField
	rest []byte
	err  *error
}

func walk(b []byte, err *error) walker { return walker{rest: b, err: err} }

func (w *walker) next() bool {
	if len(w.rest) == 0 || *w.err != nil {
		return false
	}
	n := w.read(w.rest)
	if n < 0 {
		*w.err = protowire.ParseError(n)
		return false
	}
	w.rest = w.rest[n:]
	return true
}

// read reads the first field of b and returns its length, or what is wrong as
// protowire says it.
func (f *wireField) read(b []byte) (n int) {
	var size int
	if f.number, f.kind, n = protowire.ConsumeTag(b); n < 0 {
		return n
	}
	switch b = b[n:]; f.kind {
	case protowire.VarintType:
		f.bits, size = protowire.ConsumeVarint(b)
	case protowire.Fixed32Type:
		var bits uint32
		bits, size = protowire.ConsumeFixed32(b)
		f.bits = uint64(bits)
	case protowire.BytesType:
		f.bytes, size = protowire.ConsumeBytes(b)
	default:
		size = protowire.ConsumeFieldValue(f.number, f.kind, b)
	}
	if size < 0 {
		return size
	}
	return n + size
}
