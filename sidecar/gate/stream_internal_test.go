package gate

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
)

// scripted is the wire of a call with prepared bytes.
type scripted struct {
	io.Reader
	compression string
}

func (s *scripted) RecvCompress() string { return s.compression }

func (s *scripted) ReadMessageHeader(header []byte) error {
	_, err := io.ReadFull(s.Reader, header)
	return err
}

func (s *scripted) Read(n int) (mem.BufferSlice, error) {
	b := make([]byte, n)
	at, err := io.ReadFull(s.Reader, b)
	return mem.BufferSlice{mem.SliceBuffer(b[:at])}, err
}

// plainCodec is a codec of messages that are bytes.
type plainCodec struct{}

func (plainCodec) Marshal(any) (mem.BufferSlice, error) { return nil, nil }
func (plainCodec) Name() string                         { return "plain" }
func (plainCodec) Unmarshal(data mem.BufferSlice, v any) error {
	if *v.(*[]byte) = data.Materialize(); bytes.HasPrefix(*v.(*[]byte), []byte("bad")) { //nolint:misspell // gRPC spells it so
		return errors.New("no message")
	}
	return nil
}

type serverStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s serverStream) Context() context.Context { return s.ctx }

// frame returns a message as the bytes of a gRPC frame.
func frame(packed bool, message []byte) []byte {
	flag := byte(0)
	if packed {
		flag = 1
	}
	return append(binary.BigEndian.AppendUint32([]byte{flag}, uint32(len(message))), message...)
}

func gzipped(t *testing.T, message []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(message); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// receiving returns a stream whose wire has these bytes, at a Gate for 8 MiB of messages.
func receiving(t *testing.T, isUnary bool, wire ...[]byte) (*stream, *Gate) {
	t.Helper()
	g := New(Options{ReceivedBytes: 8 << 20})
	r := &Receiver{Gate: g, Codec: plainCodec{}, Gunzip: NewGunzip(1<<20, MessageSetting), MaxBytes: 1 << 20}
	return &stream{
		ServerStream: serverStream{ctx: t.Context()}, receiver: r, isUnary: isUnary,
		wire: &scripted{bytes.NewReader(bytes.Join(wire, nil)), "gzip"},
	}, g
}

// TestMessages: which messages a call's bytes become.
func TestMessages(t *testing.T) {
	short, long := []byte("short"), bytes.Repeat([]byte("long "), 100_000) // 500 kB
	for name, c := range map[string]struct {
		isUnary bool
		wire    [][]byte
		want    [][]byte
		code    codes.Code // of the error after the messages; codes.OK means io.EOF
	}{
		"one":                          {true, [][]byte{frame(false, short)}, [][]byte{short}, codes.OK},
		"a long one":                   {true, [][]byte{frame(false, long)}, [][]byte{long}, codes.OK},
		"gzip":                         {true, [][]byte{frame(true, gzipped(t, long))}, [][]byte{long}, codes.OK},
		"several":                      {false, [][]byte{frame(false, short), frame(true, gzipped(t, short)), frame(false, long)}, [][]byte{short, short, long}, codes.OK},
		"an empty one":                 {true, [][]byte{frame(false, nil)}, [][]byte{nil}, codes.OK},
		"none of a stream":             {false, nil, nil, codes.OK},
		"none of a call":               {true, nil, nil, codes.Internal},
		"two of a call":                {true, [][]byte{frame(false, short), frame(false, short)}, nil, codes.Internal},
		"two long ones of a call":      {true, [][]byte{frame(false, long), frame(false, short)}, nil, codes.Internal},
		"cut in its length":            {false, [][]byte{frame(false, short)[:3]}, nil, codes.Internal},
		"cut":                          {false, [][]byte{frame(false, short)[:8]}, nil, codes.Internal},
		"a long one that is cut":       {false, [][]byte{frame(false, long)[:300_000]}, nil, codes.Internal},
		"cut in its first bytes":       {false, [][]byte{frame(false, long)[:100]}, nil, codes.Internal},
		"not gzip":                     {false, [][]byte{frame(true, long)}, nil, codes.Internal},
		"not readable":                 {false, [][]byte{frame(false, []byte("bad"))}, nil, codes.Internal},
		"longer than the limit":        {false, [][]byte{frame(false, make([]byte, 1<<20+1))}, nil, codes.Unknown},
		"one behind another is cut":    {false, [][]byte{frame(false, long), frame(false, long)[:300_000]}, [][]byte{long}, codes.Internal},
		"as long as the limit":         {false, [][]byte{frame(false, make([]byte, 1<<20))}, [][]byte{make([]byte, 1<<20)}, codes.OK},
		"one that becomes a long one":  {false, [][]byte{frame(true, gzipped(t, long))}, [][]byte{long}, codes.OK},
		"a gzip of another compressor": {false, [][]byte{frame(true, gzipped(t, short))}, nil, codes.Internal},
	} {
		t.Run(name, func(t *testing.T) {
			s, g := receiving(t, c.isUnary, c.wire...)
			if name == "a gzip of another compressor" {
				s.wire.(*scripted).compression = "snappy"
			}
			var m []byte
			for i, want := range c.want {
				if err := s.RecvMsg(&m); err != nil || !bytes.Equal(m, want) {
					t.Fatalf("message %d: %d bytes, %v; want %d", i, len(m), err, len(want))
				}
			}
			err := s.RecvMsg(&m)
			var refused *RefusedError
			switch {
			case c.code == codes.OK && !errors.Is(err, io.EOF), c.code == codes.Internal && status.Code(err) != codes.Internal:
				t.Errorf("err = %v, want %v", err, c.code)
			case c.code == codes.Unknown && (!errors.As(err, &refused) || refused.Reason != ReasonTooLarge):
				t.Errorf("err = %v, want a refusal", err)
			}
			s.setGrant(nil, true)
			if n := g.ReceivedBytes(); n != 0 {
				t.Errorf("%d bytes are not given back", n)
			}
		})
	}
}

// TestBytesOfAMessage: the bytes of a message count until the next one is read or the call ends.
// Short messages do not count.
func TestBytesOfAMessage(t *testing.T) {
	short, long := []byte("short"), make([]byte, 500_000)
	zeros := gzipped(t, long)
	s, g := receiving(t, false, frame(false, long), frame(false, short), frame(true, zeros), frame(false, long), frame(false, long))
	var m []byte
	for i, want := range []int64{500_000, 0, 500_000, 500_000} {
		if err := s.RecvMsg(&m); err != nil || g.ReceivedBytes() != want {
			t.Errorf("message %d: %v, %d bytes count, want %d", i, err, g.ReceivedBytes(), want)
		}
	}
	s.setGrant(nil, true) // the call ends while its handler still receives
	if err := s.RecvMsg(&m); err != nil || g.ReceivedBytes() != 0 {
		t.Errorf("%v, and %d bytes count after the end of the call", err, g.ReceivedBytes())
	}
}

// TestUsage: a search is refused if the next collection would leave the heap near the limit, and
// everything once the heap exceeds it.
func TestUsage(t *testing.T) {
	const mib = 1 << 20
	for name, c := range map[string]struct {
		usage
		want string // in the error; empty: none
	}{
		"no limit":                {usage{limit: math.MaxInt64, live: 1 << 60, mapped: 1 << 60}, ""},
		"at the share":            {usage{limit: 100 * mib, live: 85 * mib, mapped: 85 * mib, objects: 85 * mib}, ""},
		"beyond the share":        {usage{limit: 100 * mib, live: 86 * mib, mapped: 86 * mib, objects: 86 * mib}, "86 MiB are in use"},
		"garbage":                 {usage{limit: 100 * mib, live: 10 * mib, mapped: 99 * mib, objects: 90 * mib}, ""},
		"empty memory":            {usage{limit: 100 * mib, live: 10 * mib, mapped: 99 * mib, objects: 10 * mib, free: 80 * mib}, ""},
		"beyond the limit":        {usage{limit: 100 * mib, live: 10 * mib, mapped: 101 * mib, objects: 90 * mib}, "101 MiB are in use"},
		"stacks and other memory": {usage{limit: 100 * mib, live: 1 * mib, mapped: 90 * mib, objects: 1 * mib}, "90 MiB are in use"},
		"more live than objects":  {usage{limit: 100 * mib, live: 90 * mib, mapped: 90 * mib, objects: 80 * mib}, "90 MiB are in use"},
		"more free than mapped":   {usage{limit: 100 * mib, mapped: 90 * mib, free: 95 * mib}, ""},
	} {
		r := c.usage.refusal()
		if c.want == "" && r != nil || c.want != "" && (r == nil || !strings.Contains(r.Error(), c.want) || r.Reason != ReasonMemory || !errors.Is(r, ErrOverload)) {
			t.Errorf("%s: %v, want %q", name, r, c.want)
		}
	}
}

// TestRefusalsCollect: while searches are refused, a collection begins once the last one is too old, and no second one
// at the next reading.
func TestRefusalsCollect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, now, started := &memory{}, time.Unix(1, 0), 0
		for i, c := range []struct {
			refuses bool
			cycles  uint64
			later   time.Duration
			want    int
		}{
			{true, 1, 0, 0}, {true, 1, collectAfter, 0}, {true, 1, 1, 1}, {true, 1, 1, 0}, // a new one, not too old, too old, just begun
			{true, 2, 2 * collectAfter, 0}, {false, 2, 2 * collectAfter, 0}, {true, 2, 1, 1}, // another one, not refused, refused again
		} {
			now, started = now.Add(c.later), 0
			m.noteReading(c.refuses, c.cycles, now, func() { started++ })
			if synctest.Wait(); started != c.want {
				t.Errorf("reading %d starts %d collections, want %d", i, started, c.want)
			}
		}
	})
}

// TestRefusals: each refusal states its kind, its reason, the setting that limits it, and the
// remedy.
func TestRefusals(t *testing.T) {
	cause := errors.New("the cause")
	for name, c := range map[string]struct {
		r       *RefusedError
		kind    error
		reason  Reason
		setting string
		retry   bool
		says    string
	}{
		"searches": {tooManySearches("limits.max_searches", 3), ErrOverload, ReasonMaxSearches, "limits.max_searches", true, "limits.max_searches is 3"},
		"rate":     {tooOften("rate", 2, 4, 1), ErrOverload, ReasonRate, "rate", true, "rate is 2 a second, 4 at once"},
		"slow":     {routeSlow("r", 5, cause), ErrOverload, ReasonSlow, "", true, `route "r" answers 5 at a time`},
		"busy":     {processorsBusy(2), ErrOverload, ReasonSlow, "", true, "the 2 processors"},
		"memory":   {outOfMemory(3<<20, 4<<20), ErrOverload, ReasonMemory, "limits.memory", true, "is 4 MiB, and 3 MiB are in use"},
		"large":    {messageTooLarge(9, 8, MessageSetting), ErrTooLarge, ReasonTooLarge, MessageSetting, false, "it has 9 bytes, and limits.max_message_bytes is 8"},
		"full":     {messagesFull(7), ErrFull, ReasonFull, ReceivedSetting, true, "7 bytes"},
		"stalled":  {bytesStalled("body", paceTime), ErrStalled, ReasonStalled, "", false, "of the body came within 10s"},
		"message":  {messageStalled(1 << 20), ErrStalled, ReasonStalled, "", false, "1048576 bytes were announced and did not come within 11s"},
	} {
		if !errors.Is(c.r, c.kind) || c.r.Reason != c.reason || c.r.Setting != c.setting || (c.r.After > 0) != c.retry || !strings.Contains(c.r.Error(), c.says) {
			t.Errorf("%s: %+v: %v", name, c.r, c.r)
		}
		if errors.Is(c.r, cause) != (name == "slow") {
			t.Errorf("%s: the cause is %v", name, c.r.Unwrap())
		}
	}
}
