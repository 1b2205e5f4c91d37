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

// copyTree copies the working tree at root to dir, without .git, caches, build
// output and the data of nodes.
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
		case slices.Contains(skip, rel): // also .git, which is a file in a worktree
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

// programs are the programs that were built from one state of the copy.
type programs struct {
	patch patch
	// paths maps the program of each demand to the path of the binary that has
	// the bug: for images and chaos, the holdfast that they run; for the other
	// programs, the program itself, which is a test binary.
	paths map[string]string
	err   error
}

// clean builds, from the tree without a bug, the programs that the patches
// need: the simulator, and the programs images and chaos, which run a holdfast
// with a bug.
func (b builder) clean(ctx context.Context, list []patch) (paths map[string]string, err error) {
	paths = make(map[string]string)
	for _, p := range list {
		for _, d := range p.demands {
			path := filepath.Join(b.out, d.program)
			if paths[d.program] != "" {
				continue
			}
			switch d.program {
			case simulator:
				err = b.command(ctx, "test", "-c", "-o", path, "./test/sim")
			case images, chaos:
				err = b.command(ctx, "build", "-buildvcs=false", "-o", path, "./test/"+d.program)
			default:
				continue // make test and make compat already run these tests without a bug
			}
			if err != nil {
				return nil, err
			}
			paths[d.program] = path
		}
	}
	return paths, nil
}

// build builds the programs with the bug of a patch.
func (b builder) build(ctx context.Context, p patch) (made programs) {
	made = programs{patch: p, paths: make(map[string]string)}
	if made.err = p.apply(ctx, b.tree); made.err != nil {
		return made
	}
	for _, d := range p.demands {
		if made.err = b.program(ctx, made, d); made.err != nil {
			made.err = fmt.Errorf("%s: the source with the patch does not build: %w", p.name, made.err)
			break
		}
	}
	if err := p.revert(ctx, b.tree); err != nil && made.err == nil {
		made.err = err
	}
	return made
}

// program builds the program of a demand.
func (b builder) program(ctx context.Context, made programs, d demand) error {
	if made.paths[d.program] != "" {
		return nil // two demands share the program
	}
	path := filepath.Join(b.out, made.patch.name+"."+d.program)
	made.paths[d.program] = path
	switch d.program {
	case simulator:
		return b.command(ctx, "test", "-c", "-o", path, "./test/sim")
	case images, chaos:
		return b.command(ctx, "build", "-buildvcs=false", "-o", path, "./cmd/holdfast")
	}
	return b.command(ctx, "test", "-c", "-o", path, testPackages[d.program])
}

// command runs go. With -trimpath, the output of the compiler does not depend
// on the path of the copy, so a later run finds the output in the build cache.
func (b builder) command(ctx context.Context, verb string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{verb, "-trimpath", "-ldflags", "-s -w"}, args...)...)
	cmd.Dir = b.tree
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", verb, err, out)
	}
	return nil
}
