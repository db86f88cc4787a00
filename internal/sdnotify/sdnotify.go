// Package sdnotify tells systemd how the service does that it started (Type=notify),
// by the datagrams of sd_notify(3).
package sdnotify

import (
	"fmt"
	"net"
	"strings"
)

// What there is to tell.
const (
	Ready    = "READY=1"
	Stopping = "STOPPING=1"
)

// Send sends a state to the socket that systemd names in NOTIFY_SOCKET; without one
// nobody asks.
func Send(socket, state string) error {
	if socket == "" {
		return nil
	}
	if name, ok := strings.CutPrefix(socket, "@"); ok {
		socket = "\x00" + name // of no file system
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err == nil {
		_, err = conn.Write([]byte(state))
		_ = conn.Close()
	}
	if err != nil {
		return fmt.Errorf("telling systemd %s: %w", state, err)
	}
	return nil
}
