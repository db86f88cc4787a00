package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"

	"github.com/likenessdb/likeness/internal/atomicfile"
	"github.com/likenessdb/likeness/sidecar/proxy/peer"
)

// copyCommand is the first argument of the process that copies bytes: the least that any
// process between a client and a database does.
const copyCommand = "copy-bytes"

// copyBytes copies the bytes of every connection to and from an address until ctx is done.
func copyBytes(ctx context.Context, args []string, stderr io.Writer) error {
	flags := flag.NewFlagSet(copyCommand, flag.ContinueOnError)
	flags.SetOutput(stderr)
	to := flags.String("to", "", "host:port to copy to")
	ready := flags.String("ready-file", "", "file that gets the address of the listener")
	if err := flags.Parse(args); err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("copying bytes: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = listener.Close() })()
	text, err := json.Marshal(listener.Addr().String())
	if err != nil {
		return err
	}
	err = atomicfile.Write(*ready, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
	if err != nil {
		return err
	}
	var copying sync.WaitGroup
	defer copying.Wait()
	log := slog.New(slog.NewTextHandler(stderr, nil))
	return peer.Accept(listener, ctx.Done(), log, func(client net.Conn) {
		copying.Go(func() { copyConnection(ctx, client, *to) })
	})
}

// copyConnection copies between a client and a connection of its own to an address. What
// fails ends both, as the client will see.
func copyConnection(ctx context.Context, client net.Conn, to string) {
	defer client.Close()
	database, err := new(net.Dialer).DialContext(ctx, "tcp", to)
	if err != nil {
		return
	}
	defer database.Close()
	defer context.AfterFunc(ctx, func() {
		_ = client.Close()
		_ = database.Close()
	})()
	done := make(chan struct{})
	go func() {
		_, _ = io.Copy(database, client)
		_ = database.Close()
		close(done)
	}()
	_, _ = io.Copy(client, database)
	_ = client.Close()
	<-done
}
