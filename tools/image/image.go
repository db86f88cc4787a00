package main

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Where the files of an image lie.
const (
	binary      = "likeness"
	documents   = "usr/share/doc/likeness"
	authorities = "etc/ssl/certs/ca-certificates.crt"
)

// user is the number of the user and of the group that an image runs as.
const user = 65532

// release holds the parts that the images of all platforms share.
type release struct {
	Version, Commit string
	Created         time.Time
}

// labels describe an image, and an index of images, in the words of the OCI.
func (r release) labels() map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":       "likeness",
		"org.opencontainers.image.description": "Learned similarities for a vector database, as a sidecar",
		"org.opencontainers.image.source":      "https://github.com/likenessdb/likeness",
		"org.opencontainers.image.licenses":    "Apache-2.0",
		"org.opencontainers.image.version":     r.Version,
		"org.opencontainers.image.revision":    r.Commit,
		"org.opencontainers.image.created":     r.Created.Format(time.RFC3339),
	}
}

// image returns the image of a platform whose binary and documents lie in a folder. Its first layer is the same on
// every platform.
func (r release) image(system, architecture, folder string) (v1.Image, error) {
	base, err := systemFiles()
	if err != nil {
		return nil, err
	}
	own, err := folderFiles(os.DirFS(folder))
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, l := range []struct {
		files []file
		says  string
	}{
		{base, "certificate authorities, user and folders"},
		{own, "likeness " + r.Version},
	} {
		packed, err := pack(l.files, r.Created)
		if err != nil {
			return nil, err
		}
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(packed)), nil
		}, tarball.WithMediaType(types.OCILayer))
		if err != nil {
			return nil, err
		}
		if image, err = mutate.Append(image, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: r.Created}, CreatedBy: "tools/image", Comment: l.says}}); err != nil {
			return nil, err
		}
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = system, architecture, v1.Time{Time: r.Created}
	config.Config = v1.Config{
		User:         fmt.Sprintf("%d:%d", user, user),
		WorkingDir:   "/etc/likeness",
		ExposedPorts: map[string]struct{}{"7600/tcp": {}, "7601/tcp": {}}, // gRPC, and metrics with health on the admin port
		// There is no shell: the binary asks itself.
		Healthcheck: &v1.HealthConfig{Test: []string{"CMD", "/likeness", "health"}, Interval: 5 * time.Second, Timeout: 4 * time.Second, StartPeriod: 20 * time.Second},
		Entrypoint:  []string{"/likeness"},
		Cmd:         []string{"serve", "--config", "/etc/likeness/likeness.yaml", "--listen", "0.0.0.0:7600", "--admin", "0.0.0.0:7601"},
		Env:         []string{"PATH=/"},
		Labels:      r.labels(),
	}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return nil, err
	}
	annotated, ok := mutate.Annotations(image, r.labels()).(v1.Image)
	if !ok {
		return nil, fmt.Errorf("the image with annotations is a %T", annotated)
	}
	return annotated, nil
}

// systemFiles returns what the binary needs of a system.
func systemFiles() ([]file, error) {
	roots, err := authoritiesPEM()
	if err != nil {
		return nil, err
	}
	return []file{
		{name: authorities, mode: 0o644, content: roots},
		{name: "etc/passwd", mode: 0o644, content: fmt.Appendf(nil, "root:x:0:0:root:/:/sbin/nologin\nnonroot:x:%d:%d:nonroot:/var/lib/likeness:/sbin/nologin\n", user, user)},
		{name: "etc/group", mode: 0o644, content: fmt.Appendf(nil, "root:x:0:\nnonroot:x:%d:\n", user)},
		{name: "etc/likeness", mode: fs.ModeDir | 0o755},
		{name: "tmp", mode: fs.ModeDir | fs.ModeSticky | 0o777},
		// What state_dir may name; mount a volume there to keep it.
		{name: "var/lib/likeness", mode: fs.ModeDir | 0o755, owner: user},
	}, nil
}

// folderFiles returns the files of a folder as they lie in an image.
func folderFiles(folder fs.FS) (files []file, err error) {
	err = fs.WalkDir(folder, ".", func(at string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := fs.ReadFile(folder, at)
		if err != nil {
			return err
		}
		f := file{name: path.Join(documents, at), mode: 0o644, content: content}
		if at == binary {
			f.name, f.mode = binary, 0o755
		}
		files = append(files, f)
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		if f.name == binary {
			return files, nil
		}
	}
	return nil, fmt.Errorf("the folder has no file %q: build it with CGO_ENABLED=0", binary)
}

// writeLayout writes an OCI image layout of all platforms as a tarball.
func (r release) writeLayout(to string, tag name.Tag, images []v1.Image) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, image := range images {
		config, err := image.ConfigFile()
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: config.Platform()}})
	}
	annotated, ok := mutate.Annotations(index, r.labels()).(v1.ImageIndex)
	if !ok {
		return fmt.Errorf("the index with annotations is a %T", annotated)
	}
	work, err := os.MkdirTemp("", "likeness-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	p, err := layout.Write(work, empty.Index)
	if err != nil {
		return err
	}
	if err := p.AppendIndex(annotated, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": tag.TagStr(),
		"io.containerd.image.name":          tag.Name(),
	})); err != nil {
		return err
	}
	var files []file
	folder := os.DirFS(work)
	if err := fs.WalkDir(folder, ".", func(at string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := fs.ReadFile(folder, at)
		files = append(files, file{name: at, mode: 0o644, content: content})
		return err
	}); err != nil {
		return err
	}
	packed, err := pack(files, r.Created)
	if err != nil {
		return err
	}
	return os.WriteFile(to, packed, 0o644)
}
