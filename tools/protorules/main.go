// Command protorules prints the source of a schema that likeness's schema imports:
// protovalidate's rules or Google's HTTP annotations. It takes the source from the Go
// package that contains the compiled schema. The schema therefore has the version that the
// server uses, and the build needs no schema registry.
package main

import (
	"fmt"
	"io"
	"os"

	validate "buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"github.com/jhump/protoreflect/v2/protoprint"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/reflect/protoreflect"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "protorules:", err)
		os.Exit(1)
	}
}

func run(args []string, w io.Writer) error {
	for _, file := range []protoreflect.FileDescriptor{
		validate.File_buf_validate_validate_proto,
		annotations.File_google_api_annotations_proto,
		annotations.File_google_api_http_proto,
	} {
		if len(args) == 1 && args[0] == file.Path() {
			var p protoprint.Printer
			return p.PrintProtoFile(file, w)
		}
	}
	return fmt.Errorf("want the path of one schema, have %q", args)
}
