// Package buildinfo says what this binary is: its version and what it was built
// from and for.
package buildinfo

import (
	"cmp"
	"runtime"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/cpu"
)

// API and ModelFormat are the versions of the gRPC API and of the native model file.
const (
	API         = "likeness.v1"
	ModelFormat = "1"
)

// Stamp holds the values that the linker set. Empty fields are read from the module data
// that the go command embeds.
type Stamp struct{ Version, Commit, Date string }

// Info describes a binary.
type Info struct {
	Version     string   `json:"version"` // semantic version, "devel" without a stamp
	Commit      string   `json:"commit"`
	Date        string   `json:"date"` // of the commit, RFC 3339
	Go          string   `json:"go"`
	Platform    string   `json:"platform"`
	CPU         []string `json:"cpu_features"` // of this machine, those that kernels care for
	API         string   `json:"api"`
	ModelFormat string   `json:"model_format"`
}

// Read describes this binary.
func Read(s Stamp) Info {
	settings := map[string]string{}
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, kv := range build.Settings {
			settings[kv.Key] = kv.Value
		}
	}
	commit := settings["vcs.revision"]
	if settings["vcs.modified"] == "true" {
		commit += "-modified"
	}
	return Info{
		Version:     cmp.Or(s.Version, "devel"),
		Commit:      cmp.Or(s.Commit, commit, "unknown"),
		Date:        cmp.Or(s.Date, settings["vcs.time"], "unknown"),
		Go:          runtime.Version(),
		Platform:    runtime.GOOS + "/" + runtime.GOARCH,
		CPU:         features(),
		API:         API,
		ModelFormat: ModelFormat,
	}
}

// CPUText is the features in one line.
func (i Info) CPUText() string {
	if len(i.CPU) == 0 {
		return "no vector extensions"
	}
	return strings.Join(i.CPU, " ")
}

func features() []string {
	all := []struct {
		name string
		has  bool
	}{
		{"sse4.2", cpu.X86.HasSSE42}, {"avx", cpu.X86.HasAVX}, {"avx2", cpu.X86.HasAVX2}, {"fma", cpu.X86.HasFMA},
		{"avx512f", cpu.X86.HasAVX512F}, {"avx512bw", cpu.X86.HasAVX512BW}, {"avx512vl", cpu.X86.HasAVX512VL},
		{"avx512vnni", cpu.X86.HasAVX512VNNI}, {"avx512bf16", cpu.X86.HasAVX512BF16}, {"amxbf16", cpu.X86.HasAMXBF16},
		{"asimd", cpu.ARM64.HasASIMD}, {"asimddp", cpu.ARM64.HasASIMDDP}, {"sve", cpu.ARM64.HasSVE}, {"sve2", cpu.ARM64.HasSVE2},
	}
	have := []string{}
	for _, f := range all {
		if f.has {
			have = append(have, f.name)
		}
	}
	return have
}
