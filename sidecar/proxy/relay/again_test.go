package relay_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

// What the database does not hear, as it has ended without saying so, it is told on
// another connection.
func TestDatabaseEndsUnheard(t *testing.T) {
	const put = "PUT / HTTP/1.1\r\nContent-Length: 2\r\n\r\n"
	for name, linger := range map[string]int{"with a word": -1, "without": 0} {
		t.Run(name, func(t *testing.T) {
			k := hold(t, []said{asks(get), tells(ok)}, false)
			end := func() {
				t.Helper()
				if err := errors.Join(k.database.SetLinger(linger), k.database.Close()); err != nil {
					t.Fatal(err)
				}
			}
			end() // before the request
			k.send(k.client, put)
			k.accept(put)
			k.send(k.client, "ab")
			k.expect(k.database, "ab")
			k.send(k.database, ok)
			k.expect(k.client, ok)

			k.send(k.client, put+"a") // in it
			k.expect(k.database, put+"a")
			end()
			k.accept(put + "a")
			k.send(k.client, "b")
			k.expect(k.database, "b")
			k.send(k.database, ok)
			k.expect(k.client, ok)

			k.send(k.client, get) // a second time
			k.expect(k.database, get)
			end()
			k.accept(get)
			end()
			got, err := io.ReadAll(k.client)
			if err != nil || !bytes.HasPrefix(got, []byte("HTTP/1.1 502 ")) {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

// A request that is too long to be kept is not repeated; nor is one that nobody can take.
func TestDatabaseEndsForGood(t *testing.T) {
	for name, unheard := range map[string]func(k *talk){
		"a long one": func(k *talk) {
			long := fmt.Sprintf("PUT / HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s", 1<<20, strings.Repeat("x", 1<<20))
			go k.send(k.client, long)
			k.expect(k.database, long)
			_ = k.database.Close()
		},
		"the database is down": func(k *talk) {
			_ = k.listener.Close()
			_ = k.database.Close()
			k.send(k.client, get)
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := hold(t, []said{asks(get), tells(ok)}, false)
			unheard(k)
			got, err := io.ReadAll(k.client)
			if err != nil || !bytes.HasPrefix(got, []byte("HTTP/1.1 502 ")) {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

// A client whose database has ended has nothing to lose at the end.
func TestDrainHTTPWithoutADatabase(t *testing.T) {
	k := hold(t, []said{asks(get), tells(ok)}, false)
	if err := k.database.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	k.ends(k.database, "")
	if <-k.drain(t.Context()) {
		t.Error("drain had to cut")
	}
	k.ends(k.client, "")
}
