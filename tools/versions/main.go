// Command versions says which versions of clients, servers and frameworks the tests ran, and which are the newest
// in their registries.
//
//	versions -root ..            a table for people
//	versions -root .. -check     and exit status 1 where the newest one was not run
//	versions -root .. -page      a section of docs/reference/compatibility.md
//
// What the tests ran is read from the files that pin it. The registries are asked by pip, npm and go, through
// whatever index those are configured to use.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"text/tabwriter"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "versions:", err)
		os.Exit(1)
	}
}

// errNewer means that a registry has a newer version than the tests ran.
var errNewer = errors.New("newer versions were not run")

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("versions", flag.ContinueOnError)
	root := flags.String("root", ".", "the root of the repository")
	check := flags.Bool("check", false, "fail if the newest version of a package was not run")
	page := flags.Bool("page", false, "print a section of docs/reference/compatibility.md")
	if err := flags.Parse(args); err != nil {
		return err
	}
	packages, err := pinned(os.DirFS(*root))
	if err != nil {
		return err
	}
	var newer []string
	for i := range packages {
		p := &packages[i]
		if p.Newest, err = newest(ctx, *p); err != nil {
			return err
		}
		if !p.isNewest() && p.Frozen == "" {
			newer = append(newer, p.Name+" "+p.Newest)
		}
	}
	if *page {
		return writePage(out, packages, time.Now())
	}
	if err := writeTable(out, packages); err != nil {
		return err
	}
	if *check && len(newer) > 0 {
		return fmt.Errorf("%w: %s; pin them, and run `make compatibility`", errNewer, strings.Join(newer, ", "))
	}
	return nil
}

// newest asks the registry of a package for its newest version.
func newest(ctx context.Context, p pkg) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	command := p.Registry.command(p.Name)
	out, err := exec.CommandContext(ctx, command[0], command[1:]...).Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(command, " "), err, exit.Stderr)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", strings.Join(command, " "), err)
	}
	version := p.Registry.parse(string(out))
	if version == "" {
		return "", fmt.Errorf("%s prints no version: %.200q", strings.Join(command, " "), out)
	}
	return version, nil
}

func writeTable(out io.Writer, packages []pkg) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "package\trun\tnewest\t")
	for _, p := range packages {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", p.Name, p.ran(), p.Newest, p.remark())
	}
	return w.Flush()
}

func writePage(out io.Writer, packages []pkg, now time.Time) error {
	_, err := fmt.Fprintf(out, "## Versions\n\nWhat the tests run, and the newest release in its registry on %s (`make versions`).\n\n| package | run | newest |\n|---|---|---|\n", now.UTC().Format(time.DateOnly))
	for _, p := range packages {
		if err != nil {
			return err
		}
		newest := p.Newest
		if remark := p.remark(); remark != "" {
			newest += ", " + remark
		}
		_, err = fmt.Fprintf(out, "| %s | %s | %s |\n", p.Name, p.ran(), newest)
	}
	return err
}
