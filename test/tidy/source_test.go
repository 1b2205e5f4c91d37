package tidy

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

const (
	root   = "../.."
	module = "github.com/holdfast-kv/holdfast"
)

// source is one parsed Go file.
type source struct {
	path string // path from the root of the tree, with slashes
	ast  *ast.File
	fset *token.FileSet
}

func (s source) dir() string { return path.Dir(s.path) }

func (s source) test() bool { return strings.HasSuffix(s.path, "_test.go") }

// at formats a position in the file for the text of a failure.
func (s source) at(p token.Pos) string {
	pos := s.fset.Position(p)
	return s.path + ":" + itoa(pos.Line)
}

// walk lists the files of the tree. It leaves out testdata, the build output,
// the data of nodes, and the directories of git and of the build cache.
func walk() ([]string, error) {
	var paths []string
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		switch {
		case d.IsDir() && (rel == ".git" || rel == ".cache" || rel == "bin" || rel == "data" || d.Name() == "testdata"):
			return fs.SkipDir
		case d.Type().IsRegular():
			paths = append(paths, rel)
		}
		return nil
	})
	return paths, err
}

var parsed = sync.OnceValues(func() ([]source, error) {
	paths, err := walk()
	if err != nil {
		return nil, err
	}
	var all []source
	for _, p := range paths {
		if !strings.HasSuffix(p, ".go") {
			continue
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, filepath.Join(root, filepath.FromSlash(p)), nil,
			parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		all = append(all, source{p, file, fset})
	}
	return all, nil
})

// sources returns all Go files of the tree.
func sources(t *testing.T) []source {
	t.Helper()
	all, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 50 {
		t.Fatalf("%d Go files found: is %s the root?", len(all), root)
	}
	return all
}
