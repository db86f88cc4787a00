package sdnotify_test

import (
	"net"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/likenessdb/likeness/internal/sdnotify"
)

func TestSend(t *testing.T) {
	sockets := map[string]string{"a file": filepath.Join(t.TempDir(), "notify")}
	if runtime.GOOS == "linux" {
		sockets["of no file system"] = "@likeness-" + filepath.Base(t.TempDir()) + "-notify"
	}
	for name, socket := range sockets {
		t.Run(name, func(t *testing.T) {
			listener, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			if err := sdnotify.Send(socket, sdnotify.Ready); err != nil {
				t.Fatal(err)
			}
			b := make([]byte, 64)
			if n, err := listener.Read(b); err != nil || string(b[:n]) != "READY=1" {
				t.Errorf("%q, %v", b[:n], err)
			}
		})
	}
}

func TestNobodyListens(t *testing.T) {
	if err := sdnotify.Send("", sdnotify.Ready); err != nil {
		t.Errorf("without a socket: %v", err)
	}
	if err := sdnotify.Send(filepath.Join(t.TempDir(), "none"), sdnotify.Ready); err == nil {
		t.Error("a socket that is not there takes what is sent")
	}
}
