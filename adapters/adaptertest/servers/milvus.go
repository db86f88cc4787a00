package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// milvusPorts lists the template's names for Milvus's ports. The first is the port of
// the proxy, to which clients connect.
var milvusPorts = []string{
	"proxy_port", "proxy_internal_port", "etcd_port", "root_coord_port", "query_coord_port", "query_node_port",
	"index_coord_port", "index_node_port", "data_coord_port", "data_node_port",
}

// placeholder matches `{{ name(type): default }}` in Milvus's configuration template.
var placeholder = regexp.MustCompile(`\{\{\s*(\w+)(?:\(\w+\))?(?::\s*([^}]*?))?\s*\}\}`)

// Milvus starts a standalone Milvus (proxy, coordinators, embedded etcd) from dir and
// waits until it is ready, which takes several seconds. The context limits the wait,
// not the life of the server. It returns ErrMissing if dir holds no Milvus.
//
// Milvus listens on every interface and cannot be restricted. Start it only where
// Isolated is true, in a network namespace that Isolate has made.
func Milvus(ctx context.Context, dir string, o Options) (*Server, error) {
	if o.APIKey != "" {
		return nil, errors.New("servers: Options.APIKey is Qdrant's; give Milvus Authorization")
	}
	home := filepath.Join(dir, "milvus-"+MilvusVer)
	lib := filepath.Join(home, "lib")
	return startOnFreePorts(ctx, &launch{
		name: "milvus", version: MilvusVer,
		binary: filepath.Join(lib, "milvus"),
		ports:  len(milvusPorts) + 1,
		prepare: func(s *Server, ports []int) error {
			metrics := ports[len(milvusPorts)]
			s.Address = loopback(ports[0])
			s.args = []string{"run", "standalone"}
			s.env = append([]string{
				"DEPLOY_MODE=STANDALONE",
				"METRICS_PORT=" + strconv.Itoa(metrics),
				"MILVUS_RUN_DIR=" + filepath.Join(s.dir, "run"),
				"LD_LIBRARY_PATH=" + lib,
			}, o.Env...)
			s.ready = all(healthy("http://"+loopback(metrics)+"/healthz"), listening(s.Address))
			return configureMilvus(home, s.dir, ports, o)
		},
	})
}

// configureMilvus writes configs/milvus.yaml into the server's directory: the
// distribution's template with ports, directories and defaults filled in.
func configureMilvus(home, dir string, ports []int, o Options) error {
	template, err := os.ReadFile(filepath.Join(home, "config.yaml.template"))
	if err != nil {
		return fmt.Errorf("servers: milvus: %w", err)
	}
	glog, err := os.ReadFile(filepath.Join(home, "glog.conf"))
	if err != nil {
		return fmt.Errorf("servers: milvus: %w", err)
	}
	data, logs := filepath.Join(dir, "data"), filepath.Join(dir, "logs")
	values := map[string]string{
		"etcd_log_path":         filepath.Join(logs, "etcd.log"),
		"system_log_path":       logs,
		"etcd_data_dir":         filepath.Join(data, "etcd.data"),
		"local_storage_dir":     data,
		"rocksmq_data_dir":      filepath.Join(data, "rocksmq"),
		"authorization_enabled": strconv.FormatBool(o.Authorization),
	}
	for i, name := range milvusPorts {
		values[name] = strconv.Itoa(ports[i])
	}
	for _, sub := range []string{"configs", "logs", "data"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			return fmt.Errorf("servers: milvus: %w", err)
		}
	}
	err = os.WriteFile(filepath.Join(dir, "configs", "milvus.yaml"), fillTemplate(template, values), 0o600)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "configs", "glog.conf"), glog, 0o600)
	}
	if err != nil {
		return fmt.Errorf("servers: milvus: %w", err)
	}
	return nil
}

// fillTemplate replaces each placeholder by its value or its default, and gives every
// component the loopback address.
func fillTemplate(template []byte, values map[string]string) []byte {
	filled := placeholder.ReplaceAllStringFunc(string(template), func(text string) string {
		m := placeholder.FindStringSubmatch(text)
		if v, ok := values[m[1]]; ok {
			return v
		}
		return m[2]
	})
	return []byte(strings.ReplaceAll(filled, "\n  ip: #", "\n  ip: 127.0.0.1 #"))
}
