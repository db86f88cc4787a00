package openfiles_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/likenessdb/likeness/internal/openfiles"
)

// exhausted is a listener of a process without files to spare.
type exhausted struct {
	net.Listener
	err error
}

func (e exhausted) Accept() (net.Conn, error) {
	return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", e.err)}
}

func TestWarnsOnceOfTooManyOpenFiles(t *testing.T) {
	open, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	for cause, want := range map[error]int{syscall.EMFILE: 1, syscall.ENFILE: 1, syscall.ECONNABORTED: 0} {
		var log bytes.Buffer
		l := openfiles.Listener(exhausted{open, cause}, slog.New(slog.NewTextHandler(&log, nil)))
		for range 100 {
			if _, err := l.Accept(); !errors.Is(err, cause) {
				t.Errorf("%v, want %v", err, cause)
			}
		}
		if n := strings.Count(log.String(), "level=WARN"); n != want || want > 0 && !strings.Contains(log.String(), "LimitNOFILE") {
			t.Errorf("%v: %d lines, want %d: %s", cause, n, want, log.String())
		}
	}
}
