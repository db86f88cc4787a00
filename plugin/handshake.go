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
	// ProtocolVersion is the newest version that this package speaks; it speaks the
	// one before it too, from 1 on.
	ProtocolVersion = 1
	// CookieKey and CookieValue tell a plugin that a host started it. They are no secret.
	CookieKey   = "LIKENESS_PLUGIN"
	CookieValue = "b7f4c1a2-scorer"
	// MaxMessageEnv is the variable in which a host tells the process that it starts the
	// greatest message either way, in bytes; without it, MaxMessageBytes.
	MaxMessageEnv   = "LIKENESS_PLUGIN_MAX_MESSAGE_BYTES"
	MaxMessageBytes = 64 << 20
	// ScorerSet and SimilaritySet name what a plugin serves: pluginv1.ScorerService or
	// pluginv1.SimilarityScorerService.
	ScorerSet     = "scorer"
	SimilaritySet = "similarity"
)

// Handshake is go-plugin's part of the agreement, of hosts and plugins.
func Handshake() goplugin.HandshakeConfig {
	return goplugin.HandshakeConfig{MagicCookieKey: CookieKey, MagicCookieValue: CookieValue}
}

// Service is a gRPC service by the name that host and plugin know it by.
type Service struct {
	Name string
	// Register puts it on the plugin's server; a host leaves it nil.
	Register func(grpc.ServiceRegistrar)
}

// Versions are go-plugin's VersionedPlugins of a side whose newest protocol version is
// given: it and the one before. Dispense gives a host the *grpc.ClientConn.
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

// service is a Service as go-plugin wants it.
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

// VersionError makes of go-plugin's error at the start of a plugin one that a person
// can act on, ErrVersion, where the two have no version in common; newest is the
// host's. Any other error is returned as it is.
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

// joinVersions lists versions for people.
func joinVersions(versions []int) string {
	out := make([]string, len(versions))
	for i, v := range versions {
		out[i] = strconv.Itoa(v)
	}
	return strings.Join(out, " and ")
}
