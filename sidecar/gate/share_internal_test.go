package gate

import (
	"context"
	"net"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/peer"
)

// TestCallersWithSearchesStay: a caller whose search takes long keeps its share, and one that is idle loses it.
func TestCallersWithSearchesStay(t *testing.T) {
	s := &shares{}
	for _, caller := range []string{"long", "idle"} {
		if _, ok := s.enter(caller, 0, 0, fixedLimit{}); !ok {
			t.Fatal(caller)
		}
	}
	s.leave("idle")
	if s.sweep(2 * activeTime); s.callers["long"] == nil || s.callers["idle"] != nil {
		t.Errorf("after a while: %v", s.callers)
	}
}

// TestWhoseSearchesTheyAre: a search counts for its caller, or else for the host that the client calls from.
func TestWhoseSearchesTheyAre(t *testing.T) {
	called := peer.NewContext(t.Context(), &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv6loopback, Port: 5}})
	for want, ctx := range map[string]context.Context{
		"":           t.Context(),
		"::1":        called,
		"10.0.0.1":   WithSender(called, "10.0.0.1:7"),
		"fe80::2":    WithSender(called, "fe80::2"), // without a port
		"caller key": WithCaller(WithSender(called, "10.0.0.1:7"), "key"),
	} {
		if got := CallerOf(ctx); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestARateIsSharedWhileItIsDivided: a caller that has used its share of a rate gets more only while nobody is short.
func TestARateIsSharedWhileItIsDivided(t *testing.T) {
	fixed := newFixedLimit(Limit{Rate: 0.001, Burst: 20})
	s := &shares{}
	s.enter("other", 0, 0, fixed)
	for range 10 {
		if _, ok := s.enter("flood", 0, 0, fixed); !ok {
			t.Fatal("a caller is refused within its share of ten")
		}
	}
	s.dividedUntil = 5
	if _, ok := s.enter("flood", 4, 0, fixed); ok {
		t.Error("a caller gets more than its share of a rate that is divided")
	}
	if _, ok := s.enter("flood", 5, 0, fixed); !ok {
		t.Error("a caller is refused what nobody else wants")
	}
}

// TestMemoryIsReadNowAndThen: searches that begin together share one reading of the runtime's memory.
func TestMemoryIsReadNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		m.refusal()
		m.mu.Lock() // a second reading would be noted in these fields
		m.cycles, m.since = 7, m.since.Add(1)
		since := m.since
		m.mu.Unlock()
		if m.refusal(); m.cycles != 7 || !m.since.Equal(since) {
			t.Error("the memory is read for each search")
		}
	})
}

// TestHTTP2Bounds: a connection holds no more than its windows, and one that is dead is noticed.
func TestHTTP2Bounds(t *testing.T) {
	c := HTTP2(7)
	if c.MaxConcurrentStreams != 7 || c.MaxReceiveBufferPerStream != BodyWindowBytes || c.MaxReceiveBufferPerConnection != BodiesWindowBytes ||
		c.SendPingTimeout <= 0 || c.PingTimeout <= 0 || c.WriteByteTimeout <= 0 {
		t.Errorf("%+v", c)
	}
}
