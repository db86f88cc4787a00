package serve_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
)

// Spellings: requests that a database may read in another way than the sidecar. All of them are bytes on a
// connection, because no client library sends them.

// spellPath changes a path in up to three ways that a server may undo, or not.
func (l *liar) spellPath(path string) string {
	for range l.random.IntN(4) {
		at := l.random.IntN(len(path) + 1)
		switch l.random.IntN(8) {
		case 0:
			if at < len(path) {
				path = path[:at] + fmt.Sprintf(one(l, []string{"%%%02x", "%%%02X", "%%25%02x"}), path[at]) + path[at+1:]
			}
		case 1:
			path += one(l, []string{"/", "//", "#x", "?", "?x#y", ";x", "%2f", "%23", "%00", ".", "/.", "/..", "%20", "\\", "?api-key=" + key})
		case 2:
			path = strings.TrimPrefix(path, "/")
		case 3:
			path = strings.Replace(path, "/", one(l, []string{"//", "/./", "/x/../", "/%2e%2e/", "\\"}), 1+l.random.IntN(3))
		case 4:
			path = one(l, []string{"http://h", "http://h:1", "https://h", "//h", "h:80"}) + path
		case 5:
			path = path[:at] + strings.ToUpper(path[at:])
		case 6:
			path = path[:at] + one(l, []string{"é", "\xff", "%e9", "*", "[", "|"}) + path[at:]
		case 7:
			path = strings.Repeat("/x", 1+l.random.IntN(9)) + strings.Repeat("/..", l.random.IntN(9)) + path
		}
	}
	return path
}

// restHeaders are header lines that say something about a request, its body or its connection.
var restHeaders = []string{
	"Content-Encoding: gzip", "Content-Encoding: zstd", "Content-Encoding: br, identity", "Content-Type: application/x-protobuf", "Content-Type: text/plain",
	"X-HTTP-Method-Override: DELETE", "X-Original-URL: /collections/routed", "X-Forwarded-Prefix: /collections", "Expect: 100-continue", "Expect: x",
	"Upgrade: h2c", "Connection: upgrade, http2-settings", "Connection: api-key", "Connection: content-type", "HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA", "Upgrade: websocket",
	"TE: trailers", "Trailer: api-key", "Host: other", "Host:", "Cookie: api-key=" + key, "X-Api-Key: x", "Likeness-User: u", "Api-Key : x", " folded: line", "Api-Key:\tx",
	"Content-Length: 5", "Content-Length: +5", "Content-Length: 5, 5", "Content-Length: 0x5", "Transfer-Encoding: chunked", "Transfer-Encoding: gzip, chunked", "Transfer-Encoding: identity",
	"Range: bytes=0-1", "If-None-Match: *", "Accept-Encoding: zstd", "Accept: text/event-stream", "Connection: close",
}

// chunked encodes a body in chunks with odd sizes and extensions, and a trailer.
func (l *liar) chunked(body string) string {
	var b strings.Builder
	for len(body) > 0 {
		n := 1 + l.random.IntN(len(body))
		size := fmt.Sprintf(one(l, []string{"%x", "%X", "%04x", "%x;", "%x;a=b", "%x ;a=\"\r", "%x;" + strings.Repeat("e", 200), "+%x", "0x%x", "%x\t"}), n)
		b.WriteString(size + one(l, []string{"\r\n", "\r\n", "\r\n", "\n"}) + body[:n] + one(l, []string{"\r\n", "\r\n", "\r\n", "\n", ""}))
		body = body[n:]
	}
	return b.String() + one(l, []string{"0", "000", "0;x", "-0"}) + "\r\n" + one(l, []string{"", "Api-Key: " + key + "x\r\n", "Content-Length: 1\r\n"}) + one(l, []string{"\r\n", ""})
}

// spellREST writes, and searches, by odd spellings of HTTP/1.1.
func (l *liar) spellREST(ctx context.Context) {
	method, path, body, credentials := http.MethodPost, "/collections/routed/points/search", plainBody, l.credentials()
	if l.random.IntN(3) > 0 {
		w := one(l, restLies)
		credentials, body = l.noWriter(), w[1]
		method, path, _ = strings.Cut(w[0], " ")
		if l.random.IntN(4) == 0 {
			path += one(l, []string{"/unknown", "s", "/upsert", "/points"})
		}
	}
	if l.random.IntN(4) == 0 {
		method = one(l, []string{strings.ToLower(method), "PATCH", "FOO", "PROPFIND", "CONNECT", "TRACE", method + "X", "PURGE", "QUERY"})
	}
	head := []string{method + " " + l.spellPath(path) + one(l, []string{" HTTP/1.1", " HTTP/1.1", " HTTP/1.1", " HTTP/1.0", " HTTP/2.0", "", "  HTTP/1.1"}), "Host: h", "Content-Type: application/json"}
	for name, values := range credentials {
		for _, v := range values {
			head = append(head, name+": "+v)
		}
	}
	for range l.random.IntN(3) {
		head = append(head, one(l, restHeaders))
	}
	if l.random.IntN(2) == 0 {
		head, body = append(head, "Transfer-Encoding: chunked"), l.chunked(body)
	} else {
		head = append(head, fmt.Sprintf("Content-Length: %d", len(body)+one(l, []int{0, 0, 0, 0, -1, 1})))
	}
	request := strings.Join(head, "\r\n") + "\r\n\r\n" + body
	if l.random.IntN(8) == 0 { // a second request on the connection, which may become a part of another client's
		request += "DELETE /collections/routed HTTP/1.1\r\nHost: h\r\n\r\n"
	}
	for _, answer := range l.converse(ctx, l.at.Proxy.REST, request) {
		if answer.StatusCode < 300 && answer.StatusCode >= 200 && method != "TRACE" && method != "CONNECT" || answer.Header.Get("Likeness-Status") != "" {
			l.told("%q: %d %v", request, answer.StatusCode, answer.Header)
		}
	}
}

// converse sends bytes on a connection of their own, and returns the heads of the answers that come soon.
func (l *liar) converse(ctx context.Context, address, request string) (answers []*http.Response) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Duration(20+l.random.IntN(80)) * time.Millisecond))
	_, _ = io.WriteString(conn, request)
	for in := bufio.NewReader(conn); ; {
		answer, err := http.ReadResponse(in, nil)
		if err != nil {
			return answers
		}
		_, err = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
		if answers = append(answers, answer); err != nil {
			return answers
		}
	}
}

// grpcLie is a gRPC call that its caller may not make.
type grpcLie struct {
	path        string
	message     []byte
	credentials metadata.MD
}

// spelledHead returns a head of a call over HTTP/2, with missing, repeated and odd fields. encoding is the one that
// it names first.
func (l *liar) spelledHead(method, path, encoding string, credentials metadata.MD) []byte {
	fields := [][2]string{{":method", method}, {":scheme", "http"}, {":path", path}, {":authority", "h"}, {"te", "trailers"}, {"content-type", "application/grpc"}}
	if encoding != "" {
		fields = append(fields, [2]string{"grpc-encoding", encoding})
	}
	for name, values := range credentials {
		for _, v := range values {
			fields = append(fields, [2]string{name, v})
		}
	}
	for range l.random.IntN(3) {
		fields = append(fields, one(l, [][2]string{
			{"grpc-encoding", "gzip"}, {"grpc-encoding", "zstd"}, {"grpc-encoding", "identity"}, {"grpc-encoding", ""}, {"dbname", "default"}, {"dbname", "other"}, {"content-length", "3"},
			{"content-type", "application/json"}, {"grpc-timeout", "1n"}, {"grpc-timeout", "99999999H"}, {"grpc-timeout", "-1S"}, {"connection", "close"}, {"transfer-encoding", "chunked"},
			{"host", "other"}, {"likeness-status", "rescored"}, {"x-request-id", "i"}, {"grpc-status", "0"}, {"cookie", "api-key=" + key}, {"x", "\xff"}, {"x!", "y"}, {"a-bin", "!"}, {"Upper", "x"}, {"x", "a\r\nb"},
		}))
	}
	switch l.random.IntN(8) {
	case 0:
		fields = append(fields, one(l, [][2]string{{":path", path}, {":path", "/qdrant.Qdrant/Nothing"}, {":method", "GET"}, {":scheme", "https"}, {":authority", "x"}, {":status", "200"}, {":protocol", "websocket"}, {":x", "y"}}))
	case 1:
		fields = slices.Insert(fields, l.random.IntN(5), one(l, [][2]string{{":path", "/qdrant.Qdrant/Nothing"}, {":method", "GET"}, {":path", ""}, {"api-key", "x"}}))
	case 2:
		at := l.random.IntN(len(fields))
		fields = slices.Delete(fields, at, at+1)
	case 3:
		l.random.Shuffle(len(fields), func(i, j int) { fields[i], fields[j] = fields[j], fields[i] })
	}
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, f := range fields {
		_ = encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}) // to memory
	}
	return block.Bytes()
}

// spellBody frames a message, in ways that contradict each other.
func (l *liar) spellBody(message []byte, encoding string) []byte {
	flag := byte(0)
	if encoding != "" && l.random.IntN(4) > 0 {
		flag, message = 1, packed(one(l, []string{encoding, encoding, "gzip", "zstd"}), message)
	}
	length := len(message) + one(l, []int{0, 0, 0, 0, 0, -1, 1, 1 << 20})
	b := append(binary.BigEndian.AppendUint32([]byte{flag}, uint32(max(0, length))), message...)
	switch l.random.IntN(8) {
	case 0:
		b = append(b, b...)
	case 1:
		b[0] = byte(l.random.IntN(256))
	}
	return b
}

// packed compresses a message.
func packed(encoding string, message []byte) []byte {
	var b bytes.Buffer
	switch encoding {
	case "gzip":
		w := gzip.NewWriter(&b)
		_, _ = w.Write(message) // to memory
		_ = w.Close()
	case "zstd": // one block as it is, of a frame that states its length (RFC 8878)
		n := uint32(len(message))
		b.Write(binary.LittleEndian.AppendUint32([]byte{0x28, 0xb5, 0x2f, 0xfd, 0xa0}, n))
		b.Write(binary.LittleEndian.AppendUint32(nil, n<<3|1)[:3])
		b.Write(message)
	default:
		return message
	}
	return b.Bytes()
}

// spellGRPC makes a call over HTTP/2 whose head, frames or message are odd.
func (l *liar) spellGRPC(ctx context.Context, address string, lie grpcLie) {
	path, method := lie.path, "POST"
	if l.random.IntN(2) == 0 {
		path = l.spellPath(path)
	}
	if l.random.IntN(8) == 0 {
		method = one(l, []string{"GET", "DELETE", "post", "CONNECT", ""})
	}
	encoding := one(l, []string{"", "", "gzip", "zstd", "deflate", "identity", "snappy"})
	block, body := l.spelledHead(method, path, encoding, lie.credentials), l.spellBody(lie.message, encoding)
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Duration(20+l.random.IntN(80)) * time.Millisecond))
	out := bufio.NewWriter(conn)
	_, _ = out.WriteString(http2.ClientPreface)
	framer := http2.NewFramer(out, conn)
	framer.AllowIllegalWrites, framer.AllowIllegalReads = true, true
	l.writeCall(framer, block, body)
	_ = out.Flush()
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	for {
		f, err := framer.ReadFrame()
		if err != nil {
			return
		}
		if h, ok := f.(*http2.MetaHeadersFrame); ok {
			l.judge(h, path)
		}
	}
}

// writeCall writes the frames of a call, one of them in a wrong place now and then.
func (l *liar) writeCall(framer *http2.Framer, block, body []byte) {
	_ = framer.WriteSettings()
	cut := len(block)
	if l.random.IntN(4) == 0 {
		cut = l.random.IntN(len(block))
	}
	_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block[:cut], EndHeaders: cut == len(block), EndStream: l.random.IntN(16) == 0})
	if cut < len(block) {
		_ = framer.WriteContinuation(1, true, block[cut:])
	}
	for len(body) > 0 {
		n := 1 + l.random.IntN(len(body))
		switch l.random.IntN(10) {
		case 0:
			_ = framer.WriteRSTStream(1, http2.ErrCodeCancel)
		case 1:
			_ = framer.WriteWindowUpdate(one(l, []uint32{0, 1}), one(l, []uint32{0, 1, 1<<31 - 1}))
		case 2:
			_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: one(l, []uint32{1, 3, 2}), BlockFragment: block, EndHeaders: true, EndStream: true})
		case 3:
			_ = framer.WritePing(false, [8]byte{})
		case 4:
			_ = framer.WriteDataPadded(1, false, body[:n], make([]byte, l.random.IntN(255)))
			body = body[n:]
			continue
		}
		_ = framer.WriteData(1, n == len(body), body[:n])
		body = body[n:]
	}
}

// judge says what is wrong with an answer to a lie.
func (l *liar) judge(h *http2.MetaHeadersFrame, path string) {
	for _, f := range h.Fields {
		if f.Name == "likeness-status" || f.Name == "grpc-status" && f.Value == "0" {
			l.told("a call of %q over HTTP/2: %v", path, h.Fields)
		}
	}
}

// marshalled returns a message as bytes.
func (l *liar) marshalled(m proto.Message) []byte {
	b, err := proto.Marshal(m)
	if err != nil {
		l.told("%v", err)
	}
	return b
}
