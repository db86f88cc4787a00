// Command protorules prints the source of protovalidate's rules from the Go
// package that serves them, so that the schema and the server that enforces it
// are of one version and no schema registry is needed to build.
package main

import (
	"fmt"
	"io"
	"os"

	validate "buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"github.com/jhump/protoreflect/v2/protoprint"
)

func main() {
	if err := run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "protorules:", err)
		os.Exit(1)
	}
}

func run(w io.Writer) error {
	var p protoprint.Printer
	return p.PrintProtoFile(validate.File_buf_validate_validate_proto, w)
}
