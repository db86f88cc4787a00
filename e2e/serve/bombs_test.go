package serve_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/likenessdb/likeness/internal/race"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
)

// Messages that unpack to a thousand times their length, many at a time, are refused by their
// unpacked length, and the sidecar is not killed for lack of memory. A message just below the limit
// takes a few times its length. LIKENESS_SOAK=1 sends a hundred.
func TestBombsTogether(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector takes memory of its own")
	}
	bombs, unpacked := 20, 80<<20
	if os.Getenv(soak) != "" {
		bombs = 100
	}
	child, at := startChild(t, files(t, strings.Replace(base, "stores:", "limits: {memory: 400MiB, max_message_bytes: 48MiB}\nstores:", 1)))
	pid := child.Process.Pid
	enclosed := enclose(t, pid, 512<<20)
	client := &http.Transport{Protocols: &http.Protocols{}}
	client.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(client.CloseIdleConnections)
	batch := &likenessv1.SearchBatchRequest{}
	for range 180 {
		batch.Searches = append(batch.Searches, &likenessv1.SearchRequest{Route: "things", K: 1, Query: &likenessv1.Query{Vector: make([]float32, 65536)}})
	}
	big, err := proto.Marshal(batch)
	must2(t, err)
	bomb := zippedZeros(t, unpacked)
	quiet := peakMemory(t, pid)
	if status, text := sendFrame(t, client, at.GRPC, big, ""); status != "0" {
		t.Errorf("a message of %d MiB: status %s, %s", len(big)>>20, status, text)
	}
	read := peakMemory(t, pid)
	var group sync.WaitGroup
	for range bombs {
		group.Go(func() {
			status, text := sendFrame(t, client, at.GRPC, bomb, "gzip")
			if status != "8" || !strings.Contains(text, "limits.max_message_bytes") { // RESOURCE_EXHAUSTED
				t.Errorf("a bomb: status %s, %s", status, text)
			}
		})
	}
	group.Wait()
	bombed := peakMemory(t, pid)
	t.Logf("reliability row=9 figure=%d messages of %d KiB at once, %d MiB unpacked, each refused: at most %d MiB resident of 512 (a cgroup: %t), not killed",
		bombs, len(bomb)>>10, unpacked>>20, bombed>>20, enclosed)
	t.Logf("reliability row=8 figure=a message of %d MiB: at most %d MiB resident, %d before; %.1f times the message",
		len(big)>>20, read>>20, quiet>>20, float64(read-quiet)/float64(len(big)))
}

// zippedZeros returns n zeros, compressed.
func zippedZeros(t *testing.T, n int) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := io.CopyN(w, zeros{}, int64(n))
	must2(t, err)
	must2(t, w.Close())
	return b.Bytes()
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// sendFrame calls SearchBatch with these bytes as the message, which a gRPC client would compress
// itself, and returns how the call ended.
func sendFrame(t *testing.T, client http.RoundTripper, address string, message []byte, encoding string) (status, text string) {
	t.Helper()
	frame := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message)))
	if encoding != "" {
		frame[0] = 1
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+likenessv1.SearchService_SearchBatch_FullMethodName,
		io.MultiReader(bytes.NewReader(frame), bytes.NewReader(message)))
	must2(t, err)
	r.Header = http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}}
	if encoding != "" {
		r.Header.Set("Grpc-Encoding", encoding)
	}
	answer, err := client.RoundTrip(r)
	if err != nil {
		t.Errorf("sending %d bytes: %v", len(message), err)
		return "", ""
	}
	defer func() { _ = answer.Body.Close() }()
	_, _ = io.Copy(io.Discard, answer.Body) // the trailers come after it
	for _, h := range []http.Header{answer.Trailer, answer.Header} {
		if s := h.Get("Grpc-Status"); s != "" {
			return s, h.Get("Grpc-Message")
		}
	}
	return "", ""
}
