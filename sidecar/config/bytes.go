package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Bytes is a size. It is written as a number, or with a unit: KiB, MiB, GiB.
type Bytes int64

var byteUnits = []struct {
	suffix string
	shift  uint
}{{"GiB", 30}, {"MiB", 20}, {"KiB", 10}}

// ParseBytes reads a size such as 64MiB.
func ParseBytes(s string) (Bytes, error) {
	text, shift := strings.TrimSpace(s), uint(0)
	for _, u := range byteUnits {
		if rest, ok := strings.CutSuffix(text, u.suffix); ok {
			text, shift = strings.TrimSpace(rest), u.shift
			break
		}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64>>shift {
		return 0, fmt.Errorf("%q is not a size; write a number, or one with KiB, MiB or GiB, as 64MiB", s)
	}
	return Bytes(n << shift), nil
}

func (b Bytes) String() string {
	for _, u := range byteUnits {
		if b > 0 && b%(1<<u.shift) == 0 {
			return strconv.FormatInt(int64(b>>u.shift), 10) + u.suffix
		}
	}
	return strconv.FormatInt(int64(b), 10)
}

// UnmarshalYAML reads a size.
func (b *Bytes) UnmarshalYAML(n *yaml.Node) error {
	size, err := ParseBytes(n.Value)
	if err != nil {
		return fmt.Errorf("line %d: %w", n.Line, err)
	}
	*b = size
	return nil
}

// MarshalYAML writes a size with its unit.
func (b Bytes) MarshalYAML() (any, error) {
	if text := b.String(); strings.HasSuffix(text, "B") {
		return text, nil
	}
	return int64(b), nil
}
