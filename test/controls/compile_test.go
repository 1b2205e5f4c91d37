package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/build"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestPatches_Compile finds patches that apply but no longer compile, for
// example because a name that they use has changed. It only checks types, which
// takes about two seconds for all patches. Building them would take minutes.
func TestPatches_Compile(t *testing.T) {
	all, err := patches(root)
	if err != nil {
		t.Fatal(err)
	}
	tree := filepath.Join(t.TempDir(), "tree")
	if err := copyTree(root, tree); err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	known := importer.ForCompiler(fset, "gc", exportData(t, root))
	for _, p := range all {
		if err := p.apply(t.Context(), tree); err != nil {
			t.Error(err)
			continue
		}
		dirs, err := p.dirs()
		if err != nil {
			t.Fatal(err)
		}
		for _, dir := range dirs {
			if err := checkTypes(filepath.Join(tree, filepath.FromSlash(dir)), fset, known); err != nil {
				t.Errorf("%s/%s.patch applies, but does not compile: %v\n%v", folder, p.name, err, errStale)
			}
		}
		if err := p.revert(t.Context(), tree); err != nil {
			t.Fatal(err)
		}
	}
}

// dirs returns the directories of the files that a patch changes.
func (p patch) dirs() ([]string, error) {
	text, err := os.ReadFile(p.path)
	if err != nil {
		return nil, err
	}
	var dirs []string
	for line := range strings.Lines(string(text)) {
		file, ok := strings.CutPrefix(strings.TrimSpace(line), "+++ b/")
		if ok && !slices.Contains(dirs, path.Dir(file)) {
			dirs = append(dirs, path.Dir(file))
		}
	}
	return dirs, nil
}

// exportData returns a function that opens the compiler's export data of a
// package. It knows the packages that the product or the simulator imports.
func exportData(t *testing.T, dir string) func(name string) (io.ReadCloser, error) {
	t.Helper()
	cmd := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}",
		"./cmd/holdfast", "./test/sim")
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	files := make(map[string]string)
	for line := range strings.Lines(string(out)) {
		name, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		files[name] = file
	}
	return func(name string) (io.ReadCloser, error) {
		if files[name] == "" {
			return nil, fmt.Errorf("%s is not among the packages that the product or the simulator imports", name)
		}
		return os.Open(files[name])
	}
}

// checkTypes checks the types of the package in dir, without its tests.
func checkTypes(dir string, fset *token.FileSet, known types.Importer) error {
	pkg, err := build.ImportDir(dir, 0)
	if err != nil {
		return err
	}
	var files []*ast.File
	for _, name := range pkg.GoFiles {
		file, err := parser.ParseFile(fset, filepath.Join(dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files = append(files, file)
	}
	var errs []error
	conf := types.Config{
		Importer: known,
		Error:    func(err error) { errs = append(errs, err) },
	}
	if _, err := conf.Check(dir, fset, files, nil); err != nil && len(errs) == 0 {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
