// Package config is the sidecar's configuration: one struct with its defaults,
// read from a YAML file, the environment and flags, and checked in one place.
// It is the only reader of the environment.
package config

import "errors"

// ErrConfig is wrapped by every error about the configuration.
var ErrConfig = errors.New("configuration is not valid")
