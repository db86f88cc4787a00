package plugin

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
)

// What host and plugin agree on before they connect.
const (
	// ProtocolVersion is the newest version that this package supports. It also supports
	// the previous version, if there is one.
	ProtocolVersion = 1
	// CookieKey and CookieValue tell a plugin that a host started it. They are not secret.
	CookieKey   = "LIKENESS_PLUGIN"
	CookieValue = "b7f4c1a2-scorer"
	// MaxMessageEnv is the environment variable by which a host tells a plugin the size
	// limit of messages in both directions, in bytes. Without it the limit is
	// MaxMessageBytes.
	MaxMessageEnv   = "LIKENESS_PLUGIN_MAX_MESSAGE_BYTES"
	MaxMessageBytes = 64 << 20
	// ScorerSet and SimilaritySet name the service of a plugin: pluginv1.ScorerService or
	// pluginv1.SimilarityScorerService.
	ScorerSet     = "scorer"
	SimilaritySet = "similarity"
)

// Handshake returns the go-plugin handshake of hosts and plugins.
func Handshake() goplugin.HandshakeConfig {
	return goplugin.HandshakeConfig{MagicCookieKey: CookieKey, MagicCookieValue: CookieValue}
}

// Service is a gRPC service, under the name by which host and plugin know it.
type Service struct {
	Name string
	// Register registers the service on the plugin's server. A host leaves it nil.
	Register func(grpc.ServiceRegistrar)
}

// Versions returns go-plugin's VersionedPlugins for a side that supports the protocol
// version newest and the previous one. For a host, Dispense returns the *grpc.ClientConn.
func Versions(newest int, services ...Service) map[int]goplugin.PluginSet {
	set := goplugin.PluginSet{}
	for _, s := range services {
		set[s.Name] = &service{Service: s}
	}
	versions := map[int]goplugin.PluginSet{newest: set}
	if newest > 1 {
		versions[newest-1] = maps.Clone(set)
	}
	return versions
}

// service adapts a Service to go-plugin.
type service struct {
	goplugin.NetRPCUnsupportedPlugin
	Service
}

var _ goplugin.GRPCPlugin = (*service)(nil)

func (s *service) GRPCServer(_ *goplugin.GRPCBroker, server *grpc.Server) error {
	if s.Register == nil {
		return fmt.Errorf("plugin: the service %q has nothing to serve", s.Name)
	}
	s.Register(server)
	return nil
}

func (s *service) GRPCClient(_ context.Context, _ *goplugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return conn, nil
}

// VersionError replaces go-plugin's error about incompatible versions by ErrVersion with a
// remedy. newest is the host's version. It returns other errors unchanged.
func VersionError(err error, newest int) error {
	if err == nil {
		return nil
	}
	_, after, found := strings.Cut(err.Error(), "incompatible API version with plugin. Plugin version: ")
	if !found {
		return err
	}
	theirs, _, _ := strings.Cut(after, ",")
	return fmt.Errorf("%w: the plugin speaks version %s, this host %s; build the older of the two against the newer release of likeness",
		ErrVersion, theirs, joinVersions(slices.Sorted(maps.Keys(Versions(newest)))))
}

// joinVersions formats versions for people.
func joinVersions(versions []int) string {
	out := make([]string, len(versions))
	for i, v := range versions {
		out[i] = strconv.Itoa(v)
	}
	return strings.Join(out, " and ")
}
