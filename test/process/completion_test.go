package process_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// bashCompletion is the library that the completion of bash needs.
const bashCompletion = "/usr/share/bash-completion/bash_completion"

// TestCompletion_InBash completes words in a real bash.
func TestCompletion_InBash(t *testing.T) {
	if _, err := os.Stat(bashCompletion); err != nil {
		t.Skipf("bash-completion is not installed: %v", err)
	}
	dir := t.TempDir()
	if err := os.Symlink(binary, filepath.Join(dir, "holdfast")); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"holdfast mem":                        "member",
		"holdfast member rem":                 "remove",
		"holdfast serve --heartbeat":          "--heartbeat-timeout",
		"holdfast serve --log-format ":        "json text",
		"holdfast serve --log-level d":        "debug",
		"holdfast serve --protected-mode ":    "no yes",
		"holdfast serve --test-":              "", // hidden flags
		"holdfast serve --tls-auth-clients o": "optional",
	} {
		words := regexp.MustCompile(` +`).Split(line, -1)
		script := `source ` + bashCompletion + `; source <(holdfast completion bash)
			COMP_LINE="$1"; COMP_POINT=${#COMP_LINE}; COMP_TYPE=9; shift
			COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
			__start_holdfast; printf '%s\n' "${COMPREPLY[@]}"`
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		cmd := exec.CommandContext(ctx, "bash", append([]string{"--norc", "-c", script, "bash", line}, words...)...)
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
		// On standard error, bash warns that the shell is not interactive.
		out, err := cmd.Output()
		cancel()
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		// bash shows the description of a value after the value.
		var got []string
		for l := range strings.Lines(string(out)) {
			if word, _, _ := strings.Cut(strings.TrimSpace(l), " "); word != "" {
				got = append(got, word)
			}
		}
		slices.Sort(got)
		if text := strings.Join(got, " "); text != want {
			t.Errorf("%q completes to %q, want %q", line, text, want)
		}
	}
}

// TestMan_HasAPageForEachCommand compares the manual pages with --help.
func TestMan_HasAPageForEachCommand(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man1")
	t.Setenv("SOURCE_DATE_EPOCH", "86400")
	if out, err := exec.Command(binary, "man", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	page := func(name string) string {
		b, err := os.ReadFile(filepath.Join(dir, name+".1"))
		if err != nil {
			t.Fatal(err)
		}
		// man writes a hyphen as \-.
		return strings.ReplaceAll(string(b), `\-`, "-")
	}
	help := func(command ...string) string {
		out, err := exec.Command(binary, append(command, "--help")...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", command, err, out)
		}
		return string(out)
	}
	top := page("holdfast")
	if !strings.Contains(top, "Jan 1970") {
		t.Errorf("the page does not have the date of SOURCE_DATE_EPOCH:\n%.200s", top)
	}
	_, commands, _ := strings.Cut(help(), "Available Commands:\n")
	commands, _, _ = strings.Cut(commands, "\n\n")
	n := 0
	for _, m := range regexp.MustCompile(`(?m)^  ([a-z]+) `).FindAllStringSubmatch(commands, -1) {
		n++
		if m[1] != "help" && page("holdfast-"+m[1]) == "" {
			t.Errorf("the page of %s is empty", m[1])
		}
	}
	if n < 8 {
		t.Errorf("%d commands found in:\n%s", n, commands)
	}
	serve := page("holdfast-serve")
	for _, m := range regexp.MustCompile(`(?m)^ +--([a-z-]+)`).FindAllStringSubmatch(help("serve"), -1) {
		if !strings.Contains(serve, "--"+m[1]) {
			t.Errorf("the page of serve does not name --%s", m[1])
		}
	}
}
