package harness

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"golang.org/x/net/http2"
)

// Pings counts the clients' pings on the recorded HTTP/2 connections, and lists the reasons of
// GOAWAY frames. Call it after Close.
func (t *Tap) Pings() (pings int, away []string, err error) {
	for _, w := range t.wires {
		up := bytes.TrimPrefix(w.up.Bytes(), []byte(http2.ClientPreface))
		if err := eachFrame(up, func(f http2.Frame) {
			if p, ok := f.(*http2.PingFrame); ok && !p.IsAck() {
				pings++
			}
		}); err != nil {
			return 0, nil, err
		}
		if err := eachFrame(w.down.Bytes(), func(f http2.Frame) {
			if g, ok := f.(*http2.GoAwayFrame); ok {
				away = append(away, fmt.Sprintf("%s %s", g.ErrCode, g.DebugData()))
			}
		}); err != nil {
			return 0, nil, err
		}
	}
	return pings, away, nil
}

func eachFrame(b []byte, see func(http2.Frame)) error {
	framer := http2.NewFramer(io.Discard, bytes.NewReader(b))
	framer.SetMaxReadFrameSize(1<<24 - 1)
	for {
		frame, err := framer.ReadFrame()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		}
		if err != nil {
			return err
		}
		see(frame)
	}
}
