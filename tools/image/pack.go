package main

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"time"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// file is a file or a folder of a tarball. Its owner is a user and the group of the same number.
type file struct {
	name    string
	mode    fs.FileMode
	owner   int
	content []byte
}

// pack returns a tarball of files and of the folders above them, which belong to root. It is the same for the same
// files, in whatever order.
func pack(files []file, modified time.Time) ([]byte, error) {
	all := map[string]file{}
	for _, f := range files {
		all[f.name] = f
		for dir := path.Dir(f.name); dir != "."; dir = path.Dir(dir) {
			if _, ok := all[dir]; !ok {
				all[dir] = file{name: dir, mode: fs.ModeDir | 0o755}
			}
		}
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		f := all[name]
		h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: int64(f.mode.Perm()), Uid: f.owner, Gid: f.owner, Size: int64(len(f.content)), ModTime: modified}
		if f.mode.IsDir() {
			h.Typeflag, h.Name = tar.TypeDir, name+"/"
		}
		if f.mode&fs.ModeSticky != 0 {
			h.Mode |= 0o1000
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// authoritiesPEM returns the certificate authorities that Mozilla trusts for servers, in the version of the Go module
// golang.org/x/crypto/x509roots/fallback. It leaves out those that are trusted with a restriction, such as for certificates
// before some date only, since a file of certificates cannot hold the restriction.
func authoritiesPEM() ([]byte, error) {
	var out bytes.Buffer
	count := 0
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue
		}
		if err := pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			return nil, err
		}
		count++
	}
	if count == 0 {
		return nil, errors.New("the bundle of certificate authorities is empty")
	}
	return out.Bytes(), nil
}
