// Command plugin is the plugin of package faulty.
package main

import (
	"fmt"
	"os"

	"github.com/likenessdb/likeness/sidecar/plugins/faulty"
)

func main() {
	if err := faulty.Main(os.Args[1:], os.Stderr); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
