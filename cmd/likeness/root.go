package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/internal/edits"
	"github.com/likenessdb/likeness/sidecar/buildinfo"
	"github.com/likenessdb/likeness/sidecar/config"
)

// app holds the surroundings that every subcommand shares. Each subcommand is one file
// with a constructor newXCommand(a *app) *cobra.Command.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	running        bool // set once a command's RunE is called
}

const rootLong = `likeness sits beside a vector database. It turns a query into the dot-product
searches that the database can do, scores the candidates with a learned
similarity, and returns the top K with a certificate that says how far the
answer can be from the exact one.

Exit codes:
  0    success
  1    failure
  2    wrong usage: a flag or an argument
  3    the configuration is not valid
  4    the sidecar or a store is unavailable, or did not answer in time
  130  interrupted

Results go to stdout; logs, progress and errors go to stderr.`

// helpTemplate is cobra's, but prints the one-line summary of a command before its description.
const helpTemplate = `{{.Short}}.{{with .Long}}

{{. | trimTrailingWhitespaces}}{{end}}

{{if or .Runnable .HasSubCommands}}{{.UsageString}}{{end}}`

func newRootCommand(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:           "likeness",
		Short:         "Learned similarity for the vector database you already run",
		Long:          rootLong,
		Example:       "  likeness serve --config likeness.yaml\n  likeness query --route products --vector-file q.npy --k 10",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.Version = buildinfo.Read(stamp()).Version
	root.SetVersionTemplate("likeness {{.Version}}\n")
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.SetHelpTemplate(helpTemplate)
	root.SetFlagErrorFunc(suggestFlag)
	root.AddCommand(
		newServeCommand(a),
		newProxyCommand(a),
		newQueryCommand(a),
		newHealthCommand(a),
		newIndexCommand(a),
		newReconcileCommand(a),
		newDropCompanionCommand(a),
		newBridgeCommand(a),
		newTryCommand(a),
		newEvalCommand(a),
		newEventsCommand(a),
		newCalibrateCommand(a),
		newExperimentCommand(a),
		newFitCommand(a),
		newRefitCommand(a),
		newBenchCommand(a),
		newModelCommand(a),
		newPluginCommand(a),
		newConfigCommand(a),
		newVersionCommand(a),
		newDocsCommand(),
	)
	addCompletion(root)
	nameArguments(root)
	markRunning(a, root)
	return root
}

// addCompletion adds cobra's completion command, with examples.
func addCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	completion, _, err := root.Find([]string{"completion"})
	if err != nil {
		return
	}
	completion.Example = "  source <(likeness completion bash)"
	for _, shell := range completion.Commands() {
		_, shell.Long, _ = strings.Cut(shell.Long, "\n\n") // without cobra's repetition of Short
		shell.Example = map[string]string{
			"bash":       "  source <(likeness completion bash)",
			"zsh":        "  source <(likeness completion zsh)",
			"fish":       "  likeness completion fish | source",
			"powershell": "  likeness completion powershell | Out-String | Invoke-Expression",
		}[shell.Name()]
	}
}

// newGroup returns a command that only groups others. Run by itself, it prints its help with the
// first example of each.
func newGroup(use, short string, children ...*cobra.Command) *cobra.Command {
	var examples []string
	for _, child := range children {
		for line := range strings.Lines(child.Example) {
			examples = append(examples, strings.TrimRight(line, "\n"))
			if !strings.HasSuffix(strings.TrimSpace(line), "\\") {
				break
			}
		}
	}
	group := &cobra.Command{
		Use:     use,
		Short:   short,
		Example: strings.Join(examples, "\n"),
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },

		SuggestionsMinimumDistance: 2,
	}
	group.AddCommand(children...)
	return group
}

// nameArguments makes every command say which arguments it takes when it refuses those it got. Cobra
// calls a superfluous argument an unknown command, though the command has none below it.
func nameArguments(cmd *cobra.Command) {
	for _, child := range cmd.Commands() {
		nameArguments(child)
	}
	accepts := cmd.Args
	if accepts == nil {
		return
	}
	_, takes, _ := strings.Cut(cmd.Use, " ")
	if takes == "" {
		takes = "no arguments"
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		err := accepts(cmd, args)
		switch name := strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" "); {
		case err == nil:
			return nil
		case cmd.HasAvailableSubCommands():
			if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
				return fmt.Errorf("%w; did you mean %s?", err, strings.Join(near, " or "))
			}
			return fmt.Errorf("%w; there are %s", err, strings.Join(childNames(cmd), ", "))
		case len(args) == 0:
			return fmt.Errorf("%s takes %s; got none", name, takes)
		default:
			return fmt.Errorf("%s takes %s; got %s%s", name, takes, strings.Join(args, " "), flagFor(cmd, args[0]))
		}
	}
}

// childNames returns the names of the commands below cmd.
func childNames(cmd *cobra.Command) (names []string) {
	for _, child := range cmd.Commands() {
		if child.IsAvailableCommand() {
			names = append(names, child.Name())
		}
	}
	return names
}

// suggestFlag adds to the refusal of an unknown flag the command's flag that is nearest to it.
func suggestFlag(cmd *cobra.Command, err error) error {
	unknown := (*pflag.NotExistError)(nil)
	if !errors.As(err, &unknown) {
		return err
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	near := edits.Close(unknown.GetSpecifiedName(), names)
	if near == "" {
		return err
	}
	return fmt.Errorf("%w; did you mean --%s?", err, near)
}

// flagFor says which flag a superfluous argument was probably meant for: --config for a YAML file, and a flag in use whose
// value is optional, which takes its value after "=" only.
func flagFor(cmd *cobra.Command, value string) (text string) {
	if ext := filepath.Ext(value); cmd.Flag("config") != nil && (ext == ".yaml" || ext == ".yml") {
		return "; write --config=" + value
	}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.NoOptDefVal != "" && f.Value.Type() != "bool" {
			text += fmt.Sprintf("; write --%s=%s for a value of --%s", f.Name, value, f.Name)
		}
	})
	return text
}

// markRunning makes every command set a.running when it starts. Errors before that are cobra's, and
// count as wrong usage.
func markRunning(a *app, cmd *cobra.Command) {
	if runE := cmd.RunE; runE != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			a.running = true
			return runE(cmd, args)
		}
	}
	for _, child := range cmd.Commands() {
		markRunning(a, child)
	}
}

// usageError is an error in the use of the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

var errInterrupted = errors.New("interrupted")

// exitCode returns the process's exit code for an error, as rootLong lists them.
func exitCode(err error) int {
	switch {
	case err == nil:
		return 0
	case errors.As(err, new(usageError)):
		return 2
	case errors.Is(err, config.ErrConfig):
		return 3
	case errors.Is(err, errInterrupted):
		return 130
	case unavailable(err):
		return 4
	default:
		return 1
	}
}

func unavailable(err error) bool {
	if errors.Is(err, adapters.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	code := status.Code(err)
	return code == codes.Unavailable || code == codes.DeadlineExceeded
}

// output is the value of --output: text or json.
type output string

const (
	outputText output = "text"
	outputJSON output = "json"
)

func (o *output) String() string { return string(*o) }
func (o *output) Type() string   { return "format" }

// Set implements pflag.Value.
func (o *output) Set(s string) error {
	if s != string(outputText) && s != string(outputJSON) {
		return fmt.Errorf("%q is not a format; use text or json", s)
	}
	*o = output(s)
	return nil
}

// addOutput adds --output to a command that prints a result.
func addOutput(cmd *cobra.Command) *output {
	o := outputText
	cmd.Flags().VarP(&o, "output", "o", "what to print: text or json")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(
		[]string{string(outputText), string(outputJSON)}, cobra.ShellCompDirectiveNoFileComp))
	return &o
}

// warn writes warnings to standard error, one a line.
func (a *app) warn(warnings []string) {
	for _, warning := range warnings {
		_, _ = fmt.Fprintln(a.stderr, "warning:", warning)
	}
}

// print writes a result to stdout: v as JSON, or the text that the function text writes.
func (a *app) print(o output, v any, text func(w io.Writer) error) error {
	if o == outputText {
		var b strings.Builder
		if err := text(&b); err != nil {
			return err
		}
		_, err := io.WriteString(a.stdout, b.String())
		return err
	}
	enc := json.NewEncoder(a.stdout)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
