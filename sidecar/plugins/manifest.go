package plugins

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unicode"
)

// errChecksum: a plugin's file does not have the expected digest.
var errChecksum = errors.New("checksum")

const (
	maxManifestBytes = 4 << 20
	maxManifestFiles = 20_000
)

type digest [sha256.Size]byte

func digestOf(text string) (d digest, err error) {
	if len(text) != hex.EncodedLen(len(d)) {
		return d, fmt.Errorf("%d characters, a SHA-256 has %d", len(text), hex.EncodedLen(len(d)))
	}
	_, err = hex.Decode(d[:], []byte(text))
	return d, err
}

// readManifest returns the digests of a manifest's files, by local path.
func readManifest(path string) (map[string]digest, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxManifestBytes+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxManifestBytes {
		return nil, fmt.Errorf("%w: manifest %s is longer than %d bytes", errChecksum, path, maxManifestBytes)
	}
	files, err := parseManifest(text)
	if err != nil {
		return nil, fmt.Errorf("%w: manifest %s: %w", errChecksum, path, err)
	}
	return files, nil
}

// parseManifest parses the output of sha256sum: "digest  path" or "digest *path" per line.
func parseManifest(text []byte) (map[string]digest, error) {
	files := map[string]digest{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSuffix(lines.Text(), "\r")
		if line == "" {
			continue
		}
		sum, name, found := strings.Cut(line, " ")
		if !found || len(name) < 2 || name[0] != ' ' && name[0] != '*' {
			return nil, fmt.Errorf(`line %d is not "SHA-256  path"`, n)
		}
		d, err := digestOf(sum)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		local := filepath.Clean(filepath.FromSlash(name[1:]))
		if strings.ContainsFunc(name, unicode.IsControl) {
			return nil, fmt.Errorf("line %d: the path %q has a control character", n, name[1:])
		}
		if !filepath.IsLocal(local) || local == "." {
			return nil, fmt.Errorf("line %d: %q is not a file in the manifest's folder", n, name[1:])
		}
		if was, twice := files[local]; twice && was != d {
			return nil, fmt.Errorf("line %d: %q again, with another digest", n, name[1:])
		}
		if files[local] = d; len(files) > maxManifestFiles {
			return nil, fmt.Errorf("more than %d files", maxManifestFiles)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, errors.New("it names no file")
	}
	return files, nil
}
