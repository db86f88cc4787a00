package trial

import (
	"bytes"
	"path/filepath"

	"go.yaml.in/yaml/v3"

	"github.com/likenessdb/likeness/adapters"
)

// file is the part of a configuration that a trial writes.
type file struct {
	Listen    *listenKeys             `yaml:"listen,omitempty"`
	Stores    map[string]storeKeys    `yaml:"stores"`
	Embedders map[string]embedderKeys `yaml:"embedders,omitempty"`
	Models    map[string]modelKeys    `yaml:"models,omitempty"`
	Routes    map[string]routeKeys    `yaml:"routes,omitempty"`
	Proxy     *proxyKeys              `yaml:"proxy,omitempty"`
}

type storeKeys struct {
	Kind       string   `yaml:"kind"`
	Address    string   `yaml:"address"`
	APIKeyEnv  string   `yaml:"api_key_env,omitempty"`
	APIKeyFile string   `yaml:"api_key_file,omitempty"`
	Database   string   `yaml:"database,omitempty"`
	TLS        *tlsKeys `yaml:"tls,omitempty"`
}

type tlsKeys struct {
	Enabled bool   `yaml:"enabled"`
	CAFile  string `yaml:"ca_file,omitempty"`
}

type embedderKeys struct {
	URL            string `yaml:"url"`
	Model          string `yaml:"model,omitempty"`
	QueryPrefix    string `yaml:"query_prefix,omitempty"`
	DocumentPrefix string `yaml:"document_prefix,omitempty"`
	TokenEnv       string `yaml:"token_env,omitempty"`
	Dimension      int    `yaml:"dimension"`
}

type modelKeys struct {
	Path string `yaml:"path"`
}

type routeKeys struct {
	Store       string `yaml:"store"`
	Collection  string `yaml:"collection"`
	Vector      string `yaml:"vector,omitempty"`
	Model       string `yaml:"model"`
	Embedder    string `yaml:"embedder,omitempty"`
	UnitVectors bool   `yaml:"unit_vectors,omitempty"`
	ExactSearch bool   `yaml:"exact_search,omitempty"`
	Depth       int    `yaml:"depth,omitempty"`
}

type listenKeys struct {
	GRPC  string `yaml:"grpc"`
	REST  string `yaml:"rest"`
	Admin string `yaml:"admin"`
}

// listen returns the ports that the documentation uses.
func listen() *listenKeys {
	return &listenKeys{GRPC: "127.0.0.1:7600", REST: "127.0.0.1:7602", Admin: "127.0.0.1:7601"}
}

type proxyKeys struct {
	Store      string `yaml:"store"`
	ListenGRPC string `yaml:"listen_grpc"`
	ListenREST string `yaml:"listen_rest,omitempty"`
	RESTURL    string `yaml:"rest_url,omitempty"`
}

// proxy returns the keys of a proxy for the server's clients, on the ports that docs/proxy.md uses. It returns nil for a
// field whose searches the proxy passes on unchanged, because their scores are distances.
func (l *Look) proxy() *proxyKeys {
	s := l.Server
	switch {
	case l.field.Metric != adapters.InnerProduct && l.field.Metric != adapters.Cosine:
		return nil
	case s.Kind == milvusKind:
		return &proxyKeys{Store: storeName, ListenGRPC: "127.0.0.1:7653"}
	case s.REST == "":
		return &proxyKeys{Store: storeName, ListenGRPC: "127.0.0.1:7634"}
	}
	return &proxyKeys{Store: storeName, ListenGRPC: "127.0.0.1:7634", ListenREST: "127.0.0.1:7633", RESTURL: s.REST}
}

// String says where clients are answered.
func (p *proxyKeys) String() string {
	if p.ListenREST == "" {
		return p.ListenGRPC
	}
	return "http://" + p.ListenREST + " (gRPC: " + p.ListenGRPC + ")"
}

// store returns the keys of the server's store. Files have absolute paths, because the
// configuration is written to another folder.
func (a Access) store(s Server) (storeKeys, error) {
	keys := storeKeys{Kind: s.Kind, Address: s.Address, APIKeyEnv: a.KeyEnv}
	if s.Kind == milvusKind {
		keys.Database = a.Database
	}
	var err error
	if a.KeyFile != "" {
		if keys.APIKeyFile, err = filepath.Abs(a.KeyFile); err != nil {
			return keys, err
		}
	}
	if !s.TLS {
		return keys, nil
	}
	keys.TLS = &tlsKeys{Enabled: true}
	if a.CAFile != "" {
		keys.TLS.CAFile, err = filepath.Abs(a.CAFile)
	}
	return keys, err
}

// storesYAML is a configuration of the server's store alone.
func storesYAML(a Access, s Server) ([]byte, error) {
	keys, err := a.store(s)
	if err != nil {
		return nil, err
	}
	return encodeYAML(file{Stores: map[string]storeKeys{storeName: keys}})
}

func encodeYAML(f file) ([]byte, error) {
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(f); err != nil {
		return nil, err
	}
	return b.Bytes(), enc.Close()
}
