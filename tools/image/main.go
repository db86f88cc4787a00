// Command image packs likeness as OCI images, without a container engine and without a base image.
//
//	image -version 1.2.3 -commit 0123abc -date 2026-01-02T03:04:05Z -out dist linux/amd64=FOLDER linux/arm64=FOLDER
//
// Each FOLDER holds what one platform's image consists of: the static binary "likeness", which becomes /likeness, and
// documents (licences, the bill of materials), which go to /usr/share/doc/likeness. image adds what the binary needs
// of a system: public certificate authorities, a user without rights, and the folders that it may write to.
//
// It writes a tarball a platform, likeness_VERSION_OS_ARCH.image.tar, which `docker load` and `podman load` read, and
// likeness_VERSION.oci.tar, an OCI image layout of all platforms, from which `crane push` and `skopeo copy --all` fill
// a registry. The same arguments and files give the same bytes.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func main() {
	if err := run(os.Args[1:], os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(args []string, stderr io.Writer) error {
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	flags.SetOutput(stderr)
	version := flags.String("version", "", "the version, which is also the image's tag")
	commit := flags.String("commit", "", "the commit that the binaries were built from")
	date := flags.String("date", "", "the time of the commit (RFC 3339), which all files and images get")
	out := flags.String("out", "dist", "the folder to write to")
	if err := flags.Parse(args); err != nil {
		return err
	}
	tag, err := name.NewTag("likeness:" + *version)
	if err != nil {
		return fmt.Errorf("-version %q is no tag of an image: %w", *version, err)
	}
	created, err := time.Parse(time.RFC3339, *date)
	if err != nil {
		return fmt.Errorf("-date: %w", err)
	}
	if flags.NArg() == 0 {
		return errors.New("no platform is named: give some as linux/amd64=FOLDER")
	}
	release := release{Version: *version, Commit: *commit, Created: created.UTC()}
	var images []v1.Image
	for _, arg := range flags.Args() {
		platform, folder, ok := strings.Cut(arg, "=")
		system, architecture, both := strings.Cut(platform, "/")
		if !ok || !both {
			return fmt.Errorf("%q does not name a platform and its folder: want linux/amd64=FOLDER", arg)
		}
		image, err := release.image(system, architecture, folder)
		if err != nil {
			return fmt.Errorf("%s: %w", platform, err)
		}
		file := filepath.Join(*out, fmt.Sprintf("likeness_%s_%s_%s.image.tar", *version, system, architecture))
		if err := tarball.WriteToFile(file, tag, image); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		images = append(images, image)
	}
	return release.writeLayout(filepath.Join(*out, "likeness_"+*version+".oci.tar"), tag, images)
}
