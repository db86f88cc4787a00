package harness

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// exemptGRPC lists the headers that belong to a hop and not to the call: compression, and the
// identity of the peers.
var exemptGRPC = []string{":scheme", ":authority", ":method", ":path", "user-agent", "te", "grpc-encoding", "grpc-accept-encoding", "accept-encoding", "content-length", "date"}

// grpcExchanges reads the calls of one HTTP/2 connection.
func grpcExchanges(up, down []byte) ([]Exchange, error) {
	up = bytes.TrimPrefix(up, []byte(http2.ClientPreface))
	requests, err := readStreams(up)
	if err != nil {
		return nil, fmt.Errorf("client's frames: %w", err)
	}
	answers, err := readStreams(down)
	if err != nil {
		return nil, fmt.Errorf("server's frames: %w", err)
	}
	var all []Exchange
	for _, id := range slices.Sorted(maps.Keys(requests)) {
		r, a := requests[id], answers[id]
		if a == nil {
			a = &stream{}
		}
		e := Exchange{Call: r.path, Cut: r.reset || !r.ended || !a.ended || a.late, Request: r.lines, Answer: a.lines, Metadata: r.metadata}
		for s, out := range map[*stream]*[]string{r: &e.Request, a: &e.Answer} {
			messages, err := s.messages()
			if err != nil {
				e.Cut = true
			}
			for i, m := range messages {
				if s == r && i == 0 {
					e.Body = m
				}
				*out = append(*out, body(m))
			}
		}
		if slices.Contains(e.Answer, "header grpc-status: 12") {
			// A server that does not know the method answers before the message arrives, which may
			// then not be sent.
			e.Request = slices.DeleteFunc(e.Request, func(line string) bool { return strings.HasPrefix(line, "body ") })
		}
		all = append(all, e)
	}
	return all, nil
}

// stream is one direction of a call.
type stream struct {
	path         string
	encoding     string
	lines        []string // headers and trailers
	metadata     map[string][]string
	data         []byte
	reset, ended bool
	late         bool // its deadline passed
}

func readStreams(b []byte) (map[uint32]*stream, error) {
	framer := http2.NewFramer(io.Discard, bytes.NewReader(b))
	framer.SetMaxReadFrameSize(1<<24 - 1)
	framer.MaxHeaderListSize = 16 << 20
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	framer.ReadMetaHeaders.SetAllowedMaxDynamicTableSize(1 << 20)
	streams := map[uint32]*stream{}
	for {
		frame, err := framer.ReadFrame()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return streams, nil // the connection was closed in the middle of a frame
		}
		if err != nil {
			return nil, err
		}
		id := frame.Header().StreamID
		if id == 0 {
			continue
		}
		if streams[id] == nil {
			streams[id] = &stream{}
		}
		streams[id].add(frame)
	}
}

func (s *stream) add(frame http2.Frame) {
	switch f := frame.(type) {
	case *http2.MetaHeadersFrame:
		if s.metadata == nil {
			s.metadata = map[string][]string{}
			for _, h := range f.Fields {
				s.metadata[h.Name] = append(s.metadata[h.Name], h.Value)
			}
		}
		s.lines = append(s.lines, headers(exemptGRPC, func(yield func(name, value string)) {
			for _, h := range f.Fields {
				switch h.Name {
				case ":path":
					s.path = h.Value
				case "grpc-encoding":
					s.encoding = h.Value
				case "grpc-status":
					s.late = h.Value == "4" // it is random which side notices its deadline first
				}
				yield(h.Name, h.Value)
			}
		})...)
		s.ended = s.ended || f.StreamEnded()
	case *http2.DataFrame:
		s.data = append(s.data, f.Data()...)
		s.ended = s.ended || f.StreamEnded()
	case *http2.RSTStreamFrame:
		// A server may reset a stream after its end, to say that it reads no more.
		s.reset = s.reset || f.ErrCode != http2.ErrCodeNo
	}
}

// messages returns the messages of a stream, decompressed.
func (s *stream) messages() ([][]byte, error) {
	var out [][]byte
	for b := s.data; len(b) > 0; {
		if len(b) < 5 {
			return out, io.ErrUnexpectedEOF
		}
		compressed, n := b[0] == 1, binary.BigEndian.Uint32(b[1:5])
		if uint64(len(b)) < 5+uint64(n) {
			return out, io.ErrUnexpectedEOF
		}
		message := b[5 : 5+n]
		if compressed {
			var err error
			if message, err = s.decompress(message); err != nil {
				return out, err
			}
		}
		out = append(out, message)
		b = b[5+n:]
	}
	return out, nil
}

func (s *stream) decompress(b []byte) ([]byte, error) {
	if s.encoding != "gzip" {
		return nil, fmt.Errorf("encoding %q", s.encoding)
	}
	r, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}
