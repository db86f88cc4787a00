package gateway

import (
	"bytes"
	"errors"
	"io"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// codec is the JSON form of messages. Fields have the names of the schema, zeros
// and empty lists are written; what is not of the schema is refused.
type codec struct{ runtime.JSONPb }

func newCodec() *codec {
	return &codec{runtime.JSONPb{MarshalOptions: protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true}}}
}

// NewDecoder reads the one message of a body: nothing may follow it.
func (c *codec) NewDecoder(r io.Reader) runtime.Decoder {
	return runtime.DecoderFunc(func(v any) error {
		m, ok := v.(proto.Message)
		from, whole := r.(*body)
		if !ok || !whole {
			return errors.New("a message is read from a request's body")
		}
		data := bytes.TrimSpace(from.data)
		if len(data) == 0 {
			return io.EOF // an empty message
		}
		return from.inTurn(func() error {
			if err := c.UnmarshalOptions.Unmarshal(data, m); err != nil {
				return errors.New(plain(err))
			}
			return nil
		})
	})
}

// plain is an error's text without the mark of protobuf, whose space varies.
func plain(err error) string {
	return strings.TrimLeft(strings.TrimPrefix(err.Error(), "proto:"), " \u00a0")
}
