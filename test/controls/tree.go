package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// copyTree copies the working tree at root to dir, without build output.
func copyTree(root, dir string) error {
	skip := []string{".git", ".cache", "bin", "data"}
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		to := filepath.Join(dir, rel)
		switch {
		case d.IsDir() && slices.Contains(skip, rel):
			return fs.SkipDir
		case slices.Contains(skip, rel): // .git is a file in a worktree
			return nil
		case d.IsDir():
			return os.MkdirAll(to, 0o755)
		case !d.Type().IsRegular():
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(to, text, info.Mode().Perm())
	})
}

// builder builds programs from a copy of the tree. It uses one copy for all
// patches, so that go build compiles only the packages that a patch changes and
// the packages that import them.
type builder struct {
	tree string // the copy
	out  string // directory for the programs
}

// programs are the programs that were built from one state of the copy. A
// program that the controls of the patch do not need is not built, and its path
// is empty.
type programs struct {
	patch    patch
	sim      string // test binary of test/sim
	holdfast string
	err      error
}

// clean builds the programs without a bug: the simulator, and test/images,
// which runs the shipped program.
func (b builder) clean(ctx context.Context) (sim, images string, err error) {
	sim, images = filepath.Join(b.out, "clean.test"), filepath.Join(b.out, "images")
	if err := b.command(ctx, "test", "-c", "-o", sim, "./test/sim"); err != nil {
		return "", "", err
	}
	return sim, images, b.command(ctx, "build", "-buildvcs=false", "-o", images, "./test/images")
}

// build builds the programs with the bug of a patch.
func (b builder) build(ctx context.Context, p patch) (made programs) {
	made.patch = p
	if made.err = p.apply(ctx, b.tree); made.err != nil {
		return made
	}
	if p.found[simulator] != nil {
		made.sim = filepath.Join(b.out, p.name+".test")
		made.err = b.command(ctx, "test", "-c", "-o", made.sim, "./test/sim")
	}
	if p.found[images] != nil && made.err == nil {
		made.holdfast = filepath.Join(b.out, p.name+".holdfast")
		made.err = b.command(ctx, "build", "-buildvcs=false", "-o", made.holdfast, "./cmd/holdfast")
	}
	if made.err != nil {
		made.err = fmt.Errorf("%s: the source with the patch does not build: %w", p.name, made.err)
	}
	if err := p.revert(ctx, b.tree); err != nil && made.err == nil {
		made.err = err
	}
	return made
}

// command runs go. With -trimpath, the output of the compiler does not depend
// on the path of the copy, so that a later run finds it in the build cache.
func (b builder) command(ctx context.Context, verb string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{verb, "-trimpath", "-ldflags", "-s -w"}, args...)...)
	cmd.Dir = b.tree
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", verb, err, out)
	}
	return nil
}
