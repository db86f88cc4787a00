package proxy_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"mime/multipart"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/qdrant/go-client/qdrant"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/internal/testbinary"
	"github.com/likenessdb/likeness/sidecar/proxy"
)

// envSnapshotRows is how many rows of 768 numbers the snapshot has; 350,000 are
// about 1.1 GB. Without it the test is skipped: `make soak` sets it.
const envSnapshotRows = "LIKENESS_SNAPSHOT_ROWS"

// maxGrowth is how much a proxy may grow while a snapshot crosses it.
const maxGrowth = 64 << 20

// TestSnapshotsAreStreamed downloads a real snapshot and uploads it again through a proxy in a
// process of its own, and measures the proxy's peak memory.
func TestSnapshotsAreStreamed(t *testing.T) {
	rows, err := strconv.Atoi(os.Getenv(envSnapshotRows))
	if err != nil {
		t.Skipf("%s is not set: make soak runs this", envSnapshotRows)
	}
	db := servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{})
	fillForSnapshot(t, db.Address, rows)
	p := startProcess(t, db.REST)
	var made struct {
		Result struct {
			Name string `json:"name"`
			Size int64  `json:"size"`
		} `json:"result"`
	}
	askJSON(t, http.MethodPost, p.rest+"/collections/big/snapshots?wait=true", nil, "", &made)
	path := filepath.Join(t.TempDir(), "snapshot")
	at := "/collections/big/snapshots/" + made.Result.Name

	down := p.growth(t, func() { download(t, p.rest+at, path) })
	if direct, through := sumOf(t, db.REST+at), fileSum(t, path); direct != through {
		t.Errorf("the snapshot has the sum %s, directly %s", through, direct)
	}
	up := p.growth(t, func() { uploadFile(t, p.rest+"/collections/again/snapshots/upload?priority=snapshot", path) })
	var count struct {
		Result struct {
			Count int `json:"count"`
		} `json:"result"`
	}
	askJSON(t, http.MethodPost, p.rest+"/collections/again/points/count", strings.NewReader(`{"exact":true}`), "application/json", &count)
	if count.Result.Count != rows {
		t.Errorf("%d rows came back, want %d", count.Result.Count, rows)
	}
	t.Logf("snapshot of %d rows, %d MiB: the proxy grew by %.1f MiB on the way down, %.1f MiB on the way up", rows, made.Result.Size>>20, mib(down), mib(up))
	if down > maxGrowth || up > maxGrowth {
		t.Errorf("the bar is %d MiB", maxGrowth>>20)
	}
}

func mib(n int64) float64 { return float64(n) / (1 << 20) }

func fillForSnapshot(t *testing.T, address string, rows int) {
	t.Helper()
	const dim, batch = 768, 500
	c := qdrant.NewPointsClient(dial(t, address))
	_, err := qdrant.NewCollectionsClient(dial(t, address)).Create(t.Context(), &qdrant.CreateCollection{
		CollectionName:   "big",
		VectorsConfig:    qdrant.NewVectorsConfig(&qdrant.VectorParams{Size: dim, Distance: qdrant.Distance_Dot, OnDisk: qdrant.PtrOf(true)}),
		HnswConfig:       &qdrant.HnswConfigDiff{M: qdrant.PtrOf(uint64(0))},
		OptimizersConfig: &qdrant.OptimizersConfigDiff{IndexingThreshold: qdrant.PtrOf(uint64(0))},
	})
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for from := 0; from < rows; from += batch {
		points := make([]*qdrant.PointStruct, min(batch, rows-from))
		for i := range points {
			v := make([]float32, dim)
			for j := range v {
				v[j] = random.Float32() - 0.5
			}
			points[i] = &qdrant.PointStruct{Id: qdrant.NewIDNum(uint64(from + i)), Vectors: qdrant.NewVectorsDense(v)}
		}
		if _, err := c.Upsert(t.Context(), &qdrant.UpsertPoints{CollectionName: "big", Points: points, Wait: qdrant.PtrOf(from+batch >= rows)}); err != nil {
			t.Fatal(err)
		}
	}
}

// process is a proxy in a process of its own.
type process struct {
	pid  int
	rest string
}

func startProcess(t *testing.T, database string) process {
	t.Helper()
	binary := testbinary.Likeness(t)
	ready := filepath.Join(t.TempDir(), "ready")
	cmd := exec.CommandContext(t.Context(), binary, "proxy", "--qdrant-rest", database, "--listen-rest", "127.0.0.1:0", "--ready-file", ready)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	var addresses proxy.Addresses
	for addresses.REST == "" {
		select {
		case <-ended:
			t.Fatal("the proxy ended")
		case <-poll.C:
		}
		if b, err := os.ReadFile(ready); err == nil {
			_ = json.Unmarshal(b, &addresses) // it may not be whole yet
		}
	}
	return process{cmd.Process.Pid, "http://" + addresses.REST}
}

// growth returns by how much the peak resident memory during do exceeds the memory before.
func (p process) growth(t *testing.T, do func()) int64 {
	t.Helper()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.pid), []byte("5"), 0o200); err != nil { // sets the peak to what it is now
		t.Skipf("the kernel does not reset a peak: %v", err)
	}
	before := p.peak(t)
	do()
	return p.peak(t) - before
}

func (p process) peak(t *testing.T) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(b), "VmHWM:")
	var kib int64
	if _, err := fmt.Sscan(after, &kib); err != nil {
		t.Fatal(err)
	}
	return kib << 10
}

// ask makes a request that must be answered with 200; the caller closes the body.
func ask(t *testing.T, method, url string, body io.Reader, kind string) io.ReadCloser {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", kind)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true}}
	a, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if a.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(a.Body, 1000))
		a.Body.Close()
		t.Fatalf("%s %s: %s: %s", method, url, a.Status, text)
	}
	return a.Body
}

func askJSON(t *testing.T, method, url string, body io.Reader, kind string, into any) {
	t.Helper()
	answer := ask(t, method, url, body, kind)
	defer answer.Close()
	if err := json.NewDecoder(answer).Decode(into); err != nil {
		t.Fatal(err)
	}
}

func download(t *testing.T, url, path string) {
	t.Helper()
	body := ask(t, http.MethodGet, url, nil, "")
	defer body.Close()
	f, err := os.Create(path)
	if err == nil {
		_, err = io.Copy(f, body)
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// uploadFile sends a file as a form does, without reading it whole.
func uploadFile(t *testing.T, url, path string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var head bytes.Buffer
	form := multipart.NewWriter(&head)
	if _, err := form.CreateFormFile("snapshot", "big.snapshot"); err != nil {
		t.Fatal(err)
	}
	before := bytes.Clone(head.Bytes())
	head.Reset()
	if err := form.Close(); err != nil {
		t.Fatal(err)
	}
	ask(t, http.MethodPost, url, io.MultiReader(bytes.NewReader(before), f, &head), form.FormDataContentType()).Close()
}

func sumOf(t *testing.T, url string) string {
	t.Helper()
	body := ask(t, http.MethodGet, url, nil, "")
	defer body.Close()
	return readerSum(t, body)
}

func fileSum(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return readerSum(t, f)
}

func readerSum(t *testing.T, r io.Reader) string {
	t.Helper()
	h := sha256.New()
	if _, err := io.Copy(h, r); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}
