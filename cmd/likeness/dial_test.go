package main

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestRefusedConnections: the error of a refused connection names the flag that is missing, or
// superfluous. gRPC and crypto/tls give the texts that remedies looks for.
func TestRefusedConnections(t *testing.T) {
	for said, want := range map[string]string{
		`connection error: desc = "error reading server preface: EOF"`:                                                                                                                        "give --tls-ca",
		`connection error: desc = "error reading server preface: remote error: tls: certificate required"`:                                                                                    "give --tls-cert and --tls-key",
		`connection error: desc = "error reading server preface: http2: failed reading the frame payload: http2: frame too large, note that the frame header looked like an HTTP/1.1 header"`: "an HTTP server answers there",
		`connection error: desc = "transport: Error while dialing: dial tcp 127.0.0.1:1: connect: connection refused"`:                                                                        "nothing answers there", //nolint:misspell // the library\'s word
		`connection error: desc = "transport: authentication handshake failed: tls: first record does not look like a TLS handshake"`:                                                         "leave out the --tls flags",
		`authentication handshake failed: tls: failed to verify certificate: x509: certificate signed by unknown authority`:                                                                   "name it with --tls-ca",
		`no valid token: send the header authorization: Bearer with a token of the sidecar's tokens file`:                                                                                     "--token-file",
	} {
		got := callError("127.0.0.1:7600", status.Error(codes.Unavailable, said)).Error()
		if lines := strings.Split(got, "\n"); len(lines) != 2 || !strings.Contains(lines[1], want) {
			t.Errorf("%q, want a second line with %q", got, want)
		}
	}
	if got := callError("a", status.Error(codes.Unimplemented, "")).Error(); !strings.Contains(got, "no sidecar answers there") {
		t.Errorf("no remedy for a server without the service: %q", got)
	}
	if got := callError("a", status.Error(codes.Unavailable, "the store is unavailable")).Error(); strings.Contains(got, "\n") {
		t.Errorf("a remedy for what has none: %q", got)
	}
}
