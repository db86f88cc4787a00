package events

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/likenessdb/likeness/internal/atomicfile"
	"github.com/likenessdb/likeness/internal/diskfault"
)

const (
	keyName  = "key"
	keyBytes = 32
	leastKey = 16
)

// keyring reads the key of a route's signer. While the key cannot be read, it tries again every
// retryAfter. It is safe for concurrent use.
type keyring struct {
	route, dir, file string
	now              func() time.Time

	mu    sync.Mutex
	made  *signer
	err   error
	retry time.Time
}

func newKeyring(route, dir, file string, now func() time.Time) *keyring {
	return &keyring{route: route, dir: dir, file: file, now: now}
}

// signer returns the route's signer, or why the key cannot be read.
func (k *keyring) signer() (*signer, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.made != nil || k.now().Before(k.retry) {
		return k.made, k.err
	}
	key, err := k.read()
	if k.err = err; err != nil {
		k.retry = k.now().Add(retryAfter)
		return nil, err
	}
	k.made = newSigner(k.route, key)
	return k.made, nil
}

func (k *keyring) read() ([]byte, error) {
	if k.file != "" {
		return ReadKeyFile(k.file)
	}
	return ownKey(k.dir)
}

// ReadKeyFile reads a key file, and returns an error if it is missing or too short.
func ReadKeyFile(file string) ([]byte, error) {
	key, err := os.ReadFile(file)
	switch {
	case err != nil:
		return nil, fmt.Errorf("events.key_file: %w", err)
	case len(key) < leastKey:
		return nil, fmt.Errorf("events.key_file: %s has %d bytes, want %d or more: head -c 32 /dev/urandom > %s", file, len(key), leastKey, file)
	}
	return key, nil
}

// ownKey reads the key that a log keeps in its folder, where the first call creates the key. If the
// disk fails, the key lives in memory only, and no other process accepts its ids.
func ownKey(dir string) ([]byte, error) {
	path := filepath.Join(dir, keyName)
	key, err := os.ReadFile(path)
	if err == nil && len(key) >= leastKey {
		return key, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !diskfault.Is(err) {
		return nil, err
	}
	key = make([]byte, keyBytes)
	_, _ = rand.Read(key) // never fails
	err = atomicfile.Write(path, func(w io.Writer) error {
		_, err := w.Write(key)
		return err
	})
	if err == nil {
		err = os.Chmod(path, 0o600)
	}
	if err != nil && !diskfault.Is(err) && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return key, nil
}
