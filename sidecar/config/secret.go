package config

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
)

// Secret is a credential. It prints as [redacted] everywhere. Only the code that opens a
// connection calls Reveal.
type Secret struct{ value string }

const redacted = "[redacted]"

// Reveal returns the credential.
func (s Secret) Reveal() string { return s.value }

// IsZero reports whether the credential is empty.
func (s Secret) IsZero() bool { return s.value == "" }

func (s Secret) String() string { return redacted }

// GoString implements fmt.GoStringer.
func (s Secret) GoString() string { return redacted }

// LogValue implements slog.LogValuer.
func (s Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText keeps the credential out of JSON and YAML.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// APIKey reads a store's API key. The key is zero if the configuration names none. APIKey
// returns ErrConfig if the file or the variable is missing or empty.
func (c *Config) APIKey(store string) (Secret, error) {
	s := c.Stores[store]
	return c.secret(join("stores", store)+".api_key", s.APIKeyFile, s.APIKeyEnv)
}

// Password reads a store's password. It returns what APIKey returns.
func (c *Config) Password(store string) (Secret, error) {
	s := c.Stores[store]
	return c.secret(join("stores", store)+".password", s.PasswordFile, s.PasswordEnv)
}

func (c *Config) secret(path, file, variable string) (Secret, error) {
	var value string
	switch {
	case file != "":
		b, err := os.ReadFile(file)
		if err != nil {
			return Secret{}, fmt.Errorf("%w: %s: %w", ErrConfig, c.origin.at(path+"_file"), err)
		}
		if value = strings.TrimSpace(string(b)); value == "" {
			return Secret{}, fmt.Errorf("%w: %s: %s is empty", ErrConfig, c.origin.at(path+"_file"), file)
		}
	case variable != "":
		if value = c.origin.env[variable]; value == "" {
			return Secret{}, fmt.Errorf("%w: %s: the environment has no %s", ErrConfig, c.origin.at(path+"_env"), variable)
		}
	}
	return Secret{value}, nil
}
