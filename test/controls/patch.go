package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// These are programs that run a control. testPackages contains the others.
const (
	simulator = "sim"
	images    = "images"
	chaos     = "chaos"
	compat    = "compat"
)

// testPackages maps each program that is the test binary of a package to that
// package.
var testPackages = map[string]string{
	"fsm":     "./fsm",
	"cluster": "./cluster",
	compat:    "./test/compat",
}

// demand is one line in the comment of a patch: it names a program that must
// find the bug.
type demand struct {
	program string
	// what selects the part of the program to run: classes of faults for chaos,
	// or a regular expression for the names of tests. It is empty for the other
	// programs.
	what string
	want *regexp.Regexp // matches the violation that the expected checker reports
}

// folder is the directory of the patches, relative to the root of the tree.
const folder = "test/controls"

// patch is one injected bug.
type patch struct {
	name    string // name of the bug, and of the file without .patch
	path    string // absolute
	header  string // the comment lines at the head of the file
	demands []demand
}

// patches reads all patches of the tree at root, ordered by name.
func patches(root string) ([]patch, error) {
	paths, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(folder), "*.patch"))
	if err != nil {
		return nil, err
	}
	var all []patch
	for _, path := range paths {
		p, err := readPatch(path)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// readPatch reads the comment of a patch.
func readPatch(path string) (patch, error) {
	p := patch{name: strings.TrimSuffix(filepath.Base(path), ".patch")}
	var err error
	if p.path, err = filepath.Abs(path); err != nil {
		return p, err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return p, err
	}
	for i, line := range strings.SplitAfter(string(text), "\n") {
		comment, ok := strings.CutPrefix(line, "# ")
		if !ok {
			break
		}
		p.header += line
		if i == 0 {
			continue // the first line is for readers
		}
		d, err := readDemand(strings.TrimSpace(comment))
		if err != nil {
			return p, fmt.Errorf("%s: line %d: %w", path, i+1, err)
		}
		p.demands = append(p.demands, d)
	}
	if len(p.demands) == 0 {
		return p, fmt.Errorf("%s: no line names a program and the violation that it must report", path)
	}
	return p, nil
}

// readDemand reads a line of the form "PROGRAM: PATTERN" or "PROGRAM WHAT:
// PATTERN".
func readDemand(line string) (d demand, err error) {
	head, pattern, _ := strings.Cut(line, ": ")
	d.program, d.what, _ = strings.Cut(head, " ")
	parts := d.program == chaos || testPackages[d.program] != ""
	switch {
	case d.program != simulator && d.program != images && !parts:
		return d, fmt.Errorf("no program is called %q", d.program)
	case parts && d.what == "":
		return d, fmt.Errorf("the line does not name the part of %s to run", d.program)
	case !parts && d.what != "":
		return d, fmt.Errorf("%s has no parts, but the line names the part %q", d.program, d.what)
	case pattern == "":
		return d, errors.New("the line has no pattern for the violation")
	}
	d.want, err = regexp.Compile(pattern)
	return d, err
}

// errStale is part of the error for a patch that does not fit the source.
var errStale = errors.New("the source has changed at a place that this patch needs. " +
	"To refresh the patch, commit your change, put the bug that the first line of the patch describes " +
	"into the working tree by hand, run go run ./test/controls -refresh with the name of the patch, and restore the " +
	"source with git checkout")

// check returns an error if the patch does not fit the tree in dir. It changes
// nothing.
func (p patch) check(ctx context.Context, dir string) error { return p.git(ctx, dir, "--check") }

// apply puts the bug into the tree in dir.
func (p patch) apply(ctx context.Context, dir string) error { return p.git(ctx, dir) }

// revert removes the bug from the tree in dir.
func (p patch) revert(ctx context.Context, dir string) error { return p.git(ctx, dir, "--reverse") }

func (p patch) git(ctx context.Context, dir string, options ...string) error {
	dir, err := filepath.Abs(dir)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return err
	}
	args := append([]string{"apply", "--whitespace=nowarn"}, options...)
	cmd := exec.CommandContext(ctx, "git", append(args, p.path)...)
	cmd.Dir = dir
	// In a subdirectory of a repository, git apply silently ignores all
	// files outside of that subdirectory. So git must not find a repository
	// that contains dir.
	cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) && ctx.Err() == nil {
		return fmt.Errorf("cannot apply %s/%s.patch: %s\n%w", folder, p.name, bytes.TrimSpace(out), errStale)
	}
	return err
}

// refresh writes the changes of the working tree's Go files into a patch as its
// new content, and keeps the comment of the patch.
func refresh(ctx context.Context, root, name string) error {
	p, err := readPatch(filepath.Join(root, filepath.FromSlash(folder), name+".patch"))
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "git", "diff", "--no-ext-diff", "--no-color", "-U2", "HEAD", "--", "*.go")
	cmd.Dir = root
	diff, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("git diff: %w", err)
	}
	if len(diff) == 0 {
		return errors.New("the working tree has no change that could be the bug")
	}
	content := p.header
	for line := range strings.Lines(string(diff)) {
		if !strings.HasPrefix(line, "index ") { // the line contains hashes, which git apply does not need
			content += line
		}
	}
	return os.WriteFile(p.path, []byte(content), 0o644)
}
