// Package config defines the sidecar's configuration: one struct with its defaults, read
// from a YAML file, the environment and flags, and validated in one place. No other package
// reads the environment.
package config

import "errors"

// ErrConfig is wrapped by every error about the configuration.
var ErrConfig = errors.New("configuration is not valid")
