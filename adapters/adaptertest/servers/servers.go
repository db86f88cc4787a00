// Package servers starts the real Qdrant and Milvus servers for tests and examples,
// from the binaries that `make servers` fetches.
//
// Every server runs as a child process with its own data directory and free ports on
// 127.0.0.1, and dies with its parent process. A Server can be killed, stopped and
// restarted with the same ports and data, so that tests can use real failures.
package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// EnvDir names the environment variable with the directory of the servers' binaries,
// in the layout of `make servers`.
const EnvDir = "LIKENESS_SERVERS"

// Versions of the servers that `make servers` fetches.
const (
	QdrantOldest     = "1.16.3"
	QdrantNewest     = "1.17.0"
	MilvusLiteVer    = "2.5.1"
	MilvusLiteNewest = "3.2.2" // another program than before, in Python
	MilvusVer        = "2.3.5"
)

// ErrMissing means that a server's binary is not in the directory.
var ErrMissing = errors.New("server binary not found; run `make servers`")

// Options holds a server's settings, apart from its ports and directories.
type Options struct {
	// APIKey makes Qdrant require this key. Milvus and milvus-lite do not support it.
	APIKey string
	// Env is added to the server's environment in the form "NAME=value". Qdrant reads
	// all of its configuration from QDRANT__SECTION__NAME.
	Env []string
	// Authorization makes Milvus require its user, "root" with the password "Milvus".
	// Qdrant and milvus-lite do not support it.
	Authorization bool
}

// Dir returns the directory of the servers' binaries: the value of LIKENESS_SERVERS,
// or "".
func Dir() string { return os.Getenv(EnvDir) }

// Qdrant starts a version of Qdrant from dir and waits until it is ready. Its gRPC port
// is the next after its REST port, as Qdrant's own ports are. The context limits the wait, not the life of the server. It returns ErrMissing if dir does not
// hold the version.
func Qdrant(ctx context.Context, dir, version string, o Options) (*Server, error) {
	if o.Authorization {
		return nil, errors.New("servers: Options.Authorization is Milvus's; give Qdrant an APIKey")
	}
	return startOnFreePorts(ctx, &launch{
		name: "qdrant", version: version,
		binary: filepath.Join(dir, "qdrant-"+version, "qdrant"),
		ports:  2,
		inARow: true,
		prepare: func(s *Server, ports []int) error {
			s.Address, s.REST = loopback(ports[1]), "http://"+loopback(ports[0])
			s.env = append([]string{
				"QDRANT__SERVICE__HOST=127.0.0.1",
				"QDRANT__SERVICE__GRPC_PORT=" + strconv.Itoa(ports[1]),
				"QDRANT__SERVICE__HTTP_PORT=" + strconv.Itoa(ports[0]),
				"QDRANT__TELEMETRY_DISABLED=true",
				"QDRANT__STORAGE__STORAGE_PATH=" + filepath.Join(s.dir, "storage"),
				"QDRANT__STORAGE__SNAPSHOTS_PATH=" + filepath.Join(s.dir, "snapshots"),
			}, o.Env...)
			if o.APIKey != "" {
				s.env = append(s.env, "QDRANT__SERVICE__API_KEY="+o.APIKey)
			}
			s.ready = all(listening(s.Address), healthy(s.REST+"/readyz"))
			return nil
		},
	})
}

// MilvusLite starts milvus-lite from dir and waits until it is ready. It contains
// Milvus's search engine without proxy, coordinators and users. The context limits the
// wait, not the life of the server. It returns ErrMissing if dir holds no milvus-lite.
func MilvusLite(ctx context.Context, dir string, o Options) (*Server, error) {
	if o.APIKey != "" || o.Authorization {
		return nil, errors.New("servers: milvus-lite knows no users; start it without APIKey and Authorization")
	}
	lib := filepath.Join(dir, "milvus-lite-"+MilvusLiteVer, "lib")
	return startOnFreePorts(ctx, &launch{
		name: "milvus-lite", version: MilvusLiteVer,
		binary: filepath.Join(lib, "milvus"),
		ports:  1,
		prepare: func(s *Server, ports []int) error {
			s.Address = loopback(ports[0])
			s.args = []string{filepath.Join(s.dir, "data.db"), s.Address, "ERROR"}
			s.env = append([]string{"LD_LIBRARY_PATH=" + lib, "GLOG_log_dir=" + s.dir}, o.Env...)
			s.ready = listening(s.Address)
			return nil
		},
	})
}

// NewestMilvusLite starts the newest milvus-lite in the manner of MilvusLite.
func NewestMilvusLite(ctx context.Context, dir string, o Options) (*Server, error) {
	if o.APIKey != "" || o.Authorization {
		return nil, errors.New("servers: milvus-lite knows no users; start it without APIKey and Authorization")
	}
	return startOnFreePorts(ctx, &launch{
		name: "milvus-lite", version: MilvusLiteNewest,
		binary: filepath.Join(dir, "milvus-lite-"+MilvusLiteNewest, "bin", "python"),
		ports:  1,
		prepare: func(s *Server, ports []int) error {
			s.Address = loopback(ports[0])
			s.args = []string{"-m", "milvus_lite", "server", "--data-dir", filepath.Join(s.dir, "data"), "--host", "127.0.0.1", "--port", strconv.Itoa(ports[0])}
			s.env = append([]string{"PYTHONDONTWRITEBYTECODE=1"}, o.Env...)
			s.ready = listening(s.Address)
			return nil
		},
	})
}

// startOnFreePorts starts the server that l describes on free ports. If another process takes a
// port before the server does, start tries again with other ports.
func startOnFreePorts(ctx context.Context, l *launch) (*Server, error) {
	if _, err := os.Stat(l.binary); err != nil {
		return nil, fmt.Errorf("servers: %s %s: %w: %s", l.name, l.version, ErrMissing, l.binary)
	}
	const attempts = 3
	for attempt := 1; ; attempt++ {
		s, err := l.start(ctx)
		if err == nil || attempt == attempts || !portTaken(err) {
			return s, err
		}
	}
}

// launch describes how to start one kind of server.
type launch struct {
	name, version string
	binary        string
	ports         int                                    // number of free ports it needs
	inARow        bool                                   // each port is the one before plus 1
	prepare       func(s *Server, freePorts []int) error // fills in addresses, args, env and ready
}

func (l *launch) start(ctx context.Context) (*Server, error) {
	dir, err := os.MkdirTemp("", "likeness-"+l.name+"-")
	if err != nil {
		return nil, fmt.Errorf("servers: %w", err)
	}
	s := &Server{Name: l.name, Version: l.version, dir: dir, binary: l.binary}
	ports, err := freePorts(ctx, l.ports, l.inARow)
	if err == nil {
		err = l.prepare(s, ports)
	}
	if err == nil {
		err = s.Restart(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// withoutGRPC is the line that Qdrant logs if another process has its gRPC port. Qdrant then runs on
// without gRPC.
const withoutGRPC = "Error while starting gRPC server"

func portTaken(err error) bool {
	for _, text := range []string{"address already in use", "address in use", withoutGRPC} {
		if strings.Contains(strings.ToLower(err.Error()), strings.ToLower(text)) {
			return true
		}
	}
	return false
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// freePorts returns n different ports that were free a moment ago. If inARow is set, each
// port is the one before plus 1.
func freePorts(ctx context.Context, n int, inARow bool) (ports []int, err error) {
	const attempts = 20
	for range attempts {
		if ports, err = tryPorts(ctx, n, inARow); err == nil {
			return ports, nil
		}
	}
	return nil, err
}

func tryPorts(ctx context.Context, n int, inARow bool) (ports []int, err error) {
	var config net.ListenConfig
	var taken []net.Listener // kept open until all ports are chosen, so that they differ
	defer func() {
		for _, l := range taken {
			_ = l.Close()
		}
	}()
	for i := range n {
		address := "127.0.0.1:0"
		if inARow && i > 0 {
			address = loopback(ports[i-1] + 1)
		}
		l, err := config.Listen(ctx, "tcp", address)
		if err != nil {
			return nil, fmt.Errorf("servers: no free port: %w", err)
		}
		taken = append(taken, l)
		bound, err := netip.ParseAddrPort(l.Addr().String())
		if err != nil {
			return nil, fmt.Errorf("servers: no free port: %w", err)
		}
		ports = append(ports, int(bound.Port()))
	}
	return ports, nil
}

// A probe checks whether the server answers. Its error says why it does not.
type probe func(ctx context.Context) error

func all(probes ...probe) probe {
	return func(ctx context.Context) error {
		for _, p := range probes {
			if err := p(ctx); err != nil {
				return err
			}
		}
		return nil
	}
}

func listening(address string) probe {
	return func(ctx context.Context) error {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		return conn.Close()
	}
}

func healthy(url string) probe {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s answers %s", url, resp.Status)
		}
		return nil
	}
}
