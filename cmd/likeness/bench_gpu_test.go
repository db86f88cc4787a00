package main

import (
	"encoding/json"
	"os"
	"testing"
)

// TestBenchGPU measures a device that this binary is, a process of its own.
func TestBenchGPU(t *testing.T) {
	t.Setenv(asCommand, "1")
	r := execute(t, "", "bench", "gpu", "--plugin", os.Args[0], "--args", "plugin,device", "--env", asCommand+",GORACE",
		"--rows", "200", "--time", "1ms", "--case", "rescore-8x4x64,maxsim-256", "--output", "json")
	var report gpuReport
	if err := json.Unmarshal([]byte(r.out), &report); r.code != 0 || err != nil || len(report.Cases) != 2 {
		t.Fatalf("exit code %d, %v: %s%s", r.code, err, r.out, r.err)
	}
	for _, c := range report.Cases {
		if c.Plugin.Batch.Runs < 1 || c.CPU.Batch.Runs < 1 || c.Rows != 200 {
			t.Errorf("%+v", c)
		}
	}
	if r := execute(t, "", "bench", "gpu", "--plugin", os.Args[0], "--case", "none"); r.code != 2 {
		t.Errorf("a case that is not there: exit code %d, %s", r.code, r.err)
	}
}
