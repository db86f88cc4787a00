package server_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/status"

	"google.golang.org/grpc"

	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/sidecar/gate"
	"github.com/likenessdb/likeness/sidecar/search"
	"github.com/likenessdb/likeness/sidecar/server"
)

// head is the head of a call of Search, with more fields.
func head(t *testing.T, more ...hpack.HeaderField) []byte {
	t.Helper()
	var out bytes.Buffer
	encoder := hpack.NewEncoder(&out)
	for _, f := range append([]hpack.HeaderField{{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"},
		{Name: ":path", Value: likenessv1.SearchService_Search_FullMethodName}, {Name: ":authority", Value: "a"},
		{Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"}}, more...) {
		if err := encoder.WriteField(f); err != nil {
			t.Fatal(err)
		}
	}
	return out.Bytes()
}

// announce begins a message of n bytes, and sends none of them.
func announce(t *testing.T, framer *http2.Framer, stream uint32, n uint32) {
	t.Helper()
	err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: head(t), EndHeaders: true})
	if err == nil {
		err = framer.WriteData(stream, false, binary.BigEndian.AppendUint32([]byte{0}, n))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	end := time.After(20 * time.Second)
	for tick := time.Tick(5 * time.Millisecond); !holds(); {
		select {
		case <-tick:
		case <-end:
			t.Fatal(what)
		}
	}
}

// answersAll answers every search.
func answersAll(o *server.Options) {
	answering(func(context.Context, search.Request) (search.Answer, error) { return search.Answer{}, nil })(o)
}

// A message whose beginning is here is taken before the rest comes, at most so much at a
// time, and is free again when its sender goes away; small searches and health are
// answered meanwhile.
func TestMessagesAreTaken(t *testing.T) {
	budget := gate.New(gate.Options{ReceivedBytes: 4 << 20})
	w := start(t, answersAll, func(o *server.Options) { o.Gate = budget })
	framer := raw2(t, w.address)
	for i := range uint32(3) { // a host has half of the room, which is enough for two
		announce(t, framer, 1+2*i, 1<<20)
		for range 4 {
			if err := framer.WriteData(1+2*i, false, make([]byte, 16<<10)); err != nil {
				t.Fatal(err)
			}
		}
	}
	until(t, "the budget is not taken", func() bool { return budget.ReceivedBytes() == 2<<20 })
	if _, err := w.search.Search(t.Context(), question()); err != nil {
		t.Errorf("a small search: %v", err)
	}
	healthy(t, w)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	big := question()
	big.Query.Vector = make([]float32, 1<<17)
	if _, err := w.search.Search(ctx, big); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("a message without room: %v", err)
	}
	for i := range uint32(3) {
		if err := framer.WriteRSTStream(1+2*i, http2.ErrCodeCancel); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "the budget is not free", func() bool { return budget.ReceivedBytes() == 0 })
	if _, err := w.search.Search(t.Context(), big); status.Code(err) == codes.DeadlineExceeded {
		t.Errorf("a message with room: %v", err)
	}
	until(t, "an answered message is still taken", func() bool { return budget.ReceivedBytes() == 0 })
}

// A message that is larger than all of the budget is refused with the setting, packed
// or not, before it is held.
func TestMessagesBeyondTheBudget(t *testing.T) {
	budget := gate.New(gate.Options{ReceivedBytes: 1 << 20})
	w := start(t, answersAll, func(o *server.Options) { o.Gate, o.Limits.MaxMessageBytes = budget, 64<<20 })
	big := question()
	big.Query.Vector = make([]float32, 1<<20)
	for name, options := range map[string][]grpc.CallOption{"plain": nil, "gzip": {grpc.UseCompressor(gzip.Name)}} {
		_, err := w.search.Search(t.Context(), big, options...)
		if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), gate.ReceivedSetting) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := w.search.Search(t.Context(), question(), grpc.UseCompressor(gzip.Name)); err != nil {
		t.Errorf("a small one, compressed: %v", err)
	}
	until(t, "what was refused is still taken", func() bool { return budget.ReceivedBytes() == 0 })
}

// Heads that are longer than any honest one are refused, in one frame or without end.
func TestHeaderBombs(t *testing.T) {
	w := start(t, answersAll)
	long := head(t, hpack.HeaderField{Name: "x", Value: strings.Repeat("x", 256<<10)})
	indexed := head(t, hpack.HeaderField{Name: "x", Value: strings.Repeat("x", 3<<10)})
	for range 10_000 { // one byte each for three thousand: what HPACK remembers
		indexed = append(indexed, 0x80|62)
	}
	for name, block := range map[string][]byte{"long": long, "indexed": indexed} {
		framer := raw2(t, w.address)
		cut := min(len(block), 16<<10)
		first, rest := block[:cut], block[cut:]
		err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: first, EndHeaders: len(rest) == 0, EndStream: true})
		for err == nil && len(rest) > 0 {
			n := min(len(rest), 16<<10)
			err = framer.WriteContinuation(1, n == len(rest), rest[:n])
			rest = rest[n:]
		}
		if refused := err != nil || refuses(framer); !refused {
			t.Errorf("%s: not refused", name)
		}
	}
	healthy(t, w)
}

// refuses reports whether a server resets the stream, or ends the connection.
func refuses(framer *http2.Framer) bool {
	for {
		f, err := framer.ReadFrame()
		if err != nil {
			return true
		}
		switch f := f.(type) {
		case *http2.RSTStreamFrame, *http2.GoAwayFrame:
			return true
		case *http2.HeadersFrame:
			return !f.StreamEnded()
		}
	}
}
