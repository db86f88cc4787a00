// Package sdnotify reports the state of the service to systemd (Type=notify), by the
// datagrams of sd_notify(3).
package sdnotify

import (
	"fmt"
	"net"
	"strings"
)

// The states that can be reported.
const (
	Ready    = "READY=1"
	Stopping = "STOPPING=1"
)

// Send sends a state to the socket that systemd names in NOTIFY_SOCKET. If socket is empty,
// it does nothing.
func Send(socket, state string) error {
	if socket == "" {
		return nil
	}
	if name, ok := strings.CutPrefix(socket, "@"); ok {
		socket = "\x00" + name // an abstract socket
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
