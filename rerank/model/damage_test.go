package model_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/internal/bomb"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/safetensors"
	"github.com/likenessdb/likeness/rerank/tensor"
)

func native(t testing.TB, m *model.Model) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.safetensors")
	if err := model.Write(path, m); err != nil {
		t.Fatal(err)
	}
	return read(t, path)
}

func decode(b []byte) (*model.Model, error) { return model.Read(bytes.NewReader(b), int64(len(b))) }

// TestDamage cuts or flips a native file 10,000 times: none may open.
func TestDamage(t *testing.T) {
	good := native(t, small(t))
	rng := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		bad := bytes.Clone(good)
		if rng.IntN(4) == 0 {
			bad = bad[:rng.IntN(len(bad))]
		} else {
			bad[rng.IntN(len(bad))] ^= 1 << rng.IntN(8)
		}
		if _, err := decode(bad); !errors.Is(err, model.ErrFile) {
			t.Fatalf("err = %v, want ErrFile", err)
		}
	}
	if _, err := decode(append(bytes.Clone(good), 0)); !errors.Is(err, model.ErrFile) {
		t.Errorf("a byte more: err = %v, want ErrFile", err)
	}
}

// directory writes a model directory.
func directory(t testing.TB, config string, weights tensor.Set) string {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "config.json"), []byte(config))
	if err := safetensors.WriteFile(filepath.Join(dir, "model.safetensors"), &safetensors.File{Tensors: weights}); err != nil {
		t.Fatal(err)
	}
	return dir
}

func smallDirectory(t testing.TB) string {
	t.Helper()
	return directory(t, smallConfig, small(t).Parameters().Tensors)
}

// TestDirectoryDamage flips bits of a directory's weights: each gives an error
// or another version.
func TestDirectoryDamage(t *testing.T) {
	dir := smallDirectory(t)
	path := filepath.Join(dir, "model.safetensors")
	good, version := read(t, path), open(t, dir).Version
	for bit := range 8 * len(good) {
		bad := bytes.Clone(good)
		bad[bit/8] ^= 1 << (bit % 8)
		write(t, path, bad)
		m, err := model.Open(dir)
		switch {
		case err != nil && !errors.Is(err, model.ErrFile):
			t.Fatalf("bit %d: err = %v, want ErrFile", bit, err)
		case err == nil && m.Version == version:
			t.Fatalf("bit %d: the damaged model has the version of the good one", bit)
		}
	}
}

func TestDirectoryRefusals(t *testing.T) {
	weights := small(t).Parameters().Tensors
	configs := map[string]struct{ config, want string }{
		"no JSON":       {"hello", "invalid"},
		"kind":          {`{"model_type": "tree"}`, `want "mol" or "bilinear"`},
		"no kind":       {`{}`, "model_type"},
		"twice":         {`{"model_type": "bilinear", "model_type": "mol"}`, "occurs twice"},
		"follows":       {smallConfig + "{}", "follows"},
		"deep":          {`{"a": ` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + "}", "deeper"},
		"normalise":     {strings.Replace(smallConfig, "true", `"maybe"`, 1), "normalise"},
		"dimension":     {strings.Replace(smallConfig, "3", "4", 1), "W"},
		"long":          {strings.Repeat(" ", 1<<20) + smallConfig, "at most 1048576"},
		"no dimensions": {`{"model_type": "bilinear", "query_embedding_dim": -1, "item_embedding_dim": -1}`, ""},
	}
	for name, c := range configs {
		t.Run(name, func(t *testing.T) {
			_, err := model.Open(directory(t, c.config, weights))
			if !errors.Is(err, model.ErrFile) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("err = %.300v\nwant ErrFile with %q", err, c.want)
			}
		})
	}
	for _, missing := range []string{"config.json", "model.safetensors"} {
		dir := smallDirectory(t)
		if err := os.Remove(filepath.Join(dir, missing)); err != nil {
			t.Fatal(err)
		}
		if _, err := model.Open(dir); !errors.Is(err, model.ErrFile) || !errors.Is(err, os.ErrNotExist) {
			t.Errorf("without %s: err = %v", missing, err)
		}
	}
	if _, err := model.Open(t.TempDir() + "/none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("err = %v, want os.ErrNotExist", err)
	}
}

func TestNativeRefusals(t *testing.T) {
	tensors := small(t).Parameters().Tensors
	cases := map[string]struct{ header, want string }{
		"no header": {"", "no \"likeness\""},
		"no JSON":   {"{", "EOF"},
		"format":    {`{"format":2}`, "format is 2, want 1"},
		"unknown":   {`{"format":1,"colour":"red"}`, "colour"},
		"twice":     {`{"format":1,"format":1}`, "occurs twice"},
		"kind":      {`{"format":1,"kind":"tree","config":{}}`, `"tree"`},
		"config":    {`{"format":1,"kind":"bilinear","config":{"colour":1}}`, "colour"},
		"no config": {`{"format":1,"kind":"bilinear"}`, "config"},
		"normalise": {strings.Replace(header(t), `"normalise":true,"config"`, `"normalise":false,"config"`, 1), "normalise: false"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			file := &safetensors.File{Tensors: tensors, Metadata: map[string]string{"sha256": strings.Repeat("0", 64)}}
			if c.header != "" {
				file.Metadata["likeness"] = c.header
			}
			var b bytes.Buffer
			if err := safetensors.Write(&b, file); err != nil {
				t.Fatal(err)
			}
			_, err := decode(seal(b.Bytes()))
			if !errors.Is(err, model.ErrFile) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("err = %v\nwant ErrFile with %q", err, c.want)
			}
		})
	}
}

// header is the header of the small model.
func header(t *testing.T) string {
	t.Helper()
	b := native(t, small(t))
	file, err := safetensors.Read(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	return file.Metadata["likeness"]
}

// seal makes a file's digest right: damage by somebody who knows the format.
func seal(b []byte) []byte {
	b = bytes.Clone(b)
	at := bytes.Index(b, []byte(`"sha256":"`))
	if at < 0 || at+10+64 > len(b) {
		return b
	}
	place := b[at+10 : at+10+64]
	copy(place, strings.Repeat("0", 64))
	digest := sha256.Sum256(b)
	hex.Encode(place, digest[:])
	return b
}

// TestDeclared: whatever number of a model's configuration is made a great one, the
// model is refused, or is read in little memory.
func TestDeclared(t *testing.T) {
	number := regexp.MustCompile(`:-?[0-9]+(\.[0-9]+)?`)
	for _, m := range []*model.Model{small(t), golden(t, "v_1x1"), golden(t, "v_two_uids")} {
		b := native(t, m)
		file, err := safetensors.Read(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			t.Fatal(err)
		}
		text := file.Metadata["likeness"]
		for _, place := range number.FindAllStringIndex(text, -1) {
			for _, great := range []string{"1048576", "2147483647", "1099511627776", "9223372036854775807", "-9223372036854775808", "1e300"} {
				file.Metadata["likeness"] = text[:place[0]+1] + great + text[place[1]:]
				file.Metadata["sha256"] = strings.Repeat("0", 64)
				var b bytes.Buffer
				if err := safetensors.Write(&b, file); err != nil {
					t.Fatal(err)
				}
				name := text[max(0, place[0]-20):place[0]+1] + great
				bomb.Bounded(t, name, func() error {
					_, err := decode(seal(b.Bytes()))
					if err != nil && !errors.Is(err, model.ErrFile) {
						t.Errorf("%s: %v, want ErrFile", name, err)
					}
					return err
				})
			}
		}
	}
}

func FuzzOpen(f *testing.F) {
	f.Add(native(f, small(f)))
	f.Add(native(f, golden(f, "v_1x1")))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decode(seal(b))
		if err != nil {
			if !errors.Is(err, model.ErrFile) {
				t.Fatalf("err = %v, want ErrFile", err)
			}
			return
		}
		again, err := decode(native(t, m))
		if err != nil || again.Version != m.Version {
			t.Fatalf("written and read: %v", err)
		}
	})
}

func FuzzImport(f *testing.F) {
	f.Add([]byte(smallConfig))
	f.Add([]byte(`{"model_type":"mol","hyper_parameters":{"temperature":0.05},"quality":{"a":[1,"b",null]}}`))
	f.Fuzz(func(t *testing.T, config []byte) {
		weights := tensor.Set{"W": {Shape: []int{3, 3}, Data: make([]float32, 9)}}
		p, err := model.Import(config, weights)
		if err == nil {
			_, err = model.New(p)
		}
		if err != nil && !errors.Is(err, model.ErrFile) {
			t.Fatalf("err = %v, want ErrFile", err)
		}
	})
}
