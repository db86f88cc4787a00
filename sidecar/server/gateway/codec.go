package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/likenessdb/likeness/internal/jsonwalk"
)

// codec converts messages from and to JSON. Fields have the names of the proto schema. Zeros and
// empty lists are written. Unknown fields are refused.
type codec struct{ runtime.JSONPb }

func newCodec() *codec {
	return &codec{runtime.JSONPb{MarshalOptions: protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true}}}
}

// NewDecoder returns a decoder of a body, which must consist of one message and nothing after it.
func (c *codec) NewDecoder(r io.Reader) runtime.Decoder {
	return runtime.DecoderFunc(func(v any) error {
		m, ok := v.(proto.Message)
		from, whole := r.(*body)
		if !ok || !whole {
			return errors.New("a message is read from a request's body")
		}
		data := bytes.TrimSpace(from.data)
		if len(data) == 0 {
			return io.EOF // an empty body is an empty message
		}
		return from.inTurn(func() error {
			if err := checkCounts(data); err != nil {
				return err
			}
			err := c.UnmarshalOptions.Unmarshal(data, m)
			if err == nil {
				return nil
			}
			if said := misfit(m.ProtoReflect().Descriptor(), data); said != "" {
				return errors.New(said)
			}
			return errors.New(plain(err))
		})
	})
}

// Limits on the values in a request's JSON, because an object of three bytes can become a message
// of hundreds. The rules of the API allow fewer items and searches in one call.
const (
	maxObjects = 1 << 16
	maxTexts   = 1 << 18
	maxDepth   = 64
)

// checkCounts returns an error for JSON that would take many times its length when decoded.
func checkCounts(data []byte) error {
	c := jsonwalk.Count(data)
	switch {
	case c.Objects > maxObjects:
		return fmt.Errorf("the JSON has %d objects, at most %d; split the batch, or send fewer items at a time", c.Objects, maxObjects)
	case c.Texts > maxTexts:
		return fmt.Errorf("the JSON has %d keys and texts, at most %d; split the batch", c.Texts, maxTexts)
	case c.Depth > maxDepth:
		return fmt.Errorf("the JSON has %d levels, at most %d; no message of the API has as many", c.Depth, maxDepth)
	}
	return nil
}

// plain returns an error's text without protobuf's prefix, which contains a random kind of space.
func plain(err error) string {
	return strings.TrimLeft(strings.TrimPrefix(err.Error(), "proto:"), " \u00a0")
}
