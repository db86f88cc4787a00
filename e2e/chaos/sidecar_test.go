package chaos_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

// patient reconnects quickly, so that tests measure the sidecar and not its client.
var patient = grpc.WithConnectParams(grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.5, Jitter: 0.2, MaxDelay: 200 * time.Millisecond},
	MinConnectTimeout: time.Second,
})

// pingsAllowed accepts frequent keepalive pings, as the relevant stores do.
var pingsAllowed = grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 100 * time.Millisecond, PermitWithoutStream: true})

// sidecar is a process of `likeness serve` with ports of its own, which it keeps over restarts.
type sidecar struct {
	name, binary, file string
	log                string
	clock              string // file with the offset of its clock; "": the machine's clock
	api, admin         string // addresses
	grpc, rest         string // of its proxy

	conn, proxy *grpc.ClientConn
	http        *http.Client

	mu    sync.Mutex
	pid   int
	ended chan struct{}
	// epoch is even while the sidecar runs undisturbed, and changes with each disturbance.
	epoch atomic.Int64
}

// nextPort follows the last port handed out. A sidecar listens on its ports long after it got them,
// and until then they look free.
var nextPort = 15000 + rand.IntN(10000)

// ports returns distinct free ports, below those that the system gives to clients.
func ports(t *testing.T, n int) []string {
	t.Helper()
	var free []string
	for range 1000 {
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(nextPort))
		nextPort++
		l, err := net.Listen("tcp", address)
		if err != nil {
			continue
		}
		_ = l.Close()
		if free = append(free, address); len(free) == n {
			return free
		}
	}
	t.Fatal("no free ports")
	return nil
}

func newSidecar(t *testing.T, name, binary, folder string) *sidecar {
	t.Helper()
	free := ports(t, 4)
	s := &sidecar{name: name, binary: binary, file: filepath.Join(folder, name+".yaml"), log: filepath.Join(folder, name+".log"),
		api: free[0], admin: free[1], grpc: free[2], rest: free[3]}
	for to, conn := range map[string]**grpc.ClientConn{s.api: &s.conn, s.grpc: &s.proxy} {
		c, err := grpc.NewClient(to, grpc.WithTransportCredentials(insecure.NewCredentials()), patient)
		if err != nil {
			t.Fatal(err)
		}
		*conn = c
		t.Cleanup(func() { _ = c.Close() })
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 16}
	s.http = &http.Client{Transport: transport}
	t.Cleanup(func() {
		s.kill()
		transport.CloseIdleConnections()
		if t.Failed() {
			if b, err := os.ReadFile(s.log); err == nil {
				t.Logf("sidecar %s wrote:\n%s", name, b[max(0, len(b)-4000):])
			}
		}
	})
	return s
}

// run runs the program with other arguments until it ends.
func (s *sidecar) run(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), s.binary, args...)
	cmd.Env, cmd.Dir = clean(), filepath.Dir(s.file)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("likeness %v: %v\n%s", args, err, out)
	}
}

// clean is an environment without the variables of the test run.
func clean() []string { return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")} }

// start starts the process on a thread that lives as long, so that the process dies with the test.
func (s *sidecar) start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	cmd := exec.Command(s.binary, "serve", "--config", s.file, "--log-level", "warn")
	cmd.Env, cmd.Stdout, cmd.Stderr = clean(), log, log
	if s.clock != "" {
		cmd.Env = append(cmd.Env, "CHAOS_CLOCK="+s.clock)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started, ended := make(chan error, 1), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer log.Close()
		defer close(ended)
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		s.pid, s.ended = cmd.Process.Pid, ended
		started <- nil
		_ = cmd.Wait()
	}()
	return <-started
}

// kill sends SIGKILL.
func (s *sidecar) kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pid != 0 {
		_ = syscall.Kill(s.pid, syscall.SIGKILL)
		<-s.ended
		s.pid = 0
	}
}

func (s *sidecar) signal(sig syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pid != 0 {
		_ = syscall.Kill(s.pid, sig)
	}
}

func (s *sidecar) running() (pid int, alive bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pid == 0 {
		return 0, false
	}
	select {
	case <-s.ended:
		return s.pid, false
	default:
		return s.pid, true
	}
}

// children returns the sidecar's child processes, and which of them are zombies.
func (s *sidecar) children() (alive, zombies []int) {
	pid, _ := s.running()
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		after := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
		if len(after) < 2 || after[1] != strconv.Itoa(pid) || pid == 0 {
			continue
		}
		child, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if after[0] == "Z" {
			zombies = append(zombies, child)
		} else {
			alive = append(alive, child)
		}
	}
	return alive, zombies
}

// metrics reads the metrics of the admin listener.
func (s *sidecar) metrics(ctx context.Context) (map[string]float64, error) {
	values := map[string]float64{}
	err := s.lines(ctx, "/metrics", func(line string) {
		name, text, ok := strings.Cut(line, " ")
		if v, err := strconv.ParseFloat(text, 64); ok && err == nil {
			values[name] = v
		}
	})
	return values, err
}

// live returns the bytes of the heap in use right after two forced collections; pools keep their
// content over one collection.
func (s *sidecar) live(ctx context.Context) (n float64, err error) {
	for range 2 {
		n = -1
		failed := s.lines(ctx, "/debug/pprof/heap?gc=1&debug=1", func(line string) {
			if text, ok := strings.CutPrefix(line, "# HeapAlloc = "); ok {
				n, err = strconv.ParseFloat(text, 64)
			}
		})
		if err := errors.Join(failed, err); err != nil {
			return 0, err
		}
	}
	if n < 0 {
		return 0, errors.New("the profile of the heap does not say what is allocated")
	}
	return n, nil
}

// lines reads a page of the admin listener.
func (s *sidecar) lines(ctx context.Context, page string, read func(line string)) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.admin+page, http.NoBody)
	if err != nil {
		return err
	}
	response, err := s.http.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", page, response.Status)
	}
	lines := bufio.NewScanner(io.LimitReader(response.Body, 8<<20))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		read(lines.Text())
	}
	return lines.Err()
}

// ready waits until the sidecar is ready.
func (s *sidecar) ready(ctx context.Context) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.admin+"/readyz", http.NoBody)
		if err != nil {
			return err
		}
		if response, err := s.http.Do(r); err == nil {
			b, _ := io.ReadAll(response.Body)
			response.Body.Close()
			if response.StatusCode == http.StatusOK && !strings.Contains(string(b), "route ") {
				return nil
			}
		}
		if _, alive := s.running(); !alive {
			return errors.New("sidecar " + s.name + " ended")
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("sidecar %s: %w", s.name, ctx.Err())
		case <-tick.C:
		}
	}
}
