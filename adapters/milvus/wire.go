package milvus

import (
	"sync"

	"github.com/milvus-io/milvus-proto/go-api/v2/commonpb"
	"github.com/milvus-io/milvus-proto/go-api/v2/schemapb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/likenessdb/likeness/adapters/internal/wire"
)

// reply is the answer to a search, decoded from the wire into reused memory. Output
// fields are decoded by protobuf. A malformed message is an error, and unknown fields
// are skipped.
type reply struct {
	status commonpb.Status
	keys   []key
	scores []float32
	topks  []int64
	fields []*schemapb.FieldData

	ints  []int64
	text  []byte
	spans []wire.Span
	rows  []row
}

var _ wire.Message = (*reply)(nil)

var replies = sync.Pool{New: func() any { return new(reply) }}

// newReply takes a reply from the pool. release returns it.
func newReply() *reply { return replies.Get().(*reply) }

func (r *reply) release() {
	r.fields = nil
	clear(r.keys) // the keys hold text
	clear(r.rows)
	replies.Put(r)
}

// GetStatus returns the status, for the interceptor.
func (r *reply) GetStatus() *commonpb.Status { return &r.status }

// ReadWire implements wire.Message for a milvuspb.SearchResults.
func (r *reply) ReadWire(b []byte) (err error) {
	r.status.Reset()
	r.fields = r.fields[:0]
	r.keys, r.scores, r.topks, r.ints, r.text, r.spans = r.keys[:0], r.scores[:0], r.topks[:0], r.ints[:0], r.text[:0], r.spans[:0]
	for f := wire.Walk(b, &err); f.Next(); {
		switch {
		case f.Is(1, protowire.BytesType):
			err = proto.UnmarshalOptions{Merge: true}.Unmarshal(f.Bytes, &r.status)
		case f.Is(2, protowire.BytesType):
			r.readData(f.Bytes, &err)
		}
	}
	r.makeKeys()
	return err
}

// readData decodes a schemapb.SearchResultData.
func (r *reply) readData(b []byte, err *error) {
	for f := wire.Walk(b, err); f.Next(); {
		switch {
		case f.Is(3, protowire.BytesType):
			field := &schemapb.FieldData{}
			if e := proto.Unmarshal(f.Bytes, field); e != nil {
				*err = e
			}
			r.fields = append(r.fields, field)
		case f.Number == 4:
			r.scores = wire.AppendFloats(r.scores, f.Field, err)
		case f.Is(5, protowire.BytesType):
			r.readIDs(f.Bytes, err)
		case f.Number == 6:
			r.topks = wire.AppendInts(r.topks, f.Field, err)
		}
	}
}

// readIDs decodes a schemapb.IDs: numbers or texts.
func (r *reply) readIDs(b []byte, err *error) {
	for f := wire.Walk(b, err); f.Next(); {
		if f.Kind != protowire.BytesType || f.Number > 2 {
			continue
		}
		numbers := f.Number == 1
		for f := wire.Walk(f.Bytes, err); f.Next(); {
			switch {
			case f.Number != 1:
			case numbers:
				r.ints = wire.AppendInts(r.ints, f.Field, err)
			case f.Kind == protowire.BytesType:
				var at wire.Span
				r.text, at = wire.AppendText(r.text, f.Bytes, err)
				r.spans = append(r.spans, at)
			}
		}
	}
}

// makeKeys builds the keys. Text keys share one string.
func (r *reply) makeKeys() {
	all := string(r.text)
	for _, n := range r.ints {
		r.keys = append(r.keys, key{num: n})
	}
	for _, s := range r.spans {
		r.keys = append(r.keys, key{text: all[s.From:s.To], isText: true})
	}
}
