package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// shellBlock matches a fenced block of shell commands.
var shellBlock = regexp.MustCompile("(?s)```sh\n(.*?)```")

// TestCommandsOfPagesExist checks that each command of likeness in a page exists and has the flags that the page gives it.
func TestCommandsOfPagesExist(t *testing.T) {
	list := exec.CommandContext(t.Context(), "git", "ls-files", "--", "*.md")
	list.Dir = "../.."
	tracked, err := list.Output()
	if err != nil {
		t.Skipf("git lists the pages: %v", err)
	}
	root, commands := newRootCommand(&app{}), 0
	for page := range strings.FieldsSeq(string(tracked)) {
		text, err := os.ReadFile(filepath.Join(list.Dir, page))
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range shellBlock.FindAllStringSubmatch(string(text), -1) {
			for line := range strings.SplitSeq(strings.ReplaceAll(block[1], "\\\n", " "), "\n") {
				line, _, _ = strings.Cut(line, " #")
				words := strings.Fields(line)
				if len(words) > 1 && (words[0] == "likeness" || words[0] == "bin/likeness") {
					checkCommand(t, page, root, words[1:])
					commands++
				}
			}
		}
	}
	if commands < 50 {
		t.Errorf("only %d commands found in the pages", commands)
	}
}

// checkCommand reports words that name no command, or a flag that their command lacks.
func checkCommand(t *testing.T, page string, root *cobra.Command, words []string) {
	t.Helper()
	cmd, _, err := root.Find(words)
	if err != nil || cmd.HasSubCommands() && cmd != root {
		t.Errorf("%s: likeness %s: no such command", page, strings.Join(words, " "))
		return
	}
	for _, word := range words {
		if word == "--" || strings.HasPrefix(word, "./") { // the words behind it belong to another program
			return
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(word, "--"), "=")
		if strings.HasPrefix(word, "--") && name != "help" && name != "version" && cmd.Flag(name) == nil {
			t.Errorf("%s: %s has no flag --%s", page, cmd.CommandPath(), name)
		}
	}
}
