package h2

// Limits that tests compare with.
const (
	HardLimit    = hardLimit
	ReadBuffer   = readBuffer
	FreeSettings = freeSettings
)

// Queued returns the bytes that wait for the peer.
func (c *Conn) Queued() int64 { return c.queued.Load() }
