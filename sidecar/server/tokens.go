package server

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/likenessdb/likeness/sidecar/gate"
	"github.com/likenessdb/likeness/sidecar/telemetry"
)

// ErrTokens: the tokens file cannot be used.
var ErrTokens = errors.New("tokens file is not valid")

// Caller is one entry of a tokens file.
type Caller struct {
	Name string `yaml:"name"`
	// Token is the token itself. Otherwise SHA256 is its digest in hexadecimal.
	Token  string `yaml:"token"`
	SHA256 string `yaml:"sha256"`
	// Routes are the routes that the caller may use; empty means all.
	Routes []string `yaml:"routes"`
	// Admin allows the caller to use AdminService, for those routes.
	Admin bool `yaml:"admin"`
}

// tokens holds the callers by the digests of their tokens.
type tokens struct{ callers []digest }

type digest struct {
	sum    [sha256.Size]byte
	caller *Caller
}

// readTokens reads a tokens file. It returns ErrTokens, which never repeats a token.
func readTokens(path string) (*tokens, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTokens, err)
	}
	var callers []Caller
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	decoder.KnownFields(true)
	if err := decoder.Decode(&callers); err != nil {
		return nil, fmt.Errorf("%w: %s: want a list of name, token or sha256, routes, and admin", ErrTokens, path)
	}
	if len(callers) == 0 {
		return nil, fmt.Errorf("%w: %s: it names no caller", ErrTokens, path)
	}
	t := &tokens{}
	for i := range callers {
		d, err := callers[i].digest()
		if err != nil {
			return nil, fmt.Errorf("%w: %s: entry %d: %w", ErrTokens, path, i+1, err)
		}
		t.callers = append(t.callers, d)
	}
	return t, nil
}

func (c *Caller) digest() (digest, error) {
	switch {
	case c.Name == "":
		return digest{}, errors.New("a name is missing")
	case (c.Token == "") == (c.SHA256 == ""):
		return digest{}, fmt.Errorf("%q needs a token or a sha256", c.Name)
	case c.Token != "":
		d := digest{sum: sha256.Sum256([]byte(c.Token)), caller: c}
		c.Token = ""
		return d, nil
	}
	d := digest{caller: c}
	if n, err := hex.Decode(d.sum[:], []byte(c.SHA256[:min(len(c.SHA256), 2*sha256.Size)])); err != nil ||
		n != sha256.Size || len(c.SHA256) != 2*sha256.Size {
		return digest{}, fmt.Errorf("%q: sha256 must be 64 hex digits", c.Name)
	}
	return d, nil
}

// find returns the caller that a token belongs to. The time that it takes does not depend on the
// token.
func (t *tokens) find(token string) *Caller {
	if token == "" {
		return nil // an empty token is nobody's, even if the file has its digest
	}
	sum := sha256.Sum256([]byte(token))
	var found *Caller
	for _, d := range t.callers {
		if subtle.ConstantTimeCompare(sum[:], d.sum[:]) == 1 {
			found = d.caller
		}
	}
	return found
}

// watchTokens reads a tokens file, and reads it again when it changes. It returns nil if path is
// "".
func (s *services) watchTokens(file string) (*watched[*tokens], error) {
	if file == "" {
		return nil, nil
	}
	return watch(s.log, func() (*tokens, error) { return readTokens(file) }, file)
}

func (s *services) setTokens(file string) error {
	w, err := s.watchTokens(file)
	if err == nil {
		s.tokens.Store(w)
	}
	return err
}

// TokensFile returns the state of the tokens file, or the zero value without one.
func (s *Server) TokensFile() telemetry.Files { return filesOf(s.shared.tokens.Load()) }

// TokensFile says how the tokens file is; the zero value without one.
func (g *Guard) TokensFile() telemetry.Files { return filesOf(g.tokens) }

func filesOf(w *watched[*tokens]) (f telemetry.Files) {
	if w != nil {
		_, f.Refused = w.state()
	}
	return f
}

// authenticate refuses a call without a valid bearer token. Health needs no token.
func (s *services) authenticate(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if strings.HasPrefix(info.FullMethod, "/grpc.health.") {
		return handler(srv, ss)
	}
	ctx, err := s.authenticated(ss.Context())
	if err != nil {
		return err
	}
	return handler(srv, stream{ss, ctx})
}

// authenticated notes whose token an observed call has, if there are tokens. It returns
// errUnauthorised.
func (s *services) authenticated(ctx context.Context) (context.Context, error) {
	tokens := s.tokens.Load()
	if tokens == nil {
		return withSender(ctx), nil
	}
	caller, err := tokens.get().caller(metadata.ValueFromIncomingContext(ctx, "authorization"))
	if err != nil {
		return ctx, err
	}
	ctx.Value(whoKey{}).(*who).caller = caller //nolint:forcetypeassert // observed puts it there
	return gate.WithCaller(ctx, caller.Name), nil
}

// withSender returns the context of a call with the address of its client. The gateway of this process adds the
// address to a header; other calls have it already.
func withSender(ctx context.Context) context.Context {
	if from, ok := peer.FromContext(ctx); ok && from.Addr != nil && from.Addr.Network() != "bufconn" {
		return ctx
	}
	hops := strings.Split(strings.Join(metadata.ValueFromIncomingContext(ctx, "x-forwarded-for"), ","), ",")
	return gate.WithSender(ctx, strings.TrimSpace(hops[len(hops)-1]))
}

// caller returns the caller whose token the authorization headers contain. It returns
// errUnauthorised.
func (t *tokens) caller(authorization []string) (*Caller, error) {
	caller := t.find(bearer(authorization))
	if caller == nil {
		return nil, fmt.Errorf("%w: send the header authorization: Bearer with a token of the sidecar's tokens file", errUnauthorised)
	}
	return caller, nil
}

func bearer(authorization []string) string {
	for _, value := range authorization {
		scheme, token, _ := strings.Cut(value, " ")
		if strings.EqualFold(scheme, "bearer") {
			return token
		}
	}
	return ""
}

// allow returns errForbidden if the caller's token does not name the route.
func allow(ctx context.Context, route string) error {
	caller := callerOf(ctx)
	if caller == nil || len(caller.Routes) == 0 || slices.Contains(caller.Routes, route) {
		return nil
	}
	return fmt.Errorf("%w: %q; ask for it in the sidecar's tokens file", errForbidden, route)
}

// allowAdmin returns errAdmin if the caller may not change what a route serves, or errForbidden
// like allow.
func (s *services) allowAdmin(ctx context.Context, route string) error {
	caller := callerOf(ctx)
	switch {
	case caller != nil && !caller.Admin:
		return fmt.Errorf("%w; give %q admin: true in the sidecar's tokens file", errAdmin, caller.Name)
	case caller == nil && !s.openAdmin:
		return fmt.Errorf("%w; without a tokens file AdminService answers only where the sidecar listens on a loopback address: give it one (listen.auth.tokens_file)", errAdmin)
	}
	return allow(ctx, route)
}
