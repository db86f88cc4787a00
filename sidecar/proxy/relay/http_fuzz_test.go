package relay_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"
)

// FuzzDrainHTTP ends a relay at any byte of requests that come in pieces, pipelined or
// not. Every request that the database has heard of is heard whole and answered whole,
// and the answers arrive as they are, but for one line in the head of the last.
func FuzzDrainHTTP(f *testing.F) {
	f.Add(uint64(1), uint8(3), uint16(100))
	f.Add(uint64(2), uint8(1), uint16(0))
	f.Add(uint64(3), uint8(20), uint16(7))
	f.Fuzz(func(t *testing.T, seed uint64, count uint8, split uint16) {
		random := rand.New(rand.NewPCG(seed, 0))
		requests, answers := make([]string, 1+int(count)), make([]string, 1+int(count))
		for i := range requests {
			requests[i], answers[i] = exchange(random)
		}
		sent := strings.Join(requests, "")
		leave, piece, answerSeed := 2+random.IntN(len(sent)-1), 1+int(split), random.Uint64()
		k := dialHTTP(t, sent[:2])
		heard := make(chan int)
		go func() { heard <- respond(k.database, requests, answers, rand.New(rand.NewPCG(answerSeed, 0)), piece) }()
		drained := make(chan bool, 1)
		go func() {
			for at := 2; at < len(sent); {
				n := min(1+random.IntN(piece), len(sent)-at)
				if at <= leave && leave < at+n {
					go k.drainInto(drained)
				}
				if _, err := io.WriteString(k.client, sent[at:at+n]); err != nil {
					return
				}
				at += n
			}
			if leave == len(sent) {
				k.drainInto(drained)
			}
		}()
		told, err := io.ReadAll(k.client)
		if err != nil && !errors.Is(err, syscall.ECONNRESET) { // it still sent, as on any connection that ends
			t.Fatal(err)
		}
		if err := errors.Join(k.client.SetLinger(0), k.client.Close()); err != nil { // fuzzing would run out of ports
			t.Fatal(err)
		}
		want := strings.Join(answers[:<-heard], "")
		got := strings.Replace(string(told), "Connection: close\r\n", "", 1)
		if got != want {
			t.Errorf("the client heard %d bytes, %.300q at the end, want %d, %.300q", len(got), got[max(0, len(got)-300):], len(want), want[max(0, len(want)-300):])
		}
		if <-drained {
			t.Error("drain had to cut")
		}
	})
}

func (k *talk) drainInto(cut chan bool) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	cut <- k.server.Drain(ctx)
}

// respond answers requests, each when it has heard all of it, in pieces. It returns how
// many it has answered; the first two bytes were heard before.
func respond(conn *net.TCPConn, requests, answers []string, random *rand.Rand, piece int) int {
	defer conn.Close()
	for i, r := range requests {
		if i == 0 {
			r = r[2:]
		}
		b := make([]byte, len(r))
		if _, err := io.ReadFull(conn, b); err != nil || string(b) != r {
			return i
		}
		for a := answers[i]; a != ""; {
			n := min(1+random.IntN(piece), len(a))
			if _, err := io.WriteString(conn, a[:n]); err != nil {
				return i
			}
			a = a[n:]
		}
	}
	_, _ = conn.Read(make([]byte, 1)) // until the relay ends it
	return len(requests)
}

// exchange is a request and its answer.
func exchange(random *rand.Rand) (request, answer string) {
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	body := func() string {
		content := pick("", "x", "\r\n\r\n", "HTTP/1.1 200 OK\r\n", strings.Repeat("0\r\n", random.IntN(3000)))
		if content == "" || random.IntN(2) == 0 {
			return fmt.Sprintf("%s:%s%d\r\n\r\n%s", pick("Content-Length", "content-length"), pick("", " ", "\t"), len(content), content)
		}
		return fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x%s\r\n%s\r\n0\r\n%s\r\n", len(content), pick("", ";a=b"), content, pick("", "T: 0\r\n"))
	}
	fields := pick("", "X: "+strings.Repeat("y", random.IntN(6000))+"\r\n", "Connection: keep-alive\r\n")
	method := pick("GET", "HEAD", "POST", "PURGE")
	request = fmt.Sprintf("%s%s /%s HTTP/1.1\r\n%s", pick("", "", "\r\n"), method, pick("", "?", "//\"{"), fields)
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

// FuzzAnyBytes has both sides say anything: it arrives as it is.
func FuzzAnyBytes(f *testing.F) {
	f.Add([]byte("GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n"), []byte("HTTP/1.1 200 OK\r\n\r\n"), uint8(1))
	f.Add([]byte("\x16\x03\x01"), []byte("\x15"), uint8(9))
	f.Fuzz(func(t *testing.T, asked, told []byte, split uint8) {
		if preface := []byte("PRI * HTTP/2.0\r\n"); bytes.Equal(asked[:min(len(asked), len(preface))], preface[:min(len(asked), len(preface))]) {
			t.Skip("HTTP/2, or the beginning of it")
		}
		piece := 1 + int(split)
		database := listen(t)
		_, address := serveHTTP(t, database.Addr().String())
		client := dialTCP(t, address)
		if err := client.SetLinger(0); err != nil { // fuzzing would run out of ports
			t.Fatal(err)
		}
		say := func(conn *net.TCPConn, b []byte) {
			for len(b) > 0 {
				n := min(piece, len(b))
				if _, err := conn.Write(b[:n]); err != nil {
					return
				}
				b = b[n:]
			}
			_ = conn.CloseWrite()
		}
		go say(client, asked)
		upstream, err := database.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer upstream.Close()
		if got, err := io.ReadAll(upstream); err != nil || !bytes.Equal(got, asked) {
			t.Fatalf("the database heard %q, %v", got, err)
		}
		go say(upstream.(*net.TCPConn), told)
		if got, err := io.ReadAll(client); err != nil || !bytes.Equal(got, told) {
			t.Fatalf("the client heard %q, %v", got, err)
		}
	})
}
