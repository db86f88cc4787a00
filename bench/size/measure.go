package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
	"google.golang.org/grpc"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/bench/internal/host"
	"github.com/likenessdb/likeness/client"
	"github.com/likenessdb/likeness/sidecar/serve"
)

// report contains all measurements.
type report struct {
	Processor string     `json:"processor"`
	Cores     int        `json:"cores"`
	Qdrant    string     `json:"qdrant"`
	Items     int        `json:"items"`
	Dim       int        `json:"dim"`
	Load      [2]float64 `json:"load"` // load average of the machine over one minute, at the beginning and the end

	Fill  step    `json:"fill"`  // of Qdrant, by this program
	Index command `json:"index"` // of the first version
	Disk  disk    `json:"disk"`  // after it

	FirstStart start   `json:"first_start"` // compares every row with the collection before an answer is exact
	Starts     []start `json:"starts"`
	Scan       times   `json:"scan"`
	Scanned    memory  `json:"memory_after_scans"`

	Changed  int     `json:"changed"` // items written again, through the proxy
	Write    step    `json:"write"`
	Follow   float64 `json:"follow_seconds"` // from the last answer to a write to the table that shows all
	Followed memory  `json:"memory_after_writes"`

	IndexNext  command `json:"index_next_version"` // while the first is served
	Switch     float64 `json:"switch_seconds"`
	SwitchScan times   `json:"scan_after_switch"`
	Switched   memory  `json:"memory_after_switch"`
	DiskAtEnd  disk    `json:"disk_at_end"`
}

// step is work on a number of items.
type step struct {
	Seconds float64 `json:"seconds"`
	Rows    float64 `json:"rows_per_second"`
}

func newStep(rows int, since time.Time) step {
	seconds := time.Since(since).Seconds()
	return step{seconds, float64(rows) / seconds}
}

// command is a run of `likeness index`.
type command struct {
	step
	CPU      float64 `json:"cpu_seconds"`
	Resident int64   `json:"resident_bytes"` // at most
}

// disk holds the sizes of files on disk, in bytes.
type disk struct {
	Qdrant int64 `json:"qdrant"`
	Tables int64 `json:"tables"`
	State  int64 `json:"state"`
}

// start is the time from exec to an answer.
type start struct {
	First float64 `json:"first_answer_seconds"`
	Exact float64 `json:"first_exact_seconds"`
	CPU   float64 `json:"cpu_seconds"`
	// Uncached means that the table was not in the file cache.
	Uncached bool   `json:"uncached"`
	Memory   memory `json:"memory"`
}

// memory is what a process holds, in bytes. Mapped counts the pages of files, which the system can take back.
type memory struct {
	Own    uint64 `json:"own"`
	Mapped uint64 `json:"mapped"`
}

// times are the milliseconds of searches.
type times struct {
	Median  float64 `json:"median_ms"`
	Slowest float64 `json:"slowest_ms"`
}

const configured = `
listen: {grpc: "127.0.0.1:0", admin: "127.0.0.1:0"}
log: {level: warn}
state_dir: state
stores: {qdrant: {kind: qdrant, address: %q}}
models: {v1: {path: v1.safetensors}, v2: {path: v2.safetensors}}
routes:
  items:
    {store: qdrant, collection: items, placement: table, strategy: scan, timeout: 30s, writes: proxy, table_live: true,
    table_format: int8, table_full_precision: true, self_calibration: false, reconcile: {rows_per_second: 0}, active: v1,
    versions: {v1: {model: v1, table: v1.table}, v2: {model: v2, table: v2.table}}}
proxy: {store: qdrant, listen_grpc: "127.0.0.1:0"}
`

// place has what a run works with.
type place struct {
	settings
	mixture
	dir    string
	db     grpc.ClientConnInterface
	stderr io.Writer
}

func (p place) say(format string, a ...any) { _, _ = fmt.Fprintf(p.stderr, format+"\n", a...) }

// measure starts Qdrant, measures, and stops everything.
func (s settings) measure(ctx context.Context, stderr io.Writer) (_ *report, err error) {
	dir, err := os.MkdirTemp(s.work, "likeness-bench-size-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	items, err := newMixture(filepath.Join(s.Data, "train_vectors.npy"), s.dim)
	if err != nil {
		return nil, err
	}
	db, err := servers.Qdrant(ctx, servers.Dir(), servers.QdrantNewest, servers.Options{Env: []string{"QDRANT__STORAGE__STORAGE_PATH=" + filepath.Join(dir, "qdrant")}})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	conn, err := connect(db.Address)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	p := place{s, items, dir, conn, stderr}
	r := &report{
		Processor: host.Processor(), Cores: runtime.GOMAXPROCS(0), Qdrant: db.Version,
		Items: s.items, Dim: s.dim, Load: [2]float64{host.Load()},
	}
	if err := p.prepare(ctx, r, db.Address); err != nil {
		return r, err
	}
	if err := errors.Join(p.timeStarts(ctx, r), p.serving(ctx, r)); err != nil {
		return r, err
	}
	r.Load[1] = host.Load()
	return r, nil
}

// prepare fills Qdrant and builds the first version's table.
func (p place) prepare(ctx context.Context, r *report, address string) error {
	if err := os.WriteFile(filepath.Join(p.dir, "likeness.yaml"), fmt.Appendf(nil, configured, address), 0o600); err != nil {
		return err
	}
	for seed, name := range []string{"v1", "v2"} {
		if err := writeModel(filepath.Join(p.dir, name+".safetensors"), p.dim, uint64(seed)); err != nil {
			return err
		}
	}
	p.say("filling Qdrant with %d items", p.items)
	if err := create(ctx, p.db, p.dim); err != nil {
		return err
	}
	begin := time.Now()
	if err := p.upsert(ctx, p.db, uint64(p.items), 1, 0); err != nil {
		return err
	}
	r.Fill = newStep(p.items, begin)
	p.say("%.0f rows/s; indexing", r.Fill.Rows)
	var err error
	if r.Index, err = p.index(ctx, "v1"); err != nil {
		return err
	}
	p.say("%.0f rows/s, resident at most %d MB", r.Index.Rows, r.Index.Resident>>20)
	r.Disk, err = p.disk()
	return err
}

// index runs `likeness index` for a version.
func (p place) index(ctx context.Context, version string) (command, error) {
	cmd := exec.CommandContext(ctx, p.Binary, "index", "--config", "likeness.yaml", "--route", "items", "--version", version, "--only", "table", "--output", "json")
	cmd.Dir, cmd.Stderr = p.dir, p.stderr
	begin := time.Now()
	if err := cmd.Run(); err != nil {
		return command{}, fmt.Errorf("likeness index --version %s: %w", version, err)
	}
	c := command{step: newStep(p.items, begin), CPU: (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()}
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		c.Resident = residentBytes(usage)
	}
	return c, nil
}

// residentBytes returns the most memory that a process held. Linux counts it in KiB.
func residentBytes(usage *syscall.Rusage) int64 { return usage.Maxrss << 10 }

func (p place) disk() (d disk, err error) {
	for _, part := range []struct {
		pattern string
		bytes   *int64
	}{{"qdrant", &d.Qdrant}, {"*.table*", &d.Tables}, {"state", &d.State}} {
		paths, err := filepath.Glob(filepath.Join(p.dir, part.pattern))
		if err != nil {
			return d, err
		}
		for _, path := range paths {
			n, err := diskBytes(path)
			if err != nil {
				return d, err
			}
			*part.bytes += n
		}
	}
	return d, nil
}

// diskBytes returns the bytes that the files below a path take. Qdrant's are sparse, and some go while they are counted.
func diskBytes(root string) (sum int64, err error) {
	err = filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		var info syscall.Stat_t
		if err == nil {
			err = syscall.Lstat(path, &info)
		}
		sum += info.Blocks * 512
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	return sum, err
}

// timeStarts measures starts of the sidecar. The first one follows the collection from then on, which takes a
// comparison of all rows.
func (p place) timeStarts(ctx context.Context, r *report) error {
	first, err := p.start(ctx, false)
	if err != nil {
		return err
	}
	r.FirstStart = first
	p.say("the first start: exact after %.1f s", first.Exact)
	for n := range p.starts {
		one, err := p.start(ctx, n%2 == 1)
		if err != nil {
			return err
		}
		p.say("a start: the first answer after %.3f s, exact after %.3f, uncached %v", one.First, one.Exact, one.Uncached)
		r.Starts = append(r.Starts, one)
	}
	return nil
}

// sidecar is a running sidecar.
type sidecar struct {
	serve.Addresses
	*client.Client
	pid   int
	close func() error
}

// open starts a sidecar and waits until it is ready.
func (p place) open(ctx context.Context) (*sidecar, error) {
	s := &sidecar{}
	ready := filepath.Join(p.dir, "ready.json")
	if err := os.Remove(ready); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	pid, stop, err := host.Start(ctx, p.stderr, &s.Addresses, ready, p.Binary, "serve", "--config", filepath.Join(p.dir, "likeness.yaml"))
	if err != nil {
		return nil, err
	}
	if s.Client, err = client.Dial(s.GRPC, client.Options{Timeout: time.Minute}); err != nil {
		return nil, errors.Join(err, stop())
	}
	s.pid, s.close = pid, func() error { return errors.Join(s.Client.Close(), stop()) }
	return s, nil
}

// start starts a sidecar, asks until an answer is exact, and stops the sidecar.
func (p place) start(ctx context.Context, uncached bool) (result start, err error) {
	if uncached {
		if err := p.uncache(ctx); err != nil {
			return start{}, err
		}
	}
	begin := time.Now()
	s, err := p.open(ctx)
	if err != nil {
		return start{}, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	result.Uncached = uncached
	for result.Exact == 0 {
		a, err := s.ask(ctx, p.item(0, 2))
		if err != nil {
			return start{}, err
		}
		elapsed := time.Since(begin).Seconds()
		if result.First == 0 {
			result.First = elapsed
		}
		if a.Certificate.Exact() {
			result.Exact = elapsed
		} else {
			<-time.After(500 * time.Millisecond) // a search takes processor time from the comparison
		}
	}
	if result.CPU, err = cpuSeconds(s.pid); err != nil {
		return start{}, err
	}
	result.Memory, err = held(s.pid)
	return result, err
}

// uncache drops the tables from the file cache.
func (p place) uncache(ctx context.Context) error {
	paths, err := filepath.Glob(filepath.Join(p.dir, "*.table"))
	for _, path := range paths {
		err = errors.Join(err, exec.CommandContext(ctx, "dd", "if="+path, "iflag=nocache", "count=0", "status=none").Run())
	}
	return err
}

func (s *sidecar) ask(ctx context.Context, query []float32) (*client.Answer, error) {
	return s.Search(ctx, client.Search{Route: "items", Query: client.Query{Vector: query}, K: 10})
}

func cpuSeconds(pid int) (float64, error) {
	proc, err := procfs.NewProc(pid)
	if err != nil {
		return 0, err
	}
	stat, err := proc.Stat()
	return stat.CPUTime(), err
}

func held(pid int) (memory, error) {
	proc, err := procfs.NewProc(pid)
	if err != nil {
		return memory{}, err
	}
	status, err := proc.NewStatus()
	if err != nil {
		return memory{}, err
	}
	maps, err := proc.ProcSMapsRollup() // counts a page that is mapped twice once
	return memory{Own: status.RssAnon, Mapped: maps.Pss - status.RssAnon}, err
}

// serving measures a sidecar in service: scans, writes and a switch.
func (p place) serving(ctx context.Context, r *report) (err error) {
	s, err := p.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if r.Scan, err = p.scan(ctx, s); err != nil {
		return err
	}
	if r.Scanned, err = held(s.pid); err != nil {
		return err
	}
	p.say("a scan: %.1f ms", r.Scan.Median)
	if err := p.follow(ctx, s, r); err != nil {
		return err
	}
	p.say("followed %d writes %.1f s after the last", r.Changed, r.Follow)
	if err := p.switchVersion(ctx, s, r); err != nil {
		return err
	}
	p.say("switched in %.1f s", r.Switch)
	r.DiskAtEnd, err = p.disk()
	return err
}

func (p place) scan(ctx context.Context, s *sidecar) (times, error) {
	var ms []float64
	for n := range p.scans {
		begin := time.Now()
		if _, err := s.ask(ctx, p.item(uint64(n), 2)); err != nil {
			return times{}, err
		}
		ms = append(ms, float64(time.Since(begin).Microseconds())/1000)
	}
	slices.Sort(ms)
	return times{ms[len(ms)/2], ms[len(ms)-1]}, nil
}

// follow writes a share of the items again, evenly spread, and waits until the table shows them.
func (p place) follow(ctx context.Context, s *sidecar, r *report) (err error) {
	step := p.changedStep()
	if step == 0 {
		return nil
	}
	r.Changed = (p.items + step - 1) / step
	conn, err := connect(s.Proxy.GRPC)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	begin := time.Now()
	if err := p.upsert(ctx, conn, uint64(p.items), uint64(step), 1); err != nil {
		return err
	}
	r.Write = newStep(r.Changed, begin)
	begin = time.Now()
	for {
		pending, err := s.pending(ctx)
		if err != nil {
			return err
		}
		if pending == 0 {
			break
		}
		<-time.After(50 * time.Millisecond)
	}
	r.Follow = time.Since(begin).Seconds()
	r.Followed, err = held(s.pid)
	return err
}

// changedStep returns n such that writing every n-th item again writes the share s.changed of all items. It
// returns 0 if that share has no item.
func (s settings) changedStep() int {
	changed := int(s.changed * float64(s.items))
	if changed == 0 {
		return 0
	}
	return s.items / changed
}

// pending reads from the metrics how many writes the table does not show yet.
func (s *sidecar) pending(ctx context.Context) (n float64, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.Admin+"/metrics", http.NoBody)
	if err != nil {
		return 0, err
	}
	answer, err := (&http.Client{}).Do(request)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, answer.Body.Close()) }()
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), `likeness_follow_pending{route="items"} `); ok {
			return n, json.Unmarshal([]byte(value), &n)
		}
	}
	return 0, cmp.Or(lines.Err(), errors.New("the metrics lack likeness_follow_pending"))
}

// switchVersion builds the second version and puts it in service.
func (p place) switchVersion(ctx context.Context, s *sidecar, r *report) (err error) {
	p.say("indexing the second version")
	if r.IndexNext, err = p.index(ctx, "v2"); err != nil {
		return err
	}
	begin := time.Now()
	cmd := exec.CommandContext(ctx, p.Binary, "model", "activate", "--address", s.GRPC, "--route", "items", "v2")
	cmd.Dir, cmd.Stderr = p.dir, p.stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("likeness model activate: %w", err)
	}
	r.Switch = time.Since(begin).Seconds()
	if r.SwitchScan, err = p.scan(ctx, s); err != nil {
		return err
	}
	r.Switched, err = held(s.pid)
	return err
}
