package rest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/likenessdb/likeness/sidecar/proxy/rest"
)

// FuzzDrain drains a proxy at any byte of requests that arrive in pieces, pipelined or not. Every
// request that the database has received completely is answered completely, in order.
func FuzzDrain(f *testing.F) {
	f.Add(uint64(1), uint8(3), uint16(100))
	f.Add(uint64(2), uint8(1), uint16(0))
	f.Add(uint64(3), uint8(20), uint16(7))
	f.Fuzz(func(t *testing.T, seed uint64, count uint8, split uint16) {
		random := rand.New(rand.NewPCG(seed, 0))
		requests, answers := make([]string, 1+int(count)), make([]string, 1+int(count))
		for i := range requests {
			requests[i], answers[i] = exchange(random, i)
		}
		sent, piece := strings.Join(requests, ""), 1+int(split)
		leave, answerSeed := random.IntN(len(sent)), random.Uint64()
		heard := make(chan string, len(requests))
		d := newDatabase(t, func(conn net.Conn) { respond(conn, answers, rand.New(rand.NewPCG(answerSeed, 0)), piece, heard) })
		s, address := serve(t, rest.Options{Upstream: "http://" + d.address()})
		client := dialTCP(t, address)
		drained := make(chan bool, 1)
		go func() {
			for at := 0; at < len(sent); {
				n := min(1+random.IntN(piece), len(sent)-at)
				if at <= leave && leave < at+n {
					go func() {
						ctx, cancel := context.WithTimeout(context.Background(), patience)
						defer cancel()
						drained <- s.Drain(ctx)
					}()
				}
				_, _ = io.WriteString(client, sent[at:at+n]) // the proxy may have ended the connection
				at += n
			}
		}()
		told, err := io.ReadAll(client)
		if err != nil && !errors.Is(err, syscall.ECONNRESET) { // it still sent, as on any connection that ends
			t.Fatal(err)
		}
		if err := errors.Join(client.SetLinger(0), client.Close()); err != nil { // fuzzing would run out of ports
			t.Fatal(err)
		}
		if <-drained {
			t.Error("drain had to cut")
		}
		in := newReader(bytes.NewReader(told))
		for i := range len(heard) {
			name := <-heard
			request := &http.Request{Method: name[:strings.IndexByte(name, ' ')]}
			a, err := http.ReadResponse(in, request)
			for err == nil && a.StatusCode < http.StatusOK {
				a, err = http.ReadResponse(in, request)
			}
			if err != nil {
				t.Fatalf("answer %d of %d: %v", i, len(heard), err)
			}
			body, err := io.ReadAll(a.Body)
			if err != nil || a.Header.Get("Number") != name[strings.IndexByte(name, ' ')+1:] || !strings.Contains(answers[i], string(body)) {
				t.Fatalf("answer %d: %v %.100q, %v", i, a.Header, body, err)
			}
		}
		if left, _ := io.ReadAll(in); len(left) > 0 {
			t.Errorf("behind the answers came %.100q", left)
		}
	})
}

// respond answers requests in pieces, each once it has been received completely.
func respond(conn net.Conn, answers []string, random *rand.Rand, piece int, heard chan<- string) {
	in := newReader(conn)
	for {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		var number int
		if _, err := fmt.Sscan(r.Header.Get("Number"), &number); err != nil {
			return
		}
		heard <- r.Method + " " + r.Header.Get("Number")
		for a := answers[number]; a != ""; {
			n := min(1+random.IntN(piece), len(a))
			if _, err := io.WriteString(conn, a[:n]); err != nil {
				return
			}
			a = a[n:]
		}
	}
}

// exchange returns a random request and its answer.
func exchange(random *rand.Rand, number int) (request, answer string) {
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	body := func() string {
		content := pick("", "x", "\r\n\r\n", "HTTP/1.1 200 OK\r\n", strings.Repeat("0\r\n", random.IntN(3000)))
		if content == "" || random.IntN(2) == 0 {
			return fmt.Sprintf("%s:%s%d\r\n\r\n%s", pick("Content-Length", "content-length"), pick("", " ", "\t"), len(content), content)
		}
		return fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x%s\r\n%s\r\n0\r\n%s\r\n", len(content), pick("", ";a=b"), content, pick("", "T: 0\r\n"))
	}
	fields := fmt.Sprintf("Number: %d\r\n%s", number, pick("", "X: "+strings.Repeat("y", random.IntN(6000))+"\r\n", "Connection: keep-alive\r\n"))
	method := pick("GET", "HEAD", "POST", "PURGE")
	request = fmt.Sprintf("%s%s /%s HTTP/1.1\r\n%s", pick("", "", "\r\n"), method, pick("", "?", "//x"), fields)
	answer = pick("", "", "HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n")
	status := pick("200 OK", "404 ", "204 No Content", "304 Not Modified")
	answer += "HTTP/1.1 " + status + "\r\n" + fields
	if method == "HEAD" || status[1:3] == "04" && status[0] != '4' {
		answer += pick("", "Content-Length: 7\r\n") + "\r\n"
	} else {
		answer += body()
	}
	return request + pick("\r\n", body()), answer
}

// FuzzAnyBytes has both sides say anything. The proxy ends the client's connection, whatever
// it was, and never tells the database of more requests than net/http reads.
func FuzzAnyBytes(f *testing.F) {
	f.Add([]byte("GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n"), []byte("HTTP/1.1 200 OK\r\n\r\n"))
	f.Add([]byte("\x16\x03\x01"), []byte("\x15"))
	f.Add([]byte("GET / HTTP/1.1\r\nHost: h\r\n\r\nGET / HTTP/1.1\r\n\r\n"), []byte("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"))
	f.Fuzz(func(t *testing.T, asked, told []byte) {
		if bytes.HasPrefix(asked, []byte("PRI")) {
			t.Skip("HTTP/2, perhaps")
		}
		d := newDatabase(t, func(conn net.Conn) {
			in := newReader(conn)
			for {
				r, err := http.ReadRequest(in)
				if err != nil {
					return
				}
				if _, err := io.Copy(io.Discard, r.Body); err != nil {
					return
				}
				if _, err := conn.Write(told); err != nil {
					return
				}
			}
		})
		client := dialTCP(t, start(t, d.address()))
		_ = client.SetReadDeadline(time.Now().Add(patience))
		_, _ = client.Write(asked)
		_ = client.CloseWrite()
		if _, err := io.Copy(io.Discard, client); err != nil && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the connection does not end: %v", err)
		}
		_ = client.SetLinger(0)
	})
}
