package gate

import (
	"net/http"
	"time"
)

// StallTimeout is how long the HTTP listeners of this sidecar wait for a client that neither sends
// nor reads.
const StallTimeout = 30 * time.Second

// HTTP2 returns the limits of a listener that serves HTTP/2 by net/http: so many streams of a
// connection, bodies that wait with their senders, and connections that do not answer a ping
// or take no bytes are closed.
func HTTP2(maxStreams int) *http.HTTP2Config {
	return &http.HTTP2Config{
		MaxConcurrentStreams: maxStreams, MaxReceiveBufferPerStream: BodyWindowBytes, MaxReceiveBufferPerConnection: BodiesWindowBytes,
		SendPingTimeout: 20 * time.Second, PingTimeout: 10 * time.Second, WriteByteTimeout: StallTimeout,
	}
}
